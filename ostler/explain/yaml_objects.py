"""YAML as kubectl reads it: documents from the parser's events, plain scalars, and the lines of fields.

Objects are built from the parser's events (libyaml's if PyYAML has it), not by a loader: a loader recurses in C, takes
the last of two equal keys, turns texts into dates, and expands aliases without an end. The target of an alias is
shared, not copied, so that the bound ``MAX_ALIASED`` holds for time; memory never grows with it. Scalars follow YAML
1.1's words for true and false, octal numbers with and without an o, no numbers in base 60 and no dates.

Lines are found for messages alone, by another reading of the text. Objects do not remember their lines: for ten
thousand devices that would be most of the memory, and nothing needs them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kube.bodies import Json, one_line, text_at
from node.yaml_text import DEEPEST, events
from scheduling.explain.state import BadInput, InputFault

if TYPE_CHECKING:
    import yaml


FieldPath = tuple[str | int, ...]
"""Keys and places in lists, from a document's top."""
_GLIMPSE = 60
_WORDS: dict[str, Json] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_NUMBER_BEGINS = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES = {"x": 16, "o": 8, "b": 2}
MAX_VALUES = 5_000_000
"""Ten thousand devices with all their attributes have about one million."""
MAX_DEPTH = 64
"""Levels of a document, the lists around its objects among them."""
MAX_ALIASED = 100_000
MAX_SKIPPED = DEEPEST - MAX_DEPTH - 1
"""Levels of YAML that are left out, so that the message here comes before that of ``node.yaml_text``."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text: ``number`` counts from 0, ``line`` is its first line, from 1.

    ``pruned``: the places of lists or mappings that were left out because they nest too deep.
    """

    number: int
    line: int
    body: Json
    pruned: tuple[FieldPath, ...] = ()


def check_pruned(source: str, line: int, body: Json, pruned: Iterable[FieldPath]) -> None:
    """Raise ``BadInput`` if something other than an object of the API nests too deep."""
    if any(object_on(body, path) is None for path in pruned):
        raise BadInput([too_deep(source, line)])


def too_many(source: str) -> InputFault:
    """The fault of a text with more than ``MAX_VALUES``."""
    return InputFault(source, f"holds more than {MAX_VALUES} values", "give the objects in several files")


def too_deep(source: str, line: int) -> InputFault:
    """The fault of an object that nests too deep."""
    return InputFault(source, f"nested deeper than {MAX_DEPTH} levels", "no object of the API is that deep", line)


def object_on(body: Json, path: FieldPath) -> tuple[Json, FieldPath] | None:
    """The first object on a path that is not a list of others, and the path in it; None if there is none."""
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
    """An open list or mapping; ``key``: the key of the next value, None before a key."""

    line: int
    anchor: str | None
    items: list[Json] | None
    entries: dict[str, Json] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    merged: list[Json] = field(default_factory=list)
    key: str | None = None
    size: int = 1


class YamlBuilder:
    """Builds objects from events, with a stack of its own."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._open: set[str] = set()
        self._aliased = 0
        self._values = 0
        self._root: Json = None
        self._skipped = 0
        """Levels of the list or mapping that is being left out."""
        self._pruned: list[FieldPath] = []
        self._pruned_line = 0

    def documents(self, text: str) -> Iterator[Document]:
        """All documents of the text that are not empty; raises ``BadInput``."""
        import yaml

        line, number = 1, -1
        try:
            for event in events(text):
                if not self._stack and isinstance(event, yaml.NodeEvent):
                    line = line_at(event)
                self._values += 1
                if self._values > 2 * MAX_VALUES:  # Keys are events as well, and so are ends.
                    raise BadInput([too_many(self._source)])
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
                    check_pruned(self._source, self._pruned_line, self._root, self._pruned)
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
                raise BadInput([too_deep(self._source, self._pruned_line)])
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
        """A mapping's entries over those that ``<<`` merges."""
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
    """The place of the next value in a list or mapping."""
    return frame.key or "" if frame.items is None else len(frame.items)


def line_at(event: yaml.Event) -> int:
    """The line at which an event begins, from 1; 0 if it has none."""
    return event.start_mark.line + 1 if event.start_mark else 0


def line_of(data: bytes, number: int, path: FieldPath) -> int:
    """The line of the field ``path`` in a document, or of the nearest thing above it; 0 if YAML does not say.

    Only for messages: it reads the text once more. JSON works as well, because it is YAML.
    """
    import yaml

    try:
        return _Finder(number, path).line(events(data.decode("utf-8-sig")))
    except (yaml.YAMLError, UnicodeDecodeError):
        return 0


class _Finder:
    """Follows a path through the events of one document."""

    def __init__(self, number: int, path: Sequence[str | int]) -> None:
        self._number = number
        self._path = path

    def line(self, stream: Iterator[yaml.Event]) -> int:
        import yaml

        stack: list[list[str | int | None]] = []
        document, best, found = -1, 0, 0
        for event in stream:
            if isinstance(event, yaml.DocumentStartEvent):
                document += 1
            if document > self._number:
                break
            if document < self._number or not isinstance(event, (yaml.NodeEvent, yaml.CollectionEndEvent)):
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
                if found and len(stack) == best:
                    break  # The end of the deepest thing on the path: the rest of the path does not exist.
                self._step(stack)
                continue
            is_key = bool(stack) and stack[-1][0] is None
            if is_key:
                stack[-1][0] = getattr(event, "value", "")
            here = [top[0] for top in stack]
            if len(here) >= best and here == list(self._path[: len(here)]) and (len(here) > best or not found):
                best, found = len(here), line_at(event)
                if best == len(self._path):
                    break
            if isinstance(event, yaml.CollectionStartEvent):
                stack.append([0 if isinstance(event, yaml.SequenceStartEvent) else None])
            elif not is_key:
                self._step(stack)
        return found

    @staticmethod
    def _step(stack: list[list[str | int | None]]) -> None:
        """After a value: the next place of a list, or the next key."""
        if stack:
            top = stack[-1]
            top[0] = top[0] + 1 if isinstance(top[0], int) else None


def plain_value(text: str) -> Json:
    """The value that kubectl reads from a scalar without quotes; raises ValueError for numbers that JSON does not
    have."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_BEGINS:
        return text
    bare = text.replace("_", "")
    if _INTEGER.fullmatch(bare) and len(bare) < 400:
        return _integer(bare)
    if _FLOAT.fullmatch(bare):
        number = float(bare)
        if not math.isfinite(number):
            raise ValueError(f"the number {one_line(text, _GLIMPSE)} is too large")
        return number
    if _NO_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is not a number that the API accepts")
    return text


def _integer(text: str) -> int | float:
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-").lower()
    if len(digits) > 1 and digits[0] == "0":
        base = _BASES.get(digits[1])
        value = sign * (int(digits[2:], base) if base else int(digits, 8))
    else:
        value = sign * int(digits)
    return value if -(1 << 63) <= value < 1 << 64 else float(value)
