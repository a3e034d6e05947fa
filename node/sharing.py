"""Devices shared by several pods: how a rule shares them, and what one share takes of a device.

Pure values and arithmetic. A share is an amount of everything that a device can be divided by: ``memory`` in bytes, and
``compute`` in millionths of its compute time or threads. A replica of the plugin door and a share that a claim consumes
are amounts of the same device, so both doors can share one device and the ledger can add up what they take. Whoever
takes the whole device takes all of every amount.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from enum import StrEnum

from node.inventory.model import Device
from node.values import Value, value

MEMORY = "memory"
COMPUTE = "compute"
MILLION = 1_000_000
"""All of a device's compute."""

Amounts = tuple[tuple[str, int], ...]
"""Name and amount, sorted by name; a name that is missing is nothing."""


class SharingStrategy(StrEnum):
    """What keeps the pods of one device apart."""

    TIME_SLICING = "timeSlicing"
    """Nothing but the driver's time slices: memory is not limited."""
    MPS = "mps"
    """NVIDIA's Multi-Process Service, which limits memory and threads of each client."""


class SharePreference(StrEnum):
    """Which devices GetPreferredAllocation takes shares from first."""

    DISTRIBUTED = "distributed"
    """Those with the fewest shares given out."""
    PACKED = "packed"
    """Those with the most shares given out, so that whole devices stay free."""


@value
class Sharing(Value):
    """How the devices of a rule are shared.

    ``replicas``: shares of each device, two at least. ``own_replicas``: pairs of a pattern (with ``*``) for a device's
    name, UUID or index, and the shares of the devices that it matches; the first match counts, and 1 is one that is
    not shared. ``fail_multiple``: refuse a container that asks for more than one share, as NVIDIA's plugin does with
    ``failRequestsGreaterThanOne``. ``same_device``: a container with several shares may get two of one device; False
    leaves that to containers that no other choice is left for. ``memory_limit`` (bytes) and ``thread_percentage``
    limit each share under MPS; None is an equal part.
    """

    strategy: SharingStrategy = SharingStrategy.TIME_SLICING
    replicas: int = 2
    own_replicas: tuple[tuple[str, int], ...] = ()
    fail_multiple: bool = False
    same_device: bool = False
    preference: SharePreference = SharePreference.DISTRIBUTED
    memory_limit: int | None = None
    thread_percentage: int | None = None

    def replicas_of(self, device: Device) -> int:
        """The shares of this device; 1 for one that is not shared."""
        names = [name for name in (device.name, device.uuid, device.index) if name is not None]
        for pattern, replicas in self.own_replicas:
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                return replicas
        return self.replicas

    def replica_amounts(self, device: Device) -> Amounts:
        """What one replica of the device takes of it: an equal part, rounded down so that all of them fit."""
        replicas = self.replicas_of(device)
        return tuple((name, amount // replicas) for name, amount in whole_amounts(device))


def whole_amounts(device: Device) -> Amounts:
    """Everything that there is of a device to share; no memory where its size is unknown."""
    memory = next((capacity.value for capacity in device.capacity if capacity.name == MEMORY), None)
    return ((COMPUTE, MILLION), *(((MEMORY, memory),) if memory else ()))


def total(shares: Iterable[Amounts]) -> Mapping[str, int]:
    """The sum of several shares, by name."""
    sums: dict[str, int] = {}
    for amounts in shares:
        for name, amount in amounts:
            sums[name] = sums.get(name, 0) + amount
    return sums


def fit_within(shares: Iterable[Amounts], whole: Amounts) -> bool:
    """Whether all of these shares together are no more than the whole has; an amount that it lacks fits not at all."""
    sizes = dict(whole)
    return all(amount <= sizes.get(name, 0) for name, amount in total(shares).items())
