"""Devices as plugins list them, and the sets a kubelet keeps of them per resource. Pure.

A message is always the whole state. An id that is listed once healthy and once not is in both sets, as in the kubelet;
the later entry is the one whose topology counts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from protos.deviceplugin.v1beta1 import api_pb2

IdOrder = Callable[[Iterable[str]], list[str]]
"""Puts ids into the order in which they are chosen where a kubelet's choice is random."""

_DIGITS = re.compile("[0-9]+")

HEALTHY = "Healthy"
"""The one health string that counts as healthy, in this very spelling."""


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """One listed device; ``numa`` is None without a topology message and empty for one without nodes."""

    id: str
    health: str
    numa: tuple[int, ...] | None = None

    @property
    def healthy(self) -> bool:
        """Whether the kubelet may hand it out."""
        return self.health == HEALTHY


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """All that is known of one resource's devices."""

    known: Mapping[str, PluginDevice] = field(default_factory=dict)
    healthy: frozenset[str] = frozenset()
    unhealthy: frozenset[str] = frozenset()

    @classmethod
    def listed(cls, message: api_pb2.ListAndWatchResponse) -> DeviceSet:
        """The set that a ListAndWatch message lists."""
        devices = [
            PluginDevice(
                device.ID,
                device.health,
                tuple(node.ID for node in device.topology.nodes) if device.HasField("topology") else None,
            )
            for device in message.devices
        ]
        return cls(
            {device.id: device for device in devices},
            frozenset(device.id for device in devices if device.healthy),
            frozenset(device.id for device in devices if not device.healthy),
        )

    def lost(self) -> DeviceSet:
        """The same devices after their plugin went away: none of them healthy."""
        return DeviceSet(self.known, frozenset(), self.unhealthy | self.healthy)

    def only(self, ids: Iterable[str]) -> dict[str, PluginDevice]:
        """The listed devices among ``ids`` in natural order; ids that are not listed are left out."""
        return {device_id: self.known[device_id] for device_id in in_order(ids) if device_id in self.known}

    def numa_of(self, device_id: str) -> tuple[int, ...]:
        """NUMA nodes of a device, empty if it has none or is not listed."""
        device = self.known.get(device_id)
        return () if device is None or device.numa is None else device.numa

    def changed_since(self, before: DeviceSet) -> list[str]:
        """Ids whose health differs from ``before``, and ids that are new."""
        return [
            device.id
            for device in self.known.values()
            if device.id not in before.known or before.known[device.id].health != device.health
        ]


def natural_key(text: str) -> tuple[str, str]:
    """Sort key under which gpu-2 comes before gpu-10; ids are whatever a plugin sends, so no number is computed."""
    return _DIGITS.sub(_counted, text), text


def _counted(number: re.Match[str]) -> str:
    """A number whose order as text is that of its value: its length comes first, and sorts before all text."""
    digits = number[0].lstrip("0")
    return f"\0{chr(len(digits))}{digits}"


def in_order(ids: Iterable[str]) -> list[str]:
    """Ids in natural order; kubelets choose at random where the order is free, here it is always this one."""
    return sorted(ids, key=natural_key)


def random_order(seed: int) -> IdOrder:
    """A random order, the same for the same ``seed`` and calls; it shows what depends on the order by mistake."""
    chance = random.Random(seed)  # noqa: S311 - nothing has to be unpredictable

    def order(ids: Iterable[str]) -> list[str]:
        shuffled = in_order(ids)
        chance.shuffle(shuffled)
        return shuffled

    return order
