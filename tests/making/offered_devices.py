"""Devices as the inventory makes them, with what rules look at besides what containers get."""

from __future__ import annotations

from dataclasses import replace

from node.health.state import Health, HealthState
from node.inventory.model import Device, Snapshot, sorted_attributes
from tests.making import devices as edits


def gpu(number: int, product: str = "NVIDIA A100-SXM4-40GB", mig: bool = False, **changes: object) -> Device:
    facts = sorted_attributes([("productName", product), ("migEnabled", mig)])
    return edits.gpu(number, attributes=facts, **changes)


def mig(number: int, start: int, profile: str = "1g.5gb", **changes: object) -> Device:
    parent = gpu(number)
    made = replace(
        edits.mig(start),
        name=f"mig-0000-{number}b-00-0-{start}-1",
        uuid=f"MIG-{number}-{start}",
        index=None,
        pci_address=parent.pci_address,
        parent=parent.name,
        attributes=sorted_attributes([("productName", parent.text("productName")), ("profile", profile)]),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def snapshot(*devices: Device) -> Snapshot:
    return Snapshot(1, tuple(sorted(devices, key=lambda device: device.name)))


def ill(reason: str, state: HealthState = HealthState.UNHEALTHY) -> Health:
    return Health(state, reason)
