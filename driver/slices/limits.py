"""What is wrong with wanted resources, found before anything is sent.

Two kinds. A pool whose slices contradict each other (names twice, counters that nobody has) would be published and then
never used, and no server says so: such a pool is not written at all. A slice that breaks a rule of the API would be
refused, on its own, by the server: it is left out, and the other slices are written. The rules are those of
``scheduling.api.validation`` with every optional feature on, because only the server knows which ones it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from driver.slices.errors import InvalidPool
from driver.slices.model import Pool, Slice
from driver.slices.twins import without_twins
from kube.bodies import Json, JsonObject, object_at, text_at
from scheduling.api.excerpts import shown
from scheduling.api.validation.cause import Cause
from scheduling.api.validation.objects import validate_slice
from scheduling.api.validation.shapes import Gates

_EVERYTHING = Gates(list_attributes=True, node_allocatable_resources=True)


def pool_fault(name: str, pool: Pool) -> InvalidPool | None:
    """The first contradiction between the slices of a pool."""
    sets: dict[str, frozenset[str]] = {}
    for place, counter_set in _entries(pool, "sharedCounters"):
        own = text_at(counter_set, "name")
        if own in sets:
            return _twice(name, f"{place}.name", own, "counter set")
        sets[own] = frozenset(object_at(counter_set, "counters"))
    devices: set[str] = set()
    for place, device in _entries(pool, "devices"):
        own = text_at(device, "name")
        if own in devices:
            return _twice(name, f"{place}.name", own, "device")
        devices.add(own)
        if device.get("consumesCounters"):
            fault = _counter_fault(name, place, device, sets)
            if fault is not None:
                return fault
    return None


def slice_faults(body: JsonObject) -> list[Cause]:
    """What the API's rules say against an object that would be created."""
    if not validate_slice(without_twins(body), None, _EVERYTHING):
        return []
    return validate_slice(body, None, _EVERYTHING)


def _entries(pool: Pool, field: str) -> Iterator[tuple[str, JsonObject]]:
    for number, each in enumerate(pool.slices):
        for index, entry in enumerate(_part(each, field)):
            if isinstance(entry, dict):
                yield f"slices[{number}].{field}[{index}]", entry


def _part(each: Slice, field: str) -> tuple[JsonObject, ...]:
    return each.devices if field == "devices" else each.shared_counters


def _twice(pool: str, place: str, name: str, what: str) -> InvalidPool:
    return InvalidPool(pool, place, f"{shown(name)} names a second {what} of this pool; names must be unique in a pool")


def _counter_fault(pool: str, place: str, device: JsonObject, sets: Mapping[str, frozenset[str]]) -> InvalidPool | None:
    uses: Json = device["consumesCounters"]
    for index, use in enumerate(uses if isinstance(uses, list) else ()):
        wanted = text_at(use, "counterSet")
        where = f"{place}.consumesCounters[{index}]"
        if wanted not in sets:
            problem = f"{shown(wanted)} is no counter set of this pool; add it to sharedCounters of one of its slices"
            return InvalidPool(pool, f"{where}.counterSet", problem)
        for counter in object_at(use, "counters"):
            if counter not in sets[wanted]:
                problem = f"{shown(counter)} is no counter of set {shown(wanted)}; add it there, or use one that it has"
                return InvalidPool(pool, f"{where}.counters", problem)
    return None
