"""Compound kinds: sections with named fields, and lists. A format is described once, as sections of fields.

Reading never stops at the first problem: a field that cannot be read is reported and left out, its section is marked
``broken``, and the rest is read. The same description gives the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar, cast

from node.values import Value, value
from ostler.config import document
from ostler.config.document import (
    Mapping,
    MappingEntry,
    Meaning,
    Node,
    RefusedNode,
    ScalarNode,
    clipped,
    join_key,
    shown,
)
from ostler.config.errors import MAX_SHOWN, ConfigError, Note, Origin
from ostler.config.scalars import BadValue, JsonObject, Unusable, ValueType

T = TypeVar("T")


class ConfigField(Generic[T]):
    """One key of a section. ``help``: one sentence for the schema and the reference page.

    Written out: ``dataclass`` would take half a millisecond of the agent's start.
    """

    __slots__ = ("default", "help", "key", "required", "type")

    def __init__(self, key: str, type: ValueType[T], default: T, help: str, *, required: bool = False) -> None:  # noqa: A002 - the fields' names
        self.key = key
        self.type = type
        self.default = default
        self.help = help
        self.required = required


class AnyField(Protocol):
    """A field of whatever type."""

    @property
    def key(self) -> str:
        """The key in the file."""

    @property
    def type(self) -> ValueType[object]:
        """The type of accepted values."""

    @property
    def default(self) -> object:
        """The value when the key is absent."""

    @property
    def help(self) -> str:
        """One sentence of help."""

    @property
    def required(self) -> bool:
        """Whether the key must be there."""


@value
class PlacedValue(Value):
    """A value with the place it comes from."""

    value: object
    origin: Origin


class Values:
    """The values of a section: given ones with their origins, defaults for the rest.

    ``broken``: something in it could not be read, so that conclusions from it may be wrong. ``notes``: what a reader
    should know of keys that have no effect.
    """

    __slots__ = ("_given", "broken", "notes", "origin")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.broken = False
        self.notes: list[Note] = []
        self._given: dict[str, PlacedValue] = {}

    def __getitem__(self, field: ConfigField[T]) -> T:
        given = self._given.get(field.key)
        return field.default if given is None else cast("T", given.value)

    def __contains__(self, field: AnyField) -> bool:
        return field.key in self._given

    def __iter__(self) -> Iterator[tuple[str, PlacedValue]]:
        return iter(self._given.items())

    def place(self, field: AnyField) -> Origin:
        """The origin of the field's value; if it is not given, the place where it would be."""
        given = self._given.get(field.key)
        if given is not None:
            return given.origin
        here = self.origin
        return Origin(here.source, here.line, here.column, join_key(here.key, field.key))

    def place_of(self, entry: MappingEntry) -> Origin:
        """Where a key of the section stands, as it is written there."""
        return Origin(self.origin.source, entry.line, entry.column, join_key(self.origin.key, entry.key))

    def put(self, field: ConfigField[T], value: T, origin: Origin) -> None:
        """Give the field a value; one that was given before is replaced."""
        self._given[field.key] = PlacedValue(value, origin)

    def section(self, field: ConfigField[Values]) -> Values:
        """The values of a section inside this one, an empty one when it is not given."""
        if field not in self:
            self.put(field, Values(self.place(field)), self.place(field))
        return self[field]


_NOWHERE = Values(Origin(""))


class Section:
    """A mapping with known keys. As a kind of value, what it reads are ``Values``."""

    example = "{}"

    def __init__(self, *fields: AnyField) -> None:
        self.fields = fields
        self._by_key = {field.key: field for field in fields}
        self.keys = frozenset(self._by_key)
        self.accepts = ", ".join(self._by_key)

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> Values:
        """See ``ValueType``; a section without content is an empty one."""
        values = Values(at)
        if isinstance(node, RefusedNode):
            raise Unusable
        if isinstance(node, ScalarNode) and node.meaning is Meaning.NULL:
            node = Mapping(node.line, node.column, ())
        if not isinstance(node, Mapping):
            kind = "a list" if isinstance(node, document.Sequence) else shown(node.text)
            raise BadValue(f"is {kind}, not a mapping", f"write keys and values below it: {self.accepts}")
        for entry in self.counted(node, values, problems):
            self._read_entry(entry, values, problems)
        present = {id(self.known(entry.key)) for entry in node.entries}
        for field in self.fields:
            if field.required and id(field) not in present:
                problems.append(values.place(field).error("is missing", f"add '{field.key}: {field.type.example}'"))
                values.broken = True
        return values

    def known(self, key: str) -> AnyField | None:
        """The field that a key of the file means."""
        return self._by_key.get(key)

    def counted(self, node: Mapping, values: Values, problems: list[ConfigError]) -> Iterable[MappingEntry]:
        """The entries of the file that have an effect; the others are reported or noted."""
        del values, problems  # here every entry counts
        return node.entries

    def _read_entry(self, entry: MappingEntry, values: Values, problems: list[ConfigError]) -> None:
        here = values.place_of(entry)
        field = self.known(entry.key)
        if isinstance(entry.value, RefusedNode):
            values.broken = True
        elif field is None:
            # Looking for near keys takes time, and nobody reads that many problems.
            hint = self._near(entry.key) if len(problems) < MAX_SHOWN else ""
            problems.append(here.error("is not a known key", f"{hint}allowed here: {self.accepts}"))
            values.broken = True
        else:
            try:
                value = field.type.read(entry.value, here, problems)
            except BadValue as error:
                problems.append(here.error(error.problem, error.fix))
                values.broken = True
            except Unusable:
                values.broken = True
            else:
                values.put(cast("ConfigField[object]", field), value, here)

    def _near(self, key: str) -> str:
        import difflib  # only for those who misspell

        for field in self.fields:
            if isinstance(field.type, Section) and key in field.type.keys:
                return f"did you mean {field.key}.{key}? "
        folded = {known.lower(): known for known in self._by_key}
        near = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=0.75)
        return f"did you mean {folded[near[0]]}? " if near else ""

    def from_text(self, text: str) -> Values:
        """See ``ValueType``: a section has no spelling as one text."""
        raise BadValue(f"is {shown(text)}", "set the keys of the section one by one")

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        properties: JsonObject = {field.key: _field_schema(field) for field in self.fields}
        schema: JsonObject = {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
        required = [field.key for field in self.fields if field.required]
        if required:
            schema["type"] = "object"
            schema["required"] = list(required)
        return schema


def _field_schema(field: AnyField) -> JsonObject:
    schema = {**field.type.schema(), "description": field.help}
    default = field.default
    if isinstance(default, bool | int | str) and not field.required:
        schema["default"] = str(default) if isinstance(default, str) else default
    elif isinstance(default, tuple) and default:
        schema["default"] = [str(item) for item in default]
    return schema


def section_of(field: AnyField) -> Section | None:
    """The section that a field is, or is a list of; None for any other field."""
    kind: object = field.type
    if isinstance(kind, ConfigList):
        kind = kind.item
    return kind if isinstance(kind, Section) else None


def section(key: str, fields: Section, text: str) -> ConfigField[Values]:
    """A field that is a section."""
    return ConfigField(key, fields, _NOWHERE, text)


class ConfigList(Generic[T]):
    """A list of values of one kind. ``fewest``, ``most``: items it may have; ``single``: one item needs no list."""

    def __init__(
        self, item: ValueType[T], *, fewest: int = 0, most: int = 256, single: bool = False, unique: bool = True
    ) -> None:
        self.item = item
        self.fewest = fewest
        self.most = most
        self.single = single
        self.unique = unique
        self.example = item.example if single else f"[{item.example}]"
        self.accepts = f"{'one or ' if single else ''}a list of: {item.accepts}"

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> tuple[T, ...]:
        """See ``ValueType``."""
        if isinstance(node, RefusedNode):
            raise Unusable
        if isinstance(node, ScalarNode) and node.meaning is Meaning.NULL:
            raise BadValue("has no value", "write a list below it, or remove the key")
        if not isinstance(node, document.Sequence):
            if self.single:
                return (self.item.read(node, at, problems),)
            kind = "a mapping" if isinstance(node, Mapping) else f"{shown(node.text)}, not a list"
            fix = "put '- ' before the first key" if isinstance(node, Mapping) else f"write [{clipped(node.text)}]"
            raise BadValue(f"is {kind}", fix)
        if len(node.items) > self.most:
            raise BadValue(f"has {len(node.items)} items", f"at most {self.most} are allowed")
        items: list[T] = []
        faults = len(problems)
        for number, child in enumerate(node.items):
            here = Origin(at.source, child.line, child.column, f"{at.key}[{number}]")
            self._read_item(child, here, items, problems)
        if len(problems) > faults and not items:
            raise Unusable
        if len(node.items) < self.fewest:
            accepts = "below it" if isinstance(cast("object", self.item), Section) else f"of: {self.item.accepts}"
            raise BadValue("is an empty list", f"write at least one {accepts}, or remove the key")
        return tuple(items)

    def _read_item(self, node: Node, here: Origin, items: list[T], problems: list[ConfigError]) -> None:
        try:
            value = self.item.read(node, here, problems)
        except BadValue as error:
            problems.append(here.error(error.problem, error.fix))
        except Unusable:
            pass  # reported where it was found
        else:
            if self.unique and value in items:
                problems.append(here.error(f"is {_text(node)} again", "remove one of the two"))
            else:
                items.append(value)

    def from_text(self, text: str) -> tuple[T, ...]:
        """See ``ValueType``: items with commas between them."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if len(parts) < self.fewest:
            raise BadValue("is empty", f"write at least one of: {self.item.accepts}")
        return tuple(dict.fromkeys(self.item.from_text(part) for part in parts))

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        schema: JsonObject = {"type": "array", "items": self.item.schema(), "maxItems": self.most}
        if self.fewest:
            schema["minItems"] = self.fewest
        if self.unique:
            schema["uniqueItems"] = True
        return {"anyOf": [self.item.schema(), schema]} if self.single else schema


def _text(node: Node) -> str:
    return shown(node.text) if isinstance(node, ScalarNode) else "the same"
