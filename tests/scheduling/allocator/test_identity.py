"""How pools and devices are written."""

from __future__ import annotations

from scheduling.allocator.slices import DeviceID, PoolID, SharedDeviceID


def test_pool_is_written_as_driver_and_pool() -> None:
    assert str(PoolID("gpu.example.com", "node-1")) == "gpu.example.com/node-1"


def test_device_is_written_as_driver_pool_and_device() -> None:
    assert str(DeviceID("gpu.example.com", "node-1", "gpu-0")) == "gpu.example.com/node-1/gpu-0"


def test_share_is_written_behind_its_device() -> None:
    device = DeviceID("gpu.example.com", "node-1", "gpu-0")
    assert str(SharedDeviceID(device, "share-1")) == "gpu.example.com/node-1/gpu-0/share-1"


def test_pools_of_two_drivers_differ_although_their_names_are_equal() -> None:
    assert PoolID("a.example.com", "node-1") != PoolID("b.example.com", "node-1")
