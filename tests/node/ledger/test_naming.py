"""Ids of the kubelet's, of any plugin, and the devices they mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.inventory.model import Device, DeviceKind, DeviceNode, NodeRole, sorted_attributes
from node.ledger.naming import DeviceIndex
from tests.making.offered_devices import gpu, mig

UUID = "GPU-8f3a1c52-0d6e-4b7a-9c11-2f4e5d6a7b80"
MIG_UUID = "MIG-41b36f7e-5c1d-5b0a-8e59-7a1b2c3d4e5f"
WHOLE = replace(
    gpu(0), uuid=UUID, pci_address="0000:0b:00.0", nodes=(DeviceNode("/dev/nvidia3", NodeRole.DEVICE, "c", 195, 3),)
)
PART = replace(mig(0, 0), uuid=MIG_UUID, attributes=sorted_attributes([("gpuInstanceID", 7), ("profile", "1g.5gb")]))
OTHER = gpu(1)


def _nic(name: str, address: str, **facts: str) -> Device:
    return Device(name, DeviceKind.NIC, "mellanox", pci_address=address, attributes=sorted_attributes([*facts.items()]))


PORT0 = _nic("nic-0000-86-00-0", "0000:86:00.0")
PORT1 = _nic("nic-0000-86-00-0-1", "0000:86:00.0")
SUB = _nic("nic-0000-86-00-0-sf4", "0000:86:00.0", sriovFunction="sf", auxDevice="mlx5_core.sf.4")
AMD = Device("gpu-0000-0c-00-0", DeviceKind.GPU, "amd", pci_address="0000:0c:00.0")
AMD_PART = Device(
    "partition-0000-0c-00-0-1",
    DeviceKind.PARTITION,
    "amd",
    pci_address="0000:0c:00.0",
    attributes=sorted_attributes([("platformDevice", "amdgpu_xcp_1")]),
)
INTEL = Device(
    "gpu-0000-0d-00-0",
    DeviceKind.GPU,
    "intel",
    pci_address="0000:0d:00.0",
    nodes=(
        DeviceNode("/dev/dri/card2", NodeRole.DEVICE, "c", 226, 2),
        DeviceNode("/dev/dri/renderD130", NodeRole.RENDER, "c", 226, 130),
    ),
)
INDEX = DeviceIndex((WHOLE, PART, OTHER, PORT0, PORT1, SUB, AMD, AMD_PART, INTEL))


@pytest.mark.parametrize(
    ("id_", "device"),
    [
        (UUID, WHOLE),
        (UUID.lower(), WHOLE),
        (f"{UUID}::12", WHOLE),
        (f"{UUID}-3", WHOLE),
        (f"{UUID}-_-3", WHOLE),
        (WHOLE.name, WHOLE),
        (f"{OTHER.uuid}::0", OTHER),
        ("0000:0b:00.0", WHOLE),
        ("00000000:0B:00.0", WHOLE),
        ("0000:0b:00.0-2", WHOLE),
        ("nvidia3", WHOLE),
        ("nvidia3/vgpu0", WHOLE),
        ("nvidia3/gi7", PART),
        ("nvidia3/gi7/vgpu1", PART),
        ("nvidia3/gi9", WHOLE),
        (MIG_UUID, PART),
        (f"{MIG_UUID}::1", PART),
        ("0000:0c:00.0", AMD),
        ("amdgpu_xcp_1", AMD_PART),
        ("card2-0", INTEL),
        ("card2-7", INTEL),
        ("renderD130", INTEL),
        ("mlx5_core.sf.4", SUB),
        (PORT1.name, PORT1),
    ],
)
def test_an_id_means_its_device_in_every_known_form(id_: str, device: Device) -> None:
    assert INDEX.devices_of(id_) == (device,)


def test_the_uuid_of_a_gpu_that_was_replaced_means_the_one_in_its_place() -> None:
    old = "GPU-8f3a1c52-0d6e-4b7a-9c11-2f4e5d6a7b81"
    index = DeviceIndex(
        (WHOLE, PART, PORT0), ((old, "0000:0b:00.0"), ("GPU-gone", "0000:99:00.0"), ("x", "0000:86:00.0"))
    )
    assert index.devices_of(old) == index.devices_of(f"{old}::2", ours=True) == (WHOLE,)
    assert index.devices_of("GPU-gone") == index.devices_of("x") == ()


@pytest.mark.parametrize(
    "id_",
    ["", "::1", "0", "7", "GPU-8f3a1c52-0d6e-4b7a-9c11-2f4e5d6a7b81", f"{UUID}a", "nvidia4", "0000:99:00.0", "x::y"],
)
def test_an_id_of_nothing_that_is_here_means_no_device(id_: str) -> None:
    assert INDEX.devices_of(id_) == ()


def test_a_nics_address_means_one_port_as_our_id_and_the_whole_function_as_anothers() -> None:
    assert INDEX.devices_of("0000:86:00.0", ours=True) == (PORT0,)
    assert INDEX.devices_of("0000:86:00.0") == (PORT0, PORT1)
