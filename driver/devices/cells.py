"""Cells of two, four, eight, ... GPUs as attributes, so that a claim gets an island by matching one of them.

``cell4`` parts the GPUs of a node into groups of at most four that belong together by the tree of cells: a request for
four GPUs that must agree in ``cell4`` gets such a group, whole, or waits. A request for three matches ``cell4``, too:
the least power of two that holds it. Groups nest, every ``cell2`` is within one ``cell4``.

Where the tree has no cell of that size, neighbours in it are put together in their order, and never GPUs of a larger
cell that had to be divided with those of another one. So a node with three GPUs on each socket has groups of three in
``cell4`` and none of four, because four GPUs on it are no island; ``cell8`` holds all six.

The order of GPUs is made from the same groups. Kubernetes takes the first device that fits, so groups that are not
full come first, at every size: single GPUs fill these, and whole islands stay for those who need them. Of groups that
are equal the first one in the tree comes first; or the last one, where another door takes from the front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from node.inventory.model import Attribute
from node.topology.model import Cell
from node.values import Value, value

_SIZES = (2, 4, 8)
"""Sizes that every node has, so that one claim serves nodes of any size; larger nodes have larger ones, too."""


@value
class Group(Value):
    """GPUs by name, in order, and what the group is called."""

    label: str
    gpus: tuple[str, ...]


def groups(root: Cell) -> dict[int, tuple[Group, ...]]:
    """The groups of every size, in the order of the tree; each is a partition of all GPUs."""
    sizes = list(_SIZES)
    while sizes[-1] < len(root.gpus):
        sizes.append(2 * sizes[-1])
    known: _Known = {}
    return {size: tuple(_groups(root, size, known)) for size in sizes}


def cell_attributes(parts: dict[int, tuple[Group, ...]]) -> dict[str, tuple[Attribute, ...]]:
    """``cell2``, ``cell4``, ... of every GPU, by its name."""
    found: dict[str, list[Attribute]] = {}
    for size, partition in parts.items():
        for group in partition:
            cell = Attribute(f"cell{size}", group.label)
            for gpu in group.gpus:
                found.setdefault(gpu, []).append(cell)
    return {gpu: tuple(cells) for gpu, cells in found.items()}


def gpu_order(parts: dict[int, tuple[Group, ...]], *, from_back: bool = False) -> tuple[str, ...]:
    """All GPUs in the order in which they should be taken: groups stay together, smaller ones come first.

    ``from_back``: equal ones from the back.
    """
    sign = -1 if from_back else 1
    keys: dict[str, list[int]] = {}
    for size in sorted(parts, reverse=True):
        for number, group in enumerate(parts[size]):
            for position, gpu in enumerate(group.gpus):
                within = sign * position if size == min(parts) else 0
                keys.setdefault(gpu, []).extend((len(group.gpus), sign * number, within))
    return tuple(sorted(keys, key=keys.__getitem__))


_Known = dict[tuple[str, tuple[str, ...], int], list[Group]]
"""Groups by cell (name and GPUs) and size: the halves of one size are the groups of the one below."""


def _groups(cell: Cell, size: int, known: _Known) -> list[Group]:
    key = cell.name, cell.gpus, size
    found = known.get(key)
    if found is None:
        found = known[key] = list(_divided(cell, size, known))
    return found


def _divided(cell: Cell, size: int, known: _Known) -> Iterator[Group]:
    if len(cell.gpus) <= size:
        yield Group(cell.name, cell.gpus)
        return
    run: list[Group] = []
    merged = 0
    for item in (*_items(cell, size, known), None):
        if isinstance(item, Group) and sum(len(each.gpus) for each in run) + len(item.gpus) <= size:
            run.append(item)
            continue
        if run:
            yield _merged(run, f"{cell.name}.{merged}")
            merged += 1
        run = [item] if isinstance(item, Group) else []
        if isinstance(item, Cell):
            yield from _groups(item, size, known)


def _items(cell: Cell, size: int, known: _Known) -> Iterator[Group | Cell]:
    """What groups of this size are made from: groups of half the size, and children that are larger than that.

    A child that is larger than ``size`` is a cell to be divided by itself.
    """
    halves = {half.gpus[0]: half for half in _groups(cell, size // 2, known)} if size > 1 else {}
    for child in cell.children or _singles(cell):
        if len(child.gpus) > size:
            yield child
        elif len(child.gpus) > size // 2:
            yield Group(child.name, child.gpus)
        elif child.gpus[0] in halves:
            # The half that begins with this child; one that began before it has been given already.
            yield halves[child.gpus[0]]


def _singles(cell: Cell) -> tuple[Cell, ...]:
    """A cell of several GPUs that names no parts is made of these."""
    return tuple(Cell(gpu, cell.level, (gpu,)) for gpu in cell.gpus)


def _merged(run: Sequence[Group], label: str) -> Group:
    if len(run) == 1:
        return run[0]
    return Group(label, tuple(gpu for group in run for gpu in group.gpus))
