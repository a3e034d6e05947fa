"""A collection of objects as it is read whole: in pages, all of one moment, with the version to watch from.

A list without resourceVersion is what the server holds now, never older than what was seen or written before; so
nobody who lists after a write misses it. Pages keep answers small: a page that turns out to be large is given up and
asked for with fewer objects, and so are those after it. Where the server has forgotten the moment of the first page
before the last is read (410), the list is read once more in one piece. Memory is that of what is kept, in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from kube.answers import MOST_NAMED, LargePage, Page, Unread
from kube.bodies import JsonObject, whole
from kube.errors import BadAnswer, Gone
from kube.json_stream import WHOLE, Fields

PAGE = 500
"""Objects of a page."""
_ROOMY = 16 << 20
"""Bytes of a page that is given up, so that each is read within the time for one answer."""
_WANTED = 4 << 20
"""Bytes of a page as it should be."""


class Events(AbstractContextManager["Events"], Iterator[JsonObject | Unread], Protocol):
    """A watch: ``{"type": …, "object": …}`` one by one, or what cannot be read; ``close`` ends it from any thread."""

    def open(self) -> None:
        """Wait until the server agreed."""

    def close(self) -> None:
        """End it."""


class CollectionSource(Protocol):
    """A collection as a reflector reads it; errors are ``kube.errors.KubeError``."""

    @property
    def path(self) -> str:
        """Its path, for people."""

    def page(self, query: Mapping[str, str], *, roomy: int | None = None) -> Page:
        """A list, or a page of it, after one attempt; its objects are what ``read`` makes of them.

        Raises ``LargePage`` where it has more than one object and more bytes than ``roomy``.
        """

    def watch(self, query: Mapping[str, str], *, read_timeout: float, whole: float) -> Events:
        """Changes; nothing is asked before the first is wanted."""

    def read(self, body: JsonObject) -> JsonObject:
        """An object of a change as its users know it; ``{}``: nothing is kept of it."""


class Asks(Protocol):
    """A client as far as collections need it."""

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        fields: Fields = WHOLE,
        attempts: int | None = None,
    ) -> JsonObject:
        """Read one object."""

    def page(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        fields: Fields = WHOLE,
        read: Callable[[JsonObject], JsonObject] = whole,
        roomy: int | None = None,
    ) -> Page:
        """Read a list or a page of it."""

    def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        read_timeout: float,
        whole: float | None = None,
        fields: Fields = WHOLE,
    ) -> Events:
        """Read objects as they come."""


class Collection:
    """A collection of a fixed path; ``query``: selectors.

    Objects are as the server sends them, or what ``read`` makes of each as soon as it is there; it is shown ``fields``
    alone. For callers that need little of large objects.
    """

    def __init__(
        self,
        client: Asks,
        path: str,
        query: Mapping[str, str] | None = None,
        read: Callable[[JsonObject], JsonObject] = whole,
        fields: Fields = WHOLE,
    ) -> None:
        self._client = client
        self._path = path
        self._query = dict(query or {})
        self._read = read
        self._fields = fields

    @property
    def path(self) -> str:
        """See ``CollectionSource``."""
        return self._path

    def page(self, query: Mapping[str, str], *, roomy: int | None = None) -> Page:
        """See ``CollectionSource``."""
        whole = {**self._query, **query}
        return self._client.page(self._path, whole, fields=self._fields, read=self.read, roomy=roomy)

    def watch(self, query: Mapping[str, str], *, read_timeout: float, whole: float) -> Events:
        """See ``CollectionSource``."""
        asked = {**self._query, **query}
        return self._client.stream(self._path, asked, read_timeout=read_timeout, whole=whole, fields=self._fields)

    def read(self, body: JsonObject) -> JsonObject:
        """See ``CollectionSource``."""
        return self._read(body)


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a moment; a watch from ``resource_version`` tells of all that happened since.

    ``unread``: objects that cannot be read and are missing here; ``pruned``: such of which a part is.
    """

    objects: tuple[JsonObject, ...]
    resource_version: str
    unread: tuple[Unread, ...] = ()
    pruned: tuple[Unread, ...] = ()


def read_whole(
    source: CollectionSource,
    page_size: int = PAGE,
    query: Mapping[str, str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Listing:
    """Read a collection. Raises ``KubeError``: ``BadAnswer`` unless it is a list.

    ``progress`` hears before each page how many objects were kept so far.
    """
    try:
        return _read_pages(source, page_size, dict(query or {}), progress)
    except Gone:
        progress(0)
        page = source.page(dict(query or {}))
        return Listing(page.objects, page.resource_version, page.unread, page.pruned)


def _read_pages(source: CollectionSource, most: int, query: dict[str, str], progress: Callable[[int], None]) -> Listing:
    objects: list[JsonObject] = []
    unread: list[Unread] = []
    pruned: list[Unread] = []
    more, limit = "", most
    while True:
        progress(len(objects))
        asked = {**query, "limit": str(limit), **({"continue": more} if more else {})}
        try:
            page = source.page(asked, roomy=_ROOMY if limit > 1 else None)
        except LargePage as large:
            limit = min(_fitting(large.count, large.size), limit // 2)
            continue
        objects += page.objects
        unread += page.unread[: MOST_NAMED - len(unread)]
        pruned += page.pruned[: MOST_NAMED - len(pruned)]
        if not page.more:
            return Listing(tuple(objects), page.resource_version, tuple(unread), tuple(pruned))
        if page.more == more:
            raise BadAnswer("GET", source.path, 200, "", "the list has no end: a page points to itself")
        more = page.more
        limit = min(_fitting(page.count, page.size), 2 * limit, most)


def _fitting(count: int, size: int) -> int:
    """How many objects a page should have, after one whose ``count`` objects had ``size`` bytes."""
    return max(1, count * _WANTED // max(size, 1)) if count else PAGE
