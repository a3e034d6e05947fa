"""Every way to meet claims, tried one by one: what the search is compared with on small cases.

It shares no code with the search but the documents and the merged attributes of devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from scheduling.pools.claim_documents import DeviceClaim, DeviceClaimDetail
from scheduling.pools.documents import DevicePool, PoolDeviceClass
from scheduling.pools.matching import PooledDevice, devices_of
from scheduling.pools.search import PoolSolution

NANO = 10**9
Choice = tuple[tuple[int, ...], ...]
"""The devices of each need, by number."""


@dataclass(frozen=True)
class Need:
    """One need of one claim; `alternative` is its place in oneOf, `admin` how it is met."""

    claim: int
    detail: DeviceClaimDetail
    alternative: int
    admin: bool
    devices: tuple[int, ...]


def best(
    claims: Sequence[DeviceClaim],
    classes: Mapping[str, PoolDeviceClass],
    pools: Sequence[DevicePool],
    others: Sequence[DeviceClaim],
) -> Any:
    """The rank of the best way (see `rank`), None if there is none."""
    devices = [each for pool in pools for each in devices_of(pool)]
    ranks = [
        rank(needs, chosen, devices, len(claims))
        for needs in _choices(claims, classes, devices)
        for chosen in product(*(_subsets(need) for need in needs))
        if is_way(needs, chosen, devices, claims, others)
    ]
    return min(ranks, default=None)


def rank(needs: Sequence[Need], chosen: Choice, devices: Sequence[PooledDevice], claims: int) -> Any:
    """What ways are compared by: alternatives, then pools and devices of each claim, then classes and devices."""
    counts = []
    for claim in range(claims):
        mine = [number for need, each in zip(needs, chosen, strict=True) if need.claim == claim for number in each]
        counts.append((len({devices[number].pool.metadata.name for number in mine}), len(mine)))
    taken = tuple((need.admin, each) for need, each in zip(needs, chosen, strict=True))
    return (tuple(need.alternative for need in needs), tuple(counts), taken)


def rank_of(found: PoolSolution, claims: Sequence[DeviceClaim], pools: Sequence[DevicePool]) -> Any:
    """The rank of an answer of the search."""
    devices = [each for pool in pools for each in devices_of(pool)]
    numbers = {each.name: number for number, each in enumerate(devices)}
    chosen = tuple(tuple(numbers[one.device.name] for one in need.devices) for need in found.needs)
    needs = [
        Need(owner, need.detail, need.alternative or 0, need.devices[0].admin_access, ())
        for need in found.needs
        for owner, claim in enumerate(claims)
        if claim is need.claim
    ]
    return rank(needs, chosen, devices, len(claims))


def _choices(
    claims: Sequence[DeviceClaim], classes: Mapping[str, PoolDeviceClass], devices: Sequence[PooledDevice]
) -> Iterator[list[Need]]:
    slots: list[list[Need]] = []
    for number, claim in enumerate(claims):
        for instance in claim.spec.claims:
            details = [[each] for each in instance.all_of] + ([list(instance.one_of)] if instance.one_of else [])
            slots += [
                [need for place, each in enumerate(slot) for need in _accesses(number, each, place, classes, devices)]
                for slot in details
            ]
    for each in product(*slots):
        yield list(each)


def _accesses(
    claim: int,
    detail: DeviceClaimDetail,
    place: int,
    classes: Mapping[str, PoolDeviceClass],
    devices: Sequence[PooledDevice],
) -> Iterator[Need]:
    named = [
        each
        for each in classes.values()
        if detail.device_class in (None, each.metadata.name) and detail.device_type in (None, each.spec.device_type)
    ]
    for admin in (False, True):
        drivers = {each.spec.driver for each in named if bool(each.spec.admin_access) == admin}
        fitting = [number for number, each in enumerate(devices) if each.pool.spec.driver in drivers]
        if detail.constraints == "device.color == 'red'":
            fitting = [number for number in fitting if devices[number].attribute("color") == ("string", "red")]
        if fitting:
            yield Need(claim, detail, place, admin, tuple(fitting))


def _count(detail: DeviceClaimDetail, default: int, key: str) -> int:
    amounts = getattr(detail, key)
    return amounts["count"].nanos // NANO if "count" in amounts else default


def _subsets(need: Need) -> Iterator[tuple[int, ...]]:
    least = _count(need.detail, 1, "requests")
    for size in range(least, _count(need.detail, least, "limits") + 1):
        yield from combinations(need.devices, size)


def is_way(
    needs: Sequence[Need],
    chosen: Choice,
    devices: Sequence[PooledDevice],
    claims: Sequence[DeviceClaim],
    others: Sequence[DeviceClaim],
) -> bool:
    for number, claim in enumerate(claims):
        mine = [each for need, each in zip(needs, chosen, strict=True) if need.claim == number]
        if not _match([one for each in mine for one in each], claim.spec.match_attributes, devices):
            return False
    for need, each in zip(needs, chosen, strict=True):
        if not _match(each, need.detail.match_attributes, devices):
            return False
    busy = [each for claim in others for each in claim.status.allocations]
    used = {number for number, each in enumerate(devices) if any((one.pool, one.device) == each.name for one in busy)}
    users: dict[int, list[bool]] = {}
    for need, each in zip(needs, chosen, strict=True):
        for number in each if not need.admin else ():
            users.setdefault(number, []).append(bool(_listed(need, devices[number])))
    for number, shared in users.items():
        theirs = [bool(one.allocations) for one in busy if (one.pool, one.device) == devices[number].name]
        if len(theirs) + len(shared) > 1 and not all((*shared, *theirs)):
            return False
    return _pools_hold(used | set(users), set(users) - used, devices) and _amounts_hold(needs, chosen, devices, busy)


def _match(chosen: Sequence[int], names: Sequence[str], devices: Sequence[PooledDevice]) -> bool:
    return all(
        all(devices[one].attribute(name) is not None for one in chosen)
        and len({devices[one].attribute(name) for one in chosen}) <= 1
        for name in names
    )


def _listed(need: Need, device: PooledDevice) -> list[str]:
    return [each.name for each in device.device.resources if each.name in need.detail.requests]


def _pools_hold(used: set[int], new: set[int], devices: Sequence[PooledDevice]) -> bool:
    """What pools have is enough for all used devices; where nothing new is taken it does not matter."""
    for pool in {devices[number].pool.metadata.name: devices[number].pool for number in new}.values():
        for resource in pool.spec.resources:
            block = resource.block_size.nanos if resource.block_size else 1
            total = sum(
                -(-devices[number].device.requests[resource.name].nanos // block) * block
                for number in used
                if devices[number].pool is pool and resource.name in devices[number].device.requests
            )
            if total > resource.capacity.nanos and any(
                resource.name in devices[number].device.requests for number in new if devices[number].pool is pool
            ):
                return False
    return True


def _amounts_hold(needs: Sequence[Need], chosen: Choice, devices: Sequence[PooledDevice], busy: Sequence[Any]) -> bool:
    for name in {name for need in needs for name in need.detail.requests if name != "count"}:
        left: dict[int, tuple[int, int]] = {}
        for number, device in enumerate(devices):
            for each in device.device.resources:
                if each.name == name:
                    block = each.block_size.nanos // NANO if each.block_size else 0
                    drawn = sum(
                        -(-amount.allocation.nanos // NANO // (block or 1)) * (block or 1)
                        for one in busy
                        if (one.pool, one.device) == device.name
                        for amount in one.allocations
                        if amount.name == name
                    )
                    left[number] = (max(0, each.capacity.nanos // NANO - drawn), block)
        demands = [
            (need.detail.requests[name].nanos // NANO, [one for one in each if name in _listed(need, devices[one])])
            for need, each in zip(needs, chosen, strict=True)
            if not need.admin and name in need.detail.requests
        ]
        if any(amount and left[one][0] < max(1, left[one][1]) for amount, giving in demands for one in giving):
            return False
        if not _draw(demands, left):
            return False
    return True


def _draw(demands: Sequence[tuple[int, list[int]]], left: Mapping[int, tuple[int, int]]) -> bool:
    if not demands:
        return True
    (amount, giving), *rest = demands
    steps = [range(left[one][1] if amount else 0, left[one][0] + 1, left[one][1] or 1) for one in giving]
    for gives in product(*steps):
        if sum(gives) >= amount:
            after = dict(left)
            for one, given in zip(giving, gives, strict=True):
                after[one] = (after[one][0] - given, after[one][1])
            if _draw(rest, after):
                return True
    return False
