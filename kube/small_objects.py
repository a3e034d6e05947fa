"""Decodes an object of few bytes at once, and reduces it to its used fields then.

Why: nearly all objects of the API are small, and ``kube.json_stream``, which bounds what any object can cost, takes ten
times as long for them as the decoder. Invariant: what comes out is what the stream would have made of the same bytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from kube.bodies import is_deeper
from kube.json_stream import DEPTH, Fields, JsonStream, Piece

SMALL = 32 << 10
"""Bytes of an object that may be decoded before it is reduced: at worst a megabyte of values for a moment."""


class SmallFirst:
    """Feeds ``stream`` with one object, unless the object ends before it is large: then it is decoded at once.

    What the decoder refuses, and what nests deeply, goes through the stream after all, which alone decides what becomes
    of it.
    """

    def __init__(self, stream: JsonStream, most: int) -> None:
        """``most``: as that of ``stream``."""
        self._stream = stream
        self._most = min(most, SMALL)
        self._held: bytearray | None = bytearray()

    def feed(self, data: bytes) -> Iterator[Piece]:
        """See ``JsonStream.feed``."""
        if self._held is None:
            yield from self._stream.feed(data)
            return
        self._held += data
        if len(self._held) > self._most:
            yield from self._streamed()

    def decoded(self, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
        """The reduced object once all bytes have arrived, None if ``stream`` has it; ``pairs``: the decoder's hook."""
        if self._held is None:
            return None
        held = bytes(self._held)
        # With a null byte it would be taken for UTF-16.
        if held.startswith(b"{") and b"\0" not in held[:4]:
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(held, object_pairs_hook=pairs)
                # It cannot nest deeper than it has brackets.
                if held.count(b"{") + held.count(b"[") < DEPTH or not is_deeper(found, DEPTH - 1):
                    return reduced(found, self._stream.fields)
        for _ in self._streamed():
            raise AssertionError("only a list has items")
        return None

    def _streamed(self) -> Iterator[Piece]:
        held, self._held = bytes(self._held or b""), None
        return self._stream.feed(held)


def reduced(value: Any, fields: Fields | bool) -> Any:
    """The fields of a decoded value that are used."""
    if fields is True or fields is False or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [reduced(each, fields) for each in value]
    others = fields.get("*", False)
    return {
        name: reduced(each, below) for name, each in value.items() if (below := fields.get(name, others)) is not False
    }
