"""DevicePools and DeviceClasses as Kubernetes' ResourceSlices and DeviceClasses (resource.k8s.io/v1).

What a class of v1 lets through, and what a device of v1 gives, is never more than its document allows; whatever cannot
be said so is left out and named. Attributes of the pool are copied to each device. A name without a domain is of the
driver's; documents may also write `resource.kubernetes.io/pcieRoot`.

Amounts keep their meaning by consumable capacity. A device with amounts allows several allocations; a block becomes the
step of a range from 0, and the default is all that can be drawn, so that a claim that requests no amount takes the
device whole. The pool's resources become one set of shared counters, of which each device takes its requests, rounded
up to blocks here because counters have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from scheduling.api.excerpts import excerpt
from scheduling.api.labels import label_faults, subdomain_faults
from scheduling.api.quantities import Quantity
from scheduling.api.validation.cause import StatusCause
from scheduling.api.validation.parts import driver as driver_faults
from scheduling.api.validation.parts import qualified_name
from scheduling.pools.capacity import block_of, quantity_of, round_down, round_up
from scheduling.pools.documents import DevicePool, PoolAttribute, PoolDevice, PoolDeviceClass, ResourceCapacity
from scheduling.pools.flat_cel import (
    AttributeKind,
    SliceName,
    UntranslatableConstraint,
    is_canonical_version,
    selector_of,
)
from scheduling.pools.lost import LeftOut, Losses
from scheduling.pools.published_classes import DEVICE_TYPE_LABEL

Object = dict[str, Any]
V1: Final = "resource.k8s.io/v1"
_DEVICES: Final = 128
_DEVICES_WITH_COUNTERS: Final = 64
_FACTS: Final = 32
_TEXT_BYTES: Final = 64
_COUNTERS: Final = 32
_COUNTER_SET: Final = "pool"
_UNIT: Final = 10**9


class PublishedNames:
    """Where the names of the flat map stand in the slices of some pools, by driver."""

    def __init__(self, pools: Iterable[DevicePool] = ()) -> None:
        self._kinds: dict[tuple[str, str], set[AttributeKind]] = {}
        for pool in pools:
            devices = pool.spec.devices
            for each in (*pool.spec.attributes, *(one for device in devices for one in device.attributes)):
                kind = kind_of(each)
                for driver in (pool.spec.driver, ""):
                    self._kinds.setdefault((driver, each.name), set()).add(kind)

    def find(self, driver: str, name: str) -> SliceName:
        """Where an attribute of the driver's devices stands; without a driver, of any driver's.

        Raises UntranslatableConstraint.
        """
        faults = [each.message for each in qualified_name(name, "")]
        if faults:
            raise UntranslatableConstraint(f"reads the attribute {name}, which v1 cannot name: {faults[0]}")
        domain, _, identifier = name.rpartition("/")
        if domain == driver and domain:
            raise UntranslatableConstraint(
                f"reads the attribute {name}; write {identifier}, without the driver's domain"
            )
        kinds = self._kinds.get((driver, name), {AttributeKind.PLAIN})
        if len(kinds) > 1:
            raise UntranslatableConstraint(
                f"reads the attribute {name}, which is {' here and '.join(sorted(kinds))} there; publish one kind"
            )
        return SliceName(domain or driver, identifier, next(iter(kinds)))


def kind_of(attribute: PoolAttribute) -> AttributeKind:
    """What a slice holds for an attribute; a version that v1 would compare otherwise is published as a text."""
    if attribute.kind == "quantity":
        return AttributeKind.QUANTITY
    if attribute.kind == "semver" and is_canonical_version(str(attribute.value)):
        return AttributeKind.VERSION
    return AttributeKind.PLAIN


def slices_of(pool: DevicePool, losses: Losses) -> list[Object]:
    """The slices of a pool; none if it is left out."""
    try:
        return _slices(pool, losses)
    except LeftOut as fault:
        losses.leave_out(fault)
        return []


def class_of(class_: PoolDeviceClass, names: PublishedNames, losses: Losses) -> Object | None:
    """The DeviceClass, None if it is left out."""
    try:
        return _class(class_, names, losses)
    except LeftOut as fault:
        losses.leave_out(fault)
        return None


def constraint_of(text: str | None, driver: str, names: PublishedNames, at: str) -> list[Object]:
    """The selectors that a constraint makes: one, or none for an empty one. Raises LeftOut."""
    if not text:
        return []
    try:
        return [_selector(selector_of(text, lambda name: names.find(driver, name)))]
    except UntranslatableConstraint as error:
        raise LeftOut(at, f"{excerpt(text)}: {error}") from error


def _selector(expression: str) -> Object:
    return {"cel": {"expression": expression}}


def first_fault(faults: Iterable[str | StatusCause]) -> str:
    """The first fault as a sentence, empty for none."""
    found = next(iter(faults), None)
    return "" if found is None else found if isinstance(found, str) else found.message


def _class(class_: PoolDeviceClass, names: PublishedNames, losses: Losses) -> Object:
    spec, name = class_.spec, class_.metadata.name
    fault = first_fault(subdomain_faults(name))
    if fault:
        raise LeftOut("metadata.name", f"v1 cannot name a class {name}: {fault}")
    if spec.selector is not None:
        raise LeftOut("spec.selector", "v1 has no class for other classes; claims name those as alternatives")
    for number, each in enumerate(spec.configs):
        reference = f"{each.kind} {each.namespace}/{each.name}"
        losses.add(f"spec.configs[{number}]", f"v1 holds parameters and no reference to {reference}")
    if spec.admin_access:
        losses.add("spec.adminAccess", "v1 asks for admin access in each claim; the claims converted here do")
    driver = _selector(f'device.driver == "{spec.driver}"')
    selectors = [driver, *constraint_of(spec.constraints, spec.driver, names, "spec.constraints")]
    labels = dict(class_.metadata.labels)
    if spec.device_type:
        if label_faults(spec.device_type.lower()):
            losses.add("spec.deviceType", f"v1 has no device types, and {spec.device_type} is no value of a label")
        else:
            labels[DEVICE_TYPE_LABEL] = spec.device_type
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": V1, "kind": "DeviceClass", "metadata": metadata, "spec": {"selectors": selectors}}


def _slices(pool: DevicePool, losses: Losses) -> list[Object]:
    spec, name = pool.spec, pool.metadata.name
    fault = first_fault(driver_faults(spec.driver, ""))
    if fault:
        raise LeftOut("spec.driver", f"v1 cannot name a driver {spec.driver}: {fault}")
    fault = first_fault(subdomain_faults(name))
    if fault:
        raise LeftOut("metadata.name", f"v1 cannot name a pool {name}: {fault}")
    if len(spec.resources) > _COUNTERS:
        raise LeftOut("spec.resources", f"v1 has {_COUNTERS} counters in a set, and the pool {len(spec.resources)}")
    if not spec.devices:
        losses.add("spec.devices", "there are none, so that there are no slices")
        return []
    counters = _counter_names(spec.resources)
    devices = [
        found
        for number, device in enumerate(spec.devices)
        if (found := _device(pool, device, counters, f"spec.devices[{number}]", losses)) is not None
    ]
    size = _DEVICES_WITH_COUNTERS if counters else _DEVICES
    parts: list[Object] = []
    if counters:
        amounts = {counters[each.name]: {"value": each.capacity.text} for each in spec.resources}
        parts.append({"sharedCounters": [{"name": _COUNTER_SET, "counters": amounts}]})
    parts += [{"devices": devices[start : start + size]} for start in range(0, len(devices), size)]
    where = {"nodeName": spec.node_name} if spec.node_name else {"allNodes": True}
    width = len(str(max(0, len(parts) - 1)))
    return [
        {
            "apiVersion": V1,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{number:0{width}}"},
            "spec": {
                "driver": spec.driver,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": len(parts)},
                **where,
                **part,
            },
        }
        for number, part in enumerate(parts)
    ]


def _counter_names(resources: Sequence[ResourceCapacity]) -> dict[str, str]:
    """Names for counters: they stand in one pool only, so each resource may have another."""
    found: dict[str, str] = {}
    for number, each in enumerate(resources):
        is_free = not label_faults(each.name) and each.name not in found.values()
        found[each.name] = each.name if is_free else f"resource-{number}"
    return found


def _device(
    pool: DevicePool, device: PoolDevice, counters: Mapping[str, str], at: str, losses: Losses
) -> Object | None:
    fault = first_fault(label_faults(device.name))
    if fault:
        losses.add(f"{at}.name", f"v1 cannot name a device {device.name}: {fault}; the device is left out")
        return None
    merged = {each.name: each for each in pool.spec.attributes} | {each.name: each for each in device.attributes}
    attributes: Object = {}
    capacity: Object = dict(_capacities(device, at, losses))
    shares = sum(entry["value"] != "0" for entry in capacity.values())
    if shares > 1:
        losses.add(f"{at}.resources", "a claim that requests only some of the amounts takes all of the others in v1")
    for attribute in merged.values():
        if len(attributes) + len(capacity) >= _FACTS:
            losses.add(
                f"{at}.attributes", f"v1 has {_FACTS} attributes and amounts in a device; {attribute.name} is lost"
            )
            continue
        entry = _attribute(attribute, pool.spec.driver, at, losses)
        if entry is None:
            continue
        if attribute.kind != "quantity":
            attributes[attribute.name] = entry
        elif attribute.name not in capacity:
            capacity[attribute.name] = entry
    found: Object = {"name": device.name}
    if attributes:
        found["attributes"] = attributes
    if capacity:
        found["capacity"] = capacity
    blocks = {each.name: block_of(each) for each in pool.spec.resources}
    taken = {
        counters[name]: {"value": quantity_of(round_up(amount.nanos, blocks[name]), amount).text}
        for name, amount in device.requests.items()
        if amount.nanos
    }
    if taken:
        found["consumesCounters"] = [{"counterSet": _COUNTER_SET, "counters": taken}]
    if shares:
        found["allowMultipleAllocations"] = True
    return found


def _attribute(attribute: PoolAttribute, driver: str, at: str, losses: Losses) -> Object | None:
    where = f"{at}.attributes.{attribute.name}"
    if attribute.name.startswith(f"{driver}/"):
        losses.add(where, "in v1 it is the attribute of the same name without the driver's domain; write it so")
        return None
    fault = first_fault(qualified_name(attribute.name, ""))
    if fault:
        losses.add(where, f"v1 cannot name an attribute so: {fault}")
        return None
    value = attribute.value
    if isinstance(value, Quantity):
        losses.add(where, "v1 has no quantities as attributes; it becomes an amount, which claims can request")
        return {"value": value.text}
    if isinstance(value, int):
        return {"int": value}
    text = str(value)
    if len(text.encode()) > _TEXT_BYTES:
        losses.add(where, f"v1 has texts of {_TEXT_BYTES} bytes, and this one has {len(text.encode())}")
        return None
    if kind_of(attribute) is AttributeKind.VERSION:
        return {"version": text}
    if attribute.kind == "semver":
        losses.add(where, f"{text} is no version that v1 compares as this text; it becomes a text")
    return {"string": text}


def _capacities(device: PoolDevice, at: str, losses: Losses) -> Iterator[tuple[str, Object]]:
    """The amounts that claims can draw; 0 of one that is smaller than its block."""
    for each in device.resources:
        where = f"{at}.resources.{each.name}"
        fault = first_fault(qualified_name(each.name, ""))
        if fault:
            losses.add(where, f"v1 cannot name an amount so: {fault}")
            continue
        block = block_of(each)
        if block % _UNIT:
            losses.add(f"{where}.blockSize", f"v1 counts steps in whole units, and the block is {each.block_size}")
            continue
        most = round_down(each.capacity.nanos, block)
        entry: Object = {"value": each.capacity.text if most else "0"}
        if most and each.block_size is not None:
            entry["requestPolicy"] = {
                "default": quantity_of(most, each.capacity).text,
                "validRange": {"min": "0", "step": each.block_size.text},
            }
        yield each.name, entry
