from __future__ import annotations

from node.inventory.model import Device, DeviceKind, sorted_attributes
from node.ledger.holds import Hold, excludes, wholes_of
from node.rules import Door
from tests.making.offered_devices import gpu, mig


def _nic(address: str, name: str, function: str | None, physical: str) -> Device:
    facts = sorted_attributes([("sriovFunction", function), ("pfPciAddress", physical)])
    return Device(name, DeviceKind.NIC, "mellanox", pci_address=address, attributes=facts)


def _hold(device: Device, owner: str) -> Hold:
    return Hold(device.name, Door.DRA, owner, 0.0, owner=owner, within=wholes_of(device))


def test_a_mig_device_is_part_of_its_gpu() -> None:
    assert wholes_of(mig(0, 0)) == (gpu(0).name,)
    assert wholes_of(gpu(0)) == ()
    assert excludes(_hold(mig(0, 0), "a"), _hold(gpu(0), "b"))
    assert not excludes(_hold(mig(0, 0), "a"), _hold(mig(0, 1), "b"))


def test_virtual_functions_and_subfunctions_are_parts_of_the_physical_one() -> None:
    physical = _nic("0000:86:00.0", "nic-0000-86-00-0", "pf", "0000:86:00.0")
    virtual = _nic("0000:86:00.2", "nic-0000-86-00-2", "vf", "0000:86:00.0")
    sub = _nic("0000:86:00.0", "nic-0000-86-00-0-sf4", "sf", "0000:86:00.0")
    plain = _nic("0000:87:00.0", "nic-0000-87-00-0", None, "0000:87:00.0")
    assert wholes_of(physical) == ()
    assert wholes_of(plain) == ()
    assert excludes(_hold(physical, "a"), _hold(virtual, "b"))
    assert excludes(_hold(physical, "a"), _hold(sub, "b"))
    assert not excludes(_hold(virtual, "a"), _hold(sub, "b"))
    assert not excludes(_hold(virtual, "a"), _hold(plain, "b"))


def test_virtual_functions_of_a_gpu_are_parts_of_it() -> None:
    facts = sorted_attributes([("sriovFunction", "vf"), ("pfPciAddress", "0000:03:00.0")])
    virtual = Device("gpu-0000-03-00-1", DeviceKind.GPU, "intel", pci_address="0000:03:00.1", attributes=facts)
    physical = Device("gpu-0000-03-00-0", DeviceKind.GPU, "intel", pci_address="0000:03:00.0")
    assert wholes_of(virtual) == (physical.name,)
    assert excludes(_hold(physical, "a"), _hold(virtual, "b"))


def test_amd_partitions_are_beside_each_other() -> None:
    whole = Device("gpu-0000-0b-00-0", DeviceKind.GPU, "amd")
    part = Device("partition-0000-0b-00-0-1", DeviceKind.PARTITION, "amd", parent=whole.name)
    assert not excludes(_hold(whole, "a"), _hold(part, "b"))
