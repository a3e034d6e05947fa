"""Rules for taints, of devices and of taint rules, and for the tolerations of requests (KEP-5055)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.validation.cause import Cause, invalid, not_supported, required
from scheduling.api.validation.names import label_key, label_value

_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_OPERATORS: Final = ("Equal", "Exists")


def taint(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """A taint."""
    yield from taint_label(entry, path)
    effect = entry.get("effect", "")
    if not effect:
        yield required(f"{path}.effect", f"must be one of {', '.join(_EFFECTS)}")
    elif effect not in _EFFECTS:
        yield not_supported(f"{path}.effect", effect, _EFFECTS)


def taint_label(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Key and value of a taint."""
    yield from label_key(entry.get("key", ""), f"{path}.key")
    yield from label_value(entry.get("value", ""), f"{path}.value")


def toleration(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """A toleration; without a key or an effect it tolerates any."""
    if entry.get("key"):
        yield from label_key(entry["key"], f"{path}.key")
    operator, value = entry.get("operator", ""), entry.get("value", "")
    if operator == "Exists":
        if value:
            yield invalid(f"{path}.value", value, "must be left out with operator Exists")
    elif operator == "Equal":
        yield from label_value(value, f"{path}.value")
    else:
        yield not_supported(f"{path}.operator", operator, _OPERATORS)
    effect = entry.get("effect", "")
    if effect and effect not in _EFFECTS:
        yield not_supported(f"{path}.effect", effect, _EFFECTS)
