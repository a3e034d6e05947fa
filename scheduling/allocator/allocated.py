"""What is already allocated: the devices that claims hold.

Three kinds of holding exist side by side: a device held whole (dedicated), a share of a device that allows several
allocations, and the capacity that such shares consume. adminAccess holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from scheduling.allocator.identity import DeviceID, SharedDeviceID
from scheduling.allocator.reading import Object, boolean, mapping, objects, quantity, reference, string


class ClaimLister(Protocol):
    """Knows the claims of a cluster."""

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
            owner = reference("ResourceClaim", claim)
            for path, result in allocation_results(claim):
                if boolean(owner, result, "adminAccess", f"{path}.adminAccess"):
                    continue
                device = device_of(claim, path, result)
                share = string(owner, result, "shareID", f"{path}.shareID")
                if not share:
                    devices.add(device)
                    continue
                shared.add(SharedDeviceID(device, share))
                consumed = capacity.setdefault(device, {})
                for name, value in mapping(owner, result, "consumedCapacity", f"{path}.consumedCapacity").items():
                    amount = quantity(owner, value, f"{path}.consumedCapacity[{name}]")
                    consumed[name] = consumed.get(name, 0) + amount.nanos
        return cls(frozenset(devices), frozenset(shared), capacity)


def allocation_results(claim: Object) -> Iterable[tuple[str, Object]]:
    """The devices that a claim holds: path of the entry in the claim, entry of `status.allocation.devices.results`."""
    owner = reference("ResourceClaim", claim)
    allocation = mapping(owner, mapping(owner, claim, "status", "status"), "allocation", "status.allocation")
    devices = mapping(owner, allocation, "devices", "status.allocation.devices")
    path = "status.allocation.devices.results"
    for index, result in enumerate(objects(owner, devices, "results", path)):
        yield f"{path}[{index}]", result


def device_of(claim: Object, path: str, result: Object) -> DeviceID:
    """Which device an allocation result names."""
    owner = reference("ResourceClaim", claim)
    return DeviceID(*(string(owner, result, part, f"{path}.{part}") for part in ("driver", "pool", "device")))
