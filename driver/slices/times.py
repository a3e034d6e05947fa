"""Times of taints: whole seconds, and kept when nothing about the taint changes.

``tolerationSeconds`` count from a taint's ``timeAdded``, so an update for another reason must not start them anew. The
server gives a time to a taint that has none; we send the one that the same taint of the same device has already.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from driver.slices.equality import instant
from kube.bodies import JsonObject, text_at


def rounded(devices: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The devices with the times of their taints in whole seconds, which is all that can be stored."""
    return tuple([_with_taints(device, _rounded_taint) for device in devices])


def kept(stored: Sequence[JsonObject], wanted: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The wanted devices, taints without a time having that of an equal one of the stored device of their name."""
    known: dict[str, list[JsonObject]] = {}
    for device in stored:
        if device.get("taints"):
            known.setdefault(text_at(device, "name"), _taints(device))
    return tuple([_dated(device, known.get(text_at(device, "name"), ())) for device in wanted])


def served(sent: Sequence[JsonObject], stored: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The devices that were sent, taints without a time having the one that the server gave them."""
    result = list(sent)
    for index, (ours, theirs) in enumerate(zip(sent, stored, strict=False)):
        given = _taints(theirs)
        if ours.get("taints") and given:
            dated = [
                {**taint, "timeAdded": other["timeAdded"]}
                if taint.get("timeAdded") is None and other.get("timeAdded") is not None
                else taint
                for taint, other in zip(_taints(ours), given, strict=False)
            ]
            result[index] = {**ours, "taints": [*dated, *_taints(ours)[len(dated) :]]}
    return tuple(result)


def _taints(device: JsonObject) -> list[JsonObject]:
    taints = device.get("taints")
    return [taint for taint in taints if isinstance(taint, dict)] if isinstance(taints, list) else []


def _with_taints(device: JsonObject, change: Any) -> JsonObject:
    taints = device.get("taints")
    if not isinstance(taints, list) or not taints:
        return device
    return {**device, "taints": [change(taint) if isinstance(taint, dict) else taint for taint in taints]}


def _rounded_taint(taint: JsonObject) -> JsonObject:
    moment = instant(taint.get("timeAdded"))
    if moment is None:
        return taint
    try:
        whole = (moment + timedelta(microseconds=500_000)).replace(microsecond=0)
    except OverflowError:
        return taint
    return {**taint, "timeAdded": whole.replace(tzinfo=None).isoformat() + "Z"}


def _dated(device: JsonObject, old: Sequence[JsonObject]) -> JsonObject:
    """Taints are recognised in their order, from the last: one that moved before others is a new one, as upstream."""
    end = len(old)
    taints = []
    for taint in reversed(_taints(device)):
        places = [place for place in range(end) if _identity(old[place]) == _identity(taint)]
        end = places[-1] if places else end
        time = old[end].get("timeAdded") if places else None
        given = taint.get("timeAdded") is not None or time is None
        taints.append(taint if given else {**taint, "timeAdded": time})
    return {**device, "taints": [*reversed(taints)]} if taints else device


def _identity(taint: JsonObject) -> tuple[object, object, object]:
    return taint.get("key"), taint.get("value") or "", taint.get("effect")
