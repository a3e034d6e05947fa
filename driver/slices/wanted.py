"""One pool as the driver wants it: what is wrong with it, and what the API server makes of it.

A server with features turned off stores less than it was sent. A comparison with the request would then find a
difference for ever, so what was stored becomes what is wanted, until the caller asks for something else. Asking for the
same again changes nothing and is reported again; times that the server gave to taints count only until then.

Mistakes are found before anything is sent, and there are two kinds. A pool whose slices contradict each other (a name
used twice, a counter that does not exist) would be published and then never used, and no server would say so: such a
pool is not written at all. A slice that breaks a rule of the API would be refused, on its own, by the server: it is
left out, and the other slices are written. The rules are those of ``scheduling.api.validation`` with every optional
feature on, because only the server knows which ones it has.

The many devices of a driver come in a few forms: the same attributes, with other numbers and texts. Whether a form is
valid does not depend on these, as long as a number has 64 bits and a text is short and plain. So the first device of
each form is checked completely and the others by their names alone, which takes a tenth of the time. If anything is
wrong, everything is checked again in full, so that faults read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from driver.slices.errors import DroppedFieldsError, InvalidPool
from driver.slices.model import Pool, Slice
from kube.bodies import Json, JsonObject, object_at, text_at
from node.values import replace
from scheduling.api.excerpts import shown
from scheduling.api.validation.cause import StatusCause
from scheduling.api.validation.objects import validate_slice
from scheduling.api.validation.shapes import Gates


class WantedPool:
    """One pool as the driver last asked for it; only the controller's worker changes it."""

    def __init__(self, name: str, asked: Pool, before: WantedPool | None = None) -> None:
        self.name = name
        self.asked = asked
        self.effective = asked
        self.drops: dict[int, tuple[Slice, Slice, DroppedFieldsError]] = {}
        self._untold: list[DroppedFieldsError] = []
        self._faults: dict[int, tuple[StatusCause, ...]] = {}
        self._checked: tuple[InvalidPool | None] | None = None
        if before is not None and _alike(before.asked, asked):
            old = before.asked.slices
            self._faults = {
                index: faults for index, faults in before.judged.items() if asked.slices[index] is old[index]
            }
        for index, (slice_, stored, error) in (before.drops if before else {}).items():
            if index < len(asked.slices) and asked.slices[index] == slice_:
                self.drops[index] = (slice_, stored, error)
                self._accept(index, stored)
                self._untold.append(error)

    def take_untold(self) -> tuple[DroppedFieldsError, ...]:
        """Earlier faults that apply to the repeated request, each once."""
        untold, self._untold = tuple(self._untold), []
        return untold

    def fault(self) -> InvalidPool | None:
        """The contradiction in the pool, searched for once."""
        if self._checked is None:
            self._checked = (pool_fault(self.name, self.asked),)
        return self._checked[0]

    def faults(self, index: int, judge: Callable[[], Sequence[StatusCause]]) -> tuple[StatusCause, ...]:
        """The faults of a slice, asked of ``judge`` once."""
        if index not in self._faults:
            self._faults[index] = tuple(judge())
        return self._faults[index]

    def dropped(self, index: int, stored: Slice, error: DroppedFieldsError) -> None:
        """Note that the server stored a slice with less than was sent."""
        self.drops[index] = (self.asked.slices[index], stored, error)
        self._accept(index, stored)

    def dated(self, index: int, stored: Slice) -> None:
        """Note the times that the server gave to taints without one."""
        self._accept(index, replace(self.effective.slices[index], devices=stored.devices))

    @property
    def judged(self) -> Mapping[int, tuple[StatusCause, ...]]:
        """The known faults of slices; empty for a slice that is known to be valid."""
        return self._faults

    def dropped_features(self) -> tuple[str, ...]:
        """The gates without which something was not stored, "unknown" if none explains it."""
        gates = {gate for _, _, error in [*self.drops.values()] for gate in error.disabled_features() or ("unknown",)}
        return tuple(sorted(gates))

    def _accept(self, index: int, stored: Slice) -> None:
        slices = list(self.effective.slices)
        slices[index] = stored
        self.effective = replace(self.effective, slices=tuple(slices))


def _alike(one: Pool, other: Pool) -> bool:
    """Whether slices that are the same in both have the same faults."""
    return replace(one, slices=()) == replace(other, slices=()) and len(one.slices) == len(other.slices)


_PLAIN: Final = frozenset(("name", "attributes", "capacity"))
_TEXT: Final = 64
_BITS: Final = 63

Form = tuple[tuple[object, ...], ...]


def without_twins(body: JsonObject) -> JsonObject:
    """The slice with devices of a repeated form reduced to their names; the slice itself if there are none."""
    devices = object_at(body, "spec").get("devices")
    if not isinstance(devices, list):
        return body
    seen: set[Form] = set()
    reduced: list[Any] = []
    for device in devices:
        form = _form(device)
        twin = form is not None and form in seen
        reduced.append({"name": text_at(device, "name")} if twin else device)
        if form is not None:
            seen.add(form)
    return {**body, "spec": {**object_at(body, "spec"), "devices": reduced}}


def _form(device: Any) -> Form | None:
    """The checked fields of a device beside its name; None for one with more than attributes and plain capacities."""
    if not isinstance(device, dict) or not isinstance(device.get("name"), str) or not device.keys() <= _PLAIN:
        return None
    form: list[tuple[object, ...]] = []
    try:
        for name, fact in device.get("attributes", {}).items():
            ((kind, value),) = fact.items()
            form.append((name, kind) if _free(kind, value) else (name, kind, value, type(value)))
        for name, amount in device.get("capacity", {}).items():
            ((field, value),) = amount.items()
            form.append((name, field, value, type(value), "capacity"))
        hash(made := tuple(form))
    except (AttributeError, TypeError, ValueError):
        return None
    return made


def _free(kind: object, value: object) -> bool:
    """Whether the check does not depend on the value, only on its kind."""
    if kind == "int":
        return type(value) is int and value.bit_length() <= _BITS
    if kind == "bool":
        return type(value) is bool
    return kind == "string" and type(value) is str and value.isascii() and len(value) <= _TEXT


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


def slice_faults(body: JsonObject) -> list[StatusCause]:
    """The faults of an object that would be created, by the API's rules."""
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
            problem = (
                f"{shown(wanted)} is not a counter set of this pool; add it to sharedCounters of one of its slices"
            )
            return InvalidPool(pool, f"{where}.counterSet", problem)
        for counter in object_at(use, "counters"):
            if counter not in sets[wanted]:
                problem = (
                    f"{shown(counter)} is not a counter of set {shown(wanted)}; add it there, or use one that it has"
                )
                return InvalidPool(pool, f"{where}.counters", problem)
    return None
