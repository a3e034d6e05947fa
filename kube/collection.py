"""A collection of objects as it is read whole: in pages, all of one moment, with the version to watch from.

A list without resourceVersion is what the server holds now, never older than what was seen or written before; so
nobody who lists after a write misses it. Pages keep answers small; where the server has forgotten the moment of the
first page before the last is read (410), the list is read once more in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from kube.bodies import JsonObject, text_at
from kube.errors import BadAnswer, Gone

PAGE = 500
"""Objects of a page."""


class Events(AbstractContextManager["Events"], Iterator[JsonObject], Protocol):
    """A watch: ``{"type": …, "object": …}`` one by one; ``close`` ends it from any thread."""

    def open(self) -> None:
        """Wait until the server agreed."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Source(Protocol):
    """A collection as a reflector reads it; errors are ``kube.errors.KubeError``."""

    @property
    def path(self) -> str:
        """Its path, for people."""
        ...

    def page(self, query: Mapping[str, str]) -> JsonObject:
        """A list, or a page of it, after one attempt."""
        ...

    def watch(self, query: Mapping[str, str], *, read_timeout: float, whole: float) -> Events:
        """Changes; nothing is asked before the first is wanted."""
        ...

    def read(self, body: JsonObject) -> JsonObject:
        """An object of a page or a change as its users know it."""
        ...


class Asks(Protocol):
    """What is needed of a client."""

    def get(self, path: str, query: Mapping[str, str] | None = None, *, attempts: int | None = None) -> JsonObject:
        """Read one object or a list."""
        ...

    def stream(
        self, path: str, query: Mapping[str, str] | None = None, *, read_timeout: float, whole: float | None = None
    ) -> Events:
        """Read objects as they come."""
        ...


class Collection:
    """A collection of a fixed path; ``query``: selectors.

    Objects are as the server sends them, or what ``read`` makes of each as soon as it is there: for whoever needs
    little of objects that are large.
    """

    def __init__(
        self,
        client: Asks,
        path: str,
        query: Mapping[str, str] | None = None,
        read: Callable[[JsonObject], JsonObject] = lambda body: body,
    ) -> None:
        self._client = client
        self._path = path
        self._query = dict(query or {})
        self._read = read

    @property
    def path(self) -> str:
        """See ``Source``."""
        return self._path

    def page(self, query: Mapping[str, str]) -> JsonObject:
        """See ``Source``."""
        return self._client.get(self._path, {**self._query, **query}, attempts=1)

    def watch(self, query: Mapping[str, str], *, read_timeout: float, whole: float) -> Events:
        """See ``Source``."""
        return self._client.stream(self._path, {**self._query, **query}, read_timeout=read_timeout, whole=whole)

    def read(self, body: JsonObject) -> JsonObject:
        """See ``Source``."""
        return self._read(body)


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a moment; a watch from ``resource_version`` tells of all that happened since."""

    objects: tuple[JsonObject, ...]
    resource_version: str


def read_whole(source: Source, page_size: int = PAGE, query: Mapping[str, str] | None = None) -> Listing:
    """Read a collection. Raises ``KubeError``: ``BadAnswer`` for what is no list."""
    try:
        return _read_pages(source.page, source, {**(query or {}), "limit": str(page_size)})
    except Gone:
        return _read_pages(source.page, source, dict(query or {}))


def _read_pages(page: Callable[[Mapping[str, str]], JsonObject], source: Source, query: dict[str, str]) -> Listing:
    objects: list[JsonObject] = []
    more = ""
    while True:
        answer = page({**query, "continue": more} if more else query)
        items = answer.get("items")
        if items is None:
            # How Go writes an empty list in some versions.
            items = []
        if not isinstance(items, list):
            raise BadAnswer("GET", source.path, 200, "", "the answer is no list: its items are none")
        for item in items:
            if not isinstance(item, dict):
                raise BadAnswer("GET", source.path, 200, "", "an item of the list is no object")
            objects.append(source.read(item))
        last, more = more, text_at(answer, "metadata", "continue")
        if not more:
            return Listing(tuple(objects), text_at(answer, "metadata", "resourceVersion"))
        if more == last:
            raise BadAnswer("GET", source.path, 200, "", "the list has no end: a page points to itself")
