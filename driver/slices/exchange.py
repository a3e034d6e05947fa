"""Sends many bodies: a few one after another, many by several threads.

A pool of thousands of devices is dozens of writes, each of which waits for the API server's disk. Few are sent in order
because then nothing is sent after a fault; of many, those that are under way are waited for. Answers come in the order
of the bodies, and bodies are made while earlier ones are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from kube.bodies import JsonObject
from kube.errors import KubeError

Send = Callable[[JsonObject], JsonObject]
Numbered = tuple[int, JsonObject]
Answer = tuple[int, JsonObject, "JsonObject | KubeError"]

_FEW: Final = 8
_THREADS: Final = 4


class Exchange:
    """One set of bodies; ``stop`` ends it early, from between two answers."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._stopped = False

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    def answers(self, bodies: Iterable[Numbered], count: int) -> Iterator[Answer]:
        """Every body that was sent with its answer, or why there is none. ``count``: how many there will be."""
        source = iter(bodies)
        if count <= _FEW:
            for index, body in self._until_stopped(source):
                yield index, body, self._answer(body)
            return
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="slices") as threads:
            under_way: deque[tuple[int, JsonObject, Future[JsonObject | KubeError]]] = deque()
            for index, body in self._until_stopped(source):
                under_way.append((index, body, threads.submit(self._answer, body)))
                if len(under_way) > _THREADS:
                    yield self._first(under_way)
            while under_way:
                yield self._first(under_way)

    def _until_stopped(self, source: Iterator[Numbered]) -> Iterator[Numbered]:
        while not self._stopped:
            try:
                yield next(source)
            except StopIteration:
                return

    def _answer(self, body: JsonObject) -> JsonObject | KubeError:
        try:
            return self._send(body)
        except KubeError as error:
            return error

    @staticmethod
    def _first(under_way: deque[tuple[int, JsonObject, Future[JsonObject | KubeError]]]) -> Answer:
        index, body, future = under_way.popleft()
        return index, body, future.result()
