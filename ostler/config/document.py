"""A configuration file's bytes, and its YAML as a tree with the place of every value: the first step of reading.

The tree is built from the parser's events, not by a loader: a loader resolves tags and aliases and forgets lines.
Invariants: at most 1 MiB of input and 32 levels; no tags, anchors or aliases; one document; no key twice. Scalars stay
text here; the code that knows the wanted type decides what they mean, by the rules of YAML 1.2 (so ``off`` and ``1:30``
are text). JSON is YAML, so JSON files are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from node.named_files import read_named_file
from node.opening import NotRegular, TooLarge
from node.values import Record, Value, record, value
from ostler.config.errors import ConfigError, ConfigErrors, Origin

if TYPE_CHECKING:
    import yaml


MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MOST_ERRORS = 1000
"""Errors of one file after which the search for more ends."""
_STANDARD_TAG = "tag:yaml.org,2002:"


class Meaning(StrEnum):
    """The type of an unquoted scalar."""

    NULL = "null"
    BOOLEAN = "boolean"
    NUMBER = "number"
    TEXT = "text"


@value
class ScalarNode(Value):
    """One value as written; ``plain``: without quotes, so that it may be a number, true, false or null."""

    line: int
    column: int
    text: str
    plain: bool

    @property
    def meaning(self) -> Meaning:
        """What the scalar is by YAML 1.2."""
        if not self.plain:
            return Meaning.TEXT
        return next((kind for kind, pattern in _PLAIN if re.fullmatch(pattern, self.text)), Meaning.TEXT)


@value
class Sequence(Value):
    """A list."""

    line: int
    column: int
    items: tuple[Node, ...]


@value
class MappingEntry(Value):
    """A key with the place where it stands, and its value."""

    key: str
    line: int
    column: int
    value: Node


@value
class Mapping(Value):
    """Keys with values, in the file's order, no key twice."""

    line: int
    column: int
    entries: tuple[MappingEntry, ...]

    def entry(self, key: str) -> MappingEntry | None:
        """The entry of that key."""
        return next((entry for entry in self.entries if entry.key == key), None)


@value
class RefusedNode(Value):
    """Stands for something whose error is already reported (a tag, an alias)."""

    line: int
    column: int


Node = ScalarNode | Sequence | Mapping | RefusedNode

_NUMBER = (
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_PLAIN = (
    (Meaning.NULL, r"|~|null|Null|NULL"),
    (Meaning.BOOLEAN, r"true|True|TRUE|false|False|FALSE"),
    (Meaning.NUMBER, _NUMBER),
)

# The parser's words, and what they mean to people.
_SYNTAX = (
    ("did not find expected ',' or ']'", "a list opened with [ is not closed", "write the missing comma or ]"),
    ("did not find expected ',' or '}'", "a mapping opened with { is not closed", "write the missing comma or }"),
    ("did not find expected node content", "a value is missing here", "close the bracket or write the value"),
    ("mapping values are not allowed", "this line has a second ': '", "quote text that contains ': '"),
    ("did not find expected key", "the indentation or a quote does not fit", "align keys and close quotes"),
    ("did not find expected '-' indicator", "the indentation does not fit the list", "align the items of the list"),
    ("could not find expected ':'", "a key without ': ' after it", "write 'key: value'"),
    ("unexpected end of stream", "a quoted text is not closed", "write the missing quote"),
    ("cannot start any token", "a tab or another character that no value may start with", "use spaces, or quote it"),
    ("block sequence entries are not allowed", "a list item '- ' is not allowed here", "put it on a line of its own"),
    ("did not find expected <document start>", "there is text after the end of the document", "remove it"),
    ("unknown escape character", "an unknown \\ escape in a quoted text", "use single quotes, or \\\\ for a backslash"),
    ("control characters are not allowed", "a control character", "remove it"),
)


def parse_document(source: str, data: bytes) -> tuple[Node | None, list[ConfigError]]:
    """The tree of a file's bytes and the problems found; no tree if the rest of the file cannot be read."""
    builder = _Builder(source)
    if len(data) > MAX_BYTES:
        return None, [Origin(source).error(f"has more than {MAX_BYTES} bytes", "no configuration needs that many")]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = Origin(source, line, error.start - data.rfind(b"\n", 0, error.start))
        return None, [where.error(f"the byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")]
    try:
        for event in _events(source, text, builder.errors):
            builder.take(event)
    except _Unreadable:
        return None, builder.errors
    if builder.root is None and not builder.errors:
        fix = "write at least 'apiVersion: ostler.dev/v1alpha1' and 'kind: Config'"
        return None, [Origin(source, 1, 1).error("the file is empty", fix)]
    return builder.root, builder.errors


class _Unreadable(Exception):
    """The rest of the file cannot be read; the reason is already among the errors."""


def _events(source: str, text: str, errors: list[ConfigError]) -> Iterator[yaml.Event]:
    import yaml  # Only those who read a file pay for it.

    from node.yaml_text import events

    try:
        yield from events(text)
    except yaml.reader.ReaderError as error:
        before = text[: error.position if isinstance(error.position, int) else 0]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        errors.append(Origin(source, line, column).error(*_in_plain_words(error.reason)))
        raise _Unreadable from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        errors.append(Origin(source, line, column).error(*_in_plain_words(error.problem or error.context or "")))
        raise _Unreadable from error


def _in_plain_words(problem: str) -> tuple[str, str]:
    for sign, words, fix in _SYNTAX:
        if sign in problem:
            return f"not valid YAML: {words}", fix
    return f"not valid YAML: {problem or 'no reason given'}", "correct it, or quote the text"


@record
class _Frame(Record):
    """A mapping or list whose end has not been reached; ``key`` is the key whose value is next."""

    line: int
    column: int
    mapping: bool
    permitted: bool
    entries: list[MappingEntry] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    key: ScalarNode | None = None
    keys: dict[str, int] = field(default_factory=dict)


class _Builder:
    """Builds the tree with a stack of its own, so that depth costs no Python frames."""

    def __init__(self, source: str) -> None:
        self.errors: list[ConfigError] = []
        self.root: Node | None = None
        self._source = source
        self._stack: list[_Frame] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """Add one event; raises ``_Unreadable`` if nothing sensible can follow."""
        import yaml

        mark = event.start_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(line, column, "a second document begins", "keep one document, without a further '---'")
        elif isinstance(event, yaml.AliasEvent):
            self._add(
                self._refuse(
                    line,
                    column,
                    f"the alias {clipped('*' + (event.anchor or ''))} is not supported",
                    "write the value out; text that begins with * needs quotes",
                )
            )
        elif isinstance(event, yaml.ScalarEvent):
            value = ScalarNode(line, column, event.value, event.implicit[0])
            self._add(value if self._permits(event, line, column) else RefusedNode(line, column))
        elif isinstance(event, yaml.CollectionStartEvent):
            permitted = self._permits(event, line, column)
            self._open(line, column, isinstance(event, yaml.MappingStartEvent), permitted)
        elif isinstance(event, yaml.CollectionEndEvent):
            frame = self._stack.pop()
            if not frame.permitted:
                self._add(RefusedNode(frame.line, frame.column))
            elif frame.mapping:
                self._add(Mapping(frame.line, frame.column, tuple(frame.entries)))
            else:
                self._add(Sequence(frame.line, frame.column, tuple(frame.items)))

    def _open(self, line: int, column: int, mapping: bool, permitted: bool) -> None:
        if self._stack and self._stack[-1].mapping and self._stack[-1].key is None:
            self._stop(line, column, "a key is a list or mapping", "a key must be text")
        if len(self._stack) == MAX_DEPTH:
            self._stop(line, column, f"nested deeper than {MAX_DEPTH} levels", "no setting is that deep")
        self._stack.append(_Frame(line, column, mapping, permitted))

    def _add(self, node: Node) -> None:
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        if not frame.mapping:
            frame.items.append(node)
        elif frame.key is None:
            frame.key = self._key(node)
        else:
            key: ScalarNode = frame.key
            frame.key = None
            first = frame.keys.setdefault(key.text, key.line)
            if len(frame.keys) == len(frame.entries):
                where = Origin(self._source, key.line, key.column, join_key(self._path(), key.text))
                self.errors.append(where.error(f"is given twice, first in line {first}", "keep one of the two"))
            else:
                frame.entries.append(MappingEntry(key.text, key.line, key.column, node))

    def _key(self, node: Node) -> ScalarNode:
        if isinstance(node, ScalarNode):
            return node
        self._refuse(node.line, node.column, "a key cannot be an alias", "a key must be text")
        raise _Unreadable

    def _permits(self, event: yaml.NodeEvent, line: int, column: int) -> bool:
        if event.anchor:
            self._refuse(
                line,
                column,
                f"the anchor {clipped('&' + event.anchor)} is not supported",
                "write the value out each time",
            )
        if tag := getattr(event, "tag", None):
            self._refuse(
                line,
                column,
                f"the tag {clipped(str(tag).replace(_STANDARD_TAG, '!!'))} is not supported",
                "write the plain value",
            )
            return False
        return True

    def _refuse(self, line: int, column: int, problem: str, fix: str) -> RefusedNode:
        self.errors.append(Origin(self._source, line, column, self._path()).error(problem, fix))
        if len(self.errors) == MOST_ERRORS:
            raise _Unreadable
        return RefusedNode(line, column)

    def _stop(self, line: int, column: int, problem: str, fix: str) -> None:
        self._refuse(line, column, problem, fix)
        raise _Unreadable

    def _path(self) -> str:
        path = ""
        for frame in self._stack:
            if not frame.mapping:
                path = f"{path}[{len(frame.items)}]"
            elif frame.key is not None:
                path = join_key(path, frame.key.text)
        return clipped(path, 60)


def join_key(path: str, key: str) -> str:
    """``path`` with a key of the mapping there; a key that is not a plain word is quoted."""
    word = key if re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", key) else shown(key)
    return f"{path}.{word}" if path else word


def clipped(text: str, length: int = 80) -> str:
    """A text as messages show it: at most ``length`` characters, one line, nothing that a terminal obeys."""
    cut = text if len(text) <= length else f"{text[: length - 3]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in cut)


def shown(text: str) -> str:
    """``clipped`` text in quotes."""
    return f'"{clipped(text)}"'


MAX_PATH = 4096
"""Characters of a file's path that messages show."""


def source_name(path: Path) -> str:
    """The file's name in messages."""
    return clipped(str(path), MAX_PATH)


def read_bytes(path: Path, source: str, *, missing: str = "correct the path") -> bytes:
    """The content of a file; raises ``ConfigErrors`` with ``source`` as the file's name.

    It may be a link, as every file of a mounted ConfigMap is, and ``/dev/fd/63``, as the shell writes ``<(command)``.
    ``missing``: what to do about a file that does not exist.
    """
    try:
        return read_named_file(path, MAX_BYTES)
    except NotRegular as error:
        if error.kind == "a folder":
            raise _unreadable(source, "is a directory", "give the file inside it") from error
        raise _unreadable(source, f"is {error.kind}, not a regular file", "give a regular file") from error
    except TooLarge as error:
        raise _unreadable(source, f"cannot be read: {error.strerror}", "no configuration needs that many") from error
    except FileNotFoundError as error:
        raise _unreadable(source, "does not exist", missing) from error
    except PermissionError as error:
        raise _unreadable(
            source, "is not readable by this user", "check its permissions, or run this as another user"
        ) from error
    except OSError as error:
        raise _unreadable(source, f"cannot be read ({error.strerror})", "check the path and what is there") from error
    except ValueError as error:  # a zero byte in the path
        raise _unreadable(source, "is not a path", "correct the path") from error


def _unreadable(source: str, problem: str, fix: str) -> ConfigErrors:
    return ConfigErrors([Origin(source).error(problem, fix)])
