"""Bytecode in which equal constants of one source file are one object: an agent's modules take 1.1 MB less.

Python's compiler makes them one, and marshal then writes and loads each of them once. A code object that is made from
another one (``ostler.cli.small_code``) gets new ones, among them two for the names of its variables, which many
functions have alike. Only what marshal writes tells them: so this works on that.
"""

from __future__ import annotations

import marshal
import sys
from collections import Counter
from types import CodeType

_IS_KNOWN = sys.version_info < (3, 14)
"""Whether this Python's format is known here (``Python/marshal.c`` of CPython, version 4)."""
_REFERENCE, _IS_REFERRED_TO = b"r", 0x80
_SINGLE = b"NTFS."
"""None, True, False, StopIteration, Ellipsis: there is one of each."""
_SIZED = {b"i": 4, b"g": 8, b"y": 16}
"""Numbers, and their bytes."""
_LONG = b"l"
_TEXTS = {b"s": 4, b"t": 4, b"u": 4, b"A": 4, b"a": 4, b"Z": 1, b"z": 1}
"""Bytes and texts, and the bytes of their length."""
_SEQUENCES = {b"(": 4, b">": 4, b")": 1}
"""Tuples and frozen sets, and the bytes of their length."""
_CODE = b"c"
_NUMBERS, _FIRST, _LINE, _LAST = 20, 8, 4, 2
"""A code object: bytes of its numbers, how many objects follow, bytes of its line, and how many follow that."""

Node = tuple[bytes, bytes, "tuple[Node | _Code, ...]"]
"""A constant: its type, what marshal writes after it, and what it contains."""


class _Code:
    """A code object. Unlike constants, it equals itself alone."""

    __slots__ = ("first", "last", "line", "numbers")

    def __init__(self, stream: _Reader) -> None:
        self.numbers = stream.taken(_NUMBERS)
        self.first = [stream.node() for _ in range(_FIRST)]
        self.line = stream.taken(_LINE)
        self.last = [stream.node() for _ in range(_LAST)]


class _Reader:
    def __init__(self, marshalled: bytes) -> None:
        self._marshalled = marshalled
        self._at = 0
        self._referred_to: list[Node | _Code | None] = []

    def taken(self, size: int) -> bytes:
        self._at += size
        return self._marshalled[self._at - size : self._at]

    def node(self) -> Node | _Code:
        """The next object; raises ``ValueError`` for one of a type that is not known here."""
        first = self.taken(1)[0]
        kind = bytes((first & ~_IS_REFERRED_TO,))
        if kind == _REFERENCE:
            found = self._referred_to[int.from_bytes(self.taken(4), "little")]
            if found is None:
                raise ValueError("an object contains itself")
            return found
        number = len(self._referred_to)
        if first & _IS_REFERRED_TO:
            self._referred_to.append(None)
        made = _Code(self) if kind == _CODE else self._constant(kind)
        if first & _IS_REFERRED_TO:
            self._referred_to[number] = made
        return made

    def _constant(self, kind: bytes) -> Node:
        if kind in _SEQUENCES:
            size = self.taken(_SEQUENCES[kind])
            return kind, size, tuple(self.node() for _ in range(int.from_bytes(size, "little")))
        if kind in _TEXTS:
            size = self.taken(_TEXTS[kind])
            return kind, size + self.taken(int.from_bytes(size, "little")), ()
        if kind == _LONG:
            size = self.taken(4)
            return kind, size + self.taken(2 * abs(int.from_bytes(size, "little", signed=True))), ()
        if kind not in _SIZED and kind not in _SINGLE:
            raise ValueError(f"marshal wrote an object of type {kind!r}")
        return kind, self.taken(_SIZED.get(kind, 0)), ()


class _Writer:
    def __init__(self, whole: Node | _Code) -> None:
        self._counts: Counter[Node] = Counter()
        self._numbers: dict[Node, int] = {}
        self.written = bytearray()
        self._count(whole)
        self._write(whole)

    def _count(self, node: Node | _Code) -> None:
        if isinstance(node, _Code):
            for each in (*node.first, *node.last):
                self._count(each)
            return
        self._counts[node] += 1
        if self._counts[node] == 1:
            for each in node[2]:
                self._count(each)

    def _write(self, node: Node | _Code) -> None:
        if isinstance(node, _Code):
            self.written += _CODE + node.numbers
            for each in node.first:
                self._write(each)
            self.written += node.line
            for each in node.last:
                self._write(each)
            return
        kind, content, inner = node
        if node in self._numbers:
            self.written += _REFERENCE + self._numbers[node].to_bytes(4, "little")
            return
        if kind not in _SINGLE and self._counts[node] > 1:
            self._numbers[node] = len(self._numbers)
            kind = bytes((kind[0] | _IS_REFERRED_TO,))
        self.written += kind + content
        for each in inner:
            self._write(each)


def marshalled(code: CodeType) -> bytes:
    """The code as ``marshal`` would write it if equal constants in it were one object."""
    plain = marshal.dumps(code)
    if not _IS_KNOWN:
        return plain
    try:
        shared = bytes(_Writer(_Reader(plain).node()).written)
        is_same = marshal.loads(shared) == code  # noqa: S302  # our own
    except (ValueError, LookupError, EOFError, TypeError, RecursionError):
        # Another format than the one that is known here, or constants within constants without an end.
        return plain
    return shared if is_same else plain
