"""Devices as the inventory makes them, with just what rules look at."""

from __future__ import annotations

from dataclasses import replace

from node.health.state import Health, HealthState
from node.inventory.model import Device, DeviceKind, Snapshot, sorted_attributes


def gpu(number: int, product: str = "NVIDIA A100-SXM4-40GB", mig: bool = False, **changes: object) -> Device:
    made = Device(
        name=f"gpu-0000-{number}b-00-0",
        kind=DeviceKind.GPU,
        vendor="nvidia",
        uuid=f"GPU-{number}",
        index=str(number),
        pci_address=f"0000:{number}b:00.0",
        attributes=sorted_attributes([("productName", product), ("migEnabled", mig)]),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def mig(number: int, start: int, profile: str = "1g.5gb", **changes: object) -> Device:
    made = Device(
        name=f"mig-0000-{number}b-00-0-{start}-1",
        kind=DeviceKind.MIG,
        vendor="nvidia",
        uuid=f"MIG-{number}-{start}",
        pci_address=f"0000:{number}b:00.0",
        parent=f"gpu-0000-{number}b-00-0",
        attributes=sorted_attributes([("productName", "NVIDIA A100-SXM4-40GB"), ("profile", profile)]),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def snapshot(*devices: Device) -> Snapshot:
    return Snapshot(1, tuple(sorted(devices, key=lambda device: device.name)))


def ill(reason: str, state: HealthState = HealthState.UNHEALTHY) -> Health:
    return Health(state, reason)
