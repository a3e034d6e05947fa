"""Groups of GPUs by size: partitions that nest, follow the tree of cells, and give the order of GPUs."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.placement import GpuGroup, cell_attributes, gpu_order, groups
from node.topology.model import Cell, CellLevel
from tests.driver.devices.recorded import NODES, snapshot

Shape = int | list["Shape"]


def tree(*children: Shape) -> Cell:
    """A node: a number stands for a cell of so many GPUs, a list for a cell of cells."""
    names = (f"g{number}" for number in count())

    def made(shape: Shape, name: str) -> Cell:
        if shape == 1:
            gpu = next(names)
            return Cell(gpu, CellLevel.GPU, (gpu,))
        parts = [1] * shape if isinstance(shape, int) else shape
        cells = tuple(made(part, f"{name}{number}") for number, part in enumerate(parts))
        return Cell(name, CellLevel.SWITCH, tuple(gpu for cell in cells for gpu in cell.gpus), cells)

    return made(list(children), "c")


def sizes(root: Cell, size: int) -> list[int]:
    return [len(group.gpus) for group in groups(root)[size]]


@pytest.mark.parametrize(
    ("root", "two", "four", "eight"),
    [
        (tree(1), [1], [1], [1]),
        (tree(1, 1, 1, 1, 1, 1, 1, 1), [2] * 4, [4, 4], [8]),
        (tree(4, 4), [2] * 4, [4, 4], [8]),
        (tree(2, 2, 2, 2), [2] * 4, [4, 4], [8]),
        (tree(3, 3), [2, 1, 2, 1], [3, 3], [6]),
        (tree(5, 3), [2, 2, 1, 2, 1], [4, 1, 3], [8]),
        (tree(1, 1, 1, 1, 1, 1), [2, 2, 2], [4, 2], [6]),
        (tree(1, 2, 1, 1), [1, 2, 2], [3, 2], [5]),
        (tree([2, 2], [2, 1]), [2, 2, 2, 1], [4, 3], [7]),
    ],
)
def test_groups_are_cells_and_neighbours_within_one(
    root: Cell, two: list[int], four: list[int], eight: list[int]
) -> None:
    assert [sizes(root, size) for size in (2, 4, 8)] == [two, four, eight]


def test_gpus_left_over_from_a_cell_are_not_joined_with_those_of_another() -> None:
    assert groups(tree(5, 3))[4] == (
        GpuGroup("c0.0", ("g0", "g1", "g2", "g3")),
        GpuGroup("g4", ("g4",)),
        GpuGroup("c1", ("g5", "g6", "g7")),
    )


def test_larger_nodes_have_larger_cells_and_all_nodes_those_up_to_eight() -> None:
    assert list(groups(tree(2))) == [2, 4, 8]
    assert list(groups(tree(8, 8))) == [2, 4, 8, 16]
    assert list(groups(tree(8, 8, 8))) == [2, 4, 8, 16, 32]


def test_every_gpu_says_its_cell_of_every_size_by_the_name_that_the_topology_shows() -> None:
    found = cell_attributes(groups(tree(4, 4)))
    assert [(each.name, each.value) for each in found["g5"]] == [("cell2", "c1.0"), ("cell4", "c1"), ("cell8", "c")]


@pytest.mark.parametrize(
    ("root", "order"),
    [
        (tree(4, 4), "g0 g1 g2 g3 g4 g5 g6 g7"),
        (tree(4, 3), "g6 g4 g5 g0 g1 g2 g3"),
        (tree(3, 3), "g2 g0 g1 g5 g3 g4"),
        (tree(5, 3), "g4 g7 g5 g6 g0 g1 g2 g3"),
    ],
)
def test_gpus_of_groups_that_are_not_full_are_taken_first(root: Cell, order: str) -> None:
    # Within a group that is not full the rule holds again.
    assert " ".join(gpu_order(groups(root))) == order


SHAPES = st.recursive(st.integers(1, 6), lambda inner: st.lists(inner, min_size=2, max_size=3), max_leaves=3)


@given(st.lists(SHAPES, min_size=1, max_size=3))
def test_groups_are_partitions_no_larger_than_their_size_that_nest_and_have_names_of_their_own(
    children: list[Shape],
) -> None:
    root = tree(*children)
    parts = groups(root)
    for size, partition in parts.items():
        assert sorted(gpu for group in partition for gpu in group.gpus) == sorted(root.gpus)
        assert all(len(group.gpus) <= size for group in partition)
        assert len({group.label for group in partition}) == len(partition)
        for inner in parts.get(size // 2, ()):
            assert any(set(inner.gpus) <= set(group.gpus) for group in partition)


@given(st.lists(SHAPES, min_size=1, max_size=3))
def test_groups_of_every_size_stay_together_in_the_order(children: list[Shape]) -> None:
    parts = groups(tree(*children))
    order = gpu_order(parts)
    for partition in parts.values():
        for group in partition:
            places = sorted(order.index(gpu) for gpu in group.gpus)
            assert places == list(range(places[0], places[0] + len(places)))


@pytest.mark.parametrize("node", NODES)
def test_cells_of_recorded_nodes_are_full_at_every_size_up_to_the_nodes(node: str) -> None:
    root = snapshot(node).topology.root
    if root is None:
        return
    for size, partition in groups(root).items():
        assert {len(group.gpus) for group in partition} == {min(size, len(root.gpus))}
