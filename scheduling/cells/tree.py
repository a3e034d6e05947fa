"""Cells: the physical trees, the virtual trees of virtual clusters, and the ordered lists that hold cells.

A cell is a node of a tree; level 1 is a single device. The fields that change (priority, uses, bindings, states) are
changed only by the modules that `state.py` names.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from scheduling.cells.groups import AffinityGroup

FREE_PRIORITY: Final = -2
OPPORTUNISTIC: Final = -1
LOWEST_GUARANTEED: Final = 0


class CellState(enum.Enum):
    """How a device is used. A reservation belongs to a group that preempts."""

    FREE = "Free"
    USED = "Used"
    RESERVING = "Reserving"  # reserved, and the victim still runs
    RESERVED = "Reserved"  # reserved, and the victim is gone


class _Tree:
    """What physical and virtual cells share. `used` counts the used leaves below by the priority of their users."""

    __slots__ = ("address", "chain", "changes", "kind", "leaf_count", "level", "node_level", "priority", "used")

    def __init__(self, chain: str, kind: str, level: int, address: str, leaf_count: int) -> None:
        self.chain = chain
        self.kind = kind
        self.level = level
        self.address = address
        self.leaf_count = leaf_count
        self.node_level = 0  # the level of nodes in this chain
        self.priority = FREE_PRIORITY  # the highest of the leaves below
        self.used: dict[int, int] = {}
        self.changes = 0  # of `used`

    def __repr__(self) -> str:
        return f"<{self.kind} {self.address}>"


class PhysicalCell(_Tree):
    """Devices that belong together. `virtual` is the cell of a virtual cluster that is bound to it."""

    __slots__ = (
        "bad_leaves",
        "children",
        "healthy",
        "index",
        "nodes",
        "parent",
        "pinned_id",
        "reserved_by",
        "split",
        "state",
        "used_by",
        "virtual",
    )

    def __init__(self, chain: str, kind: str, level: int, address: str, leaf_count: int) -> None:
        super().__init__(chain, kind, level, address, leaf_count)
        self.parent: PhysicalCell | None = None
        self.children: tuple[PhysicalCell, ...] = ()
        self.nodes: tuple[str, ...] = ()
        self.index = -1  # a leaf's device index
        self.pinned_id = ""
        self.healthy = True  # False if any part is bad
        self.bad_leaves = 0
        self.virtual: VirtualCell | None = None
        self.split = False  # a part of it is allocated, or its children are free on their own
        self.state = CellState.FREE  # of leaves
        self.used_by: AffinityGroup | None = None  # of leaves
        self.reserved_by: AffinityGroup | None = None  # of leaves

    @property
    def real(self) -> PhysicalCell:
        """The cell itself: what views ask of virtual cells as well."""
        return self


class VirtualCell(_Tree):
    """A cell that a virtual cluster owns, or a part of one. `root` is the preassigned cell, whose parent is None."""

    __slots__ = ("children", "cluster", "parent", "physical", "pinned_id", "root")

    def __init__(self, chain: str, kind: str, level: int, address: str, leaf_count: int) -> None:
        super().__init__(chain, kind, level, address, leaf_count)
        self.cluster = ""
        self.pinned_id = ""
        self.root: VirtualCell = self
        self.parent: VirtualCell | None = None
        self.children: tuple[VirtualCell, ...] = ()
        self.physical: PhysicalCell | None = None

    @property
    def real(self) -> PhysicalCell | None:
        """The physical cell that it is bound to."""
        return self.physical

    @property
    def healthy(self) -> bool:
        """False if it is bound to a bad physical cell."""
        return self.physical is None or self.physical.healthy


Cell: TypeAlias = PhysicalCell | VirtualCell
WantedBindings: TypeAlias = Mapping[VirtualCell, PhysicalCell]
"""Virtual cells that a change is about to bind, each with its physical one."""
NOTHING_WANTED: Final[WantedBindings] = MappingProxyType({})


class CellList:
    """An ordered list of physical cells with constant-time removal.

    The order is HiveD's and decides which of equal cells is taken: a new cell goes to the end, and the last cell takes
    the place of a removed one.
    """

    __slots__ = ("_items", "_positions")

    def __init__(self, cells: Iterable[PhysicalCell] = ()) -> None:
        self._items = list(cells)
        self._positions = {cell: position for position, cell in enumerate(self._items)}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[PhysicalCell]:
        return iter(self._items)

    def __contains__(self, cell: PhysicalCell) -> bool:
        return cell in self._positions

    def __getitem__(self, position: int) -> PhysicalCell:
        return self._items[position]

    def append(self, cell: PhysicalCell) -> None:
        """Add a cell at the end."""
        self._positions[cell] = len(self._items)
        self._items.append(cell)

    def remove(self, cell: PhysicalCell) -> None:
        """Remove a cell; the last one takes its place."""
        position = self._positions.pop(cell)
        last = self._items.pop()
        if last is not cell:
            self._items[position] = last
            self._positions[last] = position

    def copy(self) -> list[PhysicalCell]:
        """The cells as a plain list of one's own."""
        return self._items.copy()


def swap_remove(cells: list[PhysicalCell], cell: PhysicalCell) -> None:
    """Remove a cell from a plain list by the same rule as `CellList.remove`."""
    position = cells.index(cell)
    last = cells.pop()
    if last is not cell:
        cells[position] = last


def set_priority(cell: Cell, priority: int) -> None:
    """Set a leaf's priority; every ancestor keeps the highest of its children."""
    current: Cell | None = cell
    while current is not None:
        before = current.priority
        if before == priority:
            return
        current.priority = priority
        parent: Cell | None = current.parent
        if parent is None:
            return
        if priority < before:
            if before < parent.priority:
                return
            priority = max(each.priority for each in parent.children)
        elif priority <= parent.priority:
            return
        current = parent


def count_use(cell: Cell, priority: int, change: int) -> None:
    """Add a use of a priority to a leaf and all its ancestors, or take one away."""
    current: Cell | None = cell
    while current is not None:
        used = current.used
        number = used.get(priority, 0) + change
        if number:
            used[priority] = number
        else:
            used.pop(priority, None)
        current.changes += 1
        current = current.parent


def count_bad(leaf: PhysicalCell, change: int) -> None:
    """Count a leaf that becomes bad, or healthy again, up to the top."""
    current: PhysicalCell | None = leaf
    while current is not None:
        current.bad_leaves += change
        current = current.parent


def bind(physical: PhysicalCell, virtual: VirtualCell) -> None:
    """Bind a virtual cell to a physical one, and their ancestors as far as they are not bound yet."""
    below: PhysicalCell | None = physical
    above: VirtualCell | None = virtual
    while above is not None and above.physical is None and below is not None:
        below.virtual = above
        above.physical = below
        above, below = above.parent, below.parent


def bind_one(physical: PhysicalCell, virtual: VirtualCell) -> None:
    """Bind two cells without their ancestors."""
    physical.virtual = virtual
    virtual.physical = physical


def unbind_one(physical: PhysicalCell) -> None:
    """End the binding of a cell, not that of its ancestors."""
    if physical.virtual is not None:
        physical.virtual.physical = None
        physical.virtual = None


def unbind(physical: PhysicalCell) -> None:
    """End the binding of a cell, and of each ancestor that has no bound child left. Pinned cells stay bound."""
    virtual = physical.virtual
    while virtual is not None and virtual.physical is not None and not virtual.physical.pinned_id:
        unbind_one(virtual.physical)
        virtual = virtual.parent
        if virtual is None or any(each.physical is not None for each in virtual.children):
            return


def unbound_child(virtual: VirtualCell, physical: PhysicalCell, wanted: WantedBindings) -> VirtualCell | None:
    """The child that is wanted for a physical cell, else the first one that is neither bound nor wanted."""
    unbound = [each for each in virtual.children if each.physical is None]
    own = next((each for each in unbound if wanted.get(each) is physical), None)
    return own or next((each for each in unbound if each not in wanted), None)


def parts_below(cell: PhysicalCell) -> Iterator[PhysicalCell]:
    """All cells below a physical cell, those of lower levels later."""
    yield from cell.children
    for child in cell.children:
        yield from parts_below(child)


def leaves_below(cell: PhysicalCell) -> Iterator[PhysicalCell]:
    """The leaves of a physical cell in order."""
    if not cell.children:
        yield cell
    for child in cell.children:
        yield from leaves_below(child)
