"""``ostler fit --from NODE``: how many nodes of a recorded kind pods take, and what such a node offers."""

from __future__ import annotations

from pathlib import Path

from ostler.explain.recordings import is_recorded
from sandbox.nodes import path
from tests.making.clusters import thing
from tests.making.fit_command import FREE, Fit, pod, template, told, workload


def test_how_many_nodes_of_a_recorded_kind_it_takes(fit: Fit) -> None:
    wanted = [template(of="gpu.ostler.dev"), workload("Deployment", "web", replicas=19)]
    assert fit(wanted, (), "--from", "h100-sxm-8") == (
        "all 19 pods fit on 3 nodes of the kind h100-sxm-8\n"
        "\n"
        "NODES                          PODS EACH                 DEVICES IN USE\n"
        "2: h100-sxm-8-1, h100-sxm-8-2  8 of Deployment team/web  8 of 18\n"
        "h100-sxm-8-3                   3 of Deployment team/web  3 of 18\n"
    )
    found = fit.json(wanted, (), "--from", "h100-sxm-8")
    assert (found["fits"], found["nodesAdded"]) == (True, 3)
    device = found["nodes"][2]["pods"][0]["claims"][0]["allocation"]
    assert (device["devices"]["results"][0]["pool"], "h100-sxm-8-3" in str(device["nodeSelector"])) == (
        "h100-sxm-8-3",
        True,
    )


def test_pods_that_never_fit_an_empty_node_of_a_kind_are_explained_on_one(fit: Fit) -> None:
    wanted = [template("nine", 9, of="gpu.ostler.dev"), pod("big", "nine"), template(of="gpu.ostler.dev"), pod("small")]
    printed = fit(wanted, (), "--from", "h100-sxm-8")
    assert printed.startswith("1 of 2 pods fit on h100-sxm-8-1\n")
    assert "pod team/big (claim team/big-gpu) does not fit on h100-sxm-8-1\n" in printed
    assert '  → it would fit here with count: 8 in request "gpu"\n' in printed
    assert fit.code == 1


def test_so_many_nodes_of_a_recorded_kind_and_no_more(fit: Fit) -> None:
    wanted = [template(of="gpu.ostler.dev"), workload("Deployment", "web", replicas=19)]
    printed = fit(wanted, (), "--from", "h100-sxm-8", "--nodes", "2")
    assert printed.startswith("16 of 19 pods fit on 2 nodes of the kind h100-sxm-8\n")
    printed = fit(wanted, (), "--from", "h100-sxm-8", "--nodes", "4")
    assert "h100-sxm-8-4                   -                         0 of 18\n" in printed


def test_recorded_nodes_are_added_to_a_cluster(fit: Fit) -> None:
    either = 'device.attributes[device.driver].?type.orValue("gpu") == "gpu"'
    any_class = thing("DeviceClass", "any", {"selectors": [{"cel": {"expression": either}}]})
    wanted = [template(of="any"), workload("Deployment", "web", replicas=13)]
    printed = fit(wanted, (*FREE, any_class), "--from", "h100-sxm-8")
    assert printed.startswith("all 13 pods fit on 2 nodes and 2 nodes of the kind h100-sxm-8\n")


def test_a_recorded_node_with_its_node_object_has_room_labels_and_taints(fit: Fit) -> None:
    described = told(("cpu", "4"), name="l4-2")
    wanted = [template(of="gpu.ostler.dev"), pod("a", cpu="3")]
    printed = fit(wanted, (described,), "--from", "l4-2", "--copies", "2")
    assert printed.startswith("all 2 pods fit on 2 nodes of the kind l4-2\n")
    assert "l4-2-1, l4-2-2" in printed


def test_daemonsets_run_on_added_nodes_as_well(fit: Fit) -> None:
    wanted = [
        workload("DaemonSet", "each", "one"),
        template(of="gpu.ostler.dev"),
        workload("Deployment", "web", replicas=2),
    ]
    found = fit.json(wanted, (), "--from", "l4-2")
    assert [[each["source"] for each in place["pods"]] for place in found["nodes"]] == [
        ["DaemonSet team/each", "Deployment team/web"]
    ] * 2
    assert (found["wanted"], found["placed"], found["nodesAdded"]) == (4, 4, 2)
    found = fit.json([*wanted, template("three", 3, of="gpu.ostler.dev"), pod("big", "three")], (), "--from", "l4-2")
    assert (found["wanted"], found["placed"], found["nodesAdded"]) == (5, 4, 2)


def test_a_configuration_says_what_a_recorded_node_offers(fit: Fit) -> None:
    config = fit.file(
        "ostler.yaml",
        {
            "apiVersion": "ostler.dev/v1alpha1",
            "kind": "Config",
            "resources": [{"name": "nvidia.com/gpu", "devices": {"kind": "gpu"}, "door": "plugin"}],
        },
    )
    wanted = pod("a", "")
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    printed = fit([wanted], (), "--from", "l4-2", "--config", config, "--copies", "5")
    assert printed.startswith("all 5 pods fit on 3 nodes of the kind l4-2\n")


def test_a_recorded_node_is_known_by_its_schema_or_as_a_shipped_one(tmp_path: Path) -> None:
    copied, other = tmp_path / "node.yaml", tmp_path / "other.yaml"
    copied.write_text(path("l4-2").read_text())
    other.write_text("schema: something else\n")
    assert is_recorded(str(copied))
    assert is_recorded("l4-2")
    assert [is_recorded(each) for each in (str(other), str(tmp_path / "none.yaml"), str(tmp_path), "-")] == [False] * 4
