"""Rules for conditions (`metav1.Condition`), in the state of devices and of taint rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from scheduling.api.labels import size
from scheduling.api.validation.bounds import listed, repeated
from scheduling.api.validation.cause import Cause, invalid, not_supported, required, too_long, too_many
from scheduling.api.validation.names import label_key

_CONDITIONS: Final = 8
_REASON_BYTES: Final = 1024
_MESSAGE_BYTES: Final = 32 * 1024
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def conditions(entries: Sequence[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    """A list of conditions, each type once. One that is too long is looked into all the same, as the server does."""
    if len(entries) > _CONDITIONS:
        yield too_many(path, len(entries), _CONDITIONS)
    yield from listed(entries, None, path, _condition)
    yield from repeated(entries, path, key=lambda entry: entry.get("type", ""), field=".type")


def _condition(condition: Mapping[str, Any], path: str) -> Iterator[Cause]:
    yield from label_key(condition.get("type", ""), f"{path}.type")
    status, reason = condition.get("status", ""), condition.get("reason", "")
    if status not in ("False", "True", "Unknown"):
        yield not_supported(f"{path}.status", status, ("False", "True", "Unknown"))
    if condition.get("observedGeneration", 0) < 0:
        yield invalid(f"{path}.observedGeneration", condition["observedGeneration"], "must not be negative")
    if not condition.get("lastTransitionTime"):
        yield required(f"{path}.lastTransitionTime", "must say when the status changed")
    if not reason:
        yield required(f"{path}.reason", "must be one word such as DeviceReady")
    elif not _REASON.fullmatch(reason):
        yield invalid(f"{path}.reason", reason, "must be letters, digits, '_', ',' or ':', and start with a letter")
    if size(reason) > _REASON_BYTES:
        yield too_long(f"{path}.reason", size(reason), _REASON_BYTES)
    if size(condition.get("message", "")) > _MESSAGE_BYTES:
        yield too_long(f"{path}.message", size(condition["message"]), _MESSAGE_BYTES)
