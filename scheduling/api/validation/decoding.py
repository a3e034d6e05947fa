"""Reading, writing and comparing values by their types.

Reading is as strict as the API server's decoder: a wrong type ends it with `Undecodable` (the server answers 400),
unknown fields are dropped (it warns), nulls count as absent, and half of a surrogate pair becomes U+FFFD.
Stricter in one thing: raw JSON has bounds here, so that neither depth nor what YAML's aliases repeat can hurt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from scheduling.api.excerpts import shown
from scheduling.api.int64 import is_int64
from scheduling.api.quantities import ZERO, Quantity, of_json
from scheduling.api.validation.shapes import (
    API_VERSION,
    BY_KIND,
    QUANTITY,
    RAW,
    TIME,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Shape,
    Type,
    Written,
    zero,
)

_OF_SAME_SHAPE: Final = ("resource.k8s.io/v1beta2",)
_RULES_OF_SAME_SHAPE: Final = (*_OF_SAME_SHAPE, "resource.k8s.io/v1alpha3")
"""Other versions in which an object, and a DeviceTaintRule, is written as in v1."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_RAW_DEPTH: Final = 200
_RAW_VALUES: Final = 200_000
"""Values in raw JSON, of which the rules allow 10 KiB at most (more only if they were stored before that rule)."""
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T(\d{1,2}):(\d\d):(\d\d)([.,]\d+)?(Z|[+-]([01]\d|2[0-4]):[0-5]\d)", re.ASCII
)


class Undecodable(Exception):
    """A value does not have the type of its field. `field`: its path; `message`: what was expected and found."""

    def __init__(self, field: str, expected: str, found: object) -> None:
        self.message = f"must be {expected}, is {shown(found)}"
        super().__init__(f"{field or 'the object'}: {self.message}")
        self.field = field


def decoded(resource: object, kind: str) -> dict[str, Any]:
    """Return the object of `kind` as typed data (see `scheduling.api.validation.shapes`). Raises Undecodable."""
    if not isinstance(resource, Mapping):
        raise Undecodable("", "a mapping", resource)
    others = _RULES_OF_SAME_SHAPE if kind == "DeviceTaintRule" else _OF_SAME_SHAPE
    if resource.get("apiVersion") not in (None, "", API_VERSION, *others):
        raise Undecodable("apiVersion", f"{API_VERSION}, to which other versions are converted", resource["apiVersion"])
    if resource.get("kind") not in (None, "", kind):
        raise Undecodable("kind", kind, resource["kind"])
    tree: dict[str, Any] = _read(resource, BY_KIND[kind], "")
    return tree


def _read(value: object, type_: Type, path: str) -> Any:
    """Return a value as typed data; null becomes the zero value of its type. Raises Undecodable."""
    if isinstance(type_, Scalar):
        return _read_scalar(value, type_, path)
    if value is None:
        return zero(type_)
    if isinstance(type_, ListOf):
        if not isinstance(value, list):
            raise Undecodable(path, "a list", value)
        return [_read(entry, type_.item, f"{path}[{index}]") for index, entry in enumerate(value)]
    if not isinstance(value, Mapping):
        raise Undecodable(path, "a mapping", value)
    if isinstance(type_, MapOf):
        for name in value:
            if not isinstance(name, str):
                raise Undecodable(path, "a mapping of strings", name)
        return {_text(name): _read(entry, type_.item, f"{path}[{name}]") for name, entry in value.items()}
    start = f"{path}." if path else ""
    return {
        name: _read(value[name], field.type, start + name)
        for name, field in type_.fields.items()
        if value.get(name) is not None
    }


def _read_scalar(value: object, type_: Scalar, path: str) -> Any:
    if type_ is RAW:
        try:
            _bounded(value)
            raw(value)
        except (TypeError, ValueError) as error:  # from YAML: dates, not-a-number, loops of aliases
            raise Undecodable(path, type_.value, value) from error
        return value
    if type_ is QUANTITY:
        try:
            return of_json(value)
        except ValueError as error:
            raise Undecodable(path, type_.value, value) from error
    if value is None:
        return zero(type_)
    if type_ is TIME:
        return _read_time(value, path)
    wanted = {Scalar.TEXT: str, Scalar.INTEGER: int, Scalar.FLAG: bool}[type_]
    if not isinstance(value, wanted) or (wanted is int and not (type(value) is int and is_int64(value))):
        raise Undecodable(path, type_.value, value)
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    return value if value.isascii() else _SURROGATE.sub("\ufffd", value)


def _bounded(value: object) -> None:
    """Raise ValueError for a value with more levels or parts than raw JSON may have here."""
    parts = 0
    rest = [(value, 1)]
    while rest:
        part, depth = rest.pop()
        inner = part.values() if isinstance(part, Mapping) else part if isinstance(part, list | tuple) else ()
        parts += len(inner)
        if inner and depth > _RAW_DEPTH:
            raise ValueError(f"more than {_RAW_DEPTH} levels")
        if parts > _RAW_VALUES:
            raise ValueError(f"more than {_RAW_VALUES} values")
        rest += [(each, depth + 1) for each in inner if isinstance(each, Mapping | list | tuple)]


def _read_time(value: object, path: str) -> str:
    """Return the time as the API server writes it: whole seconds, UTC."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Undecodable(path, TIME.value, value)
    day, hour, minute, second, _, zone, _ = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{hour:0>2}:{minute}:{second}{zone}")
        return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    except (ValueError, OverflowError) as error:
        raise Undecodable(path, TIME.value, value) from error


def written(value: Any, type_: Type) -> Any:
    """Return typed data as the API server writes it."""
    if isinstance(value, Quantity):
        return value.text
    if isinstance(type_, ListOf):
        return [written(entry, type_.item) for entry in value]
    if isinstance(type_, MapOf):
        return {name: written(entry, type_.item) for name, entry in value.items()}
    if not isinstance(type_, Shape):
        return value
    result = {}
    for name, field in type_.fields.items():
        present = name in value
        if field.written is Written.ALWAYS:
            # Its storage knows no empty list: one that was written is read back as none.
            empty = isinstance(field.type, ListOf | MapOf) and not value.get(name)
            result[name] = written(value[name], field.type) if present and not empty else _absent(field)
        elif present and (field.written is Written.SET or value[name]):
            result[name] = written(value[name], field.type)
    return result


def _absent(field: Field) -> Any:
    if isinstance(field.type, Shape) and not field.pointer:
        return written({}, field.type)
    if field.pointer or isinstance(field.type, ListOf | MapOf):
        return None
    return ZERO.text if field.type is QUANTITY else zero(field.type)


def same(left: Any, right: Any, type_: Type) -> bool:
    """Tell whether two values mean the same: quantities by value, nothing as empty, pointers as set or not."""
    return bool(_essence(left, type_) == _essence(right, type_))


def _essence(value: Any, type_: Type) -> object:
    if type_ is RAW:
        return raw(value)
    if isinstance(value, Quantity) or isinstance(type_, Scalar) or value is None:
        return value
    if isinstance(type_, ListOf):
        return [_essence(entry, type_.item) for entry in value]
    if isinstance(type_, MapOf):
        return {name: _essence(entry, type_.item) for name, entry in value.items()}
    essence = {name: _essence(value[name], field.type) for name, field in type_.fields.items() if name in value}
    return {
        name: entry
        for name, entry in essence.items()
        if (type_.fields[name].pointer and not isinstance(type_.fields[name].type, ListOf | MapOf)) or entry
    }


def raw(value: object) -> str:
    """Return raw JSON as a Python client sends it: with a space after each comma and colon, non-ASCII escaped.

    The API server counts these bytes against its limits, as they arrive.
    """
    return json.dumps(value, allow_nan=False)
