"""Distances between a pod's devices."""

from __future__ import annotations

import pytest

from protos.agent.v1alpha1 import agent_pb2
from sandbox.tour import DeviceDistances

ROOT = "pci0000:15/0000:15:01.0/0000:16:00.0"


def device(name: str, location: str, *, parent: str = "", numa: int = 0) -> agent_pb2.Device:
    address = location.rpartition("/")[2]
    return agent_pb2.Device(
        name=name, offered_id=f"id-{name}", location=location, pci_address=address, parent=parent, numa_node=numa
    )


GPU = device("gpu", f"{ROOT}/0000:17:02.0/0000:1b:00.0")
MIG = agent_pb2.Device(name="mig", offered_id="id-mig", parent="gpu")
NEAR = device("near", f"{ROOT}/0000:17:00.0/0000:18:00.0")
FAR = device("far", "pci0000:97/0000:97:01.0/0000:9a:00.0", numa=1)
PLACES = agent_pb2.GetTopologyResponse(
    places=[
        agent_pb2.Place(name="gpu", gpu=True, path=[*ROOT.split("/"), "0000:17:02.0"], pci_address="0000:1b:00.0"),
        agent_pb2.Place(name="far", path=["ffff:ff:01.0"], pci_address="0000:9a:00.0", numa_node=1),
    ]
)


@pytest.mark.parametrize(
    ("first", "second", "proximity"),
    [
        ("gpu", "near", "PIX"),
        ("mig", "near", "PIX"),
        ("gpu", "far", "SYS"),
        ("near", "far", "SYS"),
        ("far", "far", "X"),
    ],
)
def test_devices_are_as_near_as_their_places(first: str, second: str, proximity: str) -> None:
    listed = agent_pb2.ListDevicesResponse(devices=[GPU, MIG, NEAR, FAR])

    assert DeviceDistances(listed, PLACES).between(f"id-{first}", f"id-{second}") == proximity


def test_an_override_of_the_agents_has_the_last_word() -> None:
    moved = agent_pb2.GetTopologyResponse(
        places=[
            agent_pb2.Place(name=name, path=["ffff:ff:02.0", "ffff:ff:02.1"], numa_node=2) for name in ("gpu", "far")
        ]
    )
    listed = agent_pb2.ListDevicesResponse(devices=[GPU, FAR])

    assert DeviceDistances(listed, moved).between("id-gpu", "id-far") == "PIX"
