"""Judging thousands of devices that differ in nothing that rules look at.

A driver of many devices has them in a few forms: the same attributes, with other numbers and texts. Whether a form is
good does not depend on these, as long as a number has 64 bits and a text is short and plain. So of each form the first
device is judged whole and the others by their names alone, which takes a tenth of the time. Which values may differ is
all that is known here of the rules; they stay in ``scheduling.api.validation``, and where anything is found wrong
everything is judged again in full, so that faults read as always.
"""

from __future__ import annotations

from typing import Any, Final

from kube.bodies import JsonObject, object_at, text_at

_PLAIN: Final = frozenset(("name", "attributes", "capacity"))
_TEXT: Final = 64
_BITS: Final = 63

Form = tuple[tuple[object, ...], ...]


def without_twins(body: JsonObject) -> JsonObject:
    """The slice with devices of a form that was there before reduced to their names; itself where there are none."""
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
    """What is judged of a device beside its name; None for one that has more than attributes and plain capacities."""
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
    """Whether another value of its kind would be judged the same."""
    if kind == "int":
        return type(value) is int and value.bit_length() <= _BITS
    if kind == "bool":
        return type(value) is bool
    return kind == "string" and type(value) is str and value.isascii() and len(value) <= _TEXT
