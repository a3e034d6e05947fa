"""Rules for ResourceSlices and their devices.

By feature: slices, devices and attributes KEP-4381, lists as attributes KEP-5491, counter sets and nodes of devices
KEP-4815, binding conditions KEP-5007, capacities and their request policies KEP-5075 (consumable capacity).

Multiples of a policy's step are counted in whole units rounded up, as the API server does: a min of 500m with a step of
500m takes a default of 1. A step that rounds to zero stops the server's own rules with a division by zero; here it is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.excerpts import shown
from scheduling.api.labels import LABEL_BYTES, size
from scheduling.api.quantities import ZERO, Quantity
from scheduling.api.validation.cause import (
    NOT_FOUND,
    StatusCause,
    anything,
    distinct,
    forbidden,
    invalid,
    listed,
    mapped,
    repeated,
    required,
    too_long,
)
from scheduling.api.validation.decoding import same
from scheduling.api.validation.parts import (
    ATTRIBUTE_NAME_BYTES,
    NODE_FIELDS,
    chosen_nodes,
    driver,
    is_identifier,
    label,
    label_key,
    node_fields,
    pool,
    qualified_name,
    taint,
)
from scheduling.api.validation.shapes import DEVICE

_DEVICES: Final = 128
_DEVICES_WITH_MORE: Final = 64
"""Limit where a device has taints, uses counters or has lists as attributes."""
_COUNTER_SETS: Final = 8
_PER_DEVICE: Final = "perDeviceNodeSelection"
_SLICE_NODE_FIELDS: Final = ", ".join((*NODE_FIELDS, _PER_DEVICE))
_FACTS: Final = 32
_ATTRIBUTE_VALUES: Final = 48
_TAINTS: Final = 16
_SETS_USED: Final = 2
_COUNTERS: Final = 32
_BINDING_CONDITIONS: Final = 4
_POLICY_VALUES: Final = 10
_VALUE_BYTES: Final = 64
_SCALARS: Final = ("int", "bool", "string", "version")
LISTS: Final = ("ints", "bools", "strings", "versions")
"""Fields of list attributes (KEP-5491)."""
_ALL_LISTS: Final = frozenset(LISTS)
_USUAL_FIELDS: Final = frozenset({"name", "attributes", "capacity", "allowMultipleAllocations"})
"""Fields of a device that `device` judges itself."""
_NUMBER: Final = r"(0|[1-9][0-9]*)"
_PRE_RELEASE: Final = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = r"[0-9a-zA-Z-]+"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?"
)
"""A version by semver.org 2.0.0."""
Spec = Mapping[str, Any]


def slice_spec(spec: Spec, old: Spec | None) -> Iterator[StatusCause]:
    """The spec of a slice, `old` the one it replaces."""
    yield from driver(spec.get("driver", ""), "spec.driver")
    yield from _slice_pool(spec.get("pool", {}))
    if old is not None:
        yield from _unchanged(spec, old)
    yield from _slice_nodes(spec)
    if "sharedCounters" in spec and "devices" in spec:
        yield invalid("spec", ["sharedCounters", "devices"], "are set; put counter sets into a slice of their own")
    yield from _devices(spec, old)
    sets = spec.get("sharedCounters", [])
    name = "spec.sharedCounters"
    yield from distinct(sets, _COUNTER_SETS, name, _counter_set, key=lambda entry: entry.get("name", ""))


def _slice_pool(entry: Mapping[str, Any]) -> Iterator[StatusCause]:
    yield from pool(entry.get("name", ""), "spec.pool.name")
    count, generation = entry.get("resourceSliceCount", 0), entry.get("generation", 0)
    if count <= 0:
        yield invalid("spec.pool.resourceSliceCount", count, "must be above zero")
    if generation < 0:
        yield invalid("spec.pool.generation", generation, "must not be negative")


def _unchanged(spec: Spec, old: Spec) -> Iterator[StatusCause]:
    name, before = spec.get("pool", {}).get("name", ""), old.get("pool", {}).get("name", "")
    if name != before:
        yield invalid("spec.pool.name", name, f"must stay {shown(before)}; delete the slice and make another")
    for field, absent in (("driver", ""), ("nodeName", None)):
        if spec.get(field, absent) != old.get(field, absent):
            fix = f"must stay {shown(old.get(field, absent))}; delete the slice and make another"
            yield invalid(f"spec.{field}", spec.get(field, absent), fix)


def _slice_nodes(spec: Spec) -> Iterator[StatusCause]:
    yield from node_fields(spec, "spec", _PER_DEVICE)
    if "nodeSelector" in spec:
        terms = spec["nodeSelector"].get("nodeSelectorTerms", [])
        if len(terms) != 1:
            yield invalid("spec.nodeSelector.nodeSelectorTerms", len(terms), "terms; a slice has exactly one")
    chosen = chosen_nodes(spec, _PER_DEVICE)
    if not chosen:
        yield required("spec", f"must have one of {_SLICE_NODE_FIELDS}")
    elif len(chosen) > 1:
        yield invalid("spec", chosen, f"are set; set exactly one of {_SLICE_NODE_FIELDS}")


def _devices(spec: Spec, old: Spec | None) -> Iterator[StatusCause]:
    devices = spec.get("devices", [])
    before = {entry.get("name", ""): entry for entry in reversed(old.get("devices", []))} if old else {}
    taints = DEVICE.fields["taints"].type
    per_device = bool(spec.get(_PER_DEVICE))

    def rule(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
        stored = before.get(entry.get("name", ""))
        kept = stored is not None and same(stored.get("taints", []), entry.get("taints", []), taints)
        yield from device(entry, path, per_device_nodes=per_device, same_taints=kept)

    limit = _DEVICES_WITH_MORE if any(map(_has_more, devices)) else _DEVICES
    yield from distinct(devices, limit, "spec.devices", rule, key=lambda entry: entry.get("name", ""))


def _has_more(entry: Mapping[str, Any]) -> bool:
    if entry.get("taints") or entry.get("consumesCounters"):
        return True
    return not all(map(_ALL_LISTS.isdisjoint, entry.get("attributes", {}).values()))


def _counter_set(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    yield from counter_set_name(entry.get("name", ""), f"{path}.name")
    yield from counters(entry.get("counters", {}), f"{path}.counters")


Attribute = Mapping[str, Any]


def values_in(attribute: Attribute) -> int:
    """Return how many values an attribute counts for: the entries of its lists, or one."""
    if _ALL_LISTS.isdisjoint(attribute):
        return 1
    return sum(len(attribute.get(field, [])) for field in LISTS) or 1


def _is_usual_attribute(name: str, entry: Attribute) -> bool:
    """Whether an attribute breaks no rule, at a glance, as nearly all do; the rules judge any other."""
    if len(entry) != 1 or not is_identifier(name):
        return False
    text = entry.get("string")
    if text is None:
        return "int" in entry or "bool" in entry
    return len(text) <= _VALUE_BYTES and text.isascii()


def attribute(entry: Attribute, path: str) -> Iterator[StatusCause]:
    """An attribute: exactly one value, or one list of at least one."""
    chosen = [field for field in (*_SCALARS, *LISTS) if field in entry]
    for field in chosen:
        if field in LISTS and not entry[field]:
            yield invalid(f"{path}.{field}", entry[field], "must be left out or have a value")
    if "string" in entry:
        yield from _attribute_text(entry["string"], f"{path}.string")
    if "version" in entry:
        yield from _version(entry["version"], f"{path}.version")
    for index, text in enumerate(entry.get("strings", [])):
        yield from _attribute_text(text, f"{path}.strings[{index}]")
    for index, text in enumerate(entry.get("versions", [])):
        yield from _version(text, f"{path}.versions[{index}]")
    if len(chosen) != 1:
        yield invalid(path, chosen, f"are set; set exactly one of {', '.join((*_SCALARS, *LISTS))}")


def _attribute_text(text: str, path: str) -> Iterator[StatusCause]:
    if size(text) > _VALUE_BYTES:
        yield too_long(path, size(text), _VALUE_BYTES)


def _version(text: str, path: str) -> Iterator[StatusCause]:
    if not _VERSION.fullmatch(text):
        yield invalid(path, text, "must be a version by semver.org 2.0.0, such as 1.2.3 or 1.2.3-rc.1")
    yield from _attribute_text(text, path)


def single_capacity(capacity: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """A capacity of a device that goes to one claim."""
    if "requestPolicy" in capacity:
        yield forbidden(f"{path}.requestPolicy", "needs allowMultipleAllocations: true in the device")


def shared_capacity(capacity: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """A capacity of a device that several claims share."""
    if "requestPolicy" not in capacity:
        return
    policy, limit, at = capacity["requestPolicy"], capacity.get("value", ZERO), f"{path}.requestPolicy"
    values, range_ = policy.get("validValues", []), policy.get("validRange")
    if values and range_ is not None:
        yield forbidden(at, "must have validValues or validRange, not both")
    elif not values and range_ is None:
        return
    elif "default" not in policy:
        yield required(f"{at}.default", "must be set beside validValues or validRange")
    elif values:
        yield from _among_values(values, policy["default"], limit, f"{at}.validValues")
    elif range_ is not None:
        yield from _in_range(range_, policy["default"], limit, f"{at}.validRange")


def _among_values(values: list[Quantity], default: Quantity, limit: Quantity, path: str) -> Iterator[StatusCause]:
    for index in range(1, len(values)):
        if values[index] < values[index - 1]:
            yield invalid(f"{path}[{index}]", values[index].text, "must not be below the value before it")

    def option(value: Quantity, at: str) -> Iterator[StatusCause]:
        if value > limit:
            yield invalid(at, value.text, f"must not be above the capacity {limit.text}")

    yield from distinct(values, _POLICY_VALUES, path, option, key=Quantity.value)
    if len(values) > _POLICY_VALUES or default not in values:
        yield invalid(path, default.text, "is the default and must be among the values")


def _in_range(range_: Mapping[str, Quantity], default: Quantity, limit: Quantity, path: str) -> Iterator[StatusCause]:
    low, high, step = range_.get("min"), range_.get("max"), range_.get("step")
    if low is None:
        yield required(f"{path}.min", "must be set in a range")
        return
    if low > limit:
        yield invalid(f"{path}.min", low.text, f"must not be above the capacity {limit.text}")
    if default < low:
        yield invalid(f"{path}.min", default.text, f"is the default and must not be below min {low.text}")
    if high is not None:
        yield from _high(low, high, default, limit, f"{path}.max")
    if step is not None:
        yield from _step(low, step, limit, [default] if high is None else [default, high], f"{path}.step")


def _high(low: Quantity, high: Quantity, default: Quantity, limit: Quantity, path: str) -> Iterator[StatusCause]:
    if low > high:
        yield invalid(path, low.text, f"is min and must not be above max {high.text}")
    if high > limit:
        yield invalid(path, high.text, f"must not be above the capacity {limit.text}")
    if default > high:
        yield invalid(path, default.text, f"is the default and must not be above max {high.text}")


def _step(low: Quantity, step: Quantity, limit: Quantity, reached: list[Quantity], path: str) -> Iterator[StatusCause]:
    if low + step > limit:
        yield invalid(path, step.text, f"must leave min plus one step within the capacity {limit.text}")
    if step.value() == 0:
        yield invalid(path, step.text, "must not be zero")
        return
    for value in reached:
        if (value.value() - low.value()) % step.value():
            yield invalid(path, value.text, f"must be min {low.text} plus a multiple of the step {step.text}")


Device = Mapping[str, Any]


def device(entry: Device, path: str, *, per_device_nodes: bool, same_taints: bool) -> Iterator[StatusCause]:
    """A device. `per_device_nodes`: each names its nodes; `same_taints`: they are those of the stored device."""
    yield from label(entry.get("name", ""), f"{path}.name")
    facts, quantities = entry.get("attributes", {}), entry.get("capacity", {})
    if len(facts) + len(quantities) > _FACTS:
        yield invalid(path, len(facts) + len(quantities), f"attributes and capacities; at most {_FACTS} are allowed")
    values = sum(map(values_in, facts.values()))
    if values > _ATTRIBUTE_VALUES:
        yield invalid(path, values, f"values of attributes; at most {_ATTRIBUTE_VALUES} are allowed")
    at, limit = f"{path}.attributes", ATTRIBUTE_NAME_BYTES
    unusual = {name: fact for name, fact in facts.items() if not _is_usual_attribute(name, fact)}
    yield from mapped(unusual, None, at, qualified_name, attribute, shown_bytes=limit)
    capacity = shared_capacity if entry.get("allowMultipleAllocations") else single_capacity
    unusual = {name: each for name, each in quantities.items() if "requestPolicy" in each or not is_identifier(name)}
    yield from mapped(unusual, None, f"{path}.capacity", qualified_name, capacity, shown_bytes=limit)
    if per_device_nodes or not entry.keys() <= _USUAL_FIELDS:
        yield from _unusual_parts(entry, path, per_device_nodes=per_device_nodes, same_taints=same_taints)


def _unusual_parts(entry: Device, path: str, *, per_device_nodes: bool, same_taints: bool) -> Iterator[StatusCause]:
    """The parts that few devices have."""
    if not same_taints:
        yield from listed(entry.get("taints", []), _TAINTS, f"{path}.taints", taint)
    uses, at = entry.get("consumesCounters", []), f"{path}.consumesCounters"
    yield from distinct(uses, _SETS_USED, at, _counter_use, key=lambda use: use.get("counterSet", ""))
    yield from _device_nodes(entry, path) if per_device_nodes else _no_nodes(entry, path)
    yield from binding(entry, path)
    yield from _node_resources(entry, f"{path}.nodeAllocatableResourceMappings")


def counters(entries: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """The counters of a set, or those that a device takes of it. Every quantity is good."""
    if not entries:
        yield required(path, "must have a counter")
    else:
        yield from mapped(entries, _COUNTERS, path, label, anything, shown_bytes=LABEL_BYTES)


def counter_set_name(name: str, path: str) -> Iterator[StatusCause]:
    """The name of a counter set, or a device's reference to it."""
    if not name:
        yield required(path, "must name a counter set")
    else:
        yield from label(name, path)


def _counter_use(use: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    yield from counter_set_name(use.get("counterSet", ""), f"{path}.counterSet")
    yield from counters(use.get("counters", {}), f"{path}.counters")


def _device_nodes(entry: Device, path: str) -> Iterator[StatusCause]:
    yield from node_fields(entry, path)
    chosen = chosen_nodes(entry)
    if not chosen:
        yield required(path, f"must have one of {', '.join(NODE_FIELDS)}: the slice has perDeviceNodeSelection")
    elif len(chosen) > 1:
        yield invalid(path, chosen, "are set; set exactly one of them")


def _no_nodes(entry: Device, path: str) -> Iterator[StatusCause]:
    chosen = [field for field in NODE_FIELDS if field in entry]
    if chosen:
        yield invalid(path, chosen, "need perDeviceNodeSelection: true in the slice")


def binding(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """Binding conditions of a device or of an allocated one (KEP-5007): both lists or none, no name twice."""
    wanted, failing = entry.get("bindingConditions", []), entry.get("bindingFailureConditions", [])
    for names, at in ((wanted, f"{path}.bindingConditions"), (failing, f"{path}.bindingFailureConditions")):
        yield from listed(names, _BINDING_CONDITIONS, at, label_key)
        yield from repeated(names, at, key=str)
    both = set(wanted) & set(failing)
    for index, name in enumerate(failing):
        if name in both:
            yield invalid(f"{path}.bindingFailureConditions[{index}]", name, "must not be in bindingConditions too")
    if failing and not wanted:
        yield invalid(f"{path}.bindingConditions", wanted, "must be set beside bindingFailureConditions")
    if wanted and not failing:
        yield invalid(f"{path}.bindingFailureConditions", failing, "must be set beside bindingConditions")


def _node_resources(entry: Device, path: str) -> Iterator[StatusCause]:
    """Which resources of the node a device takes up (KEP-5517)."""
    for resource, mapping in entry.get("nodeAllocatableResourceMappings", {}).items():
        at = f"{path}[{resource}]"
        if "/" in resource and "kubernetes.io/" not in resource:
            yield invalid(at, resource, "must be a resource of Kubernetes' own, such as cpu or memory")
        multiplier: Quantity = mapping["allocationMultiplier"]  # 1 by default
        key = mapping.get("capacityKey")
        if multiplier.sign <= 0:
            yield invalid(f"{at}.allocationMultiplier", multiplier.text, "must be above zero")
        if key == "":
            yield invalid(f"{at}.capacityKey", key, "must be left out or name a capacity")
        elif key is not None and key not in entry.get("capacity", {}):
            yield StatusCause(f"{at}.capacityKey", NOT_FOUND, f"{shown(key)} is not a capacity of this device")
