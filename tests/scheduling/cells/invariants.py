"""What must hold after every step of the cell scheduler, computed anew from the trees."""

from __future__ import annotations

from collections import Counter
from typing import Any

from scheduling.cells.scheduler import CellScheduler
from scheduling.cells.state import Chain, ClusterState
from scheduling.cells.tree import FREE_PRIORITY, CellState, PhysicalCell, VirtualCell


def broken(state: ClusterState) -> list[str]:
    """The rules that the state breaks."""
    found: list[str] = []
    for chain in state.chains.values():
        found += _broken_lists(chain)
        found += _broken_bindings(chain)
        for cell in chain.full[chain.top]:
            _check_counts(cell, found)
    for cluster in state.clusters.values():
        for root in cluster.roots:
            _check_counts(root, found)
    found += _broken_groups(state)
    return found


def _broken_lists(chain: Chain) -> list[str]:
    found: list[str] = []
    left = Counter[int]()
    bad = [set[PhysicalCell]() for _ in chain.full]

    def count(cell: PhysicalCell) -> None:
        left[cell.level] += 1
        if not cell.healthy:
            bad[cell.level].add(cell)
        for child in cell.children:
            count(child)

    for free in chain.free:
        for cell in free:
            count(cell)
            if cell.virtual is not None or cell.split:
                found.append(f"{cell} is in the free list, but bound or split")
    for level in range(1, chain.top + 1):
        if left[level] != chain.total_left[level]:
            found.append(f"{chain.name} level {level}: {left[level]} cells left, counted {chain.total_left[level]}")
        if bad[level] != set(chain.bad_free[level]):
            found.append(f"{chain.name} level {level}: bad free cells {bad[level]} != {list(chain.bad_free[level])}")
        wanted = sum(numbers[level] for numbers in chain.vc_free.values())
        if wanted != chain.all_vc_free[level]:
            found.append(f"{chain.name} level {level}: clusters are owed {wanted}, counted {chain.all_vc_free[level]}")
        if chain.total_left[level] < chain.all_vc_free[level]:
            found.append(f"{chain.name} level {level}: VC safety is broken")
    return found


def _broken_bindings(chain: Chain) -> list[str]:
    found = []
    for cells in chain.full:
        for cell in cells:
            virtual = cell.virtual
            if virtual is not None and virtual.physical is not cell:
                found.append(f"{cell} is bound to {virtual}, which is bound to {virtual.physical}")
            if virtual is not None and virtual.parent is not None and virtual.parent.physical is not cell.parent:
                found.append(f"{cell} and its parent are bound to different trees")
            if cell.children and cell.healthy != all(each.healthy for each in cell.children):
                found.append(f"{cell} is healthy: {cell.healthy}, unlike its parts")
    return found


def _check_counts(cell: PhysicalCell | VirtualCell, found: list[str]) -> None:
    if not cell.children:
        expected = {} if cell.priority == FREE_PRIORITY else {cell.priority: 1}
        if cell.used != expected:
            found.append(f"{cell}: used {cell.used}, priority {cell.priority}")
        return
    used = Counter[int]()
    for child in cell.children:
        _check_counts(child, found)
        used.update(child.used)
    if dict(used) != cell.used:
        found.append(f"{cell}: used {cell.used}, its parts {dict(used)}")
    if cell.priority != max(each.priority for each in cell.children):
        found.append(f"{cell}: priority {cell.priority} is not the highest of its parts")


def _broken_groups(state: ClusterState) -> list[str]:
    found = []
    users: dict[PhysicalCell, str] = {}
    held: dict[VirtualCell, str] = {}
    for group in state.groups.values():
        for leaf, virtual in group.leaves():
            is_user = leaf.used_by is group
            if not is_user and leaf.reserved_by is not group:
                found.append(f"{leaf} does not know its group {group.name}")
            if is_user and users.setdefault(leaf, group.name) != group.name:
                found.append(f"{leaf} is used by {users[leaf]} and {group.name}")
            if virtual is None or (leaf.state is CellState.RESERVING and is_user):
                continue
            if virtual.physical is not leaf:
                found.append(f"{group.name}: {virtual} is not bound to {leaf}")
            if virtual.cluster != group.cluster:
                found.append(f"{group.name} of {group.cluster} is in {virtual}")
            if held.setdefault(virtual, group.name) != group.name:
                found.append(f"{virtual} is held by {held[virtual]} and {group.name}")
    for leaves in state.leaves_by_node.values():
        for leaf in leaves:
            used = leaf.used_by is not None
            reserved = leaf.reserved_by is not None
            expected = {
                (False, False): CellState.FREE,
                (True, False): CellState.USED,
                (True, True): CellState.RESERVING,
                (False, True): CellState.RESERVED,
            }[used, reserved]
            if leaf.state is not expected:
                found.append(f"{leaf} is {leaf.state}, not {expected}")
    return found


def fingerprint(scheduler: CellScheduler) -> Any:
    """Everything that a refused call must leave as it was, order of lists included."""
    state = scheduler.state
    return (
        [
            (
                [[each.address for each in level] for level in chain.free],
                [[each.address for each in level] for level in chain.bad_free],
                {name: [[each.address for each in level] for level in doomed] for name, doomed in chain.doomed.items()},
                list(chain.total_left),
                {name: list(numbers) for name, numbers in chain.vc_free.items()},
            )
            for chain in state.chains.values()
        ],
        [each.as_json() for each in scheduler.physical_cluster()],
        {name: [each.as_json() for each in cells] for name, cells in scheduler.virtual_clusters().items()},
        [each.as_json() for each in scheduler.groups()],
    )
