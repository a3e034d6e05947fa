"""Objects that come one by one, a line each, over one connection: how the API server tells of changes.

One thread iterates; ``close`` from any other ends that at once, without an error; the client's ``close`` raises
``Closed``. A line is bounded, and so is
silence: without that a connection whose other side vanished would be waited at for ever. A stream that ends is
nothing unusual: the server ends every watch after some minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import Any, Self

from kube.answers import Request, decoded, glimpse, no_answer
from kube.bodies import JsonObject
from kube.deadline import Wire
from kube.errors import BadAnswer, Closed, Unauthorized

_PIECE = 1 << 16


class Stream:
    """An iterator of objects; use it with ``with``. Raises ``RequestError``, and ``ConfigurationError`` at its first.

    ``connect`` gives the response once the server agreed. ``renew`` is called after a 401, and the server asked once
    more. ``longest``: bytes of one line.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Any]],
        wire: Wire,
        request: Request,
        *,
        renew: Callable[[], None],
        longest: int,
    ) -> None:
        self._connect = connect
        self._wire = wire
        self._request = request
        self._renew = renew
        self._longest = longest
        self._objects = self._all()
        self._opened = False

    def open(self) -> None:
        """Wait until the server agreed; iterating does so, too. Without effect when it was closed before."""
        if not self._opened:
            self._opened = True
            next(self._objects, None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> JsonObject:
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
        """End it, from any thread; what was received but not asked for yet is dropped."""
        self._wire.cut()

    def _all(self) -> Generator[JsonObject | None, None, None]:
        """None once it is open, then the objects."""
        try:
            yield from self._once()
        except Unauthorized:
            # Only the server's first word can be that one.
            self._renew()
        else:
            return
        yield from self._once()

    def _once(self) -> Generator[JsonObject | None, None, None]:
        import urllib3

        try:
            if self._wire.is_cut():
                return
            with self._connect() as response:
                self._wire.flows()
                yield None
                for line in self._lines(response):
                    yield self._object(line)
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

    def _lines(self, response: Any) -> Iterator[bytes]:
        """Lines that are not empty; what follows the last line's end was cut off."""
        rest = bytearray()
        while piece := response.read1(_PIECE):
            begin = len(rest)
            rest += piece
            while (end := rest.find(b"\n", begin)) >= 0:
                line = bytes(rest[:end])
                del rest[: end + 1]
                begin = 0
                if line.strip():
                    yield line
            if len(rest) > self._longest:
                raise self._bad(f"an object in the stream has more than {self._longest} bytes")
        if rest.strip() and not (self._wire.is_cut() or self._wire.is_ended()):
            raise self._bad(f"the stream ended within an object: {glimpse(bytes(rest))}")

    def _object(self, line: bytes) -> JsonObject:
        body = decoded(line)
        if not isinstance(body, dict):
            raise self._bad(f"a line of the stream is no JSON object: {glimpse(line)}")
        return body

    def _closed(self) -> Closed:
        return Closed(self._request.method, self._request.path, 0, "", "the client is closed")

    def _bad(self, text: str) -> BadAnswer:
        return BadAnswer(self._request.method, self._request.path, 200, "", text)

    def _late(self) -> str:
        whole = "" if self._wire.whole is None else f", or sent without end for {self._wire.whole:g} s"
        return f"did not answer, or was silent for {self._wire.idle:g} s{whole}"
