"""``ostler fit`` as it is typed: pods, workloads and claims on clusters, snapshots and recorded nodes; errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from ostler.cli.main import main
from tests.kube.server import StubApiServer
from tests.making.clusters import GPU, GPU_CLASS, MODEL, Object, gpus, holder, node, request, resource_slice, thing
from tests.making.explain_schema import form
from tests.making.fit_command import FREE, A, B, Fit, pod, pod_spec, template, told, workload
from tests.scheduling.explain.cluster import MadeCluster, serving


def test_all_pods_that_fit_are_told_node_by_node(fit: Fit) -> None:
    assert fit([template(), workload("Deployment", "web", replicas=3)]) == (
        "all 3 pods fit on 2 nodes\n"
        "\n"
        "NODES   PODS EACH                 DEVICES IN USE\n"
        "node-a  2 of Deployment team/web  2 of 2\n"
        "node-b  1 of Deployment team/web  1 of 1\n"
    )
    assert (fit.code, fit.err) == (0, "")


def test_the_first_that_does_not_fit_is_explained_and_the_others_are_counted(fit: Fit) -> None:
    assert fit([template(), workload("StatefulSet", "web", replicas=5)]) == (
        "3 of 5 pods fit on 2 nodes\n"
        "\n"
        "NODES   PODS EACH                  DEVICES IN USE\n"
        "node-a  2 of StatefulSet team/web  2 of 2\n"
        "node-b  1 of StatefulSet team/web  1 of 1\n"
        "\n"
        "2 pods of StatefulSet team/web do not fit, the first is team/web-3\n"
        "\n"
        "why the first does not fit:\n"
        "pod team/web-3 (claim team/web-3-gpu) fits on none of 2 nodes\n"
        "\n"
        "node-a\n"
        '  request "gpu": 2 of 2 devices suit, all held, 1 wanted\n'
        "    gpu-0 held by claim team/web-0-gpu (pod team/web-0)\n"
        "    gpu-1 held by claim team/web-1-gpu (pod team/web-1)\n"
        "  → it would fit here if nothing were held by others\n"
        "\n"
        "node-b\n"
        '  request "gpu": 1 of 1 device suits, and is held, 1 wanted\n'
        "    gpu-0 held by claim team/web-2-gpu (pod team/web-2)\n"
        "  → it would fit here if nothing were held by others\n"
    )
    assert fit.code == 1


def test_what_others_hold_is_not_there_and_pods_of_other_sorts_go_on(fit: Fit) -> None:
    wanted = [template("two", 2), template(), pod("big", "two"), pod("small")]
    printed = fit(wanted, (*FREE, holder("node-a", "gpu-0")))
    assert printed.startswith("1 of 2 pods fit on node-a\n")
    assert "pod team/big of pod team/big does not fit" not in printed
    assert "\npod team/big does not fit\n" in printed
    assert '  → it would fit here with count: 1 in request "gpu"' in printed


def test_spread_fills_nodes_evenly(fit: Fit) -> None:
    wanted = [template(), workload("Deployment", "web", replicas=2)]
    assert [len(each["pods"]) for each in fit.json(wanted)["nodes"]] == [2, 0]
    assert [len(each["pods"]) for each in fit.json(wanted, FREE, "--spread")["nodes"]] == [1, 1]


@pytest.mark.parametrize(
    ("kind", "spec", "wanted"),
    [
        ("Deployment", {}, 1),
        ("ReplicaSet", {"replicas": 2}, 2),
        ("Job", {"parallelism": 3}, 3),
        ("Job", {"parallelism": 3, "completions": 2}, 2),
        ("DaemonSet", {}, 2),
        ("Deployment", {"replicas": 0}, 0),
    ],
)
def test_a_workload_counts_as_the_pods_that_it_makes(kind: str, spec: Object, wanted: int, fit: Fit) -> None:
    found = fit.json([template(), workload(kind, "web", **spec)])
    assert (found["wanted"], found["placed"], found["fits"]) == (wanted, wanted, True)


def test_a_daemonset_has_one_pod_on_each_node_that_lets_it_run(fit: Fit) -> None:
    tainted = node("node-c", taints=[{"key": "down", "effect": "NoSchedule"}])
    found = fit.json([template(), workload("DaemonSet", "each")], (*FREE, tainted, holder("node-b", "gpu-0")))
    assert (found["wanted"], found["placed"], found["nodes"][0]["pods"][0]["name"]) == (2, 1, "team/each-0")
    assert found["leftovers"] == [{"source": "DaemonSet team/each", "first": "team/each-1", "count": 1}]
    assert found["why"]["groups"][0]["nodes"] == ["node-b"]


def test_json_names_every_pod_with_its_devices(fit: Fit) -> None:
    found = fit.json([template(), workload("Deployment", "web", replicas=4)])
    assert (found["schema"], found["kind"], found["fits"]) == ("ostler.dev/fit/v1", "pod", False)
    first = found["nodes"][0]
    assert (first["name"], first["template"], first["devices"], first["inUse"]) == ("node-a", "", 2, 2)
    (claim,) = first["pods"][0].pop("claims")
    assert first["pods"][0] == {"name": "team/web-0", "source": "Deployment team/web"}
    assert claim["name"] == "team/web-0-gpu"
    expected = [{"request": "gpu", "driver": GPU, "pool": "node-a", "device": "gpu-0"}]
    assert claim["allocation"]["devices"]["results"] == expected
    assert found["why"]["title"] == "pod team/web-3 (claim team/web-3-gpu)"
    jsonschema.validate(found["why"], form())
    page = (Path(__file__).parents[3] / "docs" / "fit.md").read_text()
    members = {*found} - {"schema", "version", "kind"}
    assert [name for name in members if f"`{name}`" not in page] == []


def test_a_claim_that_pods_share_is_allocated_once_and_keeps_them_together(fit: Fit) -> None:
    shared = thing("ResourceClaim", "pool", {"devices": {"requests": [request()]}}, namespace="team")
    found = fit.json([shared, pod("a", claim="pool"), pod("b", claim="pool")])
    assert [[each["name"] for each in place["pods"]] for place in found["nodes"]] == [["team/a", "team/b"], []]
    assert [len(each["claims"]) for each in found["nodes"][0]["pods"]] == [1, 0]
    assert found["nodes"][0]["inUse"] == 1


def test_a_claim_is_shared_by_256_pods_and_no_more(fit: Fit) -> None:
    shared = thing("ResourceClaim", "pool", {"devices": {"requests": [request()]}}, namespace="team")
    printed = fit([shared, pod("a", claim="pool")], FREE, "--copies", "max")
    assert printed.startswith("256 copies fit on node-a\n")
    assert "claim pool is reserved for 256 pods, and no more can share it; delete one of them" in printed


def test_as_many_copies_as_fit(fit: Fit) -> None:
    wanted = [template(), template("two", 2), pod("small"), pod("big", "two")]
    printed = fit(wanted, (*FREE, node("node-c"), resource_slice("node-c", gpus(4))), "--copies", "max")
    assert printed.startswith(
        "2 copies fit on 2 nodes\n\n"
        "NODES   PODS EACH            DEVICES IN USE\n"
        "node-a  2 of pod team/small  2 of 2\n"
        "node-c  2 of pod team/big    4 of 4\n"
        "node-b  -                    0 of 1\n"
    )
    assert "the next copy does not fit:\npod team/big-2 (claim team/big-2-gpu) fits on none of 3 nodes\n" in printed
    assert fit.code == 0
    assert fit([template("many", 5), pod("big", "many")], FREE, "--copies", "max").startswith("no copy fits\n")
    assert fit.code == 1
    assert fit([template(), pod("small")], FREE, "--copies", "2").startswith("all 2 pods fit on node-a\n")


def test_more_pods_than_can_be_placed_in_a_sensible_time_are_refused(fit: Fit) -> None:
    wanted = [template(), pod("small"), workload("Deployment", "web", replicas=2_000_000_000)]
    assert fit(wanted) == ""
    assert fit.code == 2
    assert fit.err == (
        "ostler: 2000000001 pods are asked for, 2000000000 of them by Deployment team/web; at most 100000 are placed "
        "at a time: ask for fewer replicas or --copies\n"
    )


def test_copies_that_nothing_limits_are_not_counted(fit: Fit) -> None:
    assert fit([pod("idle", "")], FREE, "--copies", "max").startswith(
        "any number of copies fits: nothing limits these pods\n"
    )
    admin = template()
    admin["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    assert fit.json([admin, pod("watch")], FREE, "--copies", "max")["endless"] is True


def test_claims_alone_are_placed_too(fit: Fit) -> None:
    claim = thing("ResourceClaim", "train", {"devices": {"requests": [request(count=2)]}}, namespace="team")
    assert fit([claim]).startswith("the claim fits on node-a\n\nNODES   CLAIMS EACH")
    assert fit([claim], FREE, "--copies", "2").startswith("1 of 2 claims fit on node-a\n")
    assert fit([template()], FREE, "--copies", "max").startswith("3 copies fit on 2 nodes\n")
    assert fit([claim, holder("node-b", "gpu-0")]).startswith("the claim fits on node-a\n")


def test_processors_memory_and_pods_are_counted_where_nodes_tell_of_them(fit: Fit) -> None:
    running = thing("Pod", "busy", {**pod_spec("", cpu="1500m"), "nodeName": "node-a"}, namespace="team")
    ended = {**running, "metadata": {"name": "over", "namespace": "team"}, "status": {"phase": "Succeeded"}}
    waiting = pod("later")
    cluster = (told(("cpu", "4"), ("memory", "8Gi"), ("pods", "10")), running, ended, waiting)
    printed = fit([pod("a", "", cpu="2", memory="1Gi"), pod("b", "", cpu="1")], cluster)
    assert printed.startswith("1 of 2 pods fit on node-a\n")
    assert "  the pod cannot run there: the pod asks for 1 cpu, the node has 500m of 4 left\n" in printed
    assert "note: 1 pod waits in the cluster already; what they would take is not counted\n" in printed
    assert fit([pod("a", "", cpu="1")], (told(("pods", "1")), running)).startswith("the pod does not fit\n")
    assert "the node takes 1 pod at a time, and has as many" in fit([pod("a", "")], (told(("pods", "1")), running))


def test_requests_are_summed_up_as_the_scheduler_does(fit: Fit) -> None:
    own = pod("a", "", cpu="1")
    first = {"name": "first", "image": "i", "resources": {"limits": {"cpu": "3"}}}
    sidecar = {"name": "side", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
    own["spec"] |= {"initContainers": [first, sidecar], "overhead": {"cpu": "100m"}}
    assert "the pod asks for 3100m cpu, the node has 3 of 3 left" in fit([own], (told(("cpu", "3")),))
    own["spec"]["initContainers"] = [sidecar, first]
    assert "the pod asks for 3600m cpu, the node has 3 of 3 left" in fit([own], (told(("cpu", "3")),))
    own["spec"]["resources"] = {"requests": {"cpu": "2"}}
    assert fit([own], (told(("cpu", "4")),)).startswith("the pod fits on node-a\n")


def test_what_no_node_tells_of_is_said_to_be_left_out(fit: Fit) -> None:
    printed = fit([template(), pod("a", cpu="1", memory="1Gi")])
    assert printed.endswith(
        "\nnote: cpu and memory: not counted, since not every node reports how much it has (status.allocatable)\n"
    )


def test_devices_of_a_device_plugin_are_counted(fit: Fit) -> None:
    cluster = (told(("example.com/gpu", "2")),)
    wanted = [pod("a", "", example_gpu="1")]
    wanted[0]["spec"]["containers"][0]["resources"]["requests"] = {"example.com/gpu": "1"}
    printed = fit(wanted, cluster, "--copies", "max")
    assert printed.startswith("2 copies fit on node-a\n")
    assert "the pod asks for 1 example.com/gpu, the node has 0 of 2 left" in printed


def test_extended_resources_of_a_class_are_claims(fit: Fit) -> None:
    served = {**GPU_CLASS, "spec": {**GPU_CLASS["spec"], "extendedResourceName": "example.com/gpu"}}
    wanted = pod("a", "")
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    printed = fit([wanted], (A, B, served, *FREE[3:]), "--copies", "max")
    assert printed.startswith("3 copies fit on 2 nodes\n")
    assert "gpu-0 held by claim team/a-0-extended-resources (pod team/a-0)" in printed


def test_node_selection_and_taints_are_the_schedulers(fit: Fit) -> None:
    wanted = pod("a")
    wanted["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-b"}
    assert fit([template(), wanted]).startswith("the pod fits on node-b\n")
    other = node("node-a", taints=[{"key": "maint", "effect": "NoSchedule"}])
    assert "the node has the taint maint:NoSchedule" in fit([template(), pod("a")], (other, *FREE[2:4]))


def test_pods_whose_claims_cannot_be_made_do_not_fit_and_say_why(fit: Fit) -> None:
    printed = fit([pod("a", "gone")])
    assert printed.startswith("the pod does not fit\n")
    assert "claim template gone (gpu in the pod) does not exist in namespace team; create it" in printed
    printed = fit([template("one", 1, f'{MODEL} == "H100"'), pod("a")])
    assert "this stops the scheduler on every node" in printed
    assert "no such key: model" in printed
    printed = fit([template(of="gone"), pod("a")])
    assert 'there is no DeviceClass "gone"' in printed


def test_a_pod_that_lacks_an_object_is_explained_without_any_node_as_well(fit: Fit) -> None:
    printed = fit([pod("a", "gone")], (), "--from", "l4-2")
    assert printed.startswith("the pod does not fit\n")
    assert "claim template gone (gpu in the pod) does not exist in namespace team; create it" in printed


def test_nothing_to_place_is_said(fit: Fit) -> None:
    assert fit([template(), workload("Deployment", "web", replicas=0)]).startswith("there are no pods to place\n")
    assert fit.code == 0


@pytest.fixture
def server() -> Iterator[StubApiServer]:
    busy = thing("Pod", "busy", {**pod_spec("", cpu="3"), "nodeName": "node-a"}, namespace="other")
    with serving(MadeCluster(*FREE[1:], told(("cpu", "4")), busy, template())) as started:
        yield started


def test_a_live_cluster_is_asked_by_kubeconfig(server: StubApiServer, fit: Fit) -> None:
    user, place = {"name": "u", "user": {}}, {"name": "c", "cluster": {"server": server.url}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    lists = {"clusters": [place], "users": [user], "contexts": [context], "current-context": "x"}
    config = fit.file("config", {"apiVersion": "v1", "kind": "Config", **lists})
    wanted = [workload("Deployment", "web", replicas=2)]
    wanted[0]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    found = fit.json(wanted, (), "--kubeconfig", config, "-n", "team")
    assert {each["name"]: len(each["pods"]) for each in found["nodes"]} == {"node-a": 1, "node-b": 1}


def test_a_need_in_its_short_form_is_compiled_as_pools_claim_does(fit: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    need, origin = "1..8 gpu, memory>=128Gi total, same cell8", ["--from", "h100-sxm-8"]
    assert main(["fit", need, *origin]) == 0
    printed = capsys.readouterr().out
    assert "kind: ResourceClaimTemplate\n" in printed
    assert main(["pools", "claim", need, *origin]) == 0
    assert capsys.readouterr().out == printed
    assert main(["fit", "9 gpu", *origin]) == 1
    assert "no node has these devices now" in capsys.readouterr().out
    assert main(["fit", "2 gpu", *origin, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["template"]["kind"] == "ResourceClaimTemplate"


@pytest.mark.parametrize(
    "words",
    [["-f", "pods.yaml"], ["--nodes", "2"], ["--config", "x"], ["--copies", "max"], ["--spread"], ["--all-nodes"]],
)
def test_options_for_pods_are_refused_with_a_need(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "2 gpu", *words]) == 2
    message = f"ostler: {words[0]} is about pods; leave out {words[0]} or the need '2 gpu'\n"
    assert capsys.readouterr().err == message


def test_a_need_that_cannot_be_read_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "many gpus", "--from", "h100-sxm-8"]) == 2
    assert capsys.readouterr().err.startswith("ostler: the need cannot be read: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nodes", "2"], "--nodes is for a recorded node; add --from NODE, or leave --nodes out\n"),
        (["--config", "x"], "--config is for a recorded node; add --from NODE, or leave --config out\n"),
        (["--nodes", "0", "--from", "l4-2"], "--nodes is '0'; it must be a number from 1 to 10000\n"),
        (["--nodes", "two", "--from", "l4-2"], "--nodes is 'two'; it must be a number from 1 to 10000\n"),
        (["--copies", "-1"], "--copies is '-1'; it must be a number from 1 to 100000, or 'max'\n"),
        (["--copies", "9" * 5000], "it must be a number from 1 to 100000, or 'max'\n"),
        (["--copies", "all"], "--copies is 'all'; it must be a number from 1 to 100000, or 'max'\n"),
        (
            ["--from", "l4-2", "--from", "h100-sxm-8"],
            "--from names 2 recorded nodes (l4-2, h100-sxm-8); give one of them\n",
        ),
        (["--from", "l4-2", "--config", "/gone.yaml"], "the configuration is not usable\n/gone.yaml"),
        (["--from", "/gone.yaml"], "/gone.yaml: cannot be read (No such file or directory); give a file or folder"),
    ],
)
def test_what_cannot_be_used_is_said_with_what_can(words: list[str], message: str, fit: Fit) -> None:
    assert fit([template(), pod("a")], FREE, *words) == ""
    assert message in fit.err
    assert fit.code == 2


def test_a_file_without_pods_and_a_command_without_a_file_are_refused(
    fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    fit([GPU_CLASS])
    assert fit.err.endswith("pods.yaml: it has no pod, workload, claim or claim template to place\n")
    assert main(["fit"]) == 2
    assert capsys.readouterr().err == "ostler: nothing to place: give pods with -f FILE, or a need such as '2 gpu'\n"
