"""A watch: changes of objects that arrive one by one, a line each, over one connection.

One thread iterates; ``close`` from any other ends that at once, without an error; the client's ``close`` raises
``Closed``. What is kept of a line is bounded, and so is silence: otherwise a connection whose other side vanished would
wait for ever. A line that is too large or not JSON is skipped if its object has a name and a version, so that one
object cannot end the watch of all others. The end of a stream is nothing unusual: the server ends every watch after
some minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import Any, Self

from kube.answers import Request, Unread, decoded, glimpse, no_answer, unread_of
from kube.bodies import Json, JsonObject
from kube.errors import BadAnswer, Closed, Unauthorized
from kube.json_stream import WHOLE, Fields, Form, JsonStream
from kube.small_objects import SmallFirst
from kube.wire import Wire

_PIECE = 1 << 16
_GLIMPSE = 480


class Stream:
    """An iterator of changes; use it with ``with``. Raises ``RequestError``, and ``ConfigurationError`` at its first
    step.

    ``connect`` returns the response once the server has accepted. After a 401 the stream calls ``renew`` and asks once
    more. ``longest``: bytes kept of one line; ``fields``: what to keep of its object.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Any]],
        wire: Wire,
        request: Request,
        *,
        renew: Callable[[], None],
        longest: int,
        fields: Fields = WHOLE,
    ) -> None:
        self._connect = connect
        self._wire = wire
        self._request = request
        self._renew = renew
        self._longest = longest
        self._fields = fields
        self._objects = self._all()
        self._opened = False

    def open(self) -> None:
        """Wait until the server has accepted; iterating does so, too. No effect after ``close``."""
        if not self._opened:
            self._opened = True
            next(self._objects, None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> JsonObject | Unread:
        self.open()
        body = next(self._objects)
        assert body is not None, "only the first one is None"
        return body

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._objects.close()

    def close(self) -> None:
        """End it, from any thread; changes received but not asked for yet are dropped."""
        self._wire.cut()

    def _all(self) -> Generator[JsonObject | Unread | None, None, None]:
        """None once it is open, then the objects."""
        try:
            yield from self._once()
        except Unauthorized:
            # Only the server's first answer can be a 401.
            self._renew()
        else:
            return
        yield from self._once()

    def _once(self) -> Generator[JsonObject | Unread | None, None, None]:
        import urllib3

        try:
            if self._wire.is_cut():
                return
            with self._connect() as response:
                self._wire.flows()
                yield None
                for body in self._changes(response):
                    yield body
                    if self._wire.is_cut():
                        return
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if self._wire.is_cut():
                return
            if self._wire.is_ended():
                raise self._closed() from error
            raise no_answer(self._request, error, self._late()) from error
        if self._wire.is_ended():
            raise self._closed()

    def _changes(self, response: Any) -> Iterator[JsonObject | Unread]:
        """The changes, one for each line that is not empty; bytes after the last line end are a truncated line."""
        line = _Line(self._fields, self._longest)
        while piece := response.read1(_PIECE):
            first, *others = piece.split(b"\n")
            line.feed(first)
            for other in others:
                if not line.is_empty:
                    yield self._change(line)
                line = _Line(self._fields, self._longest)
                line.feed(other)
            if line.stream.is_too_large and "name" not in line.stream.identity:
                raise self._bad(f"an object in the stream has more than {self._longest} bytes")
        if not (line.is_empty or self._wire.is_cut() or self._wire.is_ended()):
            raise self._bad(f"the stream ended within an object: {glimpse(line.begin)}")

    def _change(self, line: _Line) -> JsonObject | Unread:
        body: Json = line.small.decoded()
        if isinstance(body, dict):
            return body
        piece = line.stream.end()
        body = decoded(piece.data) if piece.data else None
        if isinstance(body, dict):
            return body
        unread = unread_of(piece, self._longest)
        if unread.name and unread.resource_version and unread.change:
            return unread
        raise self._bad(f"a line of the stream is not a JSON object: {glimpse(line.begin)}")

    def _closed(self) -> Closed:
        return Closed(self._request.method, self._request.path, 0, "", "the client is closed")

    def _bad(self, text: str) -> BadAnswer:
        return BadAnswer(self._request.method, self._request.path, 200, "", text)

    def _late(self) -> str:
        whole = "" if self._wire.whole is None else f", or sent without end for {self._wire.whole:g} s"
        return f"did not answer, or was silent for {self._wire.idle:g} s{whole}"


class _Line:
    """A line that may be incomplete; ``begin`` is its beginning, for people."""

    def __init__(self, fields: Fields, longest: int) -> None:
        self.stream = JsonStream(Form.CHANGE, fields, most=longest)
        self.small = SmallFirst(self.stream, longest)
        self.begin = b""
        self.is_empty = True

    def feed(self, data: bytes) -> None:
        if len(self.begin) < _GLIMPSE:
            self.begin += data[:_GLIMPSE]
        self.is_empty = self.is_empty and not data.strip()
        for _ in self.small.feed(data):
            raise AssertionError("only a list has items")
