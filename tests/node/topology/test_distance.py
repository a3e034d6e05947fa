"""Proximity and links of two places."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.topology.model import Place, Proximity, link_count, proximity
from tests.node.topology.machines import pci_trees

RP, UP, DOWN = "0000:15:01.0", "0000:16:00.0", "0000:17:01.0"
OTHER_DOWN = "0000:17:02.0"


def place(name: str, *path: str, numa: int | None = 0, address: str | None = None) -> Place:
    return Place(name, name.upper(), True, path, address, numa)


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (("pci0000:15", RP), ("pci0000:15", RP), Proximity.PIX),
        (("pci0000:15", RP, UP, DOWN), ("pci0000:15", RP, UP, OTHER_DOWN), Proximity.PIX),
        (("pci0000:15", RP, UP, DOWN), ("pci0000:15", RP), Proximity.PXB),
        (("pci0000:15", RP, UP, DOWN, "a", "b"), ("pci0000:15", RP, UP, OTHER_DOWN), Proximity.PXB),
        (("pci0000:15", RP), ("pci0000:15", "0000:15:02.0"), Proximity.PHB),
        (("pci0000:15",), ("pci0000:15", RP), Proximity.PHB),
        (("pci0000:15", RP), ("pci0000:40", RP), Proximity.NODE),
        ((), ("pci0000:15", RP), Proximity.NODE),
        ((), (), Proximity.NODE),
    ],
)
def test_the_five_classes_follow_from_the_paths(
    one: tuple[str, ...], two: tuple[str, ...], expected: Proximity
) -> None:
    assert proximity(place("a", *one), place("b", *two)) is expected


def test_other_host_bridges_are_told_apart_by_numa_node() -> None:
    near, far = place("a", "pci0000:15", RP, numa=0), place("b", "pci0000:40", numa=1)
    assert proximity(near, far) is Proximity.SYS
    assert proximity(replace(near, numa_node=None), far) is Proximity.SYS


def test_no_numa_node_at_all_counts_as_the_same_one() -> None:
    one, two = place("a", "pci0001:00", numa=None), place("b", "pci0002:00", numa=None)
    assert proximity(one, two) is Proximity.NODE


def test_a_device_is_itself() -> None:
    assert proximity(place("a", "pci0000:00"), place("a", "pci0000:00")) is Proximity.SAME


def test_functions_of_one_card_are_near_also_on_the_host_bridge() -> None:
    first = place("a", "pci0000:00", address="0000:00:05.0")
    assert proximity(first, place("b", "pci0000:00", address="0000:00:05.1")) is Proximity.PIX
    assert proximity(first, place("c", "pci0000:00", address="0000:00:06.0")) is Proximity.PHB
    assert proximity(first, place("d", "pci0000:00")) is Proximity.PHB


def test_ranks_go_from_the_same_device_to_another_numa_node() -> None:
    assert [each.rank for each in Proximity] == [0, 1, 2, 3, 4, 5]


@given(pci_trees())
def test_proximity_is_symmetric_and_of_three_devices_the_two_larger_distances_are_equal(
    places: tuple[Place, ...],
) -> None:
    assert all(proximity(one, two) is proximity(two, one) for one, two in product(places, places))
    for one, two, three in combinations(places, 3):
        _, middle, largest = sorted((proximity(one, two).rank, proximity(one, three).rank, proximity(two, three).rank))
        assert middle == largest


@given(pci_trees(linked=True), st.randoms(use_true_random=False))
def test_distances_do_not_depend_on_names(places: tuple[Place, ...], random: object) -> None:
    parts = sorted({part for each in places for part in each.path})
    new = {part: f"{'pci' if part.startswith('pci') else ''}x{number}" for number, part in enumerate(parts)}
    renamed = [
        replace(
            each,
            name=f"n-{each.name}",
            path=tuple(new[part] for part in each.path),
            links=tuple((f"n-{peer}", count) for peer, count in each.links),
        )
        for each in places
    ]
    for (one, two), (first, second) in zip(product(places, places), product(renamed, renamed), strict=True):
        assert proximity(one, two) is proximity(first, second)
        assert link_count(one, two) == link_count(first, second)


def test_links_are_counted_from_either_end() -> None:
    one, two = replace(place("a"), links=(("b", 4),)), place("b")
    assert (link_count(one, two), link_count(two, one)) == (4, 4)
    assert link_count(one, place("c")) == 0
    assert link_count(one, one) == 0


def test_behind_switches_two_gpus_have_as_many_links_as_the_one_with_fewer() -> None:
    one, two = replace(place("a"), switch_links=18), replace(place("b"), switch_links=17)
    assert link_count(one, two) == 17
    assert link_count(one, place("c")) == 0
