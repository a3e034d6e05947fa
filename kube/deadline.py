"""A limit on all of an answer, where the transport knows only one on each wait for more of it.

A server that sends a byte now and then, or ``100 Continue`` again and again, keeps every wait short and its answer
without end, also before the body has begun, where nobody but the transport reads. So each wait gets what is left of
the whole time, and none is begun after its end.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


def bound_answers(pool: Any, seconds: float, monotonic: Callable[[], float]) -> None:
    """Let reads of the ``urllib3.PoolManager`` end with ``TimeoutError`` ``seconds`` after an answer was asked for."""

    def bounded(kind: Any) -> Any:
        plain = kind.ConnectionCls.response_class

        def response(sock: Any, *arguments: Any, **options: Any) -> Any:
            return plain(_Bounded(sock, monotonic() + seconds, monotonic), *arguments, **options)

        connection = type("BoundedConnection", (kind.ConnectionCls,), {"response_class": staticmethod(response)})
        return type("BoundedPool", (kind,), {"ConnectionCls": connection})

    pool.pool_classes_by_scheme = {scheme: bounded(kind) for scheme, kind in pool.pool_classes_by_scheme.items()}


class _Bounded:
    """What an answer wants of a socket: a file to read from."""

    def __init__(self, sock: Any, ends: float, monotonic: Callable[[], float]) -> None:
        self._sock = sock
        self._ends = ends
        self._monotonic = monotonic

    def makefile(self, mode: str) -> io.BufferedReader:
        """A file that is read until ``ends``; it keeps the socket open as the socket's own would."""
        return io.BufferedReader(_Reader(self._sock.makefile(mode, buffering=0), self._sock, self._left))

    def _left(self) -> float:
        left = self._ends - self._monotonic()
        if left <= 0:
            raise TimeoutError("the whole time for an answer is over")
        return left


class _Reader(io.RawIOBase):
    def __init__(self, raw: Any, sock: Any, left: Callable[[], float]) -> None:
        self._raw = raw
        self._sock = sock
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._left())
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
