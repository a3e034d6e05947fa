"""Holds of groups that have no pods yet: how strong they are, and when they end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scheduling.cells.configuration import read_configuration
from scheduling.cells.decision import CellsUserError, Phase, PodPlaced, PodPreempting, PodWaiting
from scheduling.cells.moving import PodMove
from scheduling.cells.pod import AffinityGroupSpec, CellPod, GroupMember, PodSchedulingSpec
from scheduling.cells.scheduler import CellScheduler
from tests.making.extender import cells
from tests.scheduling.cells.invariants import broken, fingerprint

NODES = ("n0", "n1")


def scheduler() -> CellScheduler:
    """Two healthy nodes of eight devices; A and B own one each."""
    made = CellScheduler(read_configuration(json.dumps(cells(2, A=1, B=1))))
    for name in NODES:
        made.set_node(name, healthy=True)
    return made


def pod(group: str, name: str = "", *, vc: str = "A", priority: int = 0, leaves: int = 8, pods: int = 1) -> CellPod:
    """A pod of a group, or who holds for it."""
    spec = PodSchedulingSpec(
        virtual_cluster=vc,
        priority=priority,
        pinned_cell_id="",
        leaf_cell_type="",
        leaf_cell_number=leaves,
        lazy_preemption=False,
        ignore_suggested_nodes=True,
        group=AffinityGroupSpec(group, (GroupMember(pods, leaves),)),
    )
    return CellPod(name or group, "default", name or group, spec)


def place(made: CellScheduler, asked: CellPod) -> tuple[str, tuple[int, ...]]:
    """Schedule and allocate a pod."""
    decision = made.schedule(asked, NODES, Phase.FILTERING)
    assert isinstance(decision, PodPlaced), decision
    made.add_allocated(asked, decision.bind_info)
    assert not broken(made.state)
    return decision.bind_info.node, decision.bind_info.leaf_cell_isolation


def test_a_hold_keeps_others_away_until_it_ends() -> None:
    made = scheduler()
    holder = pod("train", "holder", leaves=4, pods=2)
    assert isinstance(made.hold(holder, NODES), PodPlaced)
    assert isinstance(made.schedule(pod("other"), NODES, Phase.FILTERING), PodWaiting)
    assert isinstance(made.hold(pod("other"), NODES), PodWaiting)
    assert made.hold_problem(holder) == ""
    made.end_hold(holder)
    made.end_hold(holder)
    assert not made.groups()
    place(made, pod("other"))


def test_the_groups_pods_take_the_held_cells_and_the_hold_outlives_them() -> None:
    made = scheduler()
    holder = pod("train", "holder", leaves=4, pods=2)
    made.hold(holder, NODES)
    first, second = (pod("train", f"train-{number}", leaves=4, pods=2) for number in range(2))
    places = {place(made, first), place(made, second)}
    assert len(places) == 2
    for each in (first, second):
        made.delete_allocated(each)
    # A pod of the job that failed is created again, and finds its cells.
    assert isinstance(made.schedule(pod("other"), NODES, Phase.FILTERING), PodWaiting)
    assert place(made, replace(first, uid="again")) in places
    made.end_hold(holder)
    assert made.group("train").allocated
    made.delete_allocated(replace(first, uid="again"))
    assert not made.groups()


def test_a_stronger_group_and_a_pod_that_runs_there_take_the_cells() -> None:
    made = scheduler()
    held = pod("weak", "holder")
    found = made.hold(held, NODES)
    assert isinstance(found, PodPlaced)
    place(made, pod("strong", priority=5))
    assert made.hold_problem(held) == "a stronger group, or a pod that runs there, has taken its cells"
    made.end_hold(held)
    made = scheduler()
    made.hold(held, NODES)
    made.add_allocated(pod("found"), found.bind_info)
    assert made.hold_problem(held)
    assert not broken(made.state)


def test_a_hold_of_an_opportunistic_group_gives_way_to_the_owner() -> None:
    made = scheduler()
    held = [pod(f"cheap-{number}", priority=-1, vc="B") for number in range(2)]
    assert all(isinstance(made.hold(each, NODES), PodPlaced) for each in held)
    place(made, pod("owner"))
    assert sum(bool(made.hold_problem(each)) for each in held) == 1


def test_a_hold_reserves_the_cells_of_pods_that_its_own_pods_preempt() -> None:
    made = scheduler()
    victims = [pod(f"cheap-{number}", priority=-1, vc="B") for number in range(2)]
    for each in victims:
        place(made, each)
    holder = pod("owner", "holder")
    decision = made.hold(holder, NODES)
    assert isinstance(decision, PodPreempting)
    (taken,) = [each for each in victims if each.uid in next(iter(decision.victims.values()))]
    # The other pods of its virtual cluster find nothing left to preempt.
    assert isinstance(made.hold(pod("late"), NODES), PodWaiting)
    own = pod("owner", "owner-0")
    assert made.schedule(own, NODES, Phase.PREEMPTING) == decision
    made.delete_unallocated(own)
    assert made.hold_problem(holder) == ""
    made.delete_allocated(taken)
    place(made, own)
    made.delete_allocated(own)
    assert made.hold_problem(holder) == ""
    made.end_hold(holder)
    assert not broken(made.state)


def test_the_hold_of_a_group_that_is_preempted_ends_with_its_last_pod() -> None:
    made = scheduler()
    holder, own = pod("weak", "holder", leaves=4, pods=2), pod("weak", "weak-0", leaves=4, pods=2)
    made.hold(holder, NODES)
    place(made, own)
    strong = pod("strong", priority=5)
    assert isinstance(made.schedule(strong, NODES, Phase.PREEMPTING), PodPreempting)
    assert made.hold_problem(holder)
    made.end_hold(holder)
    made.delete_allocated(own)
    assert [each.name for each in made.groups()] == ["strong"]
    place(made, strong)


def test_a_hold_whose_node_is_bad_is_worth_nothing_unless_pods_run_there() -> None:
    made = scheduler()
    holder, own = pod("train", "holder"), pod("train", "train-0")
    decision = made.hold(holder, NODES)
    assert isinstance(decision, PodPlaced)
    made.set_node(decision.bind_info.node, healthy=False)
    assert made.hold_problem(holder) == f"its cells on node {decision.bind_info.node} are bad"
    made.add_allocated(own, decision.bind_info)
    assert made.hold_problem(holder) == ""


def test_a_hold_is_restored_to_the_recorded_cells_or_not_at_all() -> None:
    made = scheduler()
    holder = pod("train", "holder", leaves=4)
    decision = made.hold(holder, NODES)
    assert isinstance(decision, PodPlaced)
    before = fingerprint(made)
    again = scheduler()
    again.restore_hold(holder, decision.bind_info, NODES)
    assert fingerprint(again) == before
    other = pod("other", "other-holder", leaves=4)
    with pytest.raises(CellsUserError, match="which is used by the group 'train'"):
        again.restore_hold(other, decision.bind_info, NODES)
    assert fingerprint(again) == before
    changed = CellScheduler(read_configuration(json.dumps(cells(1, B=1))))
    changed.restore_hold(holder, replace(decision.bind_info, node="gone"), NODES)
    assert not broken(changed.state)


def test_a_bound_pod_whose_group_asks_for_more_devices_than_can_be_kept_is_not_restored() -> None:
    made = scheduler()
    decision = made.hold(pod("train", "holder"), NODES)
    assert isinstance(decision, PodPlaced)
    again = scheduler()
    before = fingerprint(again)
    small = pod("train", "train-0")
    huge = replace(small.spec.group, members=(*small.spec.group.members, GroupMember(1, 2**31 - 1)))
    with pytest.raises(CellsUserError, match="its group asks for 2147483655 devices; at most 1000000 are restored"):
        again.add_allocated(replace(small, spec=replace(small.spec, group=huge)), decision.bind_info)
    assert fingerprint(again) == before


def test_a_group_that_has_pods_or_a_holder_is_not_held_by_another() -> None:
    made = scheduler()
    place(made, pod("train", "train-0", leaves=4, pods=2))
    holder = pod("train", "holder", leaves=4, pods=2)
    with pytest.raises(CellsUserError, match="affinity group 'train' still has pods; wait until it is gone"):
        made.hold(holder, NODES)
    # After a restart they are the holder's own.
    made.restore_hold(holder, None, NODES)
    with pytest.raises(CellsUserError, match="affinity group 'train' is held already"):
        made.hold(replace(holder, uid="second"), NODES)
    with pytest.raises(CellsUserError, match="affinity group 'train' is held by another"):
        made.restore_hold(replace(holder, uid="second"), None, NODES)


def test_pods_of_a_held_group_follow_the_devices_that_they_have() -> None:
    made = scheduler()
    holder = pod("train", "holder", leaves=4, pods=2)
    assert isinstance(made.hold(holder, NODES), PodPlaced)
    first, second = (pod("train", f"train-{number}", leaves=4, pods=2) for number in range(2))
    node, indices = place(made, first)
    others = tuple(sorted(set(range(8)) - set(indices)))
    # To the place of the pod that is still to come, which takes the other one.
    made.move_allocated([PodMove(first, others)])
    assert not broken(made.state)
    assert place(made, second) == (node, indices)
    made.move_allocated([PodMove(first, indices), PodMove(second, others)])
    assert not broken(made.state)
    made.move_allocated([PodMove(first, others), PodMove(second, indices)])
    for each in (first, second):
        made.delete_allocated(each)
    assert made.hold_problem(holder) == ""
    assert isinstance(made.schedule(pod("other"), NODES, Phase.FILTERING), PodWaiting)
    made.end_hold(holder)
    assert not made.groups()
    assert not broken(made.state)
