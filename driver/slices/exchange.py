"""Makes many requests: a few one after another, many by several threads.

A pool of thousands of devices is dozens of writes, each of which waits for the API server's disk. Few are made in order
because then nothing is sent after a fault; of many, those that are under way are waited for. Answers come in the order
of what is sent, which is made while earlier requests are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from kube.errors import KubeError

Sent = TypeVar("Sent")
Given = TypeVar("Given")

_FEW: Final = 8
_THREADS: Final = 4


class Exchange(Generic[Sent, Given]):
    """One set of requests, made by ``send``; ``stop`` ends it early, from between two answers."""

    def __init__(self, send: Callable[[Sent], Given]) -> None:
        self._send = send
        self._stopped = False

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    def answers(
        self, numbered: Iterable[tuple[int, Sent]], count: int
    ) -> Iterator[tuple[int, Sent, Given | KubeError]]:
        """All that was sent with its answer, or why there is none. ``count``: how many there will be."""
        source = iter(numbered)
        if count <= _FEW:
            for index, sent in self._until_stopped(source):
                yield index, sent, self._answer(sent)
            return
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="slices") as threads:
            under_way: deque[tuple[int, Sent, Future[Given | KubeError]]] = deque()
            for index, sent in self._until_stopped(source):
                under_way.append((index, sent, threads.submit(self._answer, sent)))
                if len(under_way) > _THREADS:
                    yield self._first(under_way)
            while under_way:
                yield self._first(under_way)

    def _until_stopped(self, source: Iterator[tuple[int, Sent]]) -> Iterator[tuple[int, Sent]]:
        while not self._stopped:
            try:
                yield next(source)
            except StopIteration:
                return

    def _answer(self, sent: Sent) -> Given | KubeError:
        try:
            return self._send(sent)
        except KubeError as error:
            return error

    @staticmethod
    def _first(
        under_way: deque[tuple[int, Sent, Future[Given | KubeError]]],
    ) -> tuple[int, Sent, Given | KubeError]:
        index, sent, future = under_way.popleft()
        return index, sent, future.result()
