"""Taints that administrators set: DeviceTaintRules, merged into the slices as the scheduler sees them.

The scheduler appends a rule's taint to every device that the rule's selector names, in memory alone. All fields that a
selector gives must be equal; an empty selector names every device, no selector none (KEP-5055, resource.k8s.io/v1).
Slices without such a device stay the same objects, so that what was remembered for them still holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kube.bodies import JsonObject, object_at, text_at
from scheduling.allocator.slices import DeviceID
from scheduling.explain.kinds import objects_at

TaintOf = tuple[DeviceID, str, str, str]
"""A device, then key, value and effect of a taint on it."""


@dataclass(frozen=True, slots=True)
class TaintedSlices:
    """Slices with the rules' taints, and which rule each of these is from."""

    slices: tuple[JsonObject, ...]
    rules: Mapping[TaintOf, str]


def apply(rules: Sequence[JsonObject], slices: Sequence[JsonObject]) -> TaintedSlices:
    """The slices as the scheduler sees them under these rules."""
    found: dict[TaintOf, str] = {}
    usable = [rule for rule in rules if isinstance(object_at(rule, "spec").get("deviceSelector"), dict)]
    if not usable:
        return TaintedSlices(tuple(slices), found)
    return TaintedSlices(tuple(_tainted(body, usable, found) for body in slices), found)


def _tainted(body: JsonObject, rules: Sequence[JsonObject], found: dict[TaintOf, str]) -> JsonObject:
    driver, pool = text_at(body, "spec", "driver"), text_at(body, "spec", "pool", "name")
    fitting = [rule for rule in rules if _names(rule, "driver", driver) and _names(rule, "pool", pool)]
    if not fitting:
        return body
    devices: list[JsonObject] = []
    changed = False
    for device in objects_at(body, "spec", "devices"):
        name = text_at(device, "name")
        own = [rule for rule in fitting if _names(rule, "device", name)]
        if own:
            changed = True
            device = {**device, "taints": [*objects_at(device, "taints"), *_taints(own)]}  # noqa: PLW2901
            for rule in own:
                taint = object_at(rule, "spec", "taint")
                key, value, effect = (text_at(taint, part) for part in ("key", "value", "effect"))
                found.setdefault((DeviceID(driver, pool, name), key, value, effect), text_at(rule, "metadata", "name"))
        devices.append(device)
    return {**body, "spec": {**object_at(body, "spec"), "devices": list(devices)}} if changed else body


def _names(rule: JsonObject, part: str, value: str) -> bool:
    wanted = object_at(rule, "spec", "deviceSelector").get(part)
    return wanted is None or wanted == value


def _taints(rules: Sequence[JsonObject]) -> list[JsonObject]:
    return [object_at(rule, "spec", "taint") for rule in rules]
