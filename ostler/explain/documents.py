"""Turns text into objects: YAML with any number of documents, or JSON, as kubectl reads them and in bounded time.

YAML is built from the parser's events (libyaml's where PyYAML has it), not by a loader: a loader recurses in C, takes
the last of two equal keys, makes dates of texts, and expands aliases without an end.

Bounds: ``MAX_BYTES`` of text, ``MAX_VALUES``, ``MAX_DEPTH`` levels, ``MAX_ALIASED`` values that aliases add. What an
alias stands for is shared, not copied, so that the bound holds for time; memory never grows with it. A key without a
value (null) is left out, as the API server does.

Whatever an object nests deeper than ``MAX_DEPTH`` is left out too, and its place is reported: opaque parameters of
drivers are any JSON, written by whoever makes a claim, and one such claim must not make a file useless. Readers and
writers of objects recurse, so nothing deeper reaches them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kube.bodies import Json, is_deeper, one_line, text_at
from kube.json_stream import Form, JsonStream
from node.yaml_text import DEEPEST, events
from ostler.explain.yaml_places import FieldPath, line_at, plain_value
from scheduling.explain.state import BadInput, InputFault

if TYPE_CHECKING:
    import yaml


MAX_BYTES = 128 << 20
MAX_VALUES = 5_000_000
"""Ten thousand devices with all their attributes have about one million."""
MAX_DEPTH = 64
"""Levels of a document, the lists around its objects among them."""
MAX_ALIASED = 100_000
MAX_SKIPPED = DEEPEST - MAX_DEPTH - 1
"""Levels of YAML that are left out, so that the message here comes before that of ``node.yaml_text``."""
_GLIMPSE = 60
_MARK = "\0nested too deep"
"""Stands for what is taken out while JSON is decoded."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text: ``number`` counts from 0, ``line`` is where it begins, from 1.

    ``pruned``: where a list or mapping is left out, since it is nested too deep.
    """

    number: int
    line: int
    body: Json
    pruned: tuple[FieldPath, ...] = ()


def documents(source: str, data: bytes) -> Iterator[Document]:
    """All documents that are not empty; raises ``BadInput``."""
    text = _text(source, data)
    if text.lstrip()[:1] in ("{", "["):
        document = _json(source, text)
        if document is not None:
            yield document
            return
    yield from _Builder(source).documents(text)


def _text(source: str, data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise BadInput([too_large(source)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        raise BadInput([InputFault(source, problem, "save the file as UTF-8", line)]) from error


def _json(source: str, text: str) -> Document | None:
    """The one document of a JSON text; None where it is no JSON, which may still be YAML in brackets."""
    line = text[: len(text) - len(text.lstrip())].count("\n") + 1
    if text.count(",") > MAX_VALUES:
        raise BadInput([_too_many(source)])
    pruned: tuple[FieldPath, ...] = ()
    try:
        body, too_deep = _decoded(text)
        if too_deep:
            body, _ = _decoded(without_deep(text))
            pruned = tuple(take_marks(body))
    except json.JSONDecodeError as error:
        if '"apiVersion"' in text[:4096] and not error.msg.startswith("Extra data"):
            fix = "correct it, or fetch it again with -o json"
            raise BadInput([InputFault(source, f"not valid JSON: {error.msg}", fix, error.lineno)]) from error
        return None
    except ValueError as error:
        raise BadInput(
            [InputFault(source, f"not valid JSON: {error}", "correct it, or fetch it again with -o json")]
        ) from error
    _check_pruned(source, 0, body, pruned)
    return Document(0, line, _whole(body) if "\\ud" in text or "\\uD" in text else body, pruned)


def _decoded(text: str) -> tuple[Json, bool]:
    """The value, and whether it is nested too deep; raises ``ValueError``."""
    try:
        body: Json = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except RecursionError:
        return None, True
    return body, is_deeper(body, MAX_DEPTH)


def _check_pruned(source: str, line: int, body: Json, pruned: Iterable[FieldPath]) -> None:
    """Raise ``BadInput`` where it is no object of the API that is nested too deep."""
    if any(object_on(body, path) is None for path in pruned):
        raise BadInput([_too_deep(source, line)])


def _whole(value: Json) -> Json:
    """A value with halves of characters (\\ud800 alone) replaced, as the API server does: no output can hold them."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {str(_whole(key)): _whole(one) for key, one in value.items()} if isinstance(value, dict) else value


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {one_line(twice, _GLIMPSE)!r} appears twice in one object")
    return {key: value for key, value in made.items() if value is not None} if None in made.values() else made


def _constant(word: str) -> Json:
    raise ValueError(f"{word} is not a number that the API accepts")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {one_line(text, _GLIMPSE)} is too large")
    return number


def too_large(source: str) -> InputFault:
    """The fault of a file with more than ``MAX_BYTES``."""
    fix = "give the objects in several files, or leave out what is not about devices"
    return InputFault(source, f"has more than {MAX_BYTES >> 20} MiB", fix)


def _too_many(source: str) -> InputFault:
    return InputFault(source, f"holds more than {MAX_VALUES} values", "give the objects in several files")


def _too_deep(source: str, line: int) -> InputFault:
    return InputFault(source, f"nested deeper than {MAX_DEPTH} levels", "no object of the API is that deep", line)


def without_deep(text: str) -> str:
    """The JSON with a mark in the place of what is nested too deep."""
    data = text.encode("utf-8", "surrogatepass")
    stream = JsonStream(
        Form.OBJECT, {"*": True}, most=2 * len(data), depth=MAX_DEPTH, instead=json.dumps(_MARK).encode()
    )
    for _ in stream.feed(data):
        raise AssertionError("only a list has items")
    return stream.end().data.decode("utf-8", "surrogatepass")


def take_marks(body: Json) -> Iterator[FieldPath]:
    """Take the marks out; where they stood."""
    left: list[tuple[FieldPath, Json]] = [((), body)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            for key in [key for key, inner in value.items() if inner == _MARK]:
                del value[key]
                yield (*path, key)
            left += [((*path, key), inner) for key, inner in value.items() if isinstance(inner, (dict, list))]
        elif isinstance(value, list):
            for number in [number for number, inner in enumerate(value) if inner == _MARK]:
                value[number] = None
                yield (*path, number)
            left += [((*path, number), inner) for number, inner in enumerate(value) if isinstance(inner, (dict, list))]


def object_on(body: Json, path: FieldPath) -> tuple[Json, FieldPath] | None:
    """The first object on a path that is no list of others, and the path in it; None where there is none."""
    for taken, key in enumerate(path):
        is_item = taken > 1 and path[taken - 2] == "items"
        if isinstance(body, dict) and (is_item or (text_at(body, "kind") and "items" not in body)):
            return body, path[taken:]
        if isinstance(body, dict) and isinstance(key, str):
            body = body.get(key)
        elif isinstance(body, list) and isinstance(key, int):
            body = body[key]
    return None


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is not at its end; ``key``: the key whose value is next, None before a key."""

    line: int
    anchor: str | None
    items: list[Json] | None
    entries: dict[str, Json] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    merged: list[Json] = field(default_factory=list)
    key: str | None = None
    size: int = 1


class _Builder:
    """Objects from events, with a stack of its own."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._open: set[str] = set()
        self._aliased = 0
        self._values = 0
        self._root: Json = None
        self._skipped = 0
        """Levels of a list or mapping that is left out."""
        self._pruned: list[FieldPath] = []
        self._pruned_line = 0

    def documents(self, text: str) -> Iterator[Document]:
        import yaml

        line, number = 1, -1
        try:
            for event in events(text):
                if not self._stack and isinstance(event, yaml.NodeEvent):
                    line = line_at(event)
                self._values += 1
                if self._values > 2 * MAX_VALUES:  # Keys are events as well, and so are ends.
                    raise BadInput([_too_many(self._source)])
                if self._skipped:
                    self._skip(event)
                elif isinstance(event, yaml.ScalarEvent):
                    self._scalar(event)
                elif isinstance(event, yaml.CollectionStartEvent):
                    self._begin(event, isinstance(event, yaml.SequenceStartEvent))
                elif isinstance(event, yaml.CollectionEndEvent):
                    self._end()
                elif isinstance(event, yaml.AliasEvent):
                    self._alias(event)
                elif isinstance(event, yaml.DocumentStartEvent):
                    self._anchors, self._aliased, self._root, self._pruned = {}, 0, None, []
                    number += 1
                elif isinstance(event, yaml.DocumentEndEvent) and self._root is not None:
                    _check_pruned(self._source, self._pruned_line, self._root, self._pruned)
                    yield Document(number, line, self._root, tuple(self._pruned))
        except yaml.MarkedYAMLError as error:
            raise BadInput([self._syntax(error)]) from error
        except yaml.reader.ReaderError as error:
            at = error.position if isinstance(error.position, int) else 0
            problem = f"not valid YAML: {one_line(str(error.reason), 120)}"
            raise BadInput(
                [InputFault(self._source, problem, "remove the character", text.count("\n", 0, at) + 1)]
            ) from error

    def _syntax(self, error: yaml.MarkedYAMLError) -> InputFault:
        mark = error.problem_mark or error.context_mark
        problem = one_line(error.problem or error.context or "no reason given", 120)
        fix = "correct the indentation, brackets or quotes there"
        if "cannot start any token" in problem:
            fix = "indent with blanks, not tabs, and quote texts that begin with a special character"
        return InputFault(self._source, f"not valid YAML: {problem}", fix, mark.line + 1 if mark else 0)

    def _fail(self, event: yaml.Event, problem: str, fix: str) -> BadInput:
        return BadInput([InputFault(self._source, problem, fix, line_at(event))])

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text = event.value
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.items is None and frame.key is None:
            self._key(event, frame, text)
            return
        value: Json = text
        if event.tag is not None and event.tag != "tag:yaml.org,2002:str":
            value = self._tagged(event)
        elif event.tag is None and event.implicit[0]:
            try:
                value = plain_value(text)
            except ValueError as error:
                raise self._fail(event, str(error), "write another number, or text in quotes") from error
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, 1)

    def _key(self, event: yaml.ScalarEvent, frame: _Frame, text: str) -> None:
        if text == "<<" and event.implicit[0]:
            frame.key = text
            return
        if text in frame.keys:
            key = one_line(text, _GLIMPSE)
            raise self._fail(event, f"the key {key!r} appears twice in one mapping", "keep one of the two")
        frame.keys.add(text)
        frame.key = text

    def _tagged(self, event: yaml.ScalarEvent) -> Json:
        word = str(event.tag).removeprefix("tag:yaml.org,2002:")
        if word in ("int", "float", "bool", "null"):
            value = plain_value(event.value)
            if not isinstance(value, str):
                return value
        shown = one_line(f"!!{word}" if word != event.tag else word, _GLIMPSE)
        raise self._fail(event, f"the tag {shown} is not supported", "write the plain value")

    def _begin(self, event: yaml.CollectionStartEvent, is_list: bool) -> None:
        if self._stack and self._stack[-1].items is None and self._stack[-1].key is None:
            raise self._fail(event, "a key is a list or mapping", "a key must be text; quote what begins with { or [")
        if len(self._stack) == MAX_DEPTH:
            self._skipped = 1
            self._pruned_line = self._pruned_line if self._pruned else line_at(event)
            self._pruned.append(tuple(_place(frame) for frame in self._stack))
            return
        if event.anchor:
            self._open.add(event.anchor)
        self._stack.append(_Frame(line_at(event), event.anchor, [] if is_list else None))

    def _skip(self, event: yaml.Event) -> None:
        import yaml

        if isinstance(event, yaml.CollectionStartEvent):
            self._skipped += 1
            if self._skipped > MAX_SKIPPED:
                raise BadInput([_too_deep(self._source, self._pruned_line)])
        elif isinstance(event, yaml.CollectionEndEvent):
            self._skipped -= 1
            if not self._skipped:
                self._add(None, 1)

    def _end(self) -> None:
        frame = self._stack.pop()
        value: Json = frame.items if frame.items is not None else self._mapping(frame)
        if frame.anchor:
            self._open.discard(frame.anchor)
            self._anchors[frame.anchor] = (value, frame.size)
        self._add(value, frame.size)

    def _mapping(self, frame: _Frame) -> dict[str, Json]:
        """A mapping's entries over those that ``<<`` takes in."""
        made: dict[str, Json] = {}
        for taken in reversed(frame.merged):
            for one in reversed(taken) if isinstance(taken, list) else (taken,):
                if not isinstance(one, dict):
                    problem, fix = "<< merges a value that is not a mapping", "let << refer to a mapping"
                    raise BadInput([InputFault(self._source, problem, fix, frame.line)])
                made.update(one)
        if not made:
            return frame.entries
        kept = {key: value for key, value in made.items() if key not in frame.keys}
        return {**kept, **frame.entries}

    def _alias(self, event: yaml.AliasEvent) -> None:
        name = event.anchor or ""
        shown = one_line(f"*{name}", _GLIMPSE)
        if name in self._open:
            raise self._fail(
                event, f"the alias {shown} refers to a list or mapping that contains it", "write the value out"
            )
        if name not in self._anchors:
            raise self._fail(event, f"the alias {shown} names nothing", "quote a text that begins with *")
        frame = self._stack[-1] if self._stack else None
        if frame is not None and frame.items is None and frame.key is None:
            raise self._fail(event, f"the alias {shown} is used as a key", "a key must be text")
        value, size = self._anchors[name]
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            problem = f"aliases make more than {MAX_ALIASED} values of this document"
            raise self._fail(event, problem, "write the objects out, without aliases")
        self._add(value, size)

    def _add(self, value: Json, size: int) -> None:
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        frame.size += size
        if frame.items is not None:
            frame.items.append(value)
            return
        key, frame.key = frame.key, None
        if key == "<<" and key not in frame.keys:
            frame.merged.append(value)
        elif key is not None and value is not None:
            frame.entries[key] = value


def _place(frame: _Frame) -> str | int:
    """Where in a list or mapping the next value will be."""
    return frame.key or "" if frame.items is None else len(frame.items)
