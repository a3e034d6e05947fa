"""Posters of Kubernetes events that count, and a client that remembers what they send."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from kube.bodies import Json, JsonObject
from kube.events import EventLimits, EventPoster, Subject
from tests.kube.server import AT_ONCE

EVENTS = "/api/v1/namespaces/default/events"


class CountedPoster(EventPoster):
    """A poster that is its own observer."""

    def __init__(self, subject: Subject, **options: Any) -> None:
        self.figures = _Figures()
        super().__init__(subject, self.figures, **options)

    @property
    def posted(self) -> int:
        return self.figures.total_posted

    @property
    def dropped(self) -> int:
        return self.figures.total_dropped

    @property
    def failed(self) -> int:
        return self.figures.total_failed


class _Figures:
    """What an observer was told, added up."""

    def __init__(self) -> None:
        self.total_posted = self.total_dropped = self.total_failed = 0

    def posted(self, events: int) -> None:
        self.total_posted += events

    def dropped(self, events: int) -> None:
        self.total_dropped += events

    def failed(self) -> None:
        self.total_failed += 1


def poster(limits: EventLimits | None = None, monotonic: Callable[[], float] = time.monotonic) -> CountedPoster:
    names = (f"{number:016x}" for number in itertools.count())
    return CountedPoster(
        Subject.node("worker-1"),
        component="ostler",
        instance="worker-1",
        random=lambda: 0.5,
        monotonic=monotonic,
        unique=lambda: next(names),
        limits=limits or EventLimits(),
        policy=AT_ONCE,
    )


class RunningPoster:
    """Posts in a thread; ``client`` is a real one or a recorder."""

    def __init__(self, made: CountedPoster, client: object) -> None:
        self.poster = made
        self._thread = threading.Thread(target=made.run, args=(client,))

    def __enter__(self) -> CountedPoster:
        self._thread.start()
        return self.poster

    def __exit__(self, *fault: object) -> None:
        self.poster.close()
        self._thread.join(60)
        assert not self._thread.is_alive()


class RecordingClient:
    """A client that remembers, and fails when told to."""

    def __init__(self) -> None:
        self.created: list[JsonObject] = []
        self.patched: list[tuple[str, Json]] = []
        self.faults: list[Exception] = []

    def create(self, path: str, body: JsonObject) -> JsonObject:
        assert path == EVENTS
        self._fail()
        self.created.append(body)
        return body

    def patch(self, path: str, body: Json) -> JsonObject:
        self._fail()
        self.patched.append((path, body))
        return {}

    def _fail(self) -> None:
        if self.faults:
            raise self.faults.pop(0)
