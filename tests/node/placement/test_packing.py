"""Buddy best-fit: the choice is the least of all by the rule, whatever the node looks like."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.topology.model import Cell, CellLevel, Topology
from node.topology.packing import CellTree
from tests.making.places import cell, cube_mesh, even, leaf, nodes
from tests.node.placement import brute


def tree_of(topology: Topology) -> CellTree:
    assert topology.root is not None
    return CellTree(topology.root, {place.name: place for place in topology.places})


def chosen(topology: Topology, free: set[int], size: int, required: set[int] | None = None) -> list[int]:
    """Numbers of the whole GPUs that are chosen."""
    tree = tree_of(topology)
    numbers = [int(name.removeprefix("gpu-")) for name in tree.leaves]
    fixed = [int(number in (required or ())) for number in numbers]
    picks = tree.choose([int(number in free) for number in numbers], fixed, size)
    return sorted(number for number, pick in zip(numbers, picks, strict=True) if pick)


ALL = set(range(8))


def test_a_pair_comes_from_the_quad_that_is_split_already() -> None:
    assert chosen(even(8), ALL - {5}, 2) == [6, 7]


def test_a_single_comes_from_the_pair_that_is_broken_already() -> None:
    assert chosen(even(8), ALL - {5}, 1) == [4]
    assert chosen(even(8), {0, 1, 2, 4, 6}, 1) == [4]


def test_three_take_a_quad_with_three_and_leave_the_whole_one() -> None:
    assert chosen(even(8), ALL - {1}, 3) == [0, 2, 3]


def test_six_are_a_quad_and_a_pair() -> None:
    assert chosen(even(8), ALL, 6) == [0, 1, 2, 3, 4, 5]
    assert chosen(even(8), ALL - {2}, 6) == [0, 1, 4, 5, 6, 7]


def test_four_of_two_broken_quads_leave_a_whole_pair() -> None:
    assert chosen(even(8), {0, 1, 2, 4, 5, 6}, 4) == [0, 1, 2, 6]


def test_what_is_required_draws_the_rest_into_its_smallest_cell() -> None:
    assert chosen(even(8), ALL, 2, {6}) == [6, 7]
    assert chosen(even(8), ALL - {7}, 2, {6}) == [4, 6]
    assert chosen(even(8), ALL, 3, {1, 6}) == [0, 1, 6]
    assert chosen(even(8), ALL, 4, {1, 2}) == [0, 1, 2, 3]


def test_numa_filtered_requests_see_their_part_of_the_node() -> None:
    assert chosen(even(8), {4, 5, 6, 7}, 3) == [4, 5, 6]
    assert chosen(even(16), set(range(8, 16)), 4) == [8, 9, 10, 11]


def test_two_gpus_of_a_cube_mesh_have_two_links_between_them() -> None:
    assert chosen(cube_mesh(), ALL, 2) == [0, 3]
    assert chosen(cube_mesh(), {1, 2, 3}, 2) == [1, 2]
    assert chosen(cube_mesh(), {0, 1, 2}, 2) == [1, 2]


def test_four_gpus_of_a_cube_mesh_are_a_quad() -> None:
    assert chosen(cube_mesh(), ALL - {1}, 4) == [4, 5, 6, 7]


Request = tuple[Topology, dict[str, int], dict[str, int], int, dict[str, int]]


@st.composite
def requests(draw: st.DrawFn, most_units: int) -> Request:
    """A node, free and required units by GPU, how many are asked for, and distances by GPU, which may all be equal."""
    topology = draw(nodes())
    free = {place.name: draw(st.integers(0, most_units)) for place in topology.places}
    total = sum(free.values())
    if not total:
        free["gpu-0"] = total = 1
    required = {
        name: draw(st.integers(0, count)) if draw(st.integers(0, 3)) == 0 else 0 for name, count in free.items()
    }
    far = {name: draw(st.integers(1, 5)) if draw(st.booleans()) else 5 for name in free}
    return topology, free, required, draw(st.integers(max(1, sum(required.values())), total)), far


def picks_of(request: Request) -> dict[str, int]:
    """What the tree takes, by GPU; equal distances are left out."""
    topology, free, required, size, far = request
    tree = tree_of(topology)
    distances = [far[name] for name in tree.leaves] if len(set(far.values())) > 1 else ()
    some, fixed = ([units[name] for name in tree.leaves] for units in (free, required))
    picks = tree.choose(some, fixed, size, distances)
    return {name: pick for name, pick in zip(tree.leaves, picks, strict=True) if pick}


@given(requests(1))
@settings(max_examples=200)
def test_brute_force_chooses_the_same_gpus(request: Request) -> None:
    assert set(picks_of(request)) == brute.best(*request)


@given(requests(4))
@settings(max_examples=100)
def test_brute_force_chooses_the_same_divided_gpus(request: Request) -> None:
    _, free, required, size, _ = request
    taken = picks_of(request)
    assert set(taken) == brute.best(*request)
    assert sum(taken.values()) == size
    assert all(required[name] <= taken.get(name, 0) <= free[name] for name in free)
    partly = [name for name, count in taken.items() if count < free[name]]
    assert len(partly) <= 1 or all(required[name] for name in partly[:-1]), "at most one GPU is left with a rest"


@given(requests(2), st.lists(st.integers(0, 2), min_size=16, max_size=16))
@settings(max_examples=100)
def test_brute_force_chooses_the_same_beside_another_door(request: Request, elsewhere: list[int]) -> None:
    topology, free, required, size, far = request
    tree = tree_of(topology)
    others = dict(zip(free, elsewhere, strict=False))
    distances = [far[name] for name in tree.leaves] if len(set(far.values())) > 1 else ()
    some, fixed, elsewhere = ([units[name] for name in tree.leaves] for units in (free, required, others))
    picks = tree.choose(some, fixed, size, distances, elsewhere)
    taken = {name for name, pick in zip(tree.leaves, picks, strict=True) if pick}
    assert taken == brute.best(*request, others=others)
    assert sum(picks) == size


@given(requests(1))
def test_a_distance_never_costs_a_request_its_island_and_a_single_gpu_is_the_nearest(request: Request) -> None:
    topology, free, required, size, far = request
    taken = picks_of(request)
    assert topology.root is not None
    around, without = (
        min(len(cell.gpus) for cell in brute.cells(topology.root) if chosen <= set(cell.gpus))
        for chosen in (set(taken), set(picks_of((topology, free, required, size, dict.fromkeys(free, 1)))))
    )
    assert around == without
    if size == 1 and not any(required.values()):
        assert far[min(taken)] == min(far[name] for name, count in free.items() if count)


@given(st.sampled_from([2, 4, 8, 16]), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), max_size=40))
def test_a_request_is_unaligned_only_when_no_aligned_cell_is_free(gpus: int, steps: list[tuple[int, int]]) -> None:
    topology = even(gpus)
    free, pods = set(range(gpus)), list[list[int]]()
    for power, victim in steps:
        size = 2**power
        if size > len(free):
            if pods:
                free |= set(pods.pop(victim % len(pods)))
            continue
        got = chosen(topology, free, size)
        blocks = [set(range(start, start + size)) for start in range(0, gpus, size)]
        assert set(got) in blocks or not any(block <= free for block in blocks)
        free -= set(got)
        pods.append(got)


@given(st.sets(st.integers(0, 15), min_size=1), st.data())
@settings(max_examples=25)
def test_sixteen_gpus_with_uneven_links_get_the_best_score_in_their_cell(free: set[int], data: st.DataObject) -> None:
    topology = data.draw(nodes(16))
    free = {number for number in free if number < len(topology.places)} or {0}
    size = data.draw(st.integers(1, len(free)))
    got = chosen(topology, free, size)
    assert len(got) == size
    assert set(got) <= free


def test_a_cell_that_names_no_parts_is_made_of_its_gpus() -> None:
    tree = CellTree(Cell("node", CellLevel.NODE, tuple("abcd")))
    assert tree.choose([1, 0, 1, 1], [0, 0, 0, 1], 2) == [1, 0, 0, 1]


def test_without_scores_cells_are_filled_one_after_the_other() -> None:
    root = cell("node", cell("a", *map(leaf, "abc")), cell("b", *map(leaf, "de")), cell("c", leaf("f")))
    tree = CellTree(root)
    assert tree.choose([1] * 6, [0] * 6, 2) == [0, 0, 0, 1, 1, 0]
    assert tree.choose([1] * 6, [0] * 6, 4) == [1, 1, 1, 0, 0, 1]
    assert tree.choose([1] * 6, [0, 0, 0, 1, 0, 0], 3) == [0, 0, 0, 1, 1, 1]
    assert tree.choose([2, 3, 1, 4, 0, 9], [0] * 6, 3) == [0, 3, 0, 0, 0, 0]
    assert tree.choose([1, 1, 1, 2, 2, 0], [0] * 6, 4) == [0, 0, 0, 2, 2, 0]


def test_without_scores_a_cell_that_another_door_has_begun_is_not_the_one_to_go_on_with() -> None:
    root = cell("node", *(cell(name, *(leaf(f"{name}{n}") for n in range(3))) for name in "abc"))
    tree = CellTree(root)
    begun = [0] * 8 + [1]
    free = [1] * 8 + [0]
    assert tree.choose(free, [0] * 9, 5) == [1, 1, 1, 0, 0, 0, 1, 1, 0], "ours alone: the tightest"
    assert tree.choose(free, [0] * 9, 5, (), begun) == [1, 1, 1, 1, 1, 0, 0, 0, 0]
    assert tree.choose([1, 1, 1, 0, 1, 1, 1, 1, 0], [0] * 9, 5, (), begun) == [1, 1, 1, 0, 1, 1, 0, 0, 0]


@given(st.integers(17, 40), st.data())
@settings(max_examples=30)
def test_a_node_too_large_for_tables_still_gets_an_answer(gpus: int, data: st.DataObject) -> None:
    topology = even(gpus)
    free = data.draw(st.sets(st.integers(0, gpus - 1), min_size=1))
    size = data.draw(st.integers(1, len(free)))
    got = chosen(topology, free, size)
    assert len(got) == size
    assert set(got) <= free


@pytest.mark.parametrize(("free", "required", "size"), [([1, 1], [0, 0], 3), ([1, 0], [0, 1], 1), ([1, 1], [1, 1], 1)])
def test_what_cannot_be_is_refused(free: list[int], required: list[int], size: int) -> None:
    tree = CellTree(cell("node", leaf("a"), leaf("b")))
    with pytest.raises(ValueError, match=rf"^{size} units of {sum(free)} free ones, {sum(required)} of them required"):
        tree.choose(free, required, size)
