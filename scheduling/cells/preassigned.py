"""Takes physical cells for the preassigned cells of virtual clusters, and gives them back.

Taking a cell splits the free cells above it, giving it back merges them: that is the buddy rule. While a virtual
cluster has more free cells of a level than healthy ones are left, some of them are bound to bad cells ("doomed"), so
that the cluster's own scheduler and its status see that they cannot be used. That ends as soon as healthy cells are
left again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scheduling.cells.state import Chain, ClusterState
from scheduling.cells.tree import (
    LOWEST_GUARANTEED,
    NOTHING_WANTED,
    PhysicalCell,
    VirtualCell,
    WantedBindings,
    bind_one,
    unbind_one,
    unbound_child,
)


def is_free(cell: PhysicalCell) -> bool:
    """True if the cell or one above it is in a free list."""
    above: PhysicalCell | None = cell
    while above is not None:
        if above.virtual is not None or above.split:
            return False
        if above.parent is None or above.parent.split:
            return True
        above = above.parent
    return False


def take_preassigned(
    state: ClusterState, cell: PhysicalCell, cluster: str, wanted: WantedBindings = NOTHING_WANTED
) -> bool:
    """Take a cell that was just bound for a virtual cluster; false if others' guarantees no longer hold after it.

    The cell's bad parts are bound as ``wanted``, and else to virtual cells that are not wanted for another.
    """
    chain = state.chains[cell.chain]
    levels = _take(chain, cell, cluster, wanted)
    is_safe = all(chain.total_left[level] >= chain.all_vc_free[level] for level in levels)
    for level in levels:
        _judge_doomed(state, chain, level, may_release=False)
    return is_safe


def give_preassigned(state: ClusterState, cell: PhysicalCell, cluster: str) -> None:
    """Give back a cell that its virtual cluster no longer uses, and end its binding."""
    chain = state.chains[cell.chain]
    for level in _give(chain, cell, cluster):
        _judge_doomed(state, chain, level, may_release=True)


@contextmanager
def judged_once(state: ClusterState) -> Iterator[None]:
    """Judge doomed cells at the end of a change of several cells: in between they could take what was chosen for it."""
    if state.unjudged is not None:
        yield
        return
    state.unjudged = {}
    try:
        yield
    finally:
        unjudged, state.unjudged = state.unjudged, None
        for (name, level), may_release in unjudged.items():
            _judge_doomed(state, state.chains[name], level, may_release=may_release)


def _judge_doomed(state: ClusterState, chain: Chain, level: int, *, may_release: bool) -> None:
    if state.unjudged is not None:
        key = (chain.name, level)
        state.unjudged[key] = state.unjudged.get(key, False) or may_release
        return
    bind_doomed(state, chain, level)
    if may_release:
        release_doomed(chain, level)


def _take(chain: Chain, cell: PhysicalCell, cluster: str, wanted: WantedBindings = NOTHING_WANTED) -> list[int]:
    """Take a cell; the levels whose numbers changed."""
    chain.vc_free[cluster][cell.level] -= 1
    chain.all_vc_free[cell.level] -= 1
    chain.total_left[cell.level] -= 1
    levels = [cell.level]
    above = cell.parent
    while above is not None and not above.split:
        chain.total_left[above.level] -= 1
        if not above.healthy:
            chain.bad_free[above.level].remove(above)
        levels.append(above.level)
        above = above.parent
    _leave_free_list(chain, cell)
    if not cell.healthy:
        _take_bad(chain, cell, wanted)
    levels += _count_below(chain, cell, -1)
    return levels


def _give(chain: Chain, cell: PhysicalCell, cluster: str) -> list[int]:
    """Give back a cell; the levels whose numbers changed."""
    chain.vc_free[cluster][cell.level] += 1
    chain.all_vc_free[cell.level] += 1
    chain.total_left[cell.level] += 1
    levels = [cell.level]
    if cell.healthy:
        unbind_one(cell)
    else:
        _give_bad(chain, cell)
    _enter_free_list(chain, cell)
    above = cell.parent
    while above is not None and not above.split:
        chain.total_left[above.level] += 1
        if not above.healthy:
            chain.bad_free[above.level].append(above)
        levels.append(above.level)
        above = above.parent
    levels += _count_below(chain, cell, 1)
    return levels


def _count_below(chain: Chain, cell: PhysicalCell, change: int) -> list[int]:
    """Change the numbers of the levels below a cell by its parts; those levels."""
    number = 1
    part = cell
    levels: list[int] = []
    while part.children:
        number *= len(part.children)
        part = part.children[0]
        chain.total_left[part.level] += change * number
        levels.append(part.level)
    return levels


def _leave_free_list(chain: Chain, cell: PhysicalCell) -> None:
    """Remove a cell from the free list, after splitting the free cell that holds it."""
    current = cell
    while True:
        parent = current.parent
        done = parent is None or parent.split
        if parent is not None and not done:
            for child in parent.children:
                chain.free[child.level].append(child)
            parent.split = True
        chain.free[current.level].remove(current)
        if done or parent is None:
            return
        current = parent


def _enter_free_list(chain: Chain, cell: PhysicalCell) -> None:
    """Put a cell into the free list, merged with its siblings as far as they are free."""
    current = cell
    while True:
        parent = current.parent
        if parent is None or not all(each is current or each in chain.free[current.level] for each in parent.children):
            chain.free[current.level].append(current)
            return
        for child in parent.children:
            if child is not current:
                chain.free[child.level].remove(child)
        parent.split = False
        current = parent


def _take_bad(chain: Chain, cell: PhysicalCell, wanted: WantedBindings) -> None:
    """Take a bad cell out of the bad free ones, and bind its bad parts to parts of its virtual cell."""
    chain.bad_free[cell.level].remove(cell)
    for child in cell.children:
        if not child.healthy:
            if child.virtual is None and cell.virtual is not None:
                bind_bad_part(child, cell.virtual, wanted)
            _take_bad(chain, child, wanted)


def bind_bad_part(cell: PhysicalCell, above: VirtualCell, wanted: WantedBindings = NOTHING_WANTED) -> None:
    """Bind a bad cell to a free part of the virtual cell that its parent is bound to, as ``wanted`` if it is there."""
    virtual = unbound_child(above, cell, wanted)
    if virtual is not None:
        bind_one(cell, virtual)


def _give_bad(chain: Chain, cell: PhysicalCell) -> None:
    """Put a bad cell and its bad parts among the bad free ones, and end their bindings."""
    chain.bad_free[cell.level].append(cell)
    unbind_one(cell)
    for child in cell.children:
        if not child.healthy:
            _give_bad(chain, child)


def bind_doomed(state: ClusterState, chain: Chain, level: int) -> None:
    """Bind bad cells of a level to the virtual clusters that healthy ones no longer suffice for.

    Only this level is judged, as in HiveD. Unlike HiveD, no cell is bound whose splitting costs another cluster a cell
    that it is owed.
    """
    bad = chain.bad_free[level]
    for name, numbers in chain.vc_free.items():
        while bad and numbers[level] > chain.total_left[level] - len(bad):
            virtual = _unbound_root(state, chain, name, level)
            if virtual is None:
                break
            cell = next((each for each in bad if _is_spare(chain, each)), None)
            if cell is None:
                break
            bind_one(cell, virtual)
            chain.doomed[name][level].append(cell)
            _take(chain, cell, name)


def _is_spare(chain: Chain, cell: PhysicalCell) -> bool:
    """True if taking a free cell leaves enough cells of all other levels for those that clusters are owed."""
    above = cell.parent
    while above is not None and not above.split:
        if chain.total_left[above.level] <= chain.all_vc_free[above.level]:
            return False
        above = above.parent
    number = 1
    part = cell
    while part.children:
        number *= len(part.children)
        part = part.children[0]
        if chain.total_left[part.level] - number < chain.all_vc_free[part.level]:
            return False
    return True


def release_doomed(chain: Chain, level: int) -> None:
    """Release doomed cells of a level that are no longer needed."""
    while True:
        left = chain.total_left[level] - len(chain.bad_free[level])
        for name, numbers in chain.vc_free.items():
            if chain.doomed[name][level] and numbers[level] < left:
                _end_doomed(chain, chain.doomed[name][level][0], name)
                break
        else:
            return


def end_doomed(state: ClusterState, cell: PhysicalCell, cluster: str) -> None:
    """A doomed cell no longer counts as such; if the cluster does not use it, it is free."""
    chain = state.chains[cell.chain]
    _end_doomed(chain, cell, cluster)
    _judge_doomed(state, chain, cell.level, may_release=True)


def _end_doomed(chain: Chain, cell: PhysicalCell, cluster: str) -> None:
    virtual = cell.virtual
    chain.doomed[cluster][cell.level].remove(cell)
    if virtual is None or virtual.priority < LOWEST_GUARANTEED:
        _give(chain, cell, cluster)


def is_doomed(state: ClusterState, cell: PhysicalCell) -> bool:
    """True if the cell is bound to a virtual cluster only because it is bad, or was when the cluster took it."""
    if cell.virtual is None or cell.virtual.parent is not None:
        return False
    return cell in state.chains[cell.chain].doomed[cell.virtual.cluster][cell.level]


def _unbound_root(state: ClusterState, chain: Chain, cluster: str, level: int) -> VirtualCell | None:
    tree = state.clusters[cluster].trees.get(chain.name)
    return next((each for each in tree.preassigned[level] if each.physical is None), None) if tree else None
