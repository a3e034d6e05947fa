"""Running pods keep their devices over a restart and over another configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.making.extender import RunningExtender, cells, extender, gang
from tests.making.extender_cluster import ClusterApi, Object, node, pod
from tests.waiting import until

GROUP = "hivedscheduler.microsoft.com"


def test_running_pods_keep_their_devices_over_a_restart(api: ClusterApi, tmp_path: Path) -> None:
    with extender(tmp_path, api, cells(2)) as first:
        first.place(pod("g-0", 4, spec=gang("g", 3, 4)), "n0", "n1")
        first.place(pod("solo", 2), "n0", "n1")
        before = first.groups()
    with extender(tmp_path, api, cells(2)) as second:
        assert second.groups() == before
        member = pod("g-1", 4, spec=gang("g", 3, 4))
        second.place(member, "n0", "n1")
        taken = [(each["spec"]["nodeName"], index) for each in api.all("Pod") for index in indices(each)]
        assert len(taken) == len(set(taken)) == 10


@pytest.mark.parametrize("state", ["not ready", "gone"])
def test_a_running_pod_keeps_its_virtual_cell_over_a_restart_while_other_nodes_are_bad(
    state: str, tmp_path: Path
) -> None:
    # Every cell is owned, so that cells are bound to a bad node as soon as there is one.
    types: Object = {
        "G-2": {"childCellType": "G", "childCellNumber": 2},
        "G-NODE": {"childCellType": "G-2", "childCellNumber": 2, "isNodeLevel": True},
    }
    physical = [{"cellType": "G-NODE", "cellAddress": f"n{number}"} for number in range(2)]
    owners = {
        "A": {"virtualCells": [{"cellType": "G-NODE", "cellNumber": 1}]},
        "B": {"virtualCells": [{"cellType": "G-NODE.G-2", "cellNumber": 2}]},
    }
    configuration = {"physicalCluster": {"cellTypes": types, "physicalCells": physical}, "virtualClusters": owners}
    with ClusterApi([node("n0"), node("n1")]) as api:
        with extender(tmp_path, api, configuration) as first:
            first.place(pod("web", 1, vc="B"), "n0", "n1")
            before = first.groups()["default/web"]
        (other,) = {"n0", "n1"} - set(before["physicalPlacement"])
        if state == "gone":
            api.delete("Node", other)
        else:
            api.put(node(other, is_ready=False))
        with extender(tmp_path, api, configuration) as second:
            after = second.groups()["default/web"]
    assert before["virtualPlacement"]
    assert (after["state"], after.get("lazyPreemptionStatus")) == ("Allocated", None)
    assert sum(map(len, after["virtualPlacement"].values())) == 1


def indices(body: Object) -> list[int]:
    text = body["metadata"]["annotations"][f"{GROUP}/pod-leaf-cell-isolation"]
    return [int(each) for each in text.split(",")]


def test_a_bound_pod_without_a_record_is_told_and_harms_nobody(api: ClusterApi, tmp_path: Path) -> None:
    api.put(pod("foreign", node="n0"))
    broken = {f"{GROUP}/pod-bind-info": "[", f"{GROUP}/pod-leaf-cell-isolation": "0"}
    api.put(pod("broken", node="n0", annotations=broken))
    with extender(tmp_path, api, cells(2)) as running:
        assert running.groups() == {}
        until(lambda: len(api.events("CellsNotRecovered")) == 2, "events say so")
        said = {each["involvedObject"]["name"]: each["message"] for each in api.events("CellsNotRecovered")}
        assert said["foreign"] == (
            "The extender does not count this pod's devices as used: annotation "
            f"{GROUP}/pod-bind-info: is missing or empty; the pod was not bound by this scheduler; "
            "delete the pod and create it again"
        )
        assert "is not valid YAML" in said["broken"]
        api.delete("Pod", "foreign", "default")
        running.settle()
        assert running.place(pod("p"), "n0", "n1")


def test_a_changed_configuration_is_laid_over_running_pods(running: RunningExtender, tmp_path: Path) -> None:
    del tmp_path
    running.place(pod("p"), "n0", "n1")
    placed = running.groups()["default/p"]["physicalPlacement"]
    write(running, cells(2, A=1, B=1))
    until(lambda: set(clusters(running)) == {"A", "B"}, "the new configuration holds")
    assert running.groups()["default/p"]["physicalPlacement"] == placed
    other = pod("q", vc="B")
    running.add(other)
    assert running.filter(other, "n0", "n1")["NodeNames"] == ["n1"]


def test_a_configuration_that_cannot_be_used_changes_nothing(
    running: RunningExtender, caplog: pytest.LogCaptureFixture
) -> None:
    write(running, {"virtualClusters": {"A": {"virtualCels": []}}})
    until(lambda: "the new configuration is not usable, the old one stays in force" in caplog.text, "it is refused")
    assert set(clusters(running)) == {"A"}
    assert running.place(pod("p"), "n0")


def write(running: RunningExtender, configuration: Object) -> None:
    settings = {"kubeApiServerAddress": running.api.url, "webServerAddress": "127.0.0.1:0"}
    running.path.write_text(json.dumps({**settings, **configuration}))
    running.process.reload()


def clusters(running: RunningExtender) -> dict[str, Any]:
    _, found = running.ask("GET", "/v1/inspect/clusterstatus/virtualclusters/")
    return dict(found)
