"""The cell tree: what it is made of, and when levels appear."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from node.inventory.places import places_of
from node.topology.cells import cell_tree, topology_of
from node.topology.model import Cell, CellLevel, Place
from tests.node.topology.machines import machine, pci_trees


def walk(cell: Cell) -> Iterator[Cell]:
    yield cell
    for child in cell.children:
        yield from walk(child)


@given(pci_trees(least_gpus=1, linked=True))
def test_children_partition_their_cell_and_leaves_are_gpus(places: tuple[Place, ...]) -> None:
    root = cell_tree(places)
    assert root is not None
    assert root.level is CellLevel.NODE
    assert set(root.gpus) == {place.name for place in places if place.gpu}
    for cell in walk(root):
        if cell.level is CellLevel.GPU:
            assert (len(cell.gpus), cell.children) == (1, ())
        else:
            inner = [gpu for child in cell.children for gpu in child.gpus]
            assert sorted(inner) == sorted(cell.gpus)
            assert len(cell.children) > 1 or (cell.gpus == root.gpus and len(root.gpus) == 1)


@given(pci_trees(least_gpus=1, linked=True))
def test_names_are_unique_and_every_nic_is_in_one_cell(places: tuple[Place, ...]) -> None:
    root = cell_tree(places)
    assert root is not None
    names = [cell.name for cell in walk(root)]
    assert len(names) == len(set(names))
    nics = [nic for cell in walk(root) for nic in cell.nics]
    assert sorted(nics) == sorted(place.name for place in places if not place.gpu)


@given(pci_trees(least_gpus=1, linked=True), st.integers())
def test_the_tree_of_the_same_places_is_the_same(places: tuple[Place, ...], seed: int) -> None:
    first = cell_tree(places)
    assert cell_tree(places) == first
    # Places come in the order of their labels, whatever order devices were found in; links come in any order.
    shuffled = [
        replace(place, links=tuple(random.Random(seed).sample(place.links, len(place.links)))) for place in places
    ]
    assert cell_tree(shuffled) == first


@given(st.integers())
def test_the_tree_does_not_depend_on_the_order_of_devices(seed: int) -> None:
    devices = list(machine("dgx-1v").devices.values())
    expected = topology_of(places_of(devices))
    random.Random(seed).shuffle(devices)
    assert topology_of(places_of(devices)) == expected


def gpus(number: int, **facts: object) -> list[Place]:
    return [Place(f"g{n}", f"GPU{n}", True, ("pci0000:00",), f"0000:00:{n:02x}.0", 0) for n in range(number)]


def test_a_node_without_gpus_has_no_cells() -> None:
    assert cell_tree([Place("n", "NIC0", False, ("pci0000:00",))]) is None


def test_a_single_gpu_is_a_node_of_one_cell() -> None:
    root = cell_tree(gpus(1))
    assert root == Cell("node", CellLevel.NODE, ("g0",), (Cell("g0", CellLevel.GPU, ("g0",)),))


def test_a_failed_link_to_the_switches_moves_no_gpu() -> None:
    whole = [replace(gpu, switch_links=18) for gpu in gpus(8)]
    broken = [replace(gpu, switch_links=17) if gpu.name == "g3" else gpu for gpu in whole]
    assert cell_tree(broken) == cell_tree(whole)


def test_a_gpu_that_reaches_no_switch_stands_apart() -> None:
    places = [replace(gpu, switch_links=0 if gpu.name == "g3" else 18) for gpu in gpus(4)]
    root = cell_tree(places)
    assert root is not None
    assert [(child.level, child.gpus) for child in root.children] == [
        (CellLevel.ISLAND, ("g0", "g1", "g2")),
        (CellLevel.GPU, ("g3",)),
    ]


def test_a_cube_mesh_with_a_failed_link_keeps_pairs_in_its_quads() -> None:
    places = list(places_of(machine("dgx-1v").devices.values()))
    names = {place.label: place.name for place in places}
    for one, two in (("GPU0", "GPU3"), ("GPU3", "GPU0")):
        at = next(number for number, place in enumerate(places) if place.label == one)
        weaker = tuple((peer, 1 if peer == names[two] else count) for peer, count in places[at].links)
        places[at] = replace(places[at], links=weaker)
    root = cell_tree(places)
    assert root is not None
    assert [len(quad.gpus) for quad in root.children] == [4, 4]
    assert [len(pair.gpus) for quad in root.children for pair in quad.children] == [2, 2, 2, 2]


def test_a_ring_is_halved_into_neighbours() -> None:
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    links: dict[int, list[tuple[str, int]]] = {n: [] for n in range(4)}
    for one, two in ring:
        links[one].append((f"g{two}", 2))
        links[two].append((f"g{one}", 2))
    root = cell_tree([replace(gpu, links=tuple(links[n])) for n, gpu in enumerate(gpus(4))])
    assert root is not None
    assert [(child.level, child.gpus) for child in root.children] == [
        (CellLevel.PAIR, ("g0", "g1")),
        (CellLevel.PAIR, ("g2", "g3")),
    ]


def test_sockets_are_called_by_their_numa_nodes() -> None:
    places = [Place(f"g{n}", f"GPU{n}", True, (f"pci0000:{n:02x}",), None, 3 if n < 2 else 1) for n in range(4)]
    root = cell_tree(places)
    assert root is not None
    assert [child.name for child in root.children] == ["socket-3", "socket-1"]


def test_every_nic_of_a_large_node_is_in_one_cell_at_its_switch() -> None:
    places = [
        Place(f"d{n}", f"D{n}", n < 16, (f"pci0000:{n % 4}", f"r{n % 8}", f"u{n % 8}", f"p{n}"), None, n % 2, (), 6)
        for n in range(48)
    ]
    root = cell_tree(places)
    assert root is not None
    cells = {nic: cell for cell in walk(root) for nic in cell.nics}
    assert sorted(nic for cell in walk(root) for nic in cell.nics) == sorted(f"d{n}" for n in range(16, 48))
    for n in range(16, 48):
        assert cells[f"d{n}"].gpus == (f"d{n % 8}", f"d{n % 8 + 8}")
