"""What a person wants to see of pools: kinds of devices with what is free, cards with their partitions, nodes alike.

A *kind* is the devices of one pool that are called the same: by type, profile and product. A *card* is a device and the
partitions that it can be cut into: they draw on the same resources of the pool, and the whole takes all of them. Nodes
are alike if they have as many devices of the same kinds, whatever is in use of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from scheduling.api.quantities import Quantity
from scheduling.pools.capacity import quantity_of
from scheduling.pools.documents import AttributeValue
from scheduling.pools.published import AmountLeft, DeviceUser, PooledState, PublishedDevice, PublishedPool

MEMORY = "memory"
_PRODUCTS = ("productName", "model")
_NAMING = frozenset(("type", "profile", *_PRODUCTS))
_NUMBERED = re.compile(r"(.*?)[-_]?(\d+)")


@dataclass(frozen=True, slots=True)
class AmountSum:
    """An amount over several devices: all of it, and what is left where devices are available."""

    name: str
    capacity: Quantity
    left: Quantity

    def plus(self, others: Iterable[AmountSum]) -> AmountSum:
        """The sum with the same amount of other devices."""
        known = (self, *others)
        capacity, left = sum(each.capacity.nanos for each in known), sum(each.left.nanos for each in known)
        return AmountSum(self.name, quantity_of(capacity, self.capacity), quantity_of(left, self.capacity))


class PoolDeviceKind:
    """The devices of one pool that are called the same."""

    def __init__(self, pool: PublishedPool, name: str, devices: Sequence[PublishedDevice]) -> None:
        """`devices` in the order of the pool; at least one."""
        self.pool = pool
        self.name = name
        self.devices = tuple(devices)

    @cached_property
    def free(self) -> int:
        """Devices that nobody has and that a claim could get."""
        return sum(each.state is PooledState.FREE for each in self.devices)

    @cached_property
    def amounts(self) -> tuple[AmountSum, ...]:
        """Memory, and every amount that claims can have parts of. What a tainted or blocked device has is not left."""
        found: dict[str, list[tuple[AmountLeft, bool]]] = {}
        for device in self.devices:
            available = device.state in (PooledState.FREE, PooledState.SHARED)
            for each in device.amounts:
                if each.name == MEMORY or device.shareable:
                    found.setdefault(each.name, []).append((each, available))
        return tuple(_sum(name, given) for name, given in found.items())

    @cached_property
    def users(self) -> dict[DeviceUser, int]:
        """Who has how many of the devices, without those with admin access."""
        found: dict[DeviceUser, int] = {}
        for device in self.devices:
            for user in {DeviceUser(each.claim, each.pods): None for each in device.users if not each.admin}:
                found[user] = found.get(user, 0) + 1
        return found


def _sum(name: str, given: Sequence[tuple[AmountLeft, bool]]) -> AmountSum:
    first = given[0][0].capacity
    capacity = sum(each.capacity.nanos for each, _ in given)
    left = sum(each.left.nanos for each, available in given if available)
    return AmountSum(name, quantity_of(capacity, first), quantity_of(left, first))


def kinds_of(pool: PublishedPool) -> tuple[PoolDeviceKind, ...]:
    """The kinds of a pool, in the order of their first devices."""
    found: dict[str, list[PublishedDevice]] = {}
    for each in pool.devices:
        found.setdefault(kind_name(pool, each), []).append(each)
    return tuple(PoolDeviceKind(pool, name, devices) for name, devices in found.items())


def kind_name(pool: PublishedPool, device: PublishedDevice) -> str:
    """Type, profile and product of a device, as far as it has them: `mig 1g.5gb NVIDIA A100-SXM4-40GB`."""
    facts: dict[str, AttributeValue | None] = {}
    for each in (*pool.document.spec.attributes, *device.document.attributes):
        if each.name in _NAMING:
            facts[each.name] = each.value
    product = next((facts[name] for name in _PRODUCTS if name in facts), None)
    words = (facts.get("type"), facts.get("profile"), product)
    return " ".join(str(each) for each in words if each) or "device"


@dataclass(frozen=True, slots=True)
class CutCard:
    """A device and its partitions. `cells`: the pool's resources of one unit each that the partitions divide, if any.

    `resources`: everything that they divide.
    """

    whole: PublishedDevice
    parts: tuple[PublishedDevice, ...]
    resources: tuple[AmountLeft, ...]
    cells: tuple[AmountLeft, ...]

    @property
    def devices(self) -> tuple[PublishedDevice, ...]:
        """The whole, then its partitions."""
        return (self.whole, *self.parts)

    @property
    def cell_word(self) -> str:
        """What a cell is called, such as `memory slice`."""
        found = _NUMBERED.fullmatch(self.cells[0].name.rpartition(".")[2]) if self.cells else None
        return (found[1] if found is not None else "unit").replace("-", " ") or "unit"


def cards_of(pool: PublishedPool) -> tuple[CutCard, ...]:
    """The devices of a pool that can be cut, with their partitions."""
    found = [_card(pool, group) for group in _drawing_together(pool.devices)]
    return tuple(each for each in found if each is not None)


def _drawing_together(devices: Iterable[PublishedDevice]) -> list[list[PublishedDevice]]:
    """Devices in groups that share a resource of the pool, directly or over others."""
    groups: dict[str, int] = {}
    members: dict[int, list[PublishedDevice]] = {}
    for number, device in enumerate(devices):
        names = list(device.document.requests)
        known = {groups[name] for name in names if name in groups}
        into = min(known, default=number)
        together = [each for group in sorted(known) for each in members.pop(group)]
        if names:
            members[into] = [*together, device]
            groups.update((name, into) for name, group in list(groups.items()) if group in known)
            groups.update(dict.fromkeys(names, into))
    return list(members.values())


def _card(pool: PublishedPool, group: Sequence[PublishedDevice]) -> CutCard | None:
    """The card that a group of devices is; None if none of them takes everything that the others divide."""
    names = {name for each in group for name in each.document.requests}
    resources = tuple(each for each in pool.resources if each.name in names)
    takes_all = [each for each in group if all(_drawn(each, one.name) >= one.capacity.nanos for one in resources)]
    if not takes_all or len(takes_all) == len(group):
        return None
    cells = [(found, each) for each in resources if (found := _cell(each)) is not None]
    ordered = tuple(each for _, each in sorted(cells, key=itemgetter(0)))
    parts = tuple(each for each in group if each is not takes_all[0])
    return CutCard(takes_all[0], parts, resources, ordered if len(ordered) > 1 else ())


def _drawn(device: PublishedDevice, name: str) -> int:
    amount = device.document.requests.get(name)
    return 0 if amount is None else amount.nanos


def _cell(resource: AmountLeft) -> tuple[str, int] | None:
    """Name and number of a resource of one unit."""
    found = _NUMBERED.fullmatch(resource.name)
    return (found[1], int(found[2])) if found is not None and resource.capacity.nanos == 10**9 else None


class PoolNode:
    """One node with the pools that are on it alone; `name` empty for pools that several nodes reach."""

    def __init__(self, name: str, pools: Sequence[PublishedPool]) -> None:
        self.name = name
        self.pools = tuple(pools)
        self.kinds = tuple(kind for pool in pools for kind in kinds_of(pool))

    @property
    def likeness(self) -> tuple[object, ...]:
        """Equal for nodes that are alike."""
        return tuple((each.pool.driver, each.pool.fault, each.name, len(each.devices)) for each in self.kinds)


def nodes_of(pools: Iterable[PublishedPool]) -> tuple[PoolNode, ...]:
    """The nodes in the order of their pools, which is by name; pools of several nodes last."""
    found: dict[str, list[PublishedPool]] = {}
    for each in pools:
        found.setdefault(each.node or "", []).append(each)
    return tuple(PoolNode(name, of_node) for name, of_node in found.items())


def alike(nodes: Iterable[PoolNode]) -> tuple[tuple[PoolNode, ...], ...]:
    """Nodes in groups of those alike, the largest group first, then by name of the first."""
    found: dict[tuple[object, ...], list[PoolNode]] = {}
    for each in nodes:
        found.setdefault(each.likeness, []).append(each)
    return tuple(tuple(each) for each in sorted(found.values(), key=lambda group: -len(group)))
