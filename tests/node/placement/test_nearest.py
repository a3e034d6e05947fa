"""NICs near GPUs: one near each, at the least total distance, the same every time."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.topology.model import Place, proximity
from node.topology.packing import nearest
from tests.making.places import gpu, nic, path_of


def ranks_of(gpus: list[Place], nics: list[Place]) -> list[list[int]]:
    return [[proximity(one, other).rank for other in nics] for one in gpus]


def beside(number: int) -> tuple[str, ...]:
    """The path of a NIC beside GPU ``number`` of eight: one for each pair of GPUs."""
    return (*path_of(number, 8)[:-1], f"nic-port-{number}")


GPUS = [gpu(number, path_of(number, 8), number // 4) for number in range(8)]
NICS = [nic(number, beside(number), number // 4) for number in range(0, 8, 2)]


def test_the_nic_under_the_same_switch_is_taken() -> None:
    assert nearest(ranks_of([GPUS[5]], NICS), [1] * 4, [0] * 4, 1) == [0, 0, 1, 0]


def test_the_next_nearest_is_taken_when_the_nearest_is_gone() -> None:
    assert nearest(ranks_of([GPUS[5]], NICS), [1, 1, 0, 1], [0] * 4, 1) == [0, 0, 0, 1]


def test_four_gpus_get_their_four_nics() -> None:
    wide = [nic(number, beside(number), number // 4) for number in range(8)]
    assert nearest(ranks_of([GPUS[n] for n in (4, 5, 6, 7)], wide), [1] * 8, [0] * 8, 4) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_two_nics_for_eight_gpus_are_one_on_each_socket() -> None:
    assert nearest(ranks_of(GPUS, NICS), [1] * 4, [0] * 4, 2) == [1, 0, 1, 0]


def test_more_nics_than_gpus_are_shared_out_evenly() -> None:
    assert nearest(ranks_of([GPUS[0], GPUS[4]], NICS), [1] * 4, [0] * 4, 4) == [1, 1, 1, 1]
    assert nearest(ranks_of([GPUS[0], GPUS[4]], NICS), [8] * 4, [0] * 4, 4) == [2, 0, 2, 0]


def test_what_is_required_counts_for_the_gpu_it_is_near_to() -> None:
    assert nearest(ranks_of([GPUS[0], GPUS[4]], NICS), [1] * 4, [0, 1, 0, 0], 2) == [0, 1, 1, 0]


def test_on_equal_terms_functions_that_are_split_already_are_split_further() -> None:
    assert nearest([[3, 3, 3]], [8, 2, 8], [0] * 3, 1) == [0, 1, 0]


@pytest.mark.parametrize(("required", "size"), [([0, 0], 3), ([1, 1], 1)])
def test_what_cannot_be_is_refused(required: list[int], size: int) -> None:
    with pytest.raises(ValueError, match=f"^{size} units of 2 free ones, {sum(required)} of them required, cannot be$"):
        nearest([[1, 1]], [1, 1], required, size)


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[Place], list[Place]]:
    def path() -> tuple[str, ...]:
        return (f"pci{draw(st.integers(0, 1))}", f"a{draw(st.integers(0, 1))}", f"b{draw(st.integers(0, 1))}")

    gpus = [gpu(number, (*path(), f"g{number}"), 0) for number in range(draw(st.integers(1, 4)))]
    return gpus, [nic(number, (*path(), f"n{number}"), 0) for number in range(draw(st.integers(1, 5)))]


@given(machines(), st.data())
def test_brute_force_finds_no_pairs_of_less_total_distance(
    machine: tuple[list[Place], list[Place]], data: st.DataObject
) -> None:
    gpus, nics = machine
    ranks = ranks_of(gpus, nics)
    size = data.draw(st.integers(1, min(len(gpus), len(nics))))
    picks = nearest(ranks, [1] * len(nics), [0] * len(nics), size)
    taken = [number for number, pick in enumerate(picks) if pick]
    assert len(taken) == sum(picks) == size

    def least(chosen: tuple[int, ...]) -> int:
        ways = (zip(order, chosen, strict=True) for order in permutations(range(len(gpus)), size))
        return min(sum(ranks[gpu][nic] for gpu, nic in way) for way in ways)

    assert least(tuple(taken)) == min(map(least, combinations(range(len(nics)), size)))
