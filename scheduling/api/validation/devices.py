"""Rules for the devices of a slice (KEP-4381; counters KEP-4815, binding conditions KEP-5007)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.excerpts import shown
from scheduling.api.labels import LABEL_BYTES
from scheduling.api.quantities import Quantity
from scheduling.api.validation import attributes, capacities
from scheduling.api.validation.bounds import anything, distinct, listed, mapped, repeated
from scheduling.api.validation.cause import NOT_FOUND, Cause, invalid, required
from scheduling.api.validation.names import ATTRIBUTE_NAME_BYTES, label, label_key, qualified_name
from scheduling.api.validation.nodes import NODE_FIELDS, chosen_nodes, node_fields
from scheduling.api.validation.taints import taint

_FACTS: Final = 32
_ATTRIBUTE_VALUES: Final = 48
_TAINTS: Final = 16
_COUNTER_SETS: Final = 2
_COUNTERS: Final = 32
_BINDING_CONDITIONS: Final = 4

Device = Mapping[str, Any]


def device(entry: Device, path: str, *, per_device_nodes: bool, same_taints: bool) -> Iterator[Cause]:
    """A device. `per_device_nodes`: each names its nodes; `same_taints`: they are those of the stored device."""
    yield from label(entry.get("name", ""), f"{path}.name")
    facts, quantities = entry.get("attributes", {}), entry.get("capacity", {})
    if len(facts) + len(quantities) > _FACTS:
        yield invalid(path, len(facts) + len(quantities), f"attributes and capacities; at most {_FACTS} are allowed")
    values = sum(attributes.values_in(fact) for fact in facts.values())
    if values > _ATTRIBUTE_VALUES:
        yield invalid(path, values, f"values of attributes; at most {_ATTRIBUTE_VALUES} are allowed")
    at, limit = f"{path}.attributes", ATTRIBUTE_NAME_BYTES
    yield from mapped(facts, None, at, qualified_name, attributes.attribute, shown_bytes=limit)
    capacity = capacities.shared if entry.get("allowMultipleAllocations") else capacities.single
    yield from mapped(quantities, None, f"{path}.capacity", qualified_name, capacity, shown_bytes=limit)
    if not same_taints:
        yield from listed(entry.get("taints", []), _TAINTS, f"{path}.taints", taint)
    uses, at = entry.get("consumesCounters", []), f"{path}.consumesCounters"
    yield from distinct(uses, _COUNTER_SETS, at, _counter_use, key=lambda use: use.get("counterSet", ""))
    yield from _nodes(entry, path) if per_device_nodes else _no_nodes(entry, path)
    yield from binding(entry, path)
    yield from _node_resources(entry, f"{path}.nodeAllocatableResourceMappings")


def counters(entries: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """The counters of a set, or those that a device takes of it. Every quantity is good."""
    if not entries:
        yield required(path, "must have a counter")
    else:
        yield from mapped(entries, _COUNTERS, path, label, anything, shown_bytes=LABEL_BYTES)


def counter_set_name(name: str, path: str) -> Iterator[Cause]:
    """The name of a counter set, or a device's reference to it."""
    if not name:
        yield required(path, "must name a counter set")
    else:
        yield from label(name, path)


def _counter_use(use: Mapping[str, Any], path: str) -> Iterator[Cause]:
    yield from counter_set_name(use.get("counterSet", ""), f"{path}.counterSet")
    yield from counters(use.get("counters", {}), f"{path}.counters")


def _nodes(entry: Device, path: str) -> Iterator[Cause]:
    yield from node_fields(entry, path)
    chosen = chosen_nodes(entry)
    if not chosen:
        yield required(path, f"must have one of {', '.join(NODE_FIELDS)}: the slice has perDeviceNodeSelection")
    elif len(chosen) > 1:
        yield invalid(path, chosen, "are set; set exactly one of them")


def _no_nodes(entry: Device, path: str) -> Iterator[Cause]:
    chosen = [field for field in NODE_FIELDS if field in entry]
    if chosen:
        yield invalid(path, chosen, "need perDeviceNodeSelection: true in the slice")


def binding(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
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


def _node_resources(entry: Device, path: str) -> Iterator[Cause]:
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
            yield Cause(f"{at}.capacityKey", NOT_FOUND, f"{shown(key)} is no capacity of this device")
