"""The file of a recorded node: raw facts as one readable, versioned YAML document.

Generic over the facts' dataclasses by their type hints: a new field is read and written without a line here. Reading is
strict, since such files are edited by hand and mailed in bug reports: an unknown key, a wrong type, a missing key or a
newer schema is one error with file, line and key. Nothing is coerced, with one exception on purpose: where a text is
expected, a plain scalar is taken as it is written, because people do not quote ``0x030200`` or ``01:30``.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, Protocol, cast

from node.documents import DocumentLimits, DocumentRefused, glimpse
from node.inventory.facts import NodeFacts
from node.yaml_text import compose_yaml

SCHEMA = "ostler.dev/recorded-node/v1"

_VERSIONED = re.compile(r"ostler\.dev/recorded-node/v([0-9]{1,6})")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_FLOW_WIDTH = 96
"""A record or list that fits on a line of this length is written on one."""
_LINE_WIDTH = 120
_SHOWN = 60
"""Characters of a value that an error shows."""
_LIMITS = DocumentLimits(depth=32, values=1_000_000)
"""A thousand devices with all their facts have some 100,000 values."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded node. ``recorded_at`` carries its time zone."""

    schema: str
    name: str
    description: str
    recorded_at: datetime
    facts: NodeFacts


class RecordingError(Exception):
    """A file is not a recorded node. ``source`` is the file, ``line`` counts from 1 (0: the whole file), ``key`` is the
    path of the value (``facts.nvml.gpus[3].minor``), empty for the document; ``problem`` says what is wrong and what is
    allowed.
    """

    def __init__(self, source: str, line: int, key: str, problem: str) -> None:
        place = f"{source}:{line}" if line else source
        super().__init__(f"{place}: {key}: {problem}" if key else f"{place}: {problem}")
        self.source = source
        self.line = line
        self.key = key
        self.problem = problem


class _Node(Protocol):
    """PyYAML's node, whose package has no complete types: ``id`` is scalar, sequence or mapping."""

    id: str
    tag: str
    value: Any
    start_mark: Any
    flow_style: bool


def dump(facts: NodeFacts, *, name: str, description: str, recorded_at: datetime) -> str:
    """The document; the same values give the same text. Raises ValueError for a time without a time zone."""
    import yaml  # Here and not above: an agent on a real node never needs it.

    if recorded_at.tzinfo is None:
        raise ValueError(f"recorded_at {recorded_at.isoformat()} has no time zone; pass an aware datetime")
    node = _Writer(yaml).node(Recording(SCHEMA, name, description, recorded_at, facts))
    text: str = yaml.serialize(
        cast("yaml.Node", node),
        Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper),
        allow_unicode=True,
        width=_LINE_WIDTH,
    )
    return text


def load(text: str, source_name: str) -> Recording:
    """The recorded node in ``text``; ``source_name`` is its name in errors. Raises RecordingError."""
    try:
        root = cast("_Node | None", compose_yaml(text, _LIMITS))
    except DocumentRefused as error:
        raise RecordingError(source_name, error.line, "", error.problem) from error
    if root is None:
        raise RecordingError(source_name, 0, "", f"empty; a recorded node begins with 'schema: {SCHEMA}'")
    reader = _Reader(source_name)
    reader.check_schema(root)
    recording = _decoder(Recording)(reader, root, "")
    assert isinstance(recording, Recording)
    return recording


class _Reader:
    """Knows the file's name, for errors."""

    def __init__(self, source: str) -> None:
        self._source = source

    def fault(self, node: _Node, key: str, problem: str) -> RecordingError:
        """The error for a value."""
        return RecordingError(self._source, node.start_mark.line + 1, key, problem)

    def items(self, node: _Node, key: str, allowed: tuple[str, ...]) -> Iterator[tuple[str, _Node]]:
        """Keys and values of a mapping, checked against what is allowed."""
        if node.id != "mapping":
            raise self.fault(node, key, f"{_what(node)} where a mapping is expected, with keys {', '.join(allowed)}")
        seen = set()
        for name_node, value in node.value:
            name = name_node.value
            if name_node.id != "scalar" or name not in allowed:
                shown = glimpse(name, _SHOWN) if name_node.id == "scalar" else _what(name_node)
                raise self.fault(name_node, _join(key, shown), f"unknown key; allowed: {', '.join(allowed)}")
            if name in seen:
                raise self.fault(name_node, _join(key, name), "given twice; remove one of them")
            seen.add(name)
            yield name, value

    def check_schema(self, root: _Node) -> None:
        """Refuse a schema that this version cannot read, before reporting its unknown keys."""
        pairs = root.value if root.id == "mapping" else []
        schema = next((value for name, value in pairs if name.value == "schema"), None)
        if schema is None:
            raise self.fault(root, "schema", f"missing; a recorded node begins with 'schema: {SCHEMA}'")
        if schema.value == SCHEMA:
            return
        version = _VERSIONED.fullmatch(schema.value) if schema.id == "scalar" else None
        if version is not None and int(version.group(1)) > 1:
            problem = f"{schema.value} was written by a newer ostler; this one reads {SCHEMA}: record again or upgrade"
        else:
            problem = f"{_what(schema)} is not the schema of a recorded node; allowed: {SCHEMA}"
        raise self.fault(schema, "schema", problem)


_Decode = Callable[[_Reader, _Node, str], object]


@cache
def _decoder(kind: Any) -> _Decode:
    if is_dataclass(kind) and isinstance(kind, type):
        return _record_decoder(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _list_decoder(_decoder(arguments[0]))
    if origin in (types.UnionType, typing.Union) and len(arguments) == 2 and type(None) in arguments:
        return _optional_decoder(_decoder(next(each for each in arguments if each is not type(None))))
    return _SCALARS[kind]


def _record_decoder(kind: type) -> _Decode:
    decoders = _field_decoders(kind)
    allowed = tuple(decoders)
    required = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]

    def decode(reader: _Reader, node: _Node, key: str) -> object:
        values = {
            name: decoders[name](reader, value, _join(key, name)) for name, value in reader.items(node, key, allowed)
        }
        for name in required:
            if name not in values:
                raise reader.fault(node, _join(key, name), "missing; it must be given")
        return kind(**values)

    return decode


def _field_decoders(kind: type) -> dict[str, _Decode]:
    hints = typing.get_type_hints(kind)
    return {field.name: _decoder(hints[field.name]) for field in fields(kind)}


def _list_decoder(each: _Decode) -> _Decode:
    def decode(reader: _Reader, node: _Node, key: str) -> object:
        if node.id != "sequence":
            raise reader.fault(node, key, f"{_what(node)} where a list is expected")
        return tuple([each(reader, item, f"{key}[{position}]") for position, item in enumerate(node.value)])

    return decode


def _optional_decoder(inner: _Decode) -> _Decode:
    def decode(reader: _Reader, node: _Node, key: str) -> object:
        return None if node.tag == "tag:yaml.org,2002:null" else inner(reader, node, key)

    return decode


def _text(reader: _Reader, node: _Node, key: str) -> str:
    if node.id != "scalar" or node.tag == "tag:yaml.org,2002:null":
        raise reader.fault(node, key, f"{_what(node)} where a text is expected")
    return str(node.value)


def _integer(reader: _Reader, node: _Node, key: str) -> int:
    if node.id != "scalar" or node.tag != "tag:yaml.org,2002:int" or not _INTEGER.fullmatch(node.value):
        raise reader.fault(node, key, f"{_what(node)} where a whole number is expected, in decimal digits")
    return int(node.value)


def _truth(reader: _Reader, node: _Node, key: str) -> bool:
    if node.id != "scalar" or node.tag != "tag:yaml.org,2002:bool" or node.value not in ("true", "false"):
        raise reader.fault(node, key, f"{_what(node)} where true or false is expected")
    return bool(node.value == "true")


def _time(reader: _Reader, node: _Node, key: str) -> datetime:
    try:
        time = datetime.fromisoformat(str(node.value)) if node.id == "scalar" else None
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise reader.fault(node, key, f"{_what(node)} where a time is expected, such as 2026-01-31T12:00:00Z")
    return time


_SCALARS: dict[object, _Decode] = {str: _text, int: _integer, bool: _truth, datetime: _time}


def _what(node: _Node) -> str:
    """The value, for an error."""
    if node.id == "mapping":
        return "a mapping"
    if node.id == "sequence":
        return "a list"
    value = str(node.value)
    return "nothing" if not value else repr(value if len(value) <= _SHOWN else f"{value[: _SHOWN - 3]}...")


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


class _Writer:
    """Makes YAML nodes of values. Fields at their defaults of nothing (None, empty) are left out."""

    def __init__(self, yaml_module: types.ModuleType) -> None:
        self._yaml = yaml_module

    def node(self, value: object) -> _Node:
        """The node of a value."""
        if isinstance(value, bool):
            return self._scalar("bool", "true" if value else "false")
        if isinstance(value, int):
            return self._scalar("int", str(value))
        if isinstance(value, datetime):
            return self._scalar("timestamp", value.isoformat().replace("+00:00", "Z"))
        if isinstance(value, tuple):
            items = [self.node(item) for item in value]
            made: _Node = self._yaml.SequenceNode("tag:yaml.org,2002:seq", items)
            return self._folded(made, items)
        if is_dataclass(value) and not isinstance(value, type):
            pairs = [
                (self._scalar("str", field.name), self.node(getattr(value, field.name)))
                for field in fields(value)
                if not _left_out(field.default, getattr(value, field.name))
            ]
            made = self._yaml.MappingNode("tag:yaml.org,2002:map", pairs)
            return self._folded(made, [node for pair in pairs for node in pair])
        return self._scalar("str", str(value))

    def _scalar(self, kind: str, value: str) -> _Node:
        node: _Node = self._yaml.ScalarNode(f"tag:yaml.org,2002:{kind}", value)
        return node

    def _folded(self, node: _Node, parts: list[_Node]) -> _Node:
        """On one line where it holds scalars only and is short."""
        flat = all(part.id == "scalar" for part in parts)
        node.flow_style = not parts or (flat and sum(len(part.value) + 4 for part in parts) <= _FLOW_WIDTH)
        return node


def _left_out(default: object, value: object) -> bool:
    return value is None or (default is not MISSING and value == default and value in ((), ""))
