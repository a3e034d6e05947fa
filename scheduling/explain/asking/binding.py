"""What keeps a pod waiting though its claims have devices: conditions that a device's driver has yet to report.

The scheduler binds the pod when every binding condition of every device is True, takes the devices back when a failure
condition is True, or when nothing was said for long enough (KEP-5007).
"""

from __future__ import annotations

from collections.abc import Iterator

from kube.bodies import JsonObject, one_line, text_at
from scheduling.explain.kinds import objects_at, texts_at

_WORD = 120


def waits_of(claim: JsonObject) -> Iterator[str]:
    """A sentence (without its end) for every device of an allocated claim whose conditions keep its pod waiting."""
    for result in objects_at(claim, "status", "allocation", "devices", "results"):
        said = {text_at(one, "type"): one for one in _conditions(claim, result)}
        true = {name for name, one in said.items() if text_at(one, "status") == "True"}
        device = f"{text_at(result, 'device')} of {text_at(result, 'driver')}"
        failed = [name for name in texts_at(result, "bindingFailureConditions") if name in true]
        awaited = [name for name in texts_at(result, "bindingConditions") if name not in true]
        if failed:
            reasons = ", ".join(_told(name, said[name]) for name in failed)
            yield f"{device} cannot be made ready: {reasons}; the scheduler takes the devices back and tries again"
        elif awaited:
            names = ", ".join(_told(name, said.get(name, {})) for name in awaited)
            yield (
                f"the pod waits until {device} has the condition {names}; its driver's controller sets it in the "
                "claim's status.devices"
            )


def _conditions(claim: JsonObject, result: JsonObject) -> tuple[JsonObject, ...]:
    parts = ("driver", "pool", "device", "shareID")
    named = [text_at(result, part) for part in parts]
    found = (one for one in objects_at(claim, "status", "devices") if [text_at(one, part) for part in parts] == named)
    return tuple(condition for one in found for condition in objects_at(one, "conditions"))


def _told(name: str, condition: JsonObject) -> str:
    """A condition with what its driver says of it."""
    words = one_line(": ".join(filter(None, (text_at(condition, "reason"), text_at(condition, "message")))), _WORD)
    return f"{name} ({words})" if words else name
