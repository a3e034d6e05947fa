"""Published pools: devices with who has them and what is left, whether slices or documents list them.

`publication` makes them of a cluster's objects, `documented` of documents. `ledger_of` is what searches work on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduling.allocator.claims import prevents
from scheduling.allocator.slices import SliceDevice, Taint
from scheduling.api.quantities import Quantity
from scheduling.pools.capacity import PoolLedger
from scheduling.pools.claim_documents import DeviceAllocation, ResourceAllocation
from scheduling.pools.documents import DevicePool, PoolDevice
from scheduling.pools.matching import devices_of


class PooledState(StrEnum):
    """Whether a claim could get a device now, and if not, why."""

    FREE = "free"
    TAKEN = "taken"
    """A claim has all of it."""
    SHARED = "shared"
    """Claims have parts of it."""
    TAINTED = "tainted"
    """A taint keeps claims away that do not tolerate it."""
    BLOCKED = "blocked"
    """The shared counters that it takes are not left, because other devices of the pool take them."""
    UNUSABLE = "unusable"
    """Its pool is incomplete or invalid."""


@dataclass(frozen=True, slots=True)
class DeviceUser:
    """A claim (`namespace/name`) that has a device, and its pods. `amounts`: what it draws; empty for all of it.

    `admin`: it has admin access, which takes nothing away.
    """

    claim: str
    pods: tuple[str, ...] = ()
    admin: bool = False
    shared: bool = False
    amounts: tuple[ResourceAllocation, ...] = ()


@dataclass(frozen=True, slots=True)
class AmountLeft:
    """An amount of a device or of a pool: all of it, and what is left of it; drawn in blocks, if it has any."""

    name: str
    capacity: Quantity
    left: Quantity
    block: Quantity | None = None


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """One device, who has it, and what is left of it.

    `shareable`: several claims can have parts of it. `lacking`: the pool's resources that a blocked device misses.
    `names`: full name of each attribute, by its flat one. `source`: the slice's device, None for one of a document.
    """

    document: PoolDevice
    state: PooledState
    users: tuple[DeviceUser, ...] = ()
    amounts: tuple[AmountLeft, ...] = ()
    lacking: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    shareable: bool = True
    source: SliceDevice | None = None

    @property
    def name(self) -> str:
        """The device's name in its pool."""
        return self.document.name

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The taints of the driver and of DeviceTaintRules."""
        return () if self.source is None else self.source.taints


@dataclass(frozen=True, slots=True)
class PublishedPool:
    """One pool, as the nodes in `nodes` see it. `node`: the only one, None if the pool is not bound to one.

    `document.metadata.name` is unique among all pools; `name` only among those of `driver`. `fault`: why none of its
    devices can be allocated, empty for a usable pool. `resources`: its shared counters, `set.counter` if it has several
    sets.
    """

    driver: str
    name: str
    document: DevicePool
    node: str | None
    nodes: tuple[str, ...]
    devices: tuple[PublishedDevice, ...]
    resources: tuple[AmountLeft, ...] = ()
    fault: str = ""

    def is_at(self, node: str) -> bool:
        """True if the node can use the pool."""
        return node in self.nodes


def ledger_of(pools: Iterable[PublishedPool]) -> PoolLedger:
    """The devices of pools that claims could get, with everything that is in use.

    Devices with a taint that keeps claims away are left out, and those of unusable pools.
    """
    pools = tuple(pools)
    offered = {
        (pool.document.metadata.name, each.name): each
        for pool in pools
        for each in pool.devices
        if not pool.fault and not any(prevents(taint) for taint in each.taints)
    }
    devices = [each for pool in pools for each in devices_of(pool.document) if each.name in offered]
    ledger = PoolLedger(devices, exclusive={name for name, each in offered.items() if not each.shareable})
    for (pool_name, name), each in offered.items():
        ledger.apply(DeviceAllocation(pool_name, name, user.amounts) for user in each.users if not user.admin)
    for pool in pools:
        # What devices that are left out take, and those of the same pool on other nodes.
        for resource, amount in zip(pool.document.spec.resources, pool.resources, strict=True):
            counted = ledger.left_of_pool(pool.document.metadata.name, resource)
            more = counted.nanos - amount.left.nanos
            ledger.draw_amount(pool.document.metadata.name, resource.name, max(0, more))
    return ledger
