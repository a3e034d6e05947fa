"""Preemption: who must go, lazy preemption, and reservations of groups that wait for their victims.

Victims are whole groups. A group that preempts reserves its cells at once; a stronger one that wants the same cells
cancels it. A lazily preempted group keeps running as an opportunistic one, and its virtual cells are free.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduling.cells.groups import AffinityGroup, GroupState, VirtualPlacement
from scheduling.cells.leaves import allocate_leaf, release_leaf
from scheduling.cells.preassigned import judged_once
from scheduling.cells.state import ClusterState
from scheduling.cells.tree import CellState, PhysicalCell, VirtualCell, WantedBindings


def victims_of(leaves: Iterable[PhysicalCell]) -> dict[str, tuple[str, ...]]:
    """The pods of all groups that use these leaves, by node."""
    found: dict[str, set[str]] = {}
    groups = {
        leaf.used_by: None
        for leaf in leaves
        if leaf.used_by is not None and leaf.state in {CellState.USED, CellState.RESERVING}
    }
    for group in groups:
        for each in group.allocated():
            found.setdefault(each.bind_info.node, set()).add(each.pod.uid)
    return {node: tuple(sorted(uids)) for node, uids in sorted(found.items())}


def idle_holds_of(leaves: Iterable[PhysicalCell]) -> list[AffinityGroup]:
    """The groups without pods whose holds alone keep any of these leaves."""
    return [each for each in {leaf.used_by: None for leaf in leaves} if each is not None and each.is_idle_hold]


def reservers_of(leaves: Iterable[PhysicalCell]) -> list[AffinityGroup]:
    """The groups that have reserved any of these leaves."""
    return list({leaf.reserved_by: None for leaf in leaves if leaf.reserved_by is not None})


def preempt_lazily(state: ClusterState, group: AffinityGroup, preemptor: str) -> VirtualPlacement | None:
    """Make a running group opportunistic; the virtual placement that it had."""
    for leaf, virtual in group.leaves():
        if virtual is not None:
            release_leaf(state, leaf, virtual, group)
            allocate_leaf(state, leaf, None, group)
    before = group.virtual
    group.virtual = None
    group.lazily_preempted_by = preemptor
    return before


def preempt_users_lazily(
    state: ClusterState, leaves: Iterable[VirtualCell], preemptor: str
) -> list[tuple[AffinityGroup, VirtualPlacement | None]]:
    """Preempt the groups on these virtual leaves that allow it; each with its former virtual placement."""
    done: list[tuple[AffinityGroup, VirtualPlacement | None]] = []
    for virtual in leaves:
        leaf = virtual.physical
        user = None if leaf is None or leaf.state is not CellState.USED else leaf.used_by
        if user is not None and user.lazy_preemption and user.virtual is not None:
            done.append((user, preempt_lazily(state, user, preemptor)))
    return done


def revert_lazy_preemption(state: ClusterState, group: AffinityGroup, before: VirtualPlacement | None) -> None:
    """Give a group its virtual cells back."""
    group.virtual = before
    group.lazily_preempted_by = ""
    wanted = _bindings_of(group)
    for leaf, virtual in group.leaves():
        if virtual is not None:
            release_leaf(state, leaf, None, group)
            allocate_leaf(state, leaf, virtual, group, wanted)


def reserve(state: ClusterState, group: AffinityGroup) -> None:
    """Reserve the placement of a group that preempts, and take it from its present users."""
    wanted = _bindings_of(group)
    for leaf, virtual in group.leaves():
        user = leaf.used_by
        if user is not None:
            release_leaf(state, leaf, virtual_of(user, leaf), user)
            user.state = GroupState.BEING_PREEMPTED
            # Its last pod ends it.
            user.holder = ""
        allocate_leaf(state, leaf, virtual, group, wanted)
        leaf.reserved_by = group
        leaf.state = CellState.RESERVED if user is None else CellState.RESERVING
    state.groups[group.name] = group


def cancel_reservation(state: ClusterState, group: AffinityGroup) -> None:
    """End a preemption: the cells go back to the victims that still run."""
    victims: dict[AffinityGroup, None] = {}
    with judged_once(state):
        for leaf, virtual in group.leaves():
            release_leaf(state, leaf, virtual, group)
            leaf.reserved_by = None
            user = leaf.used_by
            if user is None:
                leaf.state = CellState.FREE
            else:
                leaf.state = CellState.USED
                allocate_leaf(state, leaf, virtual_of(user, leaf), user)
                victims[user] = None
    for user in victims:
        if all(leaf.state is not CellState.RESERVING for leaf, _ in user.leaves()):
            user.state = GroupState.ALLOCATED
    del state.groups[group.name]


def use_reservation(group: AffinityGroup) -> None:
    """The victims are gone: the group's reserved cells are in use."""
    for leaf, _ in group.leaves():
        leaf.reserved_by = None
        leaf.used_by = group
        leaf.state = CellState.USED
    group.state = GroupState.ALLOCATED
    group.preempting.clear()


def _bindings_of(group: AffinityGroup) -> WantedBindings:
    """The virtual cells of a group's leaves and all above them, with the physical ones."""
    found: dict[VirtualCell, PhysicalCell] = {}
    for leaf, virtual in group.leaves():
        below: PhysicalCell | None = leaf
        above = virtual
        while above is not None and below is not None and above not in found:
            found[above] = below
            above, below = above.parent, below.parent
    return found


def virtual_of(group: AffinityGroup, leaf: PhysicalCell) -> VirtualCell | None:
    """The virtual cell that a group has for one of its leaves."""
    return next((virtual for each, virtual in group.leaves() if each is leaf), None)
