"""Marks cells bad and healthy.

A node that is not ready, cordoned, deleted or not seen yet makes its devices bad; any bad part makes a cell bad. A
node with some bad devices is bad as a whole cell, but its healthy devices are used. Groups that run on bad cells
stay. A bad part of a cell that a virtual cluster holds is bound at once, so that the cluster's scheduler sees it.
"""

from __future__ import annotations

from collections.abc import Collection

from scheduling.cells.preassigned import bind_bad_part, bind_doomed, end_doomed, is_doomed, is_free, release_doomed
from scheduling.cells.state import ClusterState
from scheduling.cells.tree import LOWEST_GUARANTEED, PhysicalCell, count_bad, unbind_one


def set_node_health(state: ClusterState, node: str, *, healthy: bool, bad_devices: Collection[int] = ()) -> None:
    """Mark the devices of a node: all bad, or all healthy but some."""
    for leaf in state.leaves_by_node.get(node, ()):
        is_healthy = healthy and leaf.index not in bad_devices
        if is_healthy == leaf.healthy:
            continue
        count_bad(leaf, -1 if is_healthy else 1)
        if is_healthy:
            _set_healthy(state, leaf)
        else:
            _set_bad(state, leaf)


def _set_bad(state: ClusterState, cell: PhysicalCell) -> None:
    """Mark a cell and everything above it bad, from the top."""
    if not cell.healthy:
        return
    if cell.parent is not None:
        _set_bad(state, cell.parent)
    cell.healthy = False
    chain = state.chains[cell.chain]
    if is_free(cell):
        chain.bad_free[cell.level].append(cell)
        bind_doomed(state, chain, cell.level)
    elif cell.virtual is None and not cell.split and cell.parent is not None and cell.parent.virtual is not None:
        bind_bad_part(cell, cell.parent.virtual)


def _set_healthy(state: ClusterState, cell: PhysicalCell) -> None:
    """Mark a cell healthy, and each cell above it that has no bad part left."""
    cell.healthy = True
    chain = state.chains[cell.chain]
    virtual = cell.virtual
    if is_free(cell):
        chain.bad_free[cell.level].remove(cell)
        release_doomed(chain, cell.level)
    elif is_doomed(state, cell) and virtual is not None:
        end_doomed(state, cell, virtual.cluster)
    elif virtual is not None and virtual.parent is not None and virtual.priority < LOWEST_GUARANTEED:
        unbind_one(cell)
    if cell.parent is not None and all(each.healthy for each in cell.parent.children):
        _set_healthy(state, cell.parent)
