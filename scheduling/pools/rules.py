"""The rules that a document keeps by itself, beyond the shape of its fields.

Every problem is one line: the field, the value, and what to write instead. What only several documents together break
(a claim for an unknown class) is said by `matching`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch
from typing import Any, Final

from scheduling.api.quantities import Quantity
from scheduling.pools.claim_documents import (
    DeviceClaim,
    DeviceClaimDetail,
    DeviceConfigReference,
    Document,
    ResourceAllocation,
)
from scheduling.pools.constraints import ConstraintError, constraint
from scheduling.pools.documents import (
    COUNT,
    ClassSelector,
    DeviceClassConfigReference,
    DevicePool,
    LabelRequirement,
    PoolAttribute,
    PoolDeviceClass,
    ResourceCapacity,
)

OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
MOST_DEVICES: Final = 10_000
"""Devices that one detail of a claim can ask for."""


def problems_of(document: Document) -> list[str]:
    """What is wrong with a document, in the order of its fields; nothing if it is sound."""
    found = [] if document.metadata.name else ["metadata.name is missing; name the document"]
    return found + list(_problems(document))


@singledispatch
def _problems(document: Any) -> Iterator[str]:
    raise TypeError(type(document))


@_problems.register
def _of_pool(pool: DevicePool) -> Iterator[str]:
    spec = pool.spec
    if not spec.driver:
        yield "spec.driver is missing; name the driver that publishes the pool"
    yield from _attributes("spec.attributes", spec.attributes)
    yield from _capacities("spec.resources", spec.resources)
    known = {each.name for each in spec.resources}
    yield from _unique("spec.devices", "device", (each.name for each in spec.devices))
    for number, device in enumerate(spec.devices):
        at = f"spec.devices[{number}]"
        yield from _attributes(f"{at}.attributes", device.attributes)
        yield from _capacities(f"{at}.resources", device.resources)
        yield from _amounts(f"{at}.requests", device.requests)
        for name in device.requests:
            if name not in known:
                yield (
                    f"{at}.requests.{name}: the pool has no resource {name}; add it to spec.resources, "
                    f"which has {', '.join(sorted(known)) or 'none'}"
                )


@_problems.register
def _of_class(class_: PoolDeviceClass) -> Iterator[str]:
    spec = class_.spec
    if spec.selector is None and not spec.driver:
        yield "spec.driver is missing; name the driver of the class's devices"
    if spec.selector is not None:
        if spec.driver or spec.device_type or spec.constraints or spec.configs or spec.admin_access is not None:
            yield "spec.selector stands for other classes; remove every other field of spec, or remove selector"
        yield from _selector(spec.selector)
    yield from _constraint("spec.constraints", spec.constraints)
    yield from _references("spec.configs", spec.configs)


@_problems.register
def _of_claim(claim: DeviceClaim) -> Iterator[str]:
    spec = claim.spec
    yield from _names("spec.matchAttributes", spec.match_attributes)
    if not spec.claims:
        yield "spec.claims is empty; add what the claim needs, such as {deviceClass: NAME}"
    for number, instance in enumerate(spec.claims):
        at = f"spec.claims[{number}]"
        if instance.all_of and instance.one_of and not instance.name:
            yield f"{at}.oneOf stands beside another need; move that one into oneOf, or into an entry of its own"
        for position, detail in enumerate(instance.all_of):
            inner = f".allOf[{position}]" if instance.name or len(instance.all_of) > 1 else ""
            yield from _detail(at + inner, detail)
        for position, detail in enumerate(instance.one_of):
            yield from _detail(f"{at}.oneOf[{position}]", detail)
    for number, allocation in enumerate(claim.status.allocations):
        at = f"status.allocations[{number}]"
        for key, value in (("devicePoolName", allocation.pool), ("deviceName", allocation.device)):
            if not value:
                yield f"{at}.{key} is missing; name the allocated device by its pool and its name"
        yield from _unique(f"{at}.allocations", "resource", (each.name for each in allocation.allocations))
        yield from _allocated(f"{at}.allocations", allocation.allocations)


def _detail(at: str, detail: DeviceClaimDetail) -> Iterator[str]:
    if not detail.device_class and not detail.device_type:
        yield f"{at}.deviceClass is missing; name a DeviceClass, or set deviceType"
    yield from _constraint(f"{at}.constraints", detail.constraints)
    yield from _amounts(f"{at}.requests", detail.requests)
    yield from _amounts(f"{at}.limits", detail.limits)
    counts: dict[str, int] = {}
    for key, amounts in (("requests", detail.requests), ("limits", detail.limits)):
        amount = amounts.get(COUNT)
        if amount is None:
            continue
        whole, rest = divmod(amount.nanos, 10**9)
        if rest or not 1 <= whole <= MOST_DEVICES:
            yield f"{at}.{key}.count must be a whole number from 1 to {MOST_DEVICES}, not {amount}"
        else:
            counts[key] = whole
    if "limits" in counts and counts["limits"] < counts.get("requests", 1):
        least = counts.get("requests", 1)
        yield f"{at}.limits.count is {counts['limits']}, below requests.count {least}; raise it or remove it"
    yield from _names(f"{at}.matchAttributes", detail.match_attributes)
    yield from _references(f"{at}.configs", detail.configs)


def _constraint(at: str, text: str | None) -> Iterator[str]:
    if text:
        try:
            constraint(text)
        except ConstraintError as error:
            yield f"{at}: {error}"


def _attributes(at: str, attributes: tuple[PoolAttribute, ...]) -> Iterator[str]:
    yield from _unique(at, "attribute", (each.name for each in attributes))
    for number, each in enumerate(attributes):
        values = (each.string, each.integer, each.quantity, each.version)
        if sum(value is not None for value in values) != 1:
            yield f"{at}[{number}] ({each.name}) must have one of stringValue, intValue, quantityValue, semVerValue"


def _capacities(at: str, capacities: tuple[ResourceCapacity, ...]) -> Iterator[str]:
    yield from _unique(at, "resource", (each.name for each in capacities))
    for number, each in enumerate(capacities):
        if each.name == COUNT:
            yield f"{at}[{number}].name is count, which stands for the number of devices; choose another name"
        if each.capacity.sign < 0:
            yield f"{at}[{number}].capacity is {each.capacity}; it must not be negative"
        if each.block_size is not None and each.block_size.sign <= 0:
            yield f"{at}[{number}].blockSize is {each.block_size}; it must be above zero, or absent for no rounding"


def _amounts(at: str, amounts: Mapping[str, Quantity]) -> Iterator[str]:
    for name, amount in amounts.items():
        if not name:
            yield f"{at} has an empty key; name the resource"
        if amount.sign < 0:
            yield f"{at}.{name} is {amount}; it must not be negative"


def _allocated(at: str, allocations: tuple[ResourceAllocation, ...]) -> Iterator[str]:
    for number, each in enumerate(allocations):
        if each.allocation.sign < 0:
            yield f"{at}[{number}].allocation is {each.allocation}; it must not be negative"


def _references(at: str, references: Iterable[DeviceConfigReference | DeviceClassConfigReference]) -> Iterator[str]:
    for number, each in enumerate(references):
        keys = {"apiVersion": each.api_version, "kind": each.kind, "name": each.name}
        if isinstance(each, DeviceClassConfigReference):
            keys["namespace"] = each.namespace
        for key, value in keys.items():
            if not value:
                yield f"{at}[{number}].{key} is missing; a reference names apiVersion, kind and name of an object"


def _selector(selector: ClassSelector) -> Iterator[str]:
    for number, each in enumerate(selector.match_expressions):
        yield from _expression(f"spec.selector.matchExpressions[{number}]", each)


def _expression(at: str, each: LabelRequirement) -> Iterator[str]:
    if not each.key:
        yield f"{at}.key is missing; name a label"
    if each.operator not in OPERATORS:
        yield f'{at}.operator must be one of {", ".join(OPERATORS)}, not "{each.operator}"'
    elif (each.operator in ("In", "NotIn")) != bool(each.values):
        verb = "needs" if not each.values else "takes no"
        yield f"{at}.values: {each.operator} {verb} values"


def _names(at: str, names: tuple[str, ...]) -> Iterator[str]:
    for number, each in enumerate(names):
        if not each:
            yield f"{at}[{number}] is empty; name an attribute"


def _unique(at: str, what: str, names: Iterable[str]) -> Iterator[str]:
    counted = Counter(names)
    if "" in counted:
        yield f"{at}: the name of one {what} is missing; add it"
    for name, times in counted.items():
        if times > 1 and name:
            yield f"{at}: {what} {name} is listed {times} times; keep one"
