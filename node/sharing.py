"""Devices shared by several pods: how a rule shares them, and what one share takes of a device.

Pure values and arithmetic. A share is an amount of everything that a device can be divided by: ``memory`` in bytes, and
``compute`` in millionths of its compute time or threads. A replica of the plugin door and a share that a claim consumes
are amounts of the same device, so both doors can share one device and the ledger can add up what they take. A holder of
the whole device takes all of every amount.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from enum import StrEnum

from node.inventory.model import Device, DeviceKind, Version
from node.values import Value, quick, value

MEMORY = "memory"
COMPUTE = "compute"
MILLION = 1_000_000
"""All of a device's compute."""
MOST_CLIENTS = 48
"""Clients that an MPS server takes for one GPU (MPS documentation, Volta and later)."""
_MOST_CLIENTS_BEFORE = 16
_CLIENTS_SINCE = (7, 5)
"""Compute capability from which a GPU takes ``MOST_CLIENTS``, as NVIDIA's plugin counts."""
_MIB = 1024 * 1024

REPLICA = "::"
"""Stands between a device's id and the number of its replica, as in NVIDIA's plugin."""

Amounts = tuple[tuple[str, int], ...]
"""Name and amount, sorted by name; a name that is missing is nothing."""


class SharingStrategy(StrEnum):
    """How the pods of one device share it."""

    TIME_SLICING = "timeSlicing"
    """Nothing but the driver's time slices: memory is not limited."""
    MPS = "mps"
    """NVIDIA's Multi-Process Service, which limits memory and threads of each client."""


class SharePreference(StrEnum):
    """Which devices GetPreferredAllocation takes shares from first."""

    DISTRIBUTED = "distributed"
    """Those with the fewest shares allocated."""
    PACKED = "packed"
    """Those with the most shares allocated, so that whole devices stay free."""


@value
class Sharing(Value):
    """How the devices of a rule are shared.

    ``replicas``: shares of each device, two at least. ``own_replicas``: pairs of a pattern (with ``*``) for a device's
    name, UUID or index, and the shares of the devices that it matches; the first match counts, and 1 is one that is
    not shared. ``fail_multiple``: refuse a container that asks for more than one share, as NVIDIA's plugin does with
    ``failRequestsGreaterThanOne``. ``same_device``: a container with several shares may get two of one device; False
    leaves that to containers that no other choice is left for. ``memory_limit`` (bytes) and ``thread_percentage``
    limit each share under MPS; None is an equal part. Memory is reserved, so limits must fit together; a percentage of
    threads is an upper bound, and bounds may overlap.
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
        """The number of shares of this device; 1 if it is not shared."""
        names = [name for name in (device.name, device.uuid, device.index) if name is not None]
        for pattern, replicas in self.own_replicas:
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                return replicas
        return self.replicas

    def replica_amounts(self, device: Device) -> Amounts:
        """The amounts that one replica takes of the device: an equal part, rounded down so that all of them fit."""
        replicas = self.replicas_of(device)
        parts = ((name, amount // replicas) for name, amount in whole_amounts(device))
        limit = self.memory_limit if replicas > 1 else None
        return tuple((name, limit if limit is not None and name == MEMORY else amount) for name, amount in parts)

    def client_amounts(self, device: Device, amounts: Amounts) -> Amounts:
        """The amounts that a client of MPS may use with a share of this size; the rule bounds the threads of a
        replica."""
        part, percent = dict(self.replica_amounts(device)).get(COMPUTE, 0), MILLION // 100
        if self.thread_percentage is None or dict(amounts).get(COMPUTE, 0) // percent != part // percent:
            return amounts
        threads = self.thread_percentage * percent
        return tuple((name, threads if name == COMPUTE else amount) for name, amount in amounts)

    def unsuited(self, device: Device) -> str:
        """Why the device cannot be shared in this way, as a sentence with the fix; empty if it can."""
        replicas = self.replicas_of(device)
        if replicas <= 1 or self.strategy is not SharingStrategy.MPS:
            return ""
        if device.vendor != "nvidia" or device.kind is not DeviceKind.GPU:
            return "MPS shares whole GPUs of NVIDIA only; use strategy timeSlicing for this device"
        if device.attribute("migEnabled") is True:
            return "MPS cannot share a GPU in MIG mode; share its MIG devices with strategy timeSlicing"
        clients = most_clients(device)
        if replicas > clients:
            return f"MPS serves at most {clients} clients on this GPU, and the rule makes {replicas} replicas of it"
        memory = dict(whole_amounts(device)).get(MEMORY)
        if memory is None or self.memory_limit is None or replicas * self.memory_limit <= memory:
            return ""
        return (
            f"{replicas} replicas with a memoryLimit of {self.memory_limit // _MIB} MiB exceed the GPU's "
            f"{memory // _MIB} MiB; lower memoryLimit or replicas"
        )


@quick
@value
class SharedDevice(Value):
    """How a rule divides one device: into replicas of ``resource``, each of which takes ``amounts`` of ``whole``."""

    resource: str
    replicas: int
    amounts: Amounts
    whole: Amounts


def replica_id(id_: str, share: str) -> str:
    """The id of a replica towards the kubelet: ``GPU-…::3``; that of the device itself for no share."""
    return f"{id_}{REPLICA}{share}" if share else id_


def replica_of(id_: str) -> tuple[str, str]:
    """The id of the device and the number of its replica; ``id_`` itself and no number if it is not a replica's."""
    device, found, number = id_.rpartition(REPLICA)
    return (device, number) if found and number.isascii() and number.isdecimal() else (id_, "")


def most_clients(device: Device) -> int:
    """Processes that may use the GPU through MPS at the same time."""
    capability = device.attribute("cudaComputeCapability")
    if not isinstance(capability, Version):
        return MOST_CLIENTS
    major, minor, _ = (int(part) for part in str(capability).split("."))
    return MOST_CLIENTS if (major, minor) >= _CLIENTS_SINCE else _MOST_CLIENTS_BEFORE


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


def left_of(whole: Amounts, shares: Iterable[Amounts]) -> Mapping[str, int]:
    """The amounts of the whole that these shares leave, by name; never below zero."""
    taken = total(shares)
    return {name: max(amount - taken.get(name, 0), 0) for name, amount in whole}


def room_for(share: Amounts, left: Mapping[str, int]) -> int:
    """How many shares of this size fit into the rest."""
    return min((left.get(name, 0) // amount for name, amount in share if amount), default=0)


def amount_words(amounts: Amounts) -> str:
    """Amounts for people: ``25% of compute and 10 GiB of memory``; ``no counted amount`` for none."""
    return " and ".join(f"{_words(name, amount)} of {name}" for name, amount in amounts) or "no counted amount"


def _words(name: str, amount: int) -> str:
    if name == COMPUTE:
        return f"{amount * 100 / MILLION:.4g}%"
    if name != MEMORY:
        return str(amount)
    units = ("bytes", "KiB", "MiB", "GiB")
    power = next((power for power in (3, 2, 1) if amount >= 1024**power), 0)
    return f"{amount / 1024**power:.4g} {units[power]}" if power else f"{amount} bytes"


def too_little_left(short: Iterable[str]) -> str:
    """Why claims get no share of a device if pods leave too little, with the names of the short amounts."""
    return f"pods have shares of it through the plugin door, which leave less {' and '.join(short)} than a share takes"


def fit_within(shares: Iterable[Amounts], whole: Amounts) -> bool:
    """Whether all of these shares together are no more than the whole has; an amount that the whole lacks never
    fits."""
    sizes = dict(whole)
    return all(amount <= sizes.get(name, 0) for name, amount in total(shares).items())
