"""Which devices of a node suit one need, and what stands in the way of the others, device by device.

Each device is looked at as if it were the only one wanted; what several devices or needs do to each other is for the
search to say. A device that a constraint refuses is not looked at further. Of several classes that could have a device
(a need by `deviceType`) the first that lets it through decides, or else the first of the device's driver explains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from scheduling.allocator.claims import prevents
from scheduling.cel.program import DeviceRead, MissingValue, SelectorCondition
from scheduling.pools.capacity import PoolLedger, round_down
from scheduling.pools.claim_documents import DeviceClaimDetail
from scheduling.pools.constraints import DeviceFacts, constraint, outcome_of
from scheduling.pools.documents import PoolDeviceClass
from scheduling.pools.matching import MatchingError, PooledDevice, candidate_classes, devices_of, has_admin_access
from scheduling.pools.obstacles import (
    AmountUsedUp,
    AttributeRead,
    ConstraintBroken,
    ConstraintUnmet,
    DevicesTaken,
    DriverElsewhere,
    OfPoolDevices,
    PoolDevicesTainted,
    PoolObstacle,
    PoolResourceShort,
    PoolUnusable,
    gist,
)
from scheduling.pools.published import DeviceUser, PublishedDevice, PublishedPool
from scheduling.pools.published_classes import ClusterClasses

_DRIVER = "device.driver"
_ATTRIBUTE = re.compile(r"""device(?:\.\??(\w+)|\[\??["']([^"']+))""")
MOST_VALUES = 4
"""Lines for one condition with different values."""
EXAMPLES = 3
"""Values shown in one line."""


@dataclass(frozen=True, slots=True)
class DevicesOfNode:
    """The pools that one node can use, their devices in the order of the search, and what is in use of them."""

    pools: tuple[PublishedPool, ...]
    devices: tuple[tuple[PublishedPool, PublishedDevice, PooledDevice], ...]
    ledger: PoolLedger


def supply_of(pools: Sequence[PublishedPool], ledger: PoolLedger) -> DevicesOfNode:
    """The supply of pools, whose devices that can be allocated are in the ledger."""
    devices = tuple(
        (pool, published, ledger.devices.get(device.name, device))
        for pool in pools
        for published, device in zip(pool.devices, devices_of(pool.document), strict=True)
    )
    return DevicesOfNode(tuple(pools), devices, ledger)


@dataclass(frozen=True, slots=True)
class ScreenedNeed:
    """`about`: devices of the need's drivers; `suitable`: let through by constraints; `usable`: nothing against them.

    `broken`: constraints that fail with an error, which ends the search for the claim on this node.
    """

    about: tuple[PooledDevice, ...]
    suitable: tuple[PooledDevice, ...]
    usable: tuple[PooledDevice, ...]
    obstacles: tuple[PoolObstacle, ...]
    broken: tuple[PoolObstacle, ...] = ()


def screen(detail: DeviceClaimDetail, classes: ClusterClasses, supply: DevicesOfNode) -> ScreenedNeed:
    """Every device against one need. Raises MatchingError for a need that no device can be judged by."""
    candidates = candidate_classes(detail, classes.documents)
    screening = _NeedScreening(detail, candidates, classes)
    drivers = {each.spec.driver for each in candidates}
    of_drivers = [each for each in supply.devices if each[0].driver in drivers or "" in drivers]
    answers = [(each, screening.let_through(each[2])) for each in of_drivers]
    about = [(each, answer) for each, answer in answers if not answer.foreign]
    if not about:
        present = sorted({pool.driver for pool in supply.pools if pool.devices})
        return ScreenedNeed((), (), (), (DriverElsewhere(screening.wanted, tuple(present)),))
    refused = [answer.against for _, answer in about if answer.against is not None]
    suitable: list[PooledDevice] = []
    usable: list[PooledDevice] = []
    found: list[OfPoolDevices] = []
    for (pool, published, device), answer in about:
        if answer.through is None:
            continue
        suitable.append(device)
        in_the_way = _not_offered(pool, published, device, supply.ledger)
        if in_the_way is None and not has_admin_access(detail, answer.through):
            in_the_way = _in_use(detail, pool, published, device, supply.ledger)
        if in_the_way is None:
            usable.append(device)
        else:
            found.append(in_the_way)
    unmet = sorted(_merged(refused), key=lambda each: each.others if isinstance(each, ConstraintUnmet) else -1)
    broken = tuple(each for each in unmet if isinstance(each, ConstraintBroken))
    shown = (*sorted(_merged(found), key=_order), *_few_values(unmet))
    return ScreenedNeed(tuple(each[2] for each, _ in about), tuple(suitable), tuple(usable), shown, broken)


@dataclass(frozen=True, slots=True)
class _ClassAnswer:
    """The class `through` which a need can have a device, or what is `against` it.

    `foreign`: every class is about the devices of other drivers.
    """

    through: PoolDeviceClass | None = None
    against: OfPoolDevices | None = None
    foreign: bool = False


class _NeedScreening:
    """One need and its classes, asked about one device after the other."""

    def __init__(
        self, detail: DeviceClaimDetail, candidates: Sequence[PoolDeviceClass], classes: ClusterClasses
    ) -> None:
        self._detail = detail
        self._candidates = candidates
        self._classes = classes
        self.wanted = tuple(sorted({each.spec.driver or f"class {each.metadata.name}" for each in candidates}))
        """The drivers of the need's classes; a class of the cluster itself where it does not name one."""

    def let_through(self, device: PooledDevice) -> _ClassAnswer:
        """Whether the constraints of the need and of one of its classes are true."""
        first: OfPoolDevices | None = None
        for class_ in self._candidates:
            if class_.spec.driver not in ("", device.pool.spec.driver):
                continue
            try:
                against = self._of_class(class_, device) or self._of_claim(device)
            except _Foreign:
                continue
            if against is None:
                return _ClassAnswer(class_)
            if first is None or isinstance(against, ConstraintBroken):
                first = against
        return _ClassAnswer(against=first, foreign=first is None)

    def _of_class(self, class_: PoolDeviceClass, device: PooledDevice) -> OfPoolDevices | None:
        owner, name = f"class {class_.metadata.name}", class_.metadata.name
        if not self._classes.is_of_cluster(name):
            return _of_constraint(owner, class_.spec.constraints, device)
        try:
            if self._classes.has(name, device.name):
                return None
            conditions = self._classes.conditions(name, device.name)
        except MatchingError as error:
            return ConstraintBroken((device.device.name,), 1, owner, "", str(error))
        false = [each for each in conditions if each.outcome is False]
        if false and all(read.path == _DRIVER for read in false[0].reads) and false[0].reads:
            raise _Foreign
        reads = tuple(_slice_read(each) for each in false[0].reads) if false else ()
        return _unmet(owner, false, reads, "its selectors", device)

    def _of_claim(self, device: PooledDevice) -> OfPoolDevices | None:
        return _of_constraint("the claim", self._detail.constraints, device)


class _Foreign(Exception):
    """A selector that is about the devices of another driver."""


def _of_constraint(owner: str, text: str | None, device: PooledDevice) -> OfPoolDevices | None:
    outcome = outcome_of(text, device.facts)
    if outcome.error is not None:
        return ConstraintBroken((device.device.name,), 1, owner, text or "", outcome.error.message)
    if outcome.result or not text:
        return None
    false = [each for each in constraint(text).conditions(device.facts) if each.outcome is False]
    reads = tuple(_read(each.path, device.facts) for each in false[0].reads) if false else ()
    return _unmet(owner, false, reads, text, device)


def _unmet(
    owner: str,
    false: Sequence[SelectorCondition],
    reads: tuple[AttributeRead, ...],
    whole: str,
    device: PooledDevice,
) -> ConstraintUnmet:
    """The first condition that is false, with what it reads; all of them if none is false alone."""
    text = " ".join((false[0].text if false else whole).split())
    return ConstraintUnmet((device.device.name,), 1, owner, text, tuple(dict.fromkeys(reads)), max(0, len(false) - 1))


def _slice_read(read: DeviceRead) -> AttributeRead:
    return AttributeRead(read.path, None if isinstance(read.value, MissingValue) else _written(read.value))


def _read(path: str, facts: DeviceFacts) -> AttributeRead:
    named = _ATTRIBUTE.search(path)
    name = (named[1] or named[2]) if named is not None else path
    found = facts.values.get(name)
    value = None if found is None or found.value is None else found.value
    return AttributeRead(name, None if value is None else _written(value))


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | int) else str(value)


def _not_offered(
    pool: PublishedPool, published: PublishedDevice, device: PooledDevice, ledger: PoolLedger
) -> OfPoolDevices | None:
    """Why no claim of any kind can have a device."""
    if device.name in ledger.devices:
        return None
    if pool.fault:
        return PoolUnusable((published.name,), 1, pool.name, pool.fault)
    taint = next((each for each in published.taints if prevents(each)), None)
    assert taint is not None, f"{device.name} is neither tainted nor of an unusable pool, but is not offered"
    return PoolDevicesTainted((published.name,), 1, taint.key, taint.value, taint.effect)


def _in_use(
    detail: DeviceClaimDetail,
    pool: PublishedPool,
    published: PublishedDevice,
    device: PooledDevice,
    ledger: PoolLedger,
) -> OfPoolDevices | None:
    """Why the device cannot be used now, as the search sees it."""
    name = device.name
    shared = [each for each in device.device.resources if each.name in detail.amounts]
    use = ledger.uses[name]
    if not use.users:
        lacking = next(ledger.lacking(device), None)
        if lacking is not None:
            return _pool_short(lacking, pool, device, ledger)
    elif not shared or ledger.is_exclusive(name):
        return DevicesTaken((published.name,), 1, (_users([published]),))
    for each in shared:
        left = ledger.left_of_device(name, each)
        block = 0 if each.block_size is None else each.block_size.nanos
        if detail.requests[each.name].nanos and round_down(left.nanos, block) <= 0:
            size = "" if each.block_size is None else str(each.block_size)
            users = _users([published])
            return AmountUsedUp((published.name,), 1, each.name, str(left), str(each.capacity), size, users)
    return None


def _pool_short(resource: str, pool: PublishedPool, device: PooledDevice, ledger: PoolLedger) -> PoolResourceShort:
    listed = next((each for each in device.pool.spec.resources if each.name == resource), None)
    left = "0" if listed is None else str(ledger.left_of_pool(device.name[0], listed))
    capacity = "0" if listed is None else str(listed.capacity)
    drawing = [each for each in pool.devices if each.users and resource in each.document.requests]
    taken = str(device.device.requests[resource])
    return PoolResourceShort((device.device.name,), 1, pool.name, resource, taken, left, capacity, _users(drawing))


def _users(devices: Iterable[PublishedDevice]) -> tuple[DeviceUser, ...]:
    """Who has some devices, each once; how much they draw does not matter here."""
    users = (DeviceUser(user.claim, user.pods) for each in devices for user in each.users if not user.admin)
    return tuple(dict.fromkeys(users))


def _merged(obstacles: Iterable[OfPoolDevices]) -> list[OfPoolDevices]:
    """Equal reasons of several devices as one, in the order in which they were first met."""
    found: dict[Hashable, list[OfPoolDevices]] = {}
    for each in obstacles:
        where = each.pool if isinstance(each, PoolResourceShort | PoolUnusable) else ""
        found.setdefault((where, gist(each)), []).append(each)
    return [_joined(same) for same in found.values()]


def _joined(same: Sequence[OfPoolDevices]) -> OfPoolDevices:
    devices = tuple(chain.from_iterable(each.devices for each in same))
    joined = replace(same[0], devices=devices, count=len(devices))
    if isinstance(joined, DevicesTaken):
        users = tuple(chain.from_iterable(each.users for each in same if isinstance(each, DevicesTaken)))
        return replace(joined, users=users)
    if isinstance(joined, AmountUsedUp | PoolResourceShort):
        several = (each.users for each in same if isinstance(each, AmountUsedUp | PoolResourceShort))
        return replace(joined, users=tuple(dict.fromkeys(chain.from_iterable(several))))
    return joined


_ORDER = (DevicesTaken, AmountUsedUp, PoolResourceShort, PoolDevicesTainted, PoolUnusable)


def _order(obstacle: OfPoolDevices) -> int:
    """The place among reasons of suitable devices: what goes away by itself first."""
    return next(number for number, kind in enumerate(_ORDER) if isinstance(obstacle, kind))


def _few_values(unmet: Sequence[OfPoolDevices]) -> Iterator[OfPoolDevices]:
    """One condition that is false for many values, such as of a serial number: the first few stand for all."""
    same: dict[tuple[str, str], list[ConstraintUnmet]] = {}
    for each in unmet:
        if isinstance(each, ConstraintUnmet):
            same.setdefault((each.owner, each.condition), []).append(each)
    for each in unmet:
        if not isinstance(each, ConstraintUnmet):
            yield each
            continue
        several = same[each.owner, each.condition]
        if len(several) <= MOST_VALUES:
            yield each
        elif each is several[0]:
            devices = tuple(chain.from_iterable(one.devices for one in several))
            yield replace(each, devices=devices, count=len(devices), reads=_examples(several))


def _examples(several: Sequence[ConstraintUnmet]) -> tuple[AttributeRead, ...]:
    values: dict[str, dict[str, None]] = {}
    for read in (read for each in several for read in each.reads):
        values.setdefault(read.name, {})["absent" if read.value is None else read.value] = None
    return tuple(
        AttributeRead(
            name, ", ".join([*found][:EXAMPLES]) + (f" … {len(found) - EXAMPLES} more" if len(found) > EXAMPLES else "")
        )
        for name, found in values.items()
    )
