"""Which devices of a node suit one request, and what prevents the others, device by device.

Each device is judged as if it were the only wanted one; what several devices or requests do to each other is for the
allocator to say. Reasons follow the scheduler's: a device that the selectors refuse is not judged further; of a device
that they let through every reason is given.

Selectors are tried in the scheduler's order, the class's before the request's own. The first that is not true decides,
so it is the one that is explained, down to the condition that is false.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from kube.bodies import text_at
from scheduling.allocator.claims import DeviceRequest, untolerated
from scheduling.allocator.pools import ResourcePool
from scheduling.allocator.slices import DeviceID, SliceDevice, Taint
from scheduling.cel.compiler import compile as compile_expression
from scheduling.cel.errors import CompileError, EvaluationError
from scheduling.cel.program import DeviceRead, MissingValue, SelectorCondition
from scheduling.explain import obstacles as kinds
from scheduling.explain.amounts import SharedCounters, capacity_exhausted, capacity_unfit
from scheduling.explain.cluster import SINCE, Cluster, TaintOf
from scheduling.explain.obstacles import (
    CapacityExhausted,
    ConditionFalse,
    CounterExhausted,
    Held,
    Obstacle,
    SelectorSource,
)
from scheduling.explain.state import objects_at
from scheduling.explain.verdict import gist

DRIVER = "device.driver"
MOST_VALUES = 4
"""Lines for one condition with different values."""
EXAMPLES = 3
"""Values shown in one line."""


@dataclass(frozen=True, slots=True)
class DeviceRefusal:
    """``foreign``: the selector is about another driver's devices. ``missed``: how many conditions are false."""

    obstacle: Obstacle
    foreign: bool = False
    missed: int = 1


def expressions(request: DeviceRequest, cluster: Cluster) -> list[tuple[SelectorSource, str]]:
    """The selectors of a request with those of its class first; none of a class that is missing."""
    body = cluster.classes.get(request.class_name, {})
    of_class = [text_at(each, "cel", "expression") for each in objects_at(body, "spec", "selectors")]
    return [
        *((SelectorSource("class", request.class_name, i), each) for i, each in enumerate(of_class)),
        *((SelectorSource("request", request.name, i), each or "") for i, each in enumerate(request.selectors)),
    ]


def refusal(request: DeviceRequest, device: SliceDevice, name: str, cluster: Cluster) -> DeviceRefusal | None:
    """Why the selectors refuse a device, None where all are true. ``name``: what the device is called."""
    for source, expression in expressions(request, cluster):
        try:
            program = compile_expression(expression, cluster.cel_features)
        except CompileError as error:
            return DeviceRefusal(unreadable(source, error))
        try:
            if program.evaluate(device.cel).result:
                continue
        except EvaluationError as error:
            return DeviceRefusal(broken(source, error, program.account(device.cel), name))
        return _false(source, expression, program.account(device.cel), name)
    return None


def unreadable(source: SelectorSource, error: CompileError) -> kinds.SelectorUnreadable:
    """A compile error as an obstacle."""
    line, column = (error.place.line, error.place.column + 1) if error.place is not None else (0, 0)
    return kinds.SelectorUnreadable(source, error.expression, error.message, line, column)


def broken(
    source: SelectorSource, error: EvaluationError, account: Sequence[SelectorCondition], name: str
) -> kinds.SelectorBroken:
    """A run-time error as an obstacle."""
    within = next((each.text for each in account if isinstance(each.outcome, EvaluationError)), error.expression)
    line, column = (error.place.line, error.place.column + 1) if error.place is not None else (0, 0)
    return kinds.SelectorBroken(source, error.expression, within, error.message, line, column, (name,), 1)


def _false(source: SelectorSource, expression: str, account: Sequence[SelectorCondition], name: str) -> DeviceRefusal:
    false = [each for each in account if each.outcome is False]
    if not false:
        # Conditions evaluated one by one need not show what the whole does; then the whole is shown.
        return DeviceRefusal(ConditionFalse((name,), 1, source, expression))
    first = false[0]
    foreign = all(read.path == DRIVER for read in first.reads) and bool(first.reads)
    values = tuple(dict.fromkeys(kinds.ReadValue(read.path, shown(read)) for read in first.reads))
    return DeviceRefusal(
        ConditionFalse((name,), 1, source, first.text, values, len(false) - 1),
        foreign=foreign,
        missed=sum(each.outcome is not True for each in account),
    )


def shown(read: DeviceRead) -> str | None:
    """A value as it would be written in an expression, None where the device has none."""
    return None if isinstance(read.value, MissingValue) else _written(read.value)


def _written(value: object) -> str:
    if isinstance(value, bool | int | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(str(key) for key in value)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(each) for each in value)}]"
    return str(value)


@dataclass(frozen=True, slots=True)
class Screened:
    """``devices``: those the request is about; ``suitable``: let through by selectors; ``usable``: nothing against."""

    devices: tuple[SliceDevice, ...]
    suitable: tuple[SliceDevice, ...]
    usable: tuple[SliceDevice, ...]
    obstacles: tuple[Obstacle, ...]


def devices_for(node: str, labels: Mapping[str, str], pools: Iterable[ResourcePool]) -> tuple[SliceDevice, ...]:
    """The devices of usable pools that are for this node."""
    return tuple(
        device
        for pool in pools
        if pool.usable
        for device in pool.devices
        if device.slice.per_device is not True or device.selects(node, labels)
    )


def names_of(devices: Sequence[SliceDevice]) -> dict[DeviceID, str]:
    """What devices are called: by their own names, or in full where two of the node have the same."""
    count = Counter(device.name for device in devices)
    return {device.id: device.name if count[device.name] == 1 else str(device.id) for device in devices}


def screen(
    request: DeviceRequest, devices: Sequence[SliceDevice], pools: Sequence[ResourcePool], cluster: Cluster
) -> Screened:
    """Every device against one request."""
    names = names_of(devices)
    by_pool = {pool.id: pool for pool in pools}
    counters = SharedCounters(cluster)
    refused: list[tuple[SliceDevice, DeviceRefusal]] = []
    suitable: list[SliceDevice] = []
    usable: list[SliceDevice] = []
    found: list[Obstacle] = []
    for device in devices:
        name = names[device.id]
        against = _without_feature(device, name, cluster) or refusal(request, device, name, cluster)
        against = against or _unfit(request, device, name, cluster)
        if against is not None:
            refused.append((device, against))
            continue
        suitable.append(device)
        in_the_way = [*_held(request, device, name, cluster), *_tainted(request, device, name, cluster)]
        if device.id not in cluster.allocated.devices:
            # What a device in use takes of shared counters comes back with it.
            in_the_way += capacity_exhausted(request, device, name, cluster)
            in_the_way += counters.exhausted(device, name, by_pool[device.slice.pool])
        found += in_the_way
        if not in_the_way:
            usable.append(device)
    if suitable or any(not against.foreign for _, against in refused):
        # Devices of other drivers are not what the request is about, so long as there are others.
        refused = [(device, against) for device, against in refused if not against.foreign]
    about = {device.id for device, _ in refused} | {device.id for device in suitable}
    return Screened(
        devices=tuple(device for device in devices if device.id in about),
        suitable=tuple(suitable),
        usable=tuple(usable),
        obstacles=(*sorted(merged(found), key=_order), *_nearest([against for _, against in refused])),
    )


def merged(obstacles: Iterable[Obstacle]) -> list[Obstacle]:
    """Equal reasons of several devices as one, in the order in which they were first met."""
    found: dict[Hashable, list[Obstacle]] = {}
    for each in obstacles:
        found.setdefault(gist(each), []).append(each)
    return [_joined(same) for same in found.values()]


def _joined(same: Sequence[Obstacle]) -> Obstacle:
    first = same[0]
    if len(same) == 1 or not isinstance(first, kinds.OfDevices | kinds.SelectorBroken | kinds.FeatureOff):
        return first
    devices = tuple(name for each in same for name in _devices(each))
    match first:
        case Held():
            holders = tuple(one for each in same if isinstance(each, Held) for one in each.holders)
            return Held(devices, len(devices), holders)
        case CounterExhausted() | CapacityExhausted():
            users = dict.fromkeys(
                one for each in same if isinstance(each, CounterExhausted | CapacityExhausted) for one in each.users
            )
            return replace(first, devices=devices, count=len(devices), users=tuple(users))
        case kinds.FeatureOff():
            return replace(first, devices=devices)
        case _:
            return replace(first, devices=devices, count=len(devices))


def _devices(obstacle: Obstacle) -> tuple[str, ...]:
    return obstacle.devices if isinstance(obstacle, kinds.OfDevices | kinds.SelectorBroken | kinds.FeatureOff) else ()


_ORDER = (Held, kinds.Tainted, CapacityExhausted, CounterExhausted)


def _order(obstacle: Obstacle) -> int:
    """The place among reasons of devices that the selectors let through: what goes away by itself first."""
    return next(number for number, kind in enumerate(_ORDER) if isinstance(obstacle, kind))


def _nearest(refused: Sequence[DeviceRefusal]) -> list[Obstacle]:
    """Reasons of devices that are refused: where least is missing first, other drivers' devices last."""
    ranked = sorted(refused, key=attrgetter("foreign", "missed"))
    reasons = merged(each.obstacle for each in ranked)
    by_condition: dict[tuple[object, str], list[ConditionFalse]] = {}
    for each in reasons:
        if isinstance(each, ConditionFalse):
            by_condition.setdefault((each.source, each.condition), []).append(each)
    lines: list[Obstacle] = []
    for each in reasons:
        same = by_condition.get((each.source, each.condition), []) if isinstance(each, ConditionFalse) else []
        if len(same) <= MOST_VALUES:
            lines.append(each)
        elif each is same[0]:
            lines.append(_with_examples(same))
    return lines


def _with_examples(same: Sequence[ConditionFalse]) -> ConditionFalse:
    """One condition that is false for many values, such as of a serial number: the first few represent all."""
    values: list[kinds.ReadValue] = []
    for path in dict.fromkeys(value.path for each in same for value in each.values):
        found = dict.fromkeys(value.value for each in same for value in each.values if value.path == path)
        texts = ["absent" if text is None else text for text in found]
        more = f" … {len(texts) - EXAMPLES} more" if len(texts) > EXAMPLES else ""
        values.append(kinds.ReadValue(path, ", ".join(texts[:EXAMPLES]) + more))
    return replace(
        same[0],
        devices=tuple(device for each in same for device in each.devices),
        count=sum(each.count for each in same),
        values=tuple(values),
        others=min(each.others for each in same),
    )


def _without_feature(device: SliceDevice, name: str, cluster: Cluster) -> DeviceRefusal | None:
    if device.binding_conditions and not cluster.features.binding_conditions:
        gate = SINCE["binding_conditions"][1]
        return DeviceRefusal(kinds.FeatureOff(gate, "a device with binding conditions", (name,)), missed=0)
    if device.consumes and not cluster.features.partitionable_devices:
        gate = SINCE["partitionable_devices"][1]
        return DeviceRefusal(kinds.FeatureOff(gate, "a device with shared counters", (name,)), missed=0)
    return None


def _unfit(request: DeviceRequest, device: SliceDevice, name: str, cluster: Cluster) -> DeviceRefusal | None:
    obstacle = capacity_unfit(request, device, name, cluster)
    return None if obstacle is None else DeviceRefusal(obstacle, missed=0)


def _held(request: DeviceRequest, device: SliceDevice, name: str, cluster: Cluster) -> list[Obstacle]:
    """Held whole. Admin access does not mind."""
    if request.admin_access or device.id not in cluster.allocated.devices:
        return []
    holders = tuple(dict.fromkeys(each.holder for each in cluster.holdings.get(device.id, ())))
    return [Held((name,), 1, (holders[0] if holders else kinds.ClaimHolder(""),))]


def _tainted(request: DeviceRequest, device: SliceDevice, name: str, cluster: Cluster) -> list[Obstacle]:
    if not cluster.features.device_taints:
        return []
    return [
        kinds.Tainted((name,), 1, taint.key, taint.value, taint.effect, cluster.rules.get(_key(device, taint), ""))
        for taint in dict.fromkeys(untolerated(device.taints, request.tolerations))
    ]


def _key(device: SliceDevice, taint: Taint) -> TaintOf:
    return (device.id, taint.key, taint.value, taint.effect)
