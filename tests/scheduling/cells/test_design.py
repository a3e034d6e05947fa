"""HiveD's published expectations on its design configuration: what `design.jsonl` does not hold already.

The vectors hold the normal operations, the stateful preemption and the reconfiguration. All calls are in the preempting
phase with every node suggested unless a test says otherwise, and a place that is given is taken at once.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from scheduling.cells.configuration import CellsConfigurationError, read_configuration
from scheduling.cells.decision import CellsUserError, Decision, Phase, PodPlaced, PodPreempting, PodWaiting
from scheduling.cells.pod import AffinityGroupSpec, CellPod, GroupMember, PodSchedulingSpec
from scheduling.cells.scheduler import CellScheduler
from scheduling.cells.status import CellStatus
from tests.making.recorded_cases import cases_in

DESIGN = cases_in(Path(__file__).parents[2] / "vectors" / "hived" / "design.jsonl")[0]["config"]
PIN = "VC1-YQW-DGX2"
V100 = "DGX2-V100"
TWO, FOUR = "4-DGX2-V100-NODE.2-DGX2-V100-NODE", "4-DGX2-V100-NODE.2-DGX2-V100-NODE.DGX2-V100-NODE"


class _Cluster:
    """The design configuration, changed, with all nodes healthy."""

    def __init__(self, change: Callable[[dict[str, Any]], None] | None = None) -> None:
        config = copy.deepcopy(DESIGN)
        if change is not None:
            change(config["virtualClusters"])
        self.scheduler = CellScheduler(read_configuration(json.dumps(config), "design"))
        self.nodes = list(self.scheduler.state.leaves_by_node)
        for node in self.nodes:
            self.scheduler.set_node(node, healthy=True)

    def schedule(self, pod: CellPod, nodes: Sequence[str] | None = None, phase: Phase = Phase.PREEMPTING) -> Decision:
        """Schedule a pod and take the place that it gets."""
        decision = self.scheduler.schedule(pod, self.nodes if nodes is None else nodes, phase)
        if isinstance(decision, PodPlaced):
            self.scheduler.add_allocated(pod, decision.bind_info)
        return decision

    def groups(self) -> dict[str, str]:
        """The state of each group."""
        return {each.name: each.state for each in self.scheduler.groups()}

    def free_cells(self, cluster: str, chain: str) -> list[CellStatus]:
        """The free cells of a virtual cluster in a chain, with all their parts."""
        return [
            each
            for root in self.scheduler.virtual_cluster(cluster)
            if self.scheduler.state.clusters[cluster].roots[int(root.address.split("/")[1])].chain == chain
            for each in parts(root)
            if each.priority == -2
        ]


def parts(cell: CellStatus) -> Iterator[CellStatus]:
    """A cell and everything below it."""
    yield cell
    for child in cell.children:
        yield from parts(child)


def pod(
    name: str,
    cluster: str,
    priority: int,
    size: int,
    group: str,
    *,
    pods: int = 1,
    kind: str = V100,
    pin: str = "",
    lazy: bool = True,
) -> CellPod:
    """A pod of the design's specs."""
    members = (GroupMember(pods, size),)
    spec = PodSchedulingSpec(
        cluster, priority, pin, "" if pin else kind, size, lazy, False, AffinityGroupSpec(group, members)
    )
    return CellPod(name, "default", name, spec)


def place(decision: Decision) -> tuple[str, tuple[int, ...]]:
    """Node and devices of a placement."""
    assert isinstance(decision, PodPlaced), decision
    return decision.bind_info.node, decision.bind_info.leaf_cell_isolation


ALL = tuple(range(16))


def test_suggested_nodes_are_respected() -> None:
    cluster = _Cluster()
    assert place(cluster.schedule(pod("36", "VC1", -1, 1, "g1", kind=""), ["0.0.1.0"])) == ("0.0.1.0", (0,))
    assert place(cluster.schedule(pod("37", "VC1", 1, 1, "g2", pin=PIN), ["0.0.3.0"])) == ("0.0.3.0", (0,))
    assert place(cluster.schedule(pod("38", "VC1", 1, 1, "g3", pin=PIN), ["0.0.3.1"])) == ("0.0.3.1", (0,))


def test_preemption_ends_when_its_nodes_are_no_longer_suggested() -> None:
    cluster = _Cluster()
    without = [each for each in cluster.nodes if each != "0.0.3.1"]
    gang = pod("27", "VC1", 1, 16, "g18", pods=2, pin=PIN, lazy=False)
    assert isinstance(cluster.schedule(gang, without), PodWaiting)
    assert isinstance(cluster.schedule(gang), PodPlaced)
    stronger = pod("33", "VC1", 3, 16, "g24", pods=2, pin=PIN)
    assert isinstance(cluster.schedule(stronger, phase=Phase.FILTERING), PodPreempting)
    assert cluster.groups() == {"g18": "Allocated"}
    assert isinstance(cluster.schedule(stronger, without), PodWaiting)
    assert cluster.groups() == {"g18": "Allocated"}
    assert isinstance(cluster.schedule(stronger), PodPreempting)
    assert cluster.groups() == {"g18": "BeingPreempted", "g24": "Preempting"}
    assert isinstance(cluster.schedule(stronger, without), PodWaiting)
    assert cluster.groups() == {"g18": "Allocated"}


def test_lazy_preemption_is_reverted_if_the_gang_finds_no_place() -> None:
    def change(clusters: dict[str, Any]) -> None:
        clusters["VC1"]["virtualCells"][0]["cellNumber"] = 0
        clusters["VC1"]["virtualCells"][3]["cellNumber"] = 3

    cluster = _Cluster(change)
    assert place(cluster.schedule(pod("39", "VC1", 1, 16, "g27", pods=2), ["0.0.3.2", "0.0.3.3"]))[0] == "0.0.3.2"
    assert place(cluster.schedule(pod("40", "VC1", 1, 16, "g28"), ["0.0.4.3"])) == ("0.0.4.3", ALL)
    before = [each.as_json() for each in cluster.scheduler.groups()]
    assert isinstance(
        cluster.schedule(pod("41", "VC1", 2, 16, "g29", pods=4), ["0.0.3.2", "0.0.3.3", "0.0.4.3"]), PodWaiting
    )
    assert [each.as_json() for each in cluster.scheduler.groups()] == before


def test_higher_cell_is_split_when_others_keep_their_guarantees() -> None:
    def change(clusters: dict[str, Any]) -> None:
        for index, number in ((0, 4), (2, 0), (3, 0)):
            clusters["VC1"]["virtualCells"][index]["cellNumber"] = number
        clusters["VC2"]["virtualCells"][2] = {"cellType": TWO, "cellNumber": 1}

    cluster = _Cluster(change)
    suggested = ["0.0.3.2", "0.0.3.3", "0.0.4.2", "0.0.4.3"]
    assert place(cluster.schedule(pod("44", "VC1", 0, 16, "g32"), suggested))[0] == "0.0.3.2"
    cluster.scheduler.set_node("0.0.3.3", healthy=False)
    assert place(cluster.schedule(pod("45", "VC1", 0, 16, "g33"), suggested))[0] == "0.0.4.2"
    cluster.scheduler.set_node("0.0.4.3", healthy=False)
    assert isinstance(cluster.schedule(pod("46", "VC1", 0, 16, "g34"), [*suggested, "0.0.4.0", "0.0.4.1"]), PodWaiting)


def test_cells_are_doomed_when_too_few_healthy_ones_are_left() -> None:
    def change(clusters: dict[str, Any]) -> None:
        clusters["VC2"]["virtualCells"][2]["cellType"] = f"{chain}.DGX2-V100-NODE"

    chain = "3-DGX2-V100-NODE"
    cluster = _Cluster(change)

    def free_bad(name: str) -> set[bool]:
        return {not each.healthy for each in cluster.free_cells(name, chain)}

    first, second = pod("42", "VC1", 0, 16, "g30"), pod("43", "VC2", 0, 16, "g31")
    assert place(cluster.schedule(first, ["0.0.2.0"]))[0] == "0.0.2.0"
    cluster.scheduler.set_node("0.0.2.1", healthy=False)
    assert free_bad("VC1") == free_bad("VC2") == {False}
    assert place(cluster.schedule(second, ["0.0.2.2"]))[0] == "0.0.2.2"
    assert free_bad("VC1") == {True}
    cluster.scheduler.delete_allocated(second)
    assert free_bad("VC1") == free_bad("VC2") == {False}
    cluster.scheduler.set_node("0.0.2.2", healthy=False)
    assert free_bad("VC1") == free_bad("VC2") == {True}
    cluster.scheduler.set_node("0.0.2.2", healthy=True)
    assert free_bad("VC1") == free_bad("VC2") == {False}
    cluster.scheduler.set_node("0.0.2.0", healthy=False)
    cluster.scheduler.set_node("0.0.2.2", healthy=False)
    cluster.scheduler.delete_allocated(first)
    assert free_bad("VC1") == free_bad("VC2") == {True}


def test_quotas_that_do_not_fit_are_refused() -> None:
    def change(clusters: dict[str, Any]) -> None:
        clusters["VC1"]["virtualCells"][0]["cellType"] = "CT1-NODE"
        clusters["VC1"]["virtualCells"][1] = {"cellType": "CT1-NODE.CT1", "cellNumber": 2}

    with pytest.raises(CellsConfigurationError, match=r"virtual clusters want \d cells 'CT1"):
        _Cluster(change)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (pod("10", "VC2", 1, 1, "g6"), "virtual cluster 'VC2' owns no cells of the leaf type 'DGX2-V100'; it owns "),
        (
            pod("13", "surprise!", 1, 1, "g"),
            "virtual cluster 'surprise!' does not exist; the configuration has VC1, VC2",
        ),
        (pod("14", "VC1", 1, 1, "g", pin="surprise!"), "has no pinned cell 'surprise!'; it has VC1-YQW-CT1, VC1-YQW"),
        (pod("x", "VC1", -1, 1, "g", pin=PIN), "an opportunistic pod cannot use the pinned cell 'VC1-YQW-DGX2'; omit"),
        (pod("y", "VC1", 1, 1, "g", kind="K80"), "no cell has the leaf type 'K80'; the cluster has CT1, DGX1-P100"),
    ],
)
def test_wrong_request_is_refused(wrong: CellPod, message: str) -> None:
    cluster = _Cluster()
    with pytest.raises(CellsUserError) as refused:
        cluster.schedule(wrong)
    assert message in str(refused.value)
    assert refused.value.code == 400
    assert cluster.groups() == {}


def test_group_takes_no_more_pods_than_it_has_places() -> None:
    cluster = _Cluster()
    cluster.schedule(pod("1", "VC1", 0, 1, "g1"))
    with pytest.raises(CellsUserError, match="group 'g1' has no place left for a pod with 1 leaf cells; it has 1 of 1"):
        cluster.schedule(pod("2", "VC1", 0, 1, "g1"))
    with pytest.raises(CellsUserError, match="group 'g1' has no place left for a pod with 2 leaf cells"):
        cluster.schedule(pod("3", "VC1", 0, 2, "g1"))


def test_all_pods_of_a_group_go_to_their_recorded_places_after_a_restart() -> None:
    cluster = _Cluster()
    gang = [pod(name, "VC1", 1, 16, "g", pods=2, pin=PIN) for name in ("a", "b")]
    decisions = [cluster.schedule(each) for each in gang]
    assert isinstance(decisions[1], PodPlaced)
    again = _Cluster()
    again.scheduler.add_allocated(gang[1], decisions[1].bind_info)
    assert place(again.schedule(pod("c", "VC1", 1, 16, "g", pods=2, pin=PIN))) == place(decisions[0])
