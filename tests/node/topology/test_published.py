"""What machines of others say of themselves: the matrices that nvidia-smi printed there, reproduced."""

from __future__ import annotations

import pytest

from node.inventory.devices import devices_of
from node.inventory.identity import Identities
from node.inventory.places import places_of
from node.inventory.recordings.source import read
from node.topology.cells import topology_of
from node.topology.model import Cell, CellLevel, Place, Topology
from ostler.drawing.text_forms import relation
from sandbox.nodes import path
from tests.node.topology.machines import TopologyMachine, machine, names

COMPOSED = [name for name in names() if machine(name).devices]
RECORDED = [name for name in names() if machine(name).recorded]


def topology_of_machine(name: str) -> Topology:
    return topology_of(places_of(machine(name).devices.values()))


def differing(published: TopologyMachine, places: dict[str, Place]) -> list[str]:
    return [
        f"{row} {column}: {cell} published, {found} here"
        for (row, column), cell in published.matrix.items()
        if (found := relation(places[row], places[column], "NV")) != cell
    ]


@pytest.mark.parametrize("name", COMPOSED)
def test_a_published_matrix_is_reproduced(name: str) -> None:
    published = machine(name)
    by_name = {place.name: place for place in topology_of_machine(name).places}
    assert differing(published, {label: by_name[device.name] for label, device in published.devices.items()}) == []


@pytest.mark.parametrize("name", COMPOSED)
def test_labels_are_those_of_the_published_matrix(name: str) -> None:
    by_name = {place.name: place.label for place in topology_of_machine(name).places}
    for label, device in machine(name).devices.items():
        if label.startswith(("GPU", "NIC")):
            assert by_name[device.name] == label


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_node_reproduces_the_published_matrix(name: str) -> None:
    published = machine(name)
    devices = devices_of(read(path(published.recorded)).facts, Identities())
    rdma = {device.name: device.text("rdmaDevice") for device in devices}
    places: dict[str, Place] = {}
    for place in topology_of(places_of(devices)).places:
        places[place.label] = places[rdma[place.name]] = place
    assert differing(published, places) == []


def cells_of(name: str) -> list[tuple[str, str]]:
    """Level and GPUs (by number) of every cell between the node and single GPUs."""
    topology = topology_of_machine(name)
    labels = {place.name: place.label.removeprefix("GPU") for place in topology.places}
    found: list[tuple[str, str]] = []

    def walk(cell: Cell) -> None:
        if cell.level not in (CellLevel.NODE, CellLevel.GPU):
            found.append((cell.level.value, ",".join(labels[gpu] for gpu in cell.gpus)))
        for child in cell.children:
            walk(child)

    assert topology.root is not None
    walk(topology.root)
    return found


def test_a_hybrid_cube_mesh_has_the_known_quads_and_pairs() -> None:
    assert cells_of("dgx-1v") == [
        ("island", "0,1,2,3"),
        ("pair", "0,3"),
        ("pair", "1,2"),
        ("island", "4,5,6,7"),
        ("pair", "4,7"),
        ("pair", "5,6"),
    ]


def test_switched_links_say_nothing_and_pcie_makes_the_cells() -> None:
    assert cells_of("dgx-a100") == [("switch", "0,1"), ("switch", "2,3"), ("switch", "4,5"), ("switch", "6,7")]
    assert cells_of("hgx-h100") == [("socket", "0,1,2,3"), ("socket", "4,5,6,7")]
    assert cells_of("dgx-2")[:4] == [
        ("socket", "0,1,2,3,4,5,6,7"),
        ("switch", "0,1,2,3"),
        ("switch", "0,1"),
        ("switch", "2,3"),
    ]


def test_bridged_pairs_are_gathered_by_socket() -> None:
    assert cells_of("a6000-bridges") == [
        ("socket", "0,1,2,3"),
        ("pair", "0,1"),
        ("pair", "2,3"),
        ("socket", "4,5,6,7"),
        ("pair", "4,5"),
        ("pair", "6,7"),
    ]


def test_a_pair_across_sockets_stays_a_pair() -> None:
    assert cells_of("h100-pcie-bridges") == [
        ("pair", "0,5"),
        ("pair", "1,2"),
        ("socket", "3,4,6,7"),
        ("pair", "3,4"),
        ("pair", "6,7"),
    ]


def test_gpus_without_links_are_gathered_by_pcie() -> None:
    assert cells_of("rtx4090-switches") == [("switch", "0,1,2,3,4"), ("switch", "5,6,7")]
    assert cells_of("workstation-5") == [("socket", "1,2,3,4"), ("switch", "1,2"), ("switch", "3,4")]


def test_a_flat_machine_has_no_cells_but_the_node_and_its_gpus() -> None:
    assert cells_of("h100-flat-vm") == []


def test_nics_hang_on_the_smallest_cell_they_are_nearest_to() -> None:
    topology = topology_of_machine("dgx-1v")
    labels = {device.name: label for label, device in machine("dgx-1v").devices.items()}
    assert topology.root is not None
    first, second = topology.root.children
    assert [labels[nic] for nic in first.nics] == ["mlx5_0", "mlx5_1"]
    assert [labels[nic] for nic in second.nics] == ["mlx5_2", "mlx5_3"]
    hgx = topology_of_machine("hgx-h100").root
    assert hgx is not None
    assert [len(gpu.nics) for socket in hgx.children for gpu in socket.children] == [1] * 8
