"""Devices in use: what allocated claims hold, and what they leave of each pool.

Three kinds of holding exist side by side: a device held whole (dedicated), a share of a device that allows several
allocations, and the capacity that such shares consume. adminAccess holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Protocol

from scheduling.allocator.pools import ResourcePool
from scheduling.allocator.reading import Object, Part
from scheduling.allocator.slices import DeviceID, SharedDeviceID


class ClaimLister(Protocol):
    """Lists the claims of a cluster."""

    def list_all_allocated(self) -> Sequence[Object]:
        """The claims that are allocated (v1 objects), and no others."""


@dataclass(frozen=True)
class AllocatedState:
    """Devices in use.

    `capacity` is what shares consume of a device: capacity name -> nano-units, added up over all shares.
    """

    devices: frozenset[DeviceID] = frozenset()
    shared: frozenset[SharedDeviceID] = frozenset()
    capacity: Mapping[DeviceID, Mapping[str, int]] = field(default_factory=dict)

    @cached_property
    def partly(self) -> frozenset[DeviceID]:
        """Devices of which shares are in use."""
        return frozenset(share.device for share in self.shared) | frozenset(self.capacity)

    @cached_property
    def anyhow(self) -> frozenset[DeviceID]:
        """Devices in use whole or in part: those whose shared counters are consumed."""
        return self.devices | self.partly

    @classmethod
    def of_claims(cls, claims: Iterable[Object]) -> AllocatedState:
        """The state that the allocation results of these claims make. Raises `InvalidObject`."""
        devices: set[DeviceID] = set()
        shared: set[SharedDeviceID] = set()
        capacity: dict[DeviceID, dict[str, int]] = {}
        for claim in claims:
            for result in allocation_results(claim):
                if result.boolean("adminAccess"):
                    continue
                device = device_of(result)
                share = result.string("shareID")
                if not share:
                    devices.add(device)
                    continue
                shared.add(SharedDeviceID(device, share))
                consumed = capacity.setdefault(device, {})
                for name, amount in result.quantities("consumedCapacity").items():
                    consumed[name] = consumed.get(name, 0) + amount.nanos
        return cls(frozenset(devices), frozenset(shared), capacity)


def allocation_results(claim: Object) -> list[Part]:
    """The devices that a claim holds: the entries of `status.allocation.devices.results`."""
    status = Part.whole("ResourceClaim", claim).part("status")
    return status.part("allocation").part("devices").parts("results")


def device_of(result: Part) -> DeviceID:
    """Which device an allocation result names."""
    return DeviceID(result.string("driver"), result.string("pool"), result.string("device"))


CounterKey = tuple[str, str]
"""Counter set and counter of a pool."""


class Availability:
    """What allocated claims leave of each pool; computed once per pool, for all nodes."""

    def __init__(self, allocated: AllocatedState) -> None:
        """`allocated`: the devices in use."""
        self.allocated = allocated
        self._masks: dict[ResourcePool, int] = {}
        self._counters: dict[ResourcePool, Mapping[CounterKey, int]] = {}

    def held(self, pool: ResourcePool) -> int:
        """The devices of the pool that are in use whole, as a bit mask in the pool's device order."""
        mask = self._masks.get(pool)
        if mask is None:
            held = self.allocated.devices
            mask = sum(1 << index for index, device in enumerate(pool.devices) if device.id in held) if held else 0
            self._masks[pool] = mask
        return mask

    def counters(self, pool: ResourcePool) -> Mapping[CounterKey, int]:
        """The rest of the pool's shared counters; below 0 if more is in use than declared."""
        left = self._counters.get(pool)
        if left is None:
            left = self._counters[pool] = self._count(pool)
        return left

    def _count(self, pool: ResourcePool) -> Mapping[CounterKey, int]:
        left = {(name, counter): total for name, each in pool.counter_sets.items() for counter, total in each.items()}
        for device in chain(pool.devices, (device for each in pool.elsewhere for device in each.devices)):
            if device.id in self.allocated.anyhow:
                for key, amount in device.consumed.items():
                    left[key] -= amount
        return left
