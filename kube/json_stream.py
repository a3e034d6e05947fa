"""Reduces JSON while it arrives: a long answer to one object at a time, an object to its used fields.

Why: whoever may create objects decides how large they are, how deep they nest, and how many a list has. So nothing is
decoded before it is small. The reader follows the bytes through brackets and strings, drops unused fields before they
become values, and decodes the rest of an object once its end has arrived. It holds the kept bytes of one object, its
time grows only with the bytes, and no step holds the interpreter for longer than one piece of the answer takes. Objects
of few bytes take a shorter way (``kube.small_objects``).

Invariants, however the bytes are cut into pieces: the kept part is what ``json.loads`` returns for it; a list or
mapping below ``DEPTH`` levels of its object becomes null, so that neither a decoder nor a reader of the value recurses
deeply; invalid JSON stays invalid if its fields are used. One object that is too large or invalid does not prevent its
neighbours from being read, as long as its brackets and quotes are balanced.

Field names are compared as they are written; servers write them without escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

DEPTH = 64
"""Levels of an object that are kept; objects of the API have a third as many."""

Fields = Mapping[str, "Fields | bool"]
"""Fields of an object by name: kept whole (True), dropped (False), or in part. ``"*"`` means all others; without it
they are dropped. The items of a list have the fields of the list."""

METADATA: Fields = {"managedFields": False, "*": True}
"""An object's metadata without ``managedFields``, which nothing here uses and which is often half of the object."""
WHOLE: Fields = {"metadata": METADATA, "*": True}

_SCALAR = rb'[^]["{}]++'
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Until Python 3.11.5 a possessive group goes on where its last alternative has failed, and not where it began
# (python/cpython#106052): the last one fails at once.
_NOTHING = rb"(?!)"
_FLAT = rb"[\[{](?:%b|%b|%b)*+[\]}]" % (_SCALAR, _STRING, _NOTHING)
# Text that does not change the level, with and without lists and mappings that hold no others.
_LEVEL = re.compile(rb"(?:%b|%b|%b)*+" % (_SCALAR, _STRING, _NOTHING), re.DOTALL)
_LEVEL_WITH_FLAT = re.compile(rb"(?:%b|%b|%b|%b)*+" % (_SCALAR, _STRING, _FLAT, _NOTHING), re.DOTALL)
_OPENING = re.compile(rb"[\[{]++")
_CLOSING = re.compile(rb"[\]}]++")
_BETWEEN = re.compile(rb'[^]["{}:,]*+')
_TEXT = re.compile(_STRING, re.DOTALL)
_REST_OF_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)

_QUOTE, _COLON, _COMMA, _BRACE = b'":,{'
_LONGEST_KEY = 4096
_IDENTITY = frozenset((b"name", b"namespace", b"uid", b"resourceVersion"))


@dataclass(frozen=True, slots=True)
class Piece:
    """One object of an answer: ``data`` is the JSON text of its kept fields, empty if that is too large.

    ``identity``: its name, namespace, uid, resourceVersion and, for a change, its type, as they are written, also for
    an object that cannot be read. ``size``: its bytes in the answer. ``is_pruned``: lists or mappings below ``DEPTH``
    were replaced by null.
    """

    data: bytes
    size: int
    identity: Mapping[str, bytes]
    is_pruned: bool
    is_too_large: bool


class Form(IntEnum):
    """The form of an answer; the value is the number of levels above an object."""

    OBJECT = 0
    CHANGE = 1
    """``{"type": …, "object": …}``, a line of a watch."""
    LIST = 2
    """``{"items": […]}``"""


class _Awaits(IntEnum):
    KEY, COLON, VALUE = range(3)


@dataclass(slots=True)
class _Frame:
    """An open list or mapping. ``fields``: of its values; ``awaits`` is always VALUE in a list."""

    fields: Fields
    is_mapping: bool
    has_items: bool = False
    """Whether it is the list of objects itself."""
    awaits: _Awaits = _Awaits.VALUE
    key: bytes = b""
    below: Fields | bool = True
    """The fields of the next value."""
    written: int = 0


@dataclass(slots=True)
class _Text:
    """The kept part of an object so far."""

    most: int
    kept: bytearray = field(default_factory=bytearray)
    identity: dict[str, bytes] = field(default_factory=dict)
    begin: int = 0
    is_pruned: bool = False
    is_broken: bool = False
    is_too_large: bool = False

    def write(self, data: bytes) -> None:
        if self.is_too_large:
            return
        self.kept += data
        if len(self.kept) > self.most:
            self.is_too_large = True
            self.kept = bytearray()

    def piece(self, end: int) -> Piece:
        # Dropping fields must not turn broken text into JSON.
        data = b"" if self.is_broken else bytes(self.kept).strip()
        return Piece(data, end - self.begin, self.identity, self.is_pruned, self.is_too_large)


class JsonStream:
    """Takes one answer in pieces of any size; for one thread.

    ``most``: bytes kept of one object, and of the answer around a list's objects. ``depth``: levels of an object;
    ``instead``: the JSON that replaces a list or mapping below these.
    """

    def __init__(
        self, form: Form, fields: Fields = WHOLE, *, most: int, depth: int = DEPTH, instead: bytes = b"null"
    ) -> None:
        self._form = form
        self._depth = depth
        self._instead = instead
        self._most = most
        root: Fields = fields
        if form is Form.LIST:
            root = {"items": fields, "metadata": METADATA, "kind": True, "apiVersion": True}
        elif form is Form.CHANGE:
            # The other four belong to a Status, which an event of type ERROR has in place of an object.
            root = {"type": True, "object": {**fields, "code": True, "reason": True, "message": True, "details": True}}
        self._frames = [_Frame(root, is_mapping=False, below=root)]
        self._whole = self._text = _Text(most)
        self._start = self._at = 0
        """Bytes of the answer before the buffer, and before the current token."""
        self._ended: Piece | None = None
        self._left = b""
        """Bytes of a string that ends in a later piece."""
        self._in_string = False
        self._deep = 0
        """Levels within a value that is kept or dropped whole; 0 outside such a value."""
        self._keeps = True
        """Whether that value, or the open string, is kept."""
        self._pruned_at = 0
        """The level of the list or mapping that null replaces."""

    @property
    def fields(self) -> Fields:
        """The used fields of the whole answer."""
        return self._frames[0].fields

    @property
    def is_too_large(self) -> bool:
        """Whether the object, or the part around a list's objects, has more bytes than may be kept."""
        return self._whole.is_too_large

    @property
    def identity(self) -> Mapping[str, bytes]:
        """The object's identity as far as it has been read; see ``Piece``."""
        return self._whole.identity

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The objects of a list that end within these bytes; iterate to the end before the next call."""
        buffer = self._left + data
        self._left = b""
        at = 0
        while at < len(buffer):
            if self._in_string:
                at = self._on_in_string(buffer, at)
            elif self._deep:
                at = self._on_in_value(buffer, at)
            else:
                at = self._on_token(buffer, at)
                if self._ended is not None:
                    yield self._ended
                    self._ended = None
        self._start += len(buffer) - len(self._left)

    def end(self) -> Piece:
        """The rest once all bytes have arrived: the object, or the list without its objects."""
        if self._left or self._in_string or self._deep or len(self._frames) > 1:
            self._whole.is_broken = True
        return self._whole.piece(self._start)

    def _on_in_string(self, buffer: bytes, at: int) -> int:
        end = _after(_REST_OF_TEXT.match(buffer, at))
        if buffer[end : end + 1] == b'"':
            end += 1
            self._in_string = False
        else:
            # A backslash at the very end belongs to the byte that follows.
            self._left = buffer[end:]
        if self._keeps:
            self._text.write(buffer[at:end])
        return len(buffer) if self._in_string else end

    def _on_in_value(self, buffer: bytes, at: int) -> int:
        """Go to the end of the value or of the buffer."""
        begin, deep, end = at, self._deep, len(buffer)
        most = self._depth - (len(self._frames) - 1 - self._form)
        while deep:
            pattern = _LEVEL_WITH_FLAT if deep < most or not self._keeps else _LEVEL
            at = _after(pattern.match(buffer, at))
            if at == end:
                break
            mark = buffer[at]
            if mark == _QUOTE:
                self._in_string = True
                break
            if mark in b"[{":
                run = _after(_OPENING.match(buffer, at)) - at
                if self._keeps and deep + run > most:
                    run = most + 1 - deep
                    self._text.write(buffer[begin : at + run - 1])
                    self._prune()
                    self._pruned_at = most + 1
                deep += run
            else:
                floor = self._pruned_at - 1 if self._pruned_at else 0
                run = min(_after(_CLOSING.match(buffer, at)) - at, deep - floor)
                deep -= run
                if self._pruned_at and deep == floor:
                    self._pruned_at, self._keeps, begin = 0, True, at + run
            at += run
        self._deep = deep
        if self._keeps:
            self._text.write(buffer[begin:at])
        if self._in_string:
            return self._on_in_string(buffer, at + 1) if not self._keeps else self._begin_string(buffer, at)
        return at

    def _begin_string(self, buffer: bytes, at: int) -> int:
        self._text.write(b'"')
        return self._on_in_string(buffer, at + 1)

    def _prune(self) -> None:
        self._text.write(self._instead)
        self._text.is_pruned = True
        self._keeps = False

    def _on_token(self, buffer: bytes, at: int) -> int:
        """Take one bracket, comma, colon or string, with the bytes before it."""
        frame, text = self._frames[-1], self._text
        end = _after(_BETWEEN.match(buffer, at))
        if end > at:
            if frame.awaits is _Awaits.VALUE:
                if frame.below is not False:
                    text.write(buffer[at:end])
            elif buffer[at:end].strip():
                text.is_broken = True
        if end == len(buffer):
            return end
        mark, self._at = buffer[end], self._start + end
        if mark == _QUOTE:
            return self._on_string(buffer, end, frame)
        if mark in b"[{":
            self._open(mark, frame)
        elif mark in b"]}":
            self._close(buffer[end : end + 1], frame)
        else:
            self._on_separator(mark, frame)
        return end + 1

    def _on_separator(self, mark: int, frame: _Frame) -> None:
        if mark == _COLON and frame.awaits is _Awaits.COLON:
            frame.awaits = _Awaits.VALUE
        elif mark == _COMMA and frame.has_items:
            self._end_item()
        elif mark == _COMMA and not frame.is_mapping:
            self._text.write(b",")
        elif mark == _COMMA and frame.awaits is _Awaits.VALUE:
            frame.awaits = _Awaits.KEY
        else:
            self._text.is_broken = True

    def _on_string(self, buffer: bytes, at: int, frame: _Frame) -> int:
        found = _TEXT.match(buffer, at)
        if found is None:
            if len(buffer) - at <= _LONGEST_KEY:
                self._left = buffer[at:]
                return len(buffer)
            if frame.awaits is not _Awaits.VALUE:
                # No used field has such a name.
                frame.awaits, frame.below = _Awaits.COLON, False
            self._in_string, self._keeps = True, frame.below is not False
            return self._begin_string(buffer, at) if self._keeps else self._on_in_string(buffer, at + 1)
        end = found.end()
        if frame.awaits is _Awaits.VALUE:
            self._identify(frame, buffer[at + 1 : end - 1])
            if frame.below is not False:
                self._text.write(buffer[at:end])
        elif frame.awaits is _Awaits.KEY:
            self._on_key(frame, buffer[at + 1 : end - 1])
        else:
            self._text.is_broken = True
        return end

    def _on_key(self, frame: _Frame, key: bytes) -> None:
        frame.awaits, frame.key = _Awaits.COLON, key
        name = key.decode("utf-8", "replace")
        frame.below = frame.fields.get(name, frame.fields.get("*", False))
        if frame.below is not False:
            self._text.write(b',"%b":' % key if frame.written else b'"%b":' % key)
            frame.written += 1

    def _identify(self, frame: _Frame, text: bytes) -> None:
        levels = len(self._frames) - self._form
        if levels == 3 and frame.key in _IDENTITY and self._frames[-2].key == b"metadata":
            self._text.identity[frame.key.decode()] = text
        elif self._form is Form.CHANGE and levels == 1 and frame.key == b"type":
            self._text.identity["type"] = text

    def _open(self, mark: int, frame: _Frame) -> None:
        below = frame.below
        if frame.awaits is not _Awaits.VALUE:
            self._text.is_broken = True
        if below is False or frame.awaits is not _Awaits.VALUE:
            self._deep, self._keeps = 1, False
        elif len(self._frames) - self._form > self._depth:
            self._deep, self._pruned_at = 1, 0
            self._prune()
        elif below is True:
            self._text.write(bytes((mark,)))
            self._deep, self._keeps = 1, True
        else:
            is_mapping = mark == _BRACE
            awaits = _Awaits.KEY if is_mapping else _Awaits.VALUE
            is_list = self._form is Form.LIST and len(self._frames) == 2 and frame.key == b"items" and not is_mapping
            self._text.write(bytes((mark,)))
            self._frames.append(_Frame(below, is_mapping, is_list, awaits, below=below))
            if is_list:
                self._text = _Text(self._most, begin=self._at + 1)

    def _close(self, mark: bytes, frame: _Frame) -> None:
        if len(self._frames) == 1:
            self._text.is_broken = True
            return
        if frame.has_items:
            self._end_item()
            self._text = self._whole
        self._frames.pop()
        self._text.write(mark)

    def _end_item(self) -> None:
        piece = self._text.piece(self._at)
        if piece.data or self._text.is_broken or piece.is_too_large:
            self._ended = piece
        self._text = _Text(self._most, begin=self._at + 1)


def _after(found: re.Match[bytes] | None) -> int:
    assert found is not None, "a pattern that matches nothing as well"
    return found.end()
