"""Rules for the spec of a slice (KEP-4381; counter sets and nodes of devices KEP-4815)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.excerpts import shown
from scheduling.api.validation.attributes import LISTS
from scheduling.api.validation.bounds import distinct
from scheduling.api.validation.cause import Cause, invalid, required
from scheduling.api.validation.decoding import same
from scheduling.api.validation.devices import counter_set_name, counters, device
from scheduling.api.validation.names import driver, pool
from scheduling.api.validation.nodes import NODE_FIELDS, chosen_nodes, node_fields
from scheduling.api.validation.shapes import DEVICE

_DEVICES: Final = 128
_DEVICES_WITH_MORE: Final = 64
"""Limit where a device has taints, uses counters or has lists as attributes."""
_COUNTER_SETS: Final = 8
_PER_DEVICE: Final = "perDeviceNodeSelection"
_NODE_FIELDS: Final = ", ".join((*NODE_FIELDS, _PER_DEVICE))

Spec = Mapping[str, Any]


def slice_spec(spec: Spec, old: Spec | None) -> Iterator[Cause]:
    """The spec of a slice, `old` the one it replaces."""
    yield from driver(spec.get("driver", ""), "spec.driver")
    yield from _pool(spec.get("pool", {}))
    if old is not None:
        yield from _unchanged(spec, old)
    yield from _nodes(spec)
    if "sharedCounters" in spec and "devices" in spec:
        yield invalid("spec", ["sharedCounters", "devices"], "are set; put counter sets into a slice of their own")
    yield from _devices(spec, old)
    sets = spec.get("sharedCounters", [])
    name = "spec.sharedCounters"
    yield from distinct(sets, _COUNTER_SETS, name, _counter_set, key=lambda entry: entry.get("name", ""))


def _pool(entry: Mapping[str, Any]) -> Iterator[Cause]:
    yield from pool(entry.get("name", ""), "spec.pool.name")
    count, generation = entry.get("resourceSliceCount", 0), entry.get("generation", 0)
    if count <= 0:
        yield invalid("spec.pool.resourceSliceCount", count, "must be above zero")
    if generation < 0:
        yield invalid("spec.pool.generation", generation, "must not be negative")


def _unchanged(spec: Spec, old: Spec) -> Iterator[Cause]:
    name, before = spec.get("pool", {}).get("name", ""), old.get("pool", {}).get("name", "")
    if name != before:
        yield invalid("spec.pool.name", name, f"must stay {shown(before)}; delete the slice and make another")
    for field, absent in (("driver", ""), ("nodeName", None)):
        if spec.get(field, absent) != old.get(field, absent):
            fix = f"must stay {shown(old.get(field, absent))}; delete the slice and make another"
            yield invalid(f"spec.{field}", spec.get(field, absent), fix)


def _nodes(spec: Spec) -> Iterator[Cause]:
    yield from node_fields(spec, "spec", _PER_DEVICE)
    if "nodeSelector" in spec:
        terms = spec["nodeSelector"].get("nodeSelectorTerms", [])
        if len(terms) != 1:
            yield invalid("spec.nodeSelector.nodeSelectorTerms", len(terms), "terms; a slice has exactly one")
    chosen = chosen_nodes(spec, _PER_DEVICE)
    if not chosen:
        yield required("spec", f"must have one of {_NODE_FIELDS}")
    elif len(chosen) > 1:
        yield invalid("spec", chosen, f"are set; set exactly one of {_NODE_FIELDS}")


def _devices(spec: Spec, old: Spec | None) -> Iterator[Cause]:
    devices = spec.get("devices", [])
    before = {entry.get("name", ""): entry for entry in reversed(old.get("devices", []))} if old else {}
    taints = DEVICE.fields["taints"].type
    per_device = bool(spec.get(_PER_DEVICE))

    def rule(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
        stored = before.get(entry.get("name", ""))
        kept = stored is not None and same(stored.get("taints", []), entry.get("taints", []), taints)
        yield from device(entry, path, per_device_nodes=per_device, same_taints=kept)

    limit = _DEVICES_WITH_MORE if any(map(_has_more, devices)) else _DEVICES
    yield from distinct(devices, limit, "spec.devices", rule, key=lambda entry: entry.get("name", ""))


def _has_more(entry: Mapping[str, Any]) -> bool:
    if entry.get("taints") or entry.get("consumesCounters"):
        return True
    return any(field in fact for fact in entry.get("attributes", {}).values() for field in LISTS)


def _counter_set(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
    yield from counter_set_name(entry.get("name", ""), f"{path}.name")
    yield from counters(entry.get("counters", {}), f"{path}.counters")
