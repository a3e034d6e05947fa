"""How a document becomes typed values and goes back: the kinds of fields, and the errors of reading them.

Each field of a document's type says its key, its kind and the spelling that knows it (`entry`); one walker reads and
one writes every type. Values of the wrong shape are refused by name: the field, the value, the fix.

Reading follows the original decoder where documents depend on it: keys match without regard to case, the last of two
keys in alphabetical order wins, and a number or boolean in the place of a text becomes a text (YAML writes `driver:
yes` as a boolean). Strict reading refuses unknown keys; lenient reading drops them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Any, NoReturn, Protocol, cast

from scheduling.api.excerpts import shown
from scheduling.api.int64 import is_int64
from scheduling.api.quantities import Quantity, QuantityError, of_json

Json = Any
"""A value as JSON or YAML give it."""


class Spelling(Enum):
    """The field names of a document."""

    REFERENCE = "reference"
    """Those of the reference page: `claims`, `deviceClass`, `limits`, `resources`."""
    LATER = "later"
    """Those of the later examples: `devices`, `class`, `maxDevices`, `sharedResources`."""
    EITHER = "either"
    """Both, but not both in one claim, nor both names of one field."""


class DocumentError(ValueError):
    """A document that cannot be used. `problems`: one line each, which begins with the field."""

    def __init__(self, document: str, problems: tuple[str, ...]) -> None:
        super().__init__(f"{document}: {'; '.join(problems)}")
        self.document = document
        self.problems = problems


class FieldProblem(Exception):
    """A field that cannot be read; the reader of the document adds its name."""


@dataclass(frozen=True, slots=True)
class ReadingPlace:
    """The field being read: its path, and how strictly and in which spelling it is read."""

    path: str = ""
    strict: bool = True
    spelling: Spelling = Spelling.EITHER

    def below(self, key: str) -> ReadingPlace:
        """The place of an entry."""
        return ReadingPlace(f"{self.path}.{key}" if self.path else key, self.strict, self.spelling)

    def item(self, number: int) -> ReadingPlace:
        """The place of an element of a list."""
        return ReadingPlace(f"{self.path}[{number}]", self.strict, self.spelling)

    def refuse(self, value: Json, expected: str) -> NoReturn:
        """Raises FieldProblem: the field must be something else."""
        raise FieldProblem(f"{self.path or 'the document'} must be {expected}, not {described(value)}")


def described(value: Json) -> str:
    """A value as messages show it."""
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else shown(value).replace("'", '"')


class FieldReader(Protocol):
    """Reads what a field holds."""

    def read(self, value: Json, place: ReadingPlace) -> Any:
        """The typed value. Raises FieldProblem."""


class FieldKind(FieldReader, Protocol):
    """What a field holds."""

    def write(self, value: Any) -> Json:
        """The JSON value."""


class _Text:
    def read(self, value: Json, place: ReadingPlace) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return f"{value:.15g}" if isinstance(value, float) else str(value)
        return place.refuse(value, "a text")

    def write(self, value: Any) -> Json:
        return str(value)


class _Whole:
    def read(self, value: Json, place: ReadingPlace) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not is_int64(value):
            place.refuse(value, "a whole number of 64 bits, without quotes")
        return value

    def write(self, value: Any) -> Json:
        return value


class _Flag:
    def read(self, value: Json, place: ReadingPlace) -> bool:
        return value if isinstance(value, bool) else place.refuse(value, "true or false, without quotes")

    def write(self, value: Any) -> Json:
        return value


class _Amount:
    def read(self, value: Json, place: ReadingPlace) -> Quantity:
        if isinstance(value, Mapping | list | bool):
            place.refuse(value, "a quantity such as 2, 500m or 8Gi")
        try:
            return of_json(value)
        except QuantityError as error:
            raise FieldProblem(f"{place.path}: {error}") from error

    def write(self, value: Any) -> Json:
        return str(value)


class _Raw:
    def read(self, value: Json, place: ReadingPlace) -> Json:
        return value

    def write(self, value: Any) -> Json:
        return value


@dataclass(frozen=True, slots=True)
class ListField:
    """A list of one kind."""

    item: FieldKind

    def read(self, value: Json, place: ReadingPlace) -> tuple[Any, ...]:
        """The elements."""
        if not isinstance(value, list | tuple):
            place.refuse(value, "a list")
        return tuple(self.item.read(each, place.item(number)) for number, each in enumerate(value))

    def write(self, value: Any) -> Json:
        """A JSON list."""
        return [self.item.write(each) for each in value]


@dataclass(frozen=True, slots=True)
class MapField:
    """A map from texts to one kind."""

    value: FieldKind

    def read(self, value: Json, place: ReadingPlace) -> dict[str, Any]:
        """The entries."""
        if not isinstance(value, Mapping):
            place.refuse(value, "a map")
        return {str(key): self.value.read(each, place.below(str(key))) for key, each in value.items()}

    def write(self, value: Any) -> Json:
        """A JSON object."""
        return {key: self.value.write(each) for key, each in value.items()}


@dataclass(frozen=True, slots=True)
class ObjectField:
    """An object of one of the documents' types, which may read and write itself with `read_object`/`write_object`."""

    type: type

    def read(self, value: Json, place: ReadingPlace) -> Any:
        """The typed object; null stands for an empty one."""
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            place.refuse(value, "a map")
        own = getattr(self.type, "read_object", None)
        return read_fields(self.type, value, place) if own is None else own(value, place)

    def write(self, value: Any) -> Json:
        """The JSON object."""
        own = getattr(value, "write_object", None)
        return write_fields(value) if own is None else own()


TEXT, WHOLE, FLAG, AMOUNT, RAW = _Text(), _Whole(), _Flag(), _Amount(), _Raw()
TEXTS = ListField(TEXT)
AMOUNTS = MapField(AMOUNT)


@dataclass(frozen=True, slots=True)
class FieldEntry:
    """One key of a type: the name in each spelling (None: the spelling does not have it) and its kind.

    `later_kind`: reads it in the later spelling. `always`: written even when it is empty.
    """

    key: str | None
    later: str | None
    kind: FieldKind
    later_kind: FieldReader
    always: bool = False


def entry(
    key: str | None,
    kind: FieldKind,
    *,
    later: str | None = "",
    later_kind: FieldReader | None = None,
    default: Any = None,
    factory: Any = MISSING,
    always: bool = False,
) -> Any:
    """A dataclass field that documents hold as `key`; `later` is its name in the later spelling, "" the same one."""
    about = {"entry": FieldEntry(key, key if later == "" else later, kind, later_kind or kind, always)}
    if factory is not MISSING:
        return field(default_factory=factory, metadata=about)
    return field(default=default, metadata=about)


@cache
def entries(type_: type) -> tuple[tuple[Field[Any], FieldEntry], ...]:
    """The fields of a type that documents hold."""
    return tuple((each, each.metadata["entry"]) for each in fields(cast("Any", type_)) if "entry" in each.metadata)


@cache
def _names(type_: type, spelling: Spelling) -> Mapping[str, tuple[str, FieldReader, FieldEntry]]:
    """The name of the field, its kind and its entry, by the key in lower case."""
    found: dict[str, tuple[str, FieldReader, FieldEntry]] = {}
    for each, about in entries(type_):
        if about.later is not None and spelling is not Spelling.REFERENCE:
            found[about.later.lower()] = (each.name, about.later_kind, about)
        if about.key is not None and spelling is not Spelling.LATER:
            found[about.key.lower()] = (each.name, about.kind, about)
    return found


def read_fields(type_: type, value: Mapping[str, Json], place: ReadingPlace) -> Any:
    """An object of the type. Raises FieldProblem."""
    names = _names(type_, place.spelling)
    given: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key in sorted(map(str, value)):
        known = names.get(key.lower())
        if known is None:
            if place.strict:
                raise FieldProblem(_unknown(type_, key, place))
            continue
        name, kind, _ = known
        earlier = keys.setdefault(name, key)
        if place.strict and earlier.lower() != key.lower():
            raise FieldProblem(f"{place.below(key).path}: {earlier} and {key} name the same field; write one of them")
        if value[key] is not None or kind is RAW:
            given[name] = kind.read(value[key], place.below(key))
    return type_(**given)


def _unknown(type_: type, key: str, place: ReadingPlace) -> str:
    at = place.below(key).path
    other = _names(type_, Spelling.EITHER).get(key.lower())
    if other is not None:
        fits = other[2].key if place.spelling is Spelling.REFERENCE else other[2].later
        if fits is None:
            return f"{at}: this spelling of the document has no field {key}; remove it"
        return f"{at}: the other spelling of the document calls this field {key}; write {fits}"
    advice = _COMMON.get(key)
    if advice is None:
        keys = sorted({each for _, about in entries(type_) for each in _keys(about, place.spelling)})
        near = get_close_matches(key, keys, 1)
        advice = f"did you mean {near[0]}?" if near else f"must be one of {', '.join(keys)}"
    return f"{at}: unknown field {key}; {advice}"


_COMMON: Mapping[str, str] = {
    "allowShared": "remove it: a claim that requests an amount that the device provides shares the device",
    "config": "did you mean configs?",
    "count": "write it into requests: {count: 1}",
    "devices": "write it into requests: {devices: 1}",
    "distinctAttributes": "remove it: these documents cannot ask for different values",
}
"""Advice for unknown fields that published examples have."""


def _keys(about: FieldEntry, spelling: Spelling) -> set[str]:
    first = {about.key} if spelling is not Spelling.LATER else set()
    second = {about.later} if spelling is not Spelling.REFERENCE else set()
    return {each for each in first | second if each is not None}


def write_fields(value: Any) -> dict[str, Json]:
    """The JSON object in the reference spelling, or in the later one for fields that only it has; empty ones left out.

    Empty lists, maps and objects are left out, and so are None and texts with an empty default.
    """
    found: dict[str, Json] = {}
    kind: type = type(value)
    for each, about in entries(kind):
        held = getattr(value, each.name)
        if held is None or (not about.always and held == each.default and each.default is not MISSING):
            continue
        written = about.kind.write(held)
        if written or about.always or not isinstance(written, dict | list):
            key = about.key or about.later
            assert key is not None
            found[key] = written
    return found
