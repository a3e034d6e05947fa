"""Reads a whole collection: in pages of one moment, with the version to watch from.

A list without resourceVersion is what the server holds now, never older than what this client has seen or written
before; so a caller that lists after a write never misses it. Pages keep answers small: if a page turns out to be large,
the reader abandons it and asks for fewer objects from then on. If the server has forgotten the moment of the first page
before the last is read (410), the list is read again in one piece. Only what is kept takes memory, in either case.
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

INITIAL_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the list with which a watch begins."""
PAGE = 500
"""Objects in a page."""
_ROOMY = 16 << 20
"""Bytes at which a page is abandoned, so that each page arrives within the time for one answer."""
_WANTED = 4 << 20
"""Bytes that a page should have."""


class Events(AbstractContextManager["Events"], Iterator[JsonObject | Unread], Protocol):
    """A watch: one ``{"type": …, "object": …}`` at a time, or an unread object; ``close`` ends it from any thread."""

    def open(self) -> None:
        """Wait until the server has accepted the watch."""

    def close(self) -> None:
        """End it."""


class CollectionSource(Protocol):
    """A collection as a reflector reads it; it raises ``kube.errors.KubeError``."""

    @property
    def path(self) -> str:
        """Its path, for people."""

    def page(self, query: Mapping[str, str], *, roomy: int | None = None) -> Page:
        """Read a list, or a page of it, with one attempt; its objects are what ``read`` returns.

        Raises ``LargePage`` if it has more than one object and more bytes than ``roomy``.
        """

    def watch(self, query: Mapping[str, str], *, read_timeout: float, whole: float) -> Events:
        """Watch the collection; the request is sent when the first change is wanted."""

    def read(self, body: JsonObject) -> JsonObject:
        """What to keep of a changed object; ``{}`` for nothing."""


class ReadClient(Protocol):
    """What collections need of a client."""

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
        """Read objects as they arrive."""


class Collection:
    """A collection at a fixed path; ``query``: selectors.

    ``read`` sees each object's ``fields`` as soon as they are there and returns what to keep; without it, objects are
    as the server sends them. For callers that need little of large objects.
    """

    def __init__(
        self,
        client: ReadClient,
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
        fields = with_initial_end(self._fields)
        return self._client.stream(self._path, asked, read_timeout=read_timeout, whole=whole, fields=fields)

    def read(self, body: JsonObject) -> JsonObject:
        """See ``CollectionSource``."""
        return self._read(body)


def with_initial_end(fields: Fields) -> Fields:
    """The fields with the annotation ``INITIAL_END``, for a watch."""
    metadata = fields.get("metadata", fields.get("*", False))
    if isinstance(metadata, bool):
        metadata = {"*": metadata}
    annotations = metadata.get("annotations", metadata.get("*", False))
    if annotations is True:
        return fields
    kept = annotations if isinstance(annotations, Mapping) else {}
    return {**fields, "metadata": {**metadata, "annotations": {**kept, INITIAL_END: True}}}


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of one moment; a watch from ``resource_version`` continues from there.

    ``unread``: objects that could not be read and are missing here; ``pruned``: objects whose deep parts are missing.
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
    """Read a collection. Raises ``KubeError``: ``BadAnswer`` if it is not a list.

    ``progress`` is called before each page with the number of objects kept so far.
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
            raise BadAnswer("GET", source.path, 200, "", "the list never ends: a page points to itself")
        more = page.more
        limit = min(_fitting(page.count, page.size), 2 * limit, most)


def _fitting(count: int, size: int) -> int:
    """How many objects a page should have, after one whose ``count`` objects had ``size`` bytes."""
    return max(1, count * _WANTED // max(size, 1)) if count else PAGE
