"""Rails: numbers that a GPU and its NIC have in common, the same ones on all nodes of a model."""

from __future__ import annotations

import pytest

from driver.devices.placement import rails
from node.inventory.devices import devices_of
from node.inventory.identity import Identities
from node.inventory.model import NIC_KINDS, DeviceKind, Snapshot
from node.inventory.places import places_of
from node.rules import Doors, Rule, Selector
from node.topology.cells import topology_of
from node.topology.model import Place
from tests.driver.devices.recorded import view
from tests.driver.devices.scheduling import DeviceScheduler, claim, matching, request, slices
from tests.making import data_direct
from tests.making.dra_door import door_view


def numbered(*spots: str) -> dict[str, int]:
    """Rails of spots as ``G0 switch``; names that begin with G are GPUs, with N NICs, with n NICs without RDMA."""
    places: list[Place] = []
    switches: dict[str, str] = {}
    for spot in spots:
        name, _, switch = spot.partition(" ")
        places.append(Place(name, name, name.startswith("G")))
        switches |= {name: switch} if switch else {}
    rdma = frozenset(place.name for place in places if place.name.startswith("N"))
    return dict(rails(places, switches, rdma))


@pytest.mark.parametrize(
    ("spots", "expected"),
    [
        (["G0 a", "G1 b", "N0 b", "N1 a"], {"G0": 0, "N1": 0, "G1": 1, "N0": 1}),
        # Two pairs below one switch are two pairs.
        (["G0 a", "G1 a", "N0 a", "N1 a"], {"G0": 0, "G1": 1, "N0": 0, "N1": 1}),
        # GPUs that share a NIC share its rail; of two NICs the GPU has the first one's.
        (["G0 a", "G1 a", "G2 b", "N0 a", "N1 b"], {"G0": 0, "G1": 0, "N0": 0, "G2": 1, "N1": 1}),
        (["G0 a", "N0 a", "N1 a"], {"G0": 0, "N0": 0, "N1": 1}),
        # A group that lost a NIC leaves the numbers of the others alone.
        (["G0 a", "G1 b", "N1 a", "N2 b", "N3 b"], {"G0": 0, "N1": 0, "G1": 2, "N2": 2, "N3": 3}),
        # NICs for storage, without RDMA, and at an unknown place.
        (["G0 a", "N0 a", "N1 c", "n2 a", "N3"], {"G0": 0, "N0": 0}),
        (["G0 a", "G1 b", "N0 b"], {"G1": 1, "N0": 1}),
        (["G0", "N0"], {}),
        ([], {}),
    ],
)
def test_nics_are_numbered_along_the_gpus_beside_them(spots: list[str], expected: dict[str, int]) -> None:
    assert numbered(*spots) == expected


def of(node: str) -> dict[str, int]:
    return {
        item.device.name: value
        for item in view(node).devices
        for attribute in item.placement
        if attribute.name == "rail" and isinstance(value := attribute.value, int)
    }


@pytest.mark.parametrize("node", ["a100-sxm-8", "h100-sxm-8", "mi300x-8"])
def test_a_recorded_node_has_a_rail_for_every_gpu_and_a_pair_on_each(node: str) -> None:
    found = of(node)
    gpus = sorted(rail for name, rail in found.items() if name.startswith("gpu-"))
    nics = sorted(rail for name, rail in found.items() if not name.startswith("gpu-"))
    assert gpus == nics == list(range(8))


@pytest.mark.parametrize("node", ["vm-flat-8", "l4-2"])
def test_a_node_whose_tree_does_not_tell_has_none(node: str) -> None:
    assert of(node) == {}


@pytest.mark.parametrize("attribute", ["switch", "rail"])
def test_a_claim_gets_the_pair_whose_nic_has_its_second_face_beside_the_gpu(attribute: str) -> None:
    devices = devices_of(data_direct.node(), Identities())
    kinds = Selector(kinds=(DeviceKind.GPU, *NIC_KINDS))
    snapshot = Snapshot(1, devices, topology=topology_of(places_of(devices)))
    scheduler = DeviceScheduler(slices(door_view(snapshot, (Rule("example.com/device", kinds, Doors.DRA),)).devices))
    pair = claim(
        request("gpu"),
        request("nic", "nic.ostler.dev"),
        constraints=[matching(f"ostler.dev/{attribute}", "gpu", "nic")],
    )
    given = [scheduler.allocate(pair) for _ in range(5)]
    assert given.pop() is None, "four pairs, and a NIC for storage that belongs to no GPU"
    assert sorted(devices for _, devices in filter(None, given)) == [
        [f"gpu-{8 + number:04x}-05-00-0", f"rdma-{2 * number:04x}-03-00-0"] for number in range(4)
    ]
