"""Marks cells bad and healthy.

A node that is not ready, cordoned, deleted or not seen yet makes its devices bad; any bad part makes a cell bad.
Groups that run on bad cells stay. A bad part of a cell that a virtual cluster holds is bound at once, so that the
cluster's scheduler sees it.
"""

from __future__ import annotations

from scheduling.cells.preassigned import bind_bad_part, bind_doomed, end_doomed, is_doomed, is_free, release_doomed
from scheduling.cells.state import ClusterState
from scheduling.cells.tree import LOWEST_GUARANTEED, PhysicalCell, unbind_one


def set_bad_node(state: ClusterState, node: str) -> None:
    """Mark all devices of a node bad."""
    if node in state.bad_nodes:
        return
    state.bad_nodes.add(node)
    for leaf in state.leaves_by_node.get(node, ()):
        _set_bad(state, leaf)


def set_healthy_node(state: ClusterState, node: str) -> None:
    """Mark all devices of a node healthy."""
    if node not in state.bad_nodes:
        return
    state.bad_nodes.remove(node)
    for leaf in state.leaves_by_node.get(node, ()):
        _set_healthy(state, leaf)


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
