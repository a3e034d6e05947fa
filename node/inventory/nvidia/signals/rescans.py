"""Decides after a look whether a scan should follow at once, because the last one is out of date.

Pure. Scans and looks read the same signs and each speaks for itself: what a scan has found is held against the device
until a scan finds it gone, and the next one by itself may be a minute away. So a look that finds less than the last
scan, or less than the look before, wakes the inventory. It does so once: where the two read differently for long, no
scan follows each look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from node.health.signal import Condition, Trouble
from node.inventory.facts import Fabric
from node.inventory.model import Device, DeviceKind, Snapshot
from node.inventory.nvidia.signals.gpus import GpuId
from node.inventory.nvidia.signals.vitals import Vitals

_SEEN_BY_BOTH = frozenset({Trouble.LOST, Trouble.RECOVERY, Trouble.ROW_REMAP, Trouble.SRAM, Trouble.FABRIC})
"""What scans hold against a GPU as well as looks."""

Found = Mapping[GpuId, tuple[Condition, ...]]


class Rescans:
    """What the last scan and the last look at each GPU have found."""

    def __init__(self) -> None:
        self._scanned: dict[str, str] = {}
        """The cause by the device's name, until a look does not find it."""
        self._looked: dict[GpuId, frozenset[tuple[Trouble, int | None]]] = {}
        self._fabrics: dict[GpuId, Fabric | None] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """A scan was published."""
        self._scanned = {device.name: device.health.cause for device in snapshot.devices if _is_comparable(device)}

    def follows(self, found: Found, vitals: Mapping[GpuId, Vitals], name: Callable[[GpuId], str | None]) -> bool:
        """Whether a scan should follow this look; ``name`` gives the name of a GPU's device."""
        differs = [self._has_another_fabric(gpu, now) for gpu, now in vitals.items()]
        differs += [self._finds_less(gpu, name(gpu), conditions) for gpu, conditions in found.items()]
        return any(differs)

    def _has_another_fabric(self, gpu: GpuId, now: Vitals) -> bool:
        """Whether the clique, which scans tell, may be another one."""
        if now.gone is not None:
            return False
        before = self._fabrics.get(gpu, now.fabric)
        self._fabrics[gpu] = now.fabric
        return before != now.fabric

    def _finds_less(self, gpu: GpuId, name: str | None, conditions: tuple[Condition, ...]) -> bool:
        found = frozenset((each.kind, each.code) for each in conditions if each.kind in _SEEN_BY_BOTH)
        before, self._looked[gpu] = self._looked.get(gpu, frozenset()), found
        is_over = bool(before - found)
        # A look may see nothing of what a scan has seen, as when it came late.
        if name in self._scanned and self._scanned[name] not in {kind for kind, _ in found}:
            del self._scanned[name]
            is_over = True
        return is_over


def _is_comparable(device: Device) -> bool:
    return device.kind is DeviceKind.GPU and device.health.cause in _SEEN_BY_BOTH
