"""A collection that can be listed in pages and watched, and told what to do wrong; and a handler that keeps notes."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from kube.backoff import BackoffPolicy
from kube.bodies import Json, JsonObject, text_at
from kube.collection import Collection
from kube.reflector import Reflector, ReflectorLimits
from tests.kube.conftest import client_of
from tests.kube.server import Asked, CannedAnswer, StubApiServer, refused
from tests.waiting import until

PATH = "/apis/example.org/v1/things"
Send = Callable[[bytes], None]


def thing(name: str, version: int, **fields: Json) -> JsonObject:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, **fields}


def event(kind: str, body: Json) -> JsonObject:
    return {"type": kind, "object": body}


def bookmark(version: int) -> JsonObject:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def expired() -> JsonObject:
    return event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})


def line(body: object) -> bytes:
    return json.dumps(body).encode() + b"\n"


class WatchedCollection:
    """``lists`` and ``watches`` are answers for the next requests; without them a list has ``things``.

    A watch without an answer of its own waits for what ``send`` is given; None ends it. Only the newest of these is
    given anything; ``begun`` counts them.
    """

    def __init__(self, server: StubApiServer) -> None:
        self.server = server
        self.things: list[JsonObject] = []
        self.version = 10
        self.lists: deque[CannedAnswer] = deque()
        self.watches: deque[CannedAnswer] = deque()
        self.every_watch: CannedAnswer | None = None
        self._changed = threading.Condition()
        self._events: deque[object] = deque()
        self.begun = 0

    def send(self, *events: object) -> None:
        with self._changed:
            self._events.extend(events)
            self._changed.notify_all()

    def end(self) -> None:
        self.send(None)

    def queries(self, watch: bool) -> list[dict[str, str]]:
        asked = [query_of(one) for one in self.server.asked]
        return [query for query in asked if ("watch" in query) is watch]

    def answer(self, asked: Asked) -> CannedAnswer:
        query = query_of(asked)
        if "watch" in query:
            if self.watches:
                return self.watches.popleft()
            return self.every_watch or CannedAnswer(feed=self._feed)
        if self.lists:
            return self.lists.popleft()
        begin, limit = int(query.get("continue", "0")), int(query.get("limit", "0")) or len(self.things)
        metadata: JsonObject = {"resourceVersion": str(self.version)}
        if begin + limit < len(self.things):
            metadata["continue"] = str(begin + limit)
        return CannedAnswer.of({"metadata": metadata, "items": list(self.things[begin : begin + limit])})

    def _feed(self, send: Send) -> bool:
        with self._changed:
            self.begun += 1
            number = self.begun
        while True:
            with self._changed:
                if self.server.closing.is_set() or number != self.begun:
                    # Nobody is there any more to whom the events could be given.
                    return False
                if not self._events:
                    self._changed.wait(0.02)
                    continue
                following = self._events.popleft()
            if following is None:
                return True
            send(following if isinstance(following, bytes) else line(following))


def query_of(asked: Asked) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(asked.path).query).items()}


def fed(*events: object, whole: bool = True) -> CannedAnswer:
    """A watch of these events, which then ends."""

    def feed(send: Send) -> bool:
        for one in events:
            send(one if isinstance(one, bytes) else line(one))
        return whole

    return CannedAnswer(feed=feed)


class Notes:
    """A handler: ``heard`` says what it was told; it fails once where ``failing`` is set."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.objects: list[JsonObject] = []
        self.failing = False
        self.threads: set[int] = set()
        self.on_each: Callable[[], None] = lambda: None

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        self.objects.extend(objects)
        self._note(f"replaced {','.join(text_at(one, 'metadata', 'name') for one in objects)} @{resource_version}")

    def applied(self, body: JsonObject) -> None:
        self.objects.append(body)
        self._note(f"applied {text_at(body, 'metadata', 'name')}")

    def deleted(self, body: JsonObject) -> None:
        self._note(f"deleted {text_at(body, 'metadata', 'name')}")

    def bookmark(self, resource_version: str) -> None:
        self._note(f"bookmark {resource_version}")

    def _note(self, text: str) -> None:
        self.threads.add(threading.get_ident())
        self.heard.append(text)
        self.on_each()
        if self.failing:
            self.failing = False
            raise ValueError("a note cannot be taken")


@contextmanager
def watched() -> Iterator[WatchedCollection]:
    with StubApiServer() as server:
        collection = WatchedCollection(server)
        server.respond = collection.answer
        yield collection


def not_now(status: int = 500, message: str = "not now") -> CannedAnswer:
    return refused(status, "InternalError", message)


QUICK = BackoffPolicy(first=0.01, most=0.02, longest=0.05)


SETTLED = ReflectorLimits(settled=0.0)
"""Every watch counts as one that worked."""


USUAL = ReflectorLimits()


@contextmanager
def reflecting(
    collection: WatchedCollection,
    notes: Notes,
    *,
    policy: BackoffPolicy = QUICK,
    limits: ReflectorLimits = USUAL,
    on_failure: Callable[[Exception], None] = lambda _: None,
) -> Iterator[Reflector]:
    source = Collection(client_of(collection.server), PATH, {"fieldSelector": "spec.nodeName=n"})
    made = Reflector(source, notes, random=lambda: 0.5, policy=policy, limits=limits, on_failure=on_failure)
    made.start()
    try:
        yield made
    finally:
        assert made.stop(10)


def heard(notes: Notes, *expected: str) -> None:
    until(lambda: len(notes.heard) >= len(expected), f"{expected}, heard {notes.heard}")
    assert notes.heard == list(expected)
