"""Gives devices to groups and takes them back, with everything that follows above them.

The first device of a preassigned cell binds the cell and takes it from the free list; the last one that is released
gives it back.
"""

from __future__ import annotations

from scheduling.cells.groups import AffinityGroup
from scheduling.cells.preassigned import give_preassigned, is_doomed, take_preassigned
from scheduling.cells.state import ClusterState
from scheduling.cells.tree import (
    FREE_PRIORITY,
    LOWEST_GUARANTEED,
    NOTHING_WANTED,
    OPPORTUNISTIC,
    CellState,
    PhysicalCell,
    VirtualCell,
    WantedBindings,
    bind,
    count_use,
    set_priority,
    unbind,
)


def allocate_leaf(
    state: ClusterState,
    leaf: PhysicalCell,
    virtual: VirtualCell | None,
    group: AffinityGroup,
    wanted: WantedBindings = NOTHING_WANTED,
) -> bool:
    """Give a leaf to a group, as an opportunistic one without a virtual cell; false if guarantees no longer hold.

    ``wanted``: what the group gets next; no bad part takes it.
    """
    if virtual is None:
        set_priority(leaf, OPPORTUNISTIC)
        count_use(leaf, OPPORTUNISTIC, 1)
        state.opportunistic_leaves[group.cluster][leaf] = None
        return True
    for cell in (virtual, leaf):
        set_priority(cell, group.priority)
        count_use(cell, group.priority, 1)
    is_new = virtual.root.physical is None
    if leaf.virtual is None:
        bind(leaf, virtual)
    root = virtual.root.physical
    if is_new and root is not None:
        return take_preassigned(state, root, virtual.cluster, wanted)
    return True


def release_leaf(state: ClusterState, leaf: PhysicalCell, virtual: VirtualCell | None, group: AffinityGroup) -> None:
    """Take a leaf back from a group."""
    count_use(leaf, leaf.priority, -1)
    set_priority(leaf, FREE_PRIORITY)
    if virtual is None:
        state.opportunistic_leaves[group.cluster].pop(leaf, None)
        return
    count_use(virtual, virtual.priority, -1)
    set_priority(virtual, FREE_PRIORITY)
    root = virtual.root.physical
    if leaf.healthy:
        unbind(leaf)
    if (
        root is not None
        and not root.pinned_id
        and virtual.root.priority < LOWEST_GUARANTEED
        and not (root.virtual is not None and is_doomed(state, root))
    ):
        give_preassigned(state, root, virtual.cluster)


def delete_group(state: ClusterState, group: AffinityGroup) -> None:
    """Release the cells of a group that nobody needs any more."""
    for leaf, virtual in group.leaves():
        leaf.used_by = None
        if leaf.state is CellState.USED:
            release_leaf(state, leaf, virtual, group)
            leaf.state = CellState.FREE
        else:
            leaf.state = CellState.RESERVED
    del state.groups[group.name]
