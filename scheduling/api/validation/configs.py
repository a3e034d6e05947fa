"""Rules for opaque configuration of drivers, and for raw JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.validation.cause import Cause, invalid, required, too_long
from scheduling.api.validation.decoding import raw
from scheduling.api.validation.names import driver

_PARAMETERS_BYTES: Final = 10 * 1024


def configuration(config: Mapping[str, Any], path: str, *, stored: bool) -> Iterator[Cause]:
    """The part of a configuration that all kinds of it share. `stored`: it was accepted before, with any size."""
    if "opaque" not in config:
        yield required(f"{path}.opaque", "must hold a driver and its parameters")
        return
    opaque = config["opaque"]
    yield from driver(opaque.get("driver", ""), f"{path}.opaque.driver")
    limit = None if stored else _PARAMETERS_BYTES
    yield from json_object(opaque.get("parameters"), f"{path}.opaque.parameters", limit)


def json_object(value: object, path: str, limit: int | None) -> Iterator[Cause]:
    """Raw JSON that must be a mapping of at most `limit` bytes."""
    if value is None:
        yield required(path, "must be a mapping")
    elif limit is not None and len(raw(value)) > limit:
        yield too_long(path, len(raw(value)), limit)
    elif not isinstance(value, Mapping):
        yield invalid(path, value, "must be a mapping")
