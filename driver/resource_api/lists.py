"""Collections of resource.k8s.io as they are listed and watched, in whichever version the server has them.

A resource version belongs to the version of its list; so a watch asks in that one, and a list that meets a version
which is gone is asked for once more in the one that is served by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from driver.resource_api.served import GROUP, Served
from kube.bodies import JsonObject, one_line
from kube.collection import Asks, Events, Listing, read_whole
from kube.errors import BadAnswer, NotFound
from kube.json_stream import WHOLE, Fields
from kube.pages import Page
from kube.paths import path_of
from scheduling.api.versions import VersionError, to_v1


class ResourceList:
    """A ``kube.collection.Source``: objects that ``query`` selects.

    They are converted to v1, or what ``read`` makes of their ``fields`` as they are sent.
    """

    def __init__(
        self,
        client: Asks,
        served: Served,
        plural: str,
        kind: str,
        *,
        query: Mapping[str, str] | None = None,
        read: Callable[[JsonObject], JsonObject] | None = None,
        fields: Fields = WHOLE,
    ) -> None:
        self._client = client
        self._served = served
        self._plural = plural
        self._kind = kind
        self._query = dict(query or {})
        self._read = read
        self._fields = fields
        self._version = ""

    @property
    def path(self) -> str:
        """The path for people; before the version is known with its place left open."""
        return self._at(self._version or "*").replace("%2A", "*")

    def read_whole(self) -> Listing:
        """All of them, now."""
        return read_whole(self)

    def page(self, query: Mapping[str, str], *, roomy: int | None = None) -> Page:
        """See ``Source``. Where the version is gone, the list is asked for in the one that is served now."""
        version = self._served.version()
        try:
            return self._page(version, query, roomy)
        except NotFound:
            newer = self._served.instead_of(version)
            if newer == version:
                raise
        return self._page(newer, query, roomy)

    def watch(self, query: Mapping[str, str], *, read_timeout: float, whole: float) -> Events:
        """See ``Source``: in the version of the last list, for the resource version is of that list."""
        path = self._at(self._version or self._served.version())
        asked = {**self._query, **query}
        return self._client.stream(path, asked, read_timeout=read_timeout, whole=whole, fields=self._fields)

    def read(self, body: JsonObject) -> JsonObject:
        """See ``Source``: as v1, with the kind and version that items of a list lack."""
        return self._made(body, self._version)

    def _page(self, version: str, query: Mapping[str, str], roomy: int | None) -> Page:
        def read(body: JsonObject) -> JsonObject:
            return self._made(body, version)

        asked = {**self._query, **query}
        page = self._client.page(self._at(version), asked, fields=self._fields, read=read, roomy=roomy)
        self._version = version
        return page

    def _made(self, body: JsonObject, version: str) -> JsonObject:
        return converted(body, version, self._kind, self._at(version)) if self._read is None else self._read(body)

    def _at(self, version: str) -> str:
        return path_of("apis", GROUP, version, self._plural)


def converted(body: JsonObject, version: str, kind: str, path: str) -> JsonObject:
    """An object of that version as v1. Raises ``BadAnswer``."""
    named = {"apiVersion": f"{GROUP}/{version}", "kind": kind, **body}
    try:
        return cast("JsonObject", to_v1(named))
    except VersionError as error:
        raise BadAnswer("GET", path, 200, "", one_line(f"the answer is no {kind} ({error})", 400)) from error
