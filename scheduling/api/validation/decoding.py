"""Reading, writing and comparing values by their types.

Reading is as strict as the API server's decoder: a wrong type ends it with `Undecodable` (the server answers 400),
unknown fields are dropped (it warns), nulls count as absent, and half of a surrogate pair becomes U+FFFD.
Stricter in one thing: raw JSON has bounds here, so that neither depth nor what YAML's aliases repeat can hurt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
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
        self._expected, self._found = expected, found
        self.message = f"must be {expected}, is {shown(found)}"
        super().__init__(f"{field or 'the object'}: {self.message}")
        self.field = field

    def within(self, place: str) -> Undecodable:
        """Return the same fault of a value at `place` (a field's name, or an index or name in brackets)."""
        dot = "." if self.field and not self.field.startswith("[") else ""
        return Undecodable(f"{place}{dot}{self.field}", self._expected, self._found)


def decoded(resource: object, kind: str) -> dict[str, Any]:
    """Return the object of `kind` as typed data (see `scheduling.api.validation.shapes`). Raises Undecodable."""
    if not isinstance(resource, Mapping):
        raise Undecodable("", "a mapping", resource)
    others = _RULES_OF_SAME_SHAPE if kind == "DeviceTaintRule" else _OF_SAME_SHAPE
    if resource.get("apiVersion") not in (None, "", API_VERSION, *others):
        raise Undecodable("apiVersion", f"{API_VERSION}, to which other versions are converted", resource["apiVersion"])
    if resource.get("kind") not in (None, "", kind):
        raise Undecodable("kind", kind, resource["kind"])
    tree: dict[str, Any] = _reader_of_kind(kind)(resource)
    return tree


_Reader = Callable[[object], Any]
"""Returns a value as typed data; null becomes the zero value of its type. Raises Undecodable, with paths from there."""


@cache
def _reader_of_kind(kind: str) -> _Reader:
    """Return the reader of a kind: made once, since asking each value's type takes most of the time of a reading."""
    return _reader(BY_KIND[kind])


def _reader(type_: Type) -> _Reader:
    if isinstance(type_, Scalar):
        return _SCALAR_READERS[type_]
    if isinstance(type_, ListOf):
        return _list_reader(_reader(type_.item))
    if isinstance(type_, MapOf):
        return _map_reader(_reader(type_.item))
    return _shape_reader([(name, _reader(field.type)) for name, field in type_.fields.items()])


def _list_reader(read_item: _Reader) -> _Reader:
    def read(value: object) -> Any:
        if value is None:
            return []
        if not isinstance(value, list):
            raise Undecodable("", "a list", value)
        made: list[Any] = []
        try:
            for entry in value:
                made.append(read_item(entry))  # noqa: PERF401 - its length is the index of a faulty entry
        except Undecodable as fault:
            raise fault.within(f"[{len(made)}]") from fault.__cause__
        return made

    return read


def _map_reader(read_item: _Reader) -> _Reader:
    def read(value: object) -> Any:
        if value is None:
            return {}
        if type(value) is not dict and not isinstance(value, Mapping):
            raise Undecodable("", "a mapping", value)
        for name in value:
            if not isinstance(name, str):
                raise Undecodable("", "a mapping of strings", name)
        made = {}
        name = ""
        try:
            for name, entry in value.items():
                made[name if name.isascii() else _text(name)] = read_item(entry)
        except Undecodable as fault:
            raise fault.within(f"[{name}]") from fault.__cause__
        return made

    return read


def _shape_reader(fields: Sequence[tuple[str, _Reader]]) -> _Reader:
    def read(value: object) -> Any:
        if value is None:
            return {}
        if type(value) is not dict and not isinstance(value, Mapping):
            raise Undecodable("", "a mapping", value)
        made = {}
        name = ""
        try:
            for name, read_field in fields:
                entry = value.get(name)
                if entry is not None:
                    made[name] = read_field(entry)
        except Undecodable as fault:
            raise fault.within(name) from fault.__cause__
        return made

    return read


def _read_raw(value: object) -> object:
    try:
        _bounded(value)
        raw(value)
    except (TypeError, ValueError) as error:  # from YAML: dates, not-a-number, loops of aliases
        raise Undecodable("", RAW.value, value) from error
    return value


def _read_quantity(value: object) -> Quantity:
    try:
        return of_json(value)
    except ValueError as error:
        raise Undecodable("", QUANTITY.value, value) from error


def _read_text(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return ""
    raise Undecodable("", Scalar.TEXT.value, value)


def _read_integer(value: object) -> int:
    if value is None:
        return 0
    if type(value) is int and is_int64(value):
        return value
    raise Undecodable("", Scalar.INTEGER.value, value)


def _read_flag(value: object) -> bool:
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    raise Undecodable("", Scalar.FLAG.value, value)


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


def _read_time(value: object) -> str | None:
    """Return the time as the API server writes it: whole seconds, UTC."""
    if value is None:
        return None
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Undecodable("", TIME.value, value)
    day, hour, minute, second, _, zone, _ = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{hour:0>2}:{minute}:{second}{zone}")
        return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    except (ValueError, OverflowError) as error:
        raise Undecodable("", TIME.value, value) from error


_SCALAR_READERS: Final[Mapping[Scalar, _Reader]] = {
    Scalar.TEXT: _read_text,
    Scalar.INTEGER: _read_integer,
    Scalar.FLAG: _read_flag,
    Scalar.QUANTITY: _read_quantity,
    Scalar.TIME: _read_time,
    Scalar.RAW: _read_raw,
}


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
