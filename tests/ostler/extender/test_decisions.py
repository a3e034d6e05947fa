"""The life of pods as a scheduler and the API server see it: placing, binding, preempting."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from node.clocks import SystemClocks
from ostler.extender.deciding import PAUSE, ArrivalPatience
from tests.making.extender import RunningExtender, cells, extender, gang
from tests.making.extender_cluster import ClusterApi, Object, node, pod
from tests.waiting import until

GROUP = "hivedscheduler.microsoft.com"


def test_a_pod_is_placed_bound_shown_and_forgotten(running: RunningExtender) -> None:
    small = pod("p", 2)
    assert running.place(small, "n0", "n1") == "n0"
    (binding,) = running.api.bindings
    annotations = binding["body"]["metadata"]["annotations"]
    assert annotations[f"{GROUP}/pod-leaf-cell-isolation"] == "0,1"
    info = yaml.safe_load(annotations[f"{GROUP}/pod-bind-info"])
    assert (info["node"], info["leafCellIsolation"], info["cellChain"]) == ("n0", [0, 1], "G-NODE")
    assert running.groups()["default/p"]["physicalPlacement"] == {"n0": [0, 1]}
    assert "the pod is already bound to node n0" in running.filter(small, "n0")["Error"]
    running.api.delete("Pod", "p", "default")
    running.settle()
    assert running.groups() == {}
    assert "the pod is unknown: it does not exist, is over, has no limit" in running.filter(small, "n0")["Error"]


def test_a_binding_names_the_uuids_that_the_node_publishes(api: ClusterApi, tmp_path: Path) -> None:
    # By PCI address, whatever the order in the slice.
    api.put(published("s", "n0", [7, 1, 0, 2, 3, 4, 5, 6]))
    with extender(tmp_path, api, cells(2)) as running:
        known = running.process.devices
        until(lambda: known.uuids("n0", [7, 3], 8) == ("GPU-7", "GPU-3"), "the slice is read")
        running.place(pod("p", 2), "n0")
        annotations = running.api.bindings[0]["body"]["metadata"]["annotations"]
        assert annotations["ostler.dev/pod-devices"] == "GPU-0,GPU-1"
        # While the node publishes fewer than it should have, a position says nothing.
        api.put(published("s", "n0", [1, 2, 3, 4, 5, 6, 7]))
        until(lambda: not known.uuids("n0", [3], 8), "the change is read")
        running.place(pod("q", 2), "n0")
        assert "ostler.dev/pod-devices" not in running.api.bindings[1]["body"]["metadata"]["annotations"]
        api.delete("ResourceSlice", "s")
        until(lambda: not known.uuids("n0", [1], 7), "it is gone")


def published(name: str, node: str, numbers: Iterable[int]) -> Object:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": f"GPU-{number}"},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{number:02x}:00.0"},
            },
        }
        for number in numbers
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "ostler.dev", "nodeName": node, "pool": pool, "devices": devices}
    return {"kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def test_a_pod_without_an_annotation_is_told_which(running: RunningExtender) -> None:
    bare = pod("bare")
    bare["metadata"]["annotations"] = {}
    running.add(bare)
    said = running.filter(bare, "n0")["Error"]
    assert said.startswith("Code: 400, Message: hivedscheduler: User Error: [uid-bare(default/bare)]: filter: ")
    assert "annotation hivedscheduler.microsoft.com/pod-scheduling-spec: is missing or empty" in said


def test_an_annotation_that_is_mended_counts(running: RunningExtender) -> None:
    wrong = pod("p", 8, vc="nobody")
    running.add(wrong)
    assert running.filter(wrong, "n0")["Error"]
    running.add(pod("p", 8))
    assert running.filter(pod("p", 8), "n0")["NodeNames"] == ["n0"]


def test_a_huge_annotation_is_refused_and_harms_nobody(running: RunningExtender) -> None:
    huge = pod("huge", annotations={f"{GROUP}/pod-scheduling-spec": "a: " + "x" * 1_000_000, "other": "y" * 1_000_000})
    running.add(huge)
    expected = f"the annotation {GROUP}/pod-scheduling-spec has 1000003 characters; the limit is 16384"
    assert expected in running.filter(huge, "n0")["Error"]
    assert running.place(pod("next"), "n0") == "n0"


def test_a_gang_that_does_not_fit_waits_with_a_reason_for_every_node_that_was_asked_about(
    running: RunningExtender,
) -> None:
    running.place(pod("first"), "n0", "n1")
    two = pod("two", spec=gang("g", 2))
    running.add(two)
    answer = running.filter(two, "n0", "n1")
    assert (answer["NodeNames"], answer["FailedNodes"], answer["Error"]) == (None, None, "")
    assert set(answer["FailedAndUnresolvableNodes"]) == {"n0", "n1"}
    assert all(answer["FailedAndUnresolvableNodes"].values())


def test_bind_must_name_the_node_of_the_placement(running: RunningExtender) -> None:
    placed = pod("p")
    running.add(placed)
    assert "the pod is Waiting and not placed on any node" in running.bind(placed, "n0")
    running.filter(placed, "n0", "n1")
    assert "the pod is placed on node n0, not on n1" in running.bind(placed, "n1")
    assert running.api.bindings == []
    assert running.bind(placed, "n0") == ""


def test_what_the_api_server_says_to_a_binding_is_answered(running: RunningExtender) -> None:
    placed = pod("p")
    running.add(placed)
    running.filter(placed, "n0")
    running.api.refusals["pods/p/binding"] = (403, "no right to bind")
    said = running.bind(placed, "n0")
    assert said.startswith("Code: 403, Message: hivedscheduler: User Error: [uid-p(default/p)]: bind: cannot bind")
    assert "no right to bind" in said
    running.api.refusals["pods/p/binding"] = (500, "etcd is gone")
    assert running.bind(placed, "n0").startswith("Code: 500, Message: hivedscheduler: Platform Error: ")
    running.api.refusals.clear()
    assert running.bind(placed, "n0") == ""


def test_prioritize_favours_the_node_of_the_placement(running: RunningExtender) -> None:
    placed = pod("p")
    running.add(placed)
    body = {"Pod": placed, "NodeNames": ["n0", "n1"]}
    assert running.ask("POST", "/v1/extender/prioritize", body)[1] == [
        {"Host": "n0", "Score": 0},
        {"Host": "n1", "Score": 0},
    ]
    running.filter(placed, "n0", "n1")
    assert running.ask("POST", "/v1/extender/prioritize", body)[1][0] == {"Host": "n0", "Score": 10}


def test_a_stronger_pod_preempts_gangs_of_its_own_virtual_cluster(running: RunningExtender) -> None:
    for name in ("a", "b"):
        running.place(pod(name), "n0", "n1")
    strong = pod("strong", priority=1)
    running.add(strong)
    answer = running.filter(strong, "n0", "n1")
    assert answer["NodeNames"] is None
    assert set(answer["FailedNodes"].values()) == {"has pods that this pod can preempt"}
    (victim_node,) = answer["FailedNodes"]
    status, answer = running.preempt(strong, "n0", "n1")
    assert status == 200
    (chosen,) = answer["NodeNameToMetaVictims"]
    assert chosen == victim_node
    (victim,) = answer["NodeNameToMetaVictims"][chosen]["Pods"]
    assert running.groups()["default/strong"]["state"] == "Preempting"
    running.api.delete("Pod", victim["UID"].removeprefix("uid-"), "default")
    running.settle()
    assert running.preempt(strong, "n0", "n1") == (200, {"NodeNameToMetaVictims": None})
    assert running.filter(strong, "n0", "n1")["NodeNames"] == [chosen]
    assert running.preempt(strong, "n0")[0] == 400


def test_only_nodes_that_were_asked_about_have_victims(running: RunningExtender) -> None:
    for name in ("a", "b"):
        running.place(pod(name), "n0", "n1")
    strong = pod("strong", 8, priority=1, spec=gang("s", 2))
    running.add(strong)
    _, answer = running.preempt(strong, "n1")
    assert set(answer["NodeNameToMetaVictims"] or {}) <= {"n1"}
    _, answer = running.preempt(strong, "n7")
    assert answer == {"NodeNameToMetaVictims": None}


def test_a_pod_that_is_not_bound_yet_is_no_victim(running: RunningExtender) -> None:
    weak = pod("weak", spec=gang("w", 2))
    running.add(weak)
    running.filter(weak, "n0", "n1")
    strong = pod("strong", priority=1, spec=gang("s", 2))
    running.add(strong)
    assert running.preempt(strong, "n0", "n1") == (200, {"NodeNameToMetaVictims": None})


def test_a_pod_that_was_made_anew_under_its_name_is_another_one(running: RunningExtender) -> None:
    running.place(pod("p"), "n0", "n1")
    again = pod("p")
    again["metadata"]["uid"] = "uid-again"
    # Its deletion is not told: a watch may miss it.
    running.add(again)
    assert running.groups() == {}
    assert running.filter(again, "n0", "n1")["NodeNames"]
    assert "the pod is unknown" in running.filter(pod("p"), "n0")["Error"]


def test_a_pod_that_is_over_frees_its_cells(running: RunningExtender) -> None:
    running.place(pod("p"), "n0", "n1")
    over = running.api.get("Pod", "p", "default")
    assert over is not None
    over["status"]["phase"] = "Succeeded"
    running.add(over)
    assert running.groups() == {}


def test_a_node_that_is_not_ready_or_cordoned_gets_nothing(running: RunningExtender) -> None:
    running.add(node("n0", is_ready=False), {**node("n1"), "spec": {"unschedulable": True}})
    held = pod("p")
    running.add(held)
    assert running.filter(held, "n0", "n1")["NodeNames"] is None
    running.add(node("n1"))
    assert running.filter(held, "n0", "n1")["NodeNames"] == ["n1"]


def test_a_preemption_waits_until_its_pod_is_reported(running: RunningExtender) -> None:
    weak, strong = pod("weak", priority=0), pod("strong", priority=5)
    where = running.place(weak, "n0", "n1")
    other = running.place(pod("also"), "n0", "n1")
    running.api.hold(is_holding=True)
    running.api.put(strong)
    with ThreadPoolExecutor(1) as asking:
        answer = asking.submit(running.preempt, strong, where, other)
        running.api.hold(is_holding=False)
        status, found = answer.result()
    assert status == 200
    assert len(found["NodeNameToMetaVictims"]) == 1


def test_a_placement_waits_until_its_pod_is_reported(running: RunningExtender) -> None:
    late = pod("late")
    running.api.hold(is_holding=True)
    running.api.put(late)
    with ThreadPoolExecutor(1) as asking:
        answer = asking.submit(running.filter, late, "n0")
        running.api.hold(is_holding=False)
        assert answer.result()["NodeNames"] == ["n0"]


def test_a_preemption_of_a_pod_that_is_never_reported_fails(running: RunningExtender) -> None:
    status, text = running.preempt(pod("nobody"), "n0")
    assert status == 400
    assert "preempt: the pod is unknown" in text


def test_pods_that_are_never_reported_hold_a_scheduler_up_once_a_minute() -> None:
    class NobodyArrives:
        waits = 0

        def wait_for(self, uid: str, seconds: float) -> bool:
            self.waits += 1
            return uid == "known"

    now, nobody = [100.0], NobodyArrives()
    patience = ArrivalPatience(nobody, SystemClocks(monotonic=lambda: now[0]))
    for _ in range(3):
        patience.wait_for("known")
    assert nobody.waits == 3
    for _ in range(10):
        patience.wait_for("unknown")
    assert nobody.waits == 4
    now[0] += PAUSE
    patience.wait_for("known")
    assert nobody.waits == 5
