"""One bad device does not take its whole node out of use."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduling.cells.building import build
from scheduling.cells.configuration import read_configuration
from scheduling.cells.decision import Decision, Phase, PodPlaced, PodWaiting
from scheduling.cells.pod import AffinityGroupSpec, CellPod, GroupMember, PodSchedulingSpec
from scheduling.cells.preassigned import bind_doomed
from scheduling.cells.scheduler import CellScheduler
from tests.scheduling.cells.invariants import broken, fingerprint
from tests.scheduling.cells.test_properties import CLUSTERS, CellsWorld, run

TEXT = """
physicalCluster:
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
  physicalCells: [{cellType: NODE, cellAddress: n0}, {cellType: NODE, cellAddress: n1}]
virtualClusters:
  a: {virtualCells: [{cellType: NODE, cellNumber: 2}]}
"""


def started() -> CellScheduler:
    """Node n0 has a bad device; n1 is healthy."""
    scheduler = CellScheduler(read_configuration(TEXT))
    scheduler.set_node("n0", healthy=True, bad_devices=(1,))
    scheduler.set_node("n1", healthy=True)
    return scheduler


def decide(scheduler: CellScheduler, name: str, size: int, priority: int = 0) -> Decision:
    """Schedule a pod, and give it its place."""
    group = AffinityGroupSpec(name, (GroupMember(1, size),))
    spec = PodSchedulingSpec(
        virtual_cluster="a",
        priority=priority,
        pinned_cell_id="",
        leaf_cell_type="GPU",
        leaf_cell_number=size,
        lazy_preemption=False,
        ignore_suggested_nodes=True,
        group=group,
    )
    pod = CellPod(name, "team", name, spec)
    decision = scheduler.schedule(pod, ["n0", "n1"], Phase.FILTERING)
    if isinstance(decision, PodPlaced):
        scheduler.add_allocated(pod, decision.bind_info)
    return decision


def place(decision: Decision) -> tuple[str, tuple[int, ...]]:
    """Node and devices."""
    assert isinstance(decision, PodPlaced), decision
    return decision.bind_info.node, decision.bind_info.leaf_cell_isolation


def test_whole_node_goes_to_the_healthy_one_and_smaller_pods_use_the_rest() -> None:
    scheduler = started()
    assert place(decide(scheduler, "whole", 4)) == ("n1", (0, 1, 2, 3))
    assert place(decide(scheduler, "pair", 2)) == ("n0", (2, 3))
    assert place(decide(scheduler, "one", 1)) == ("n0", (0,))
    assert isinstance(decide(scheduler, "another", 1), PodWaiting)
    scheduler.set_node("n0", healthy=True)
    assert place(decide(scheduler, "another", 1)) == ("n0", (1,))


def test_opportunistic_pods_use_the_healthy_devices() -> None:
    scheduler = started()
    assert place(decide(scheduler, "whole", 4, -1)) == ("n1", (0, 1, 2, 3))
    assert place(decide(scheduler, "rest", 3, -1)) == ("n0", (0, 2, 3))
    assert isinstance(decide(scheduler, "another", 1, -1), PodWaiting)


def test_status_shows_the_bad_device_and_every_cell_above_it() -> None:
    node = started().physical_cluster()[0]
    assert not node.healthy
    assert [pair.healthy for pair in node.children] == [False, True]
    assert [leaf.healthy for leaf in node.children[0].children] == [True, False]


def unordered(scheduler: CellScheduler) -> Any:
    """The whole state; the lists of free cells without their order, which counts only among equal cells."""
    chains, *rest = fingerprint(scheduler)
    lists = [
        (
            [sorted(level) for level in free],
            [sorted(level) for level in bad],
            {name: [sorted(level) for level in levels] for name, levels in doomed.items()},
            left,
            owed,
        )
        for free, bad, doomed, left, owed in chains
    ]
    return lists, rest


def check_that_devices_heal(name: str, seed: int) -> None:
    """Devices fail and heal in random order while gangs run and preempt: the end is the beginning."""
    world = CellsWorld(name, seed)
    for _ in range(60):
        world.step()
    world.down, world.broken = set(), {}
    for node in world.nodes:
        world.tell(node)
    before = unordered(world.scheduler)
    chance = random.Random(seed)
    flips = chance.sample([(node, index) for node in world.nodes for index in range(4)], chance.randrange(1, 10))
    for heals in (False, True):
        for node, index in chance.sample(flips, len(flips)):
            world.broken[node] = world.broken.get(node, set()) ^ {index}
            world.tell(node)
            found = broken(world.scheduler.state)
            assert not found, (node, index, heals, found)
    assert unordered(world.scheduler) == before


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CLUSTERS)
def test_devices_that_fail_and_heal_leave_everything_as_it_was(name: str, seed: int) -> None:
    check_that_devices_heal(name, seed)


OWED = """
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}}
  physicalCells: [{cellType: NODE}, {cellType: NODE}]
virtualClusters:
  a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
  b: {virtualCells: [{cellType: NODE.GPU, cellNumber: 3}]}
"""


def test_no_cell_is_doomed_that_splits_one_which_another_cluster_is_owed() -> None:
    state = build(read_configuration(OWED))
    chain = next(iter(state.chains.values()))
    for level in (2, 1):
        for cell in chain.full[level]:
            cell.healthy = False
            chain.bad_free[level].append(cell)
    bind_doomed(state, chain, 1)
    assert len(chain.doomed["b"][1]) == 3
    assert len({cell.parent for cell in chain.doomed["b"][1]}) == 1
    assert chain.total_left[2] == chain.all_vc_free[2] == 1


@pytest.mark.parametrize(("name", "seed", "steps"), [("rows", 23, 350), ("pinned", 2208, 295)])
def test_a_bad_device_takes_no_virtual_cell_of_a_gang_that_preempts_or_is_preempted_lazily(
    name: str, seed: int, steps: int
) -> None:
    run(name, seed, steps)
