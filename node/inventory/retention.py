"""What stays known of a device whose driver tells nothing of it any more.

Pure. A GPU that is lost while the agent runs comes back from its driver without name, MIG devices or capacity. Pods
may hold it or its parts, rules select by what it was, and the kubelet forgets ids that it is not shown; so the
previous snapshot's description is kept, with the health of now. It ends when the driver speaks of the device again, or
when the device itself is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from node.health.state import Health
from node.inventory.model import Device


def retained(devices: Iterable[Device], previous: Iterable[Device]) -> tuple[Device, ...]:
    """``devices`` completed from ``previous``, sorted by name."""
    found = {device.name: device for device in devices}
    before = {device.name: device for device in previous}
    untold = {
        name for name, device in found.items() if name in before and _untold(device) and not _untold(before[name])
    }
    for name in untold:
        found[name] = replace(before[name], uuid=found[name].uuid or before[name].uuid, health=found[name].health)
    for device in before.values():
        if device.parent in untold and device.name not in found:
            found[device.name] = replace(device, health=_fanned_out(found[device.parent]))
    return tuple(found[name] for name in sorted(found))


def _untold(device: Device) -> bool:
    return device.parent is None and not device.health.usable and not device.text("productName")


def _fanned_out(parent: Device) -> Health:
    reason = f"its {parent.kind.value.upper()} {parent.name}: {parent.health.reason}"
    return replace(parent.health, reason=reason)
