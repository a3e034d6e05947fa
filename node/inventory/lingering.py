"""What the node used a NIC for, kept for a while after it seems to have ended.

A default route goes and comes back when an interface is restarted or its lease renewed. A device that was offered in
that moment could be given to a pod, and the node would be off the network for good; so what the node needed a NIC for
counts for a minute longer, as long as the device is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.inventory.model import Device
from node.values import replace

SECONDS = 60.0


class LingeringUses:
    """Remembers uses by device name from scan to scan; one scan at a time."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}

    def applied(self, devices: Iterable[Device], now: float) -> tuple[Device, ...]:
        """The devices, those that had a use in the last minute with it; ``now`` in Unix seconds."""
        seen: dict[str, tuple[str, float]] = {}
        found = []
        for device in devices:
            use, at = (device.host_use, now) if device.host_use else self._seen.get(device.name, ("", now))
            # A clock that was set back makes the time negative, and the use is kept a minute from now.
            if use and now - at < SECONDS:
                seen[device.name] = use, min(at, now)
                found.append(device if device.host_use == use else replace(device, host_use=use))
            else:
                found.append(device)
        self._seen = seen
        return tuple(found)
