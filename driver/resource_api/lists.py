"""Collections of resource.k8s.io as they are listed and watched, in whichever version the server serves.

The version is one decision for all callers and threads (``ServedVersion``), made by discovery when it is first needed,
or assumed until a server answers 404: the agents of a cluster that starts need not all begin with discovery.
A caller that suspects the version is gone (an upgrade removed it) says which one it used: the first such caller has it
discovered again, all others get the new one. Callers that arrive meanwhile wait for that discovery, and share its
failure.

A resource version belongs to the version of its list. So a watch uses that one, and a list whose version is gone is
repeated in the version that is served by then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final, cast

from kube.answers import Page
from kube.bodies import JsonObject, one_line, path_of
from kube.collection import Events, Listing, ReadClient, read_whole, with_initial_end
from kube.discovery import ObjectGetter, served
from kube.errors import BadAnswer, Forbidden, NotFound, NotServed
from kube.json_stream import WHOLE, Fields
from scheduling.api.versions import VersionError, to_v1


class ResourceList:
    """A ``kube.collection.CollectionSource``: objects that ``query`` selects.

    They are converted to v1, or ``read`` gets their ``fields`` as they are sent and returns what to keep.
    """

    def __init__(
        self,
        client: ReadClient,
        served: ServedVersion,
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
        """The path for people; before the version is known, with a placeholder for it."""
        return self._at(self._version or "*").replace("%2A", "*")

    def read_whole(self) -> Listing:
        """All of them, now."""
        return read_whole(self)

    def page(self, query: Mapping[str, str], *, roomy: int | None = None) -> Page:
        """See ``Source``. If the version is gone, the list is requested in the version that is served now."""
        version = self._served.version()
        try:
            return self._page(version, query, roomy)
        except NotFound:
            newer = self._served.instead_of(version)
            if newer == version:
                raise
        return self._page(newer, query, roomy)

    def watch(self, query: Mapping[str, str], *, read_timeout: float, whole: float) -> Events:
        """See ``Source``: in the version of the last list, to which the resource version belongs."""
        self._version = self._version or self._served.version()
        asked, fields = {**self._query, **query}, with_initial_end(self._fields)
        return self._client.stream(
            self._at(self._version), asked, read_timeout=read_timeout, whole=whole, fields=fields
        )

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
        raise BadAnswer("GET", path, 200, "", one_line(f"the answer is not a {kind} ({error})", 400)) from error


GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Versions with writable slices and claims, newest first."""
NEEDED: Final = ("resourceslices", "resourceclaims")
FIX: Final = (
    "dynamic resource allocation (DRA) is on since Kubernetes 1.34; 1.32 and 1.33 have it with the feature gate "
    "DynamicResourceAllocation and --runtime-config=resource.k8s.io/v1beta1=true"
)


class ServedVersion:
    """The version in use; ``server``: its URL, for people. ``assumed``: until it seems to be gone; empty for none."""

    def __init__(self, client: ObjectGetter, server: str, assumed: str = "") -> None:
        self._client = client
        self._server = server
        self._lock = threading.Lock()
        self._version = assumed
        self._look: Future[str] | None = None

    def version(self) -> str:
        """Such as ``v1``. Raises ``NotServed``, ``RequestError`` and ``ConfigurationError``."""
        with self._lock:
            if self._version:
                return self._version
            look, mine = self._look, False
            if look is None:
                look = self._look = Future()
                mine = True
        if mine:
            self._decide(look)
        return look.result()

    def instead_of(self, version: str) -> str:
        """The version to use if ``version`` seems to be gone, which may be the same again."""
        with self._lock:
            if self._version == version:
                self._version = ""
        return self.version()

    def _decide(self, look: Future[str]) -> None:
        try:
            version = self._found()
        except BaseException as error:  # noqa: BLE001 - all who wait for this look get it
            with self._lock:
                self._look = None
            look.set_exception(error)
        else:
            with self._lock:
                self._version, self._look = version, None
            look.set_result(version)

    def _found(self) -> str:
        try:
            known = served(self._client, GROUP, VERSIONS, NEEDED)
        except Forbidden:
            # Every account may use discovery by default, but not always; the requests themselves will tell.
            return VERSIONS[0]
        for version, plurals in known.found.items():
            if plurals.issuperset(NEEDED):
                return version
        raise NotServed(self._server, GROUP, f"{' and '.join(NEEDED)} in {', '.join(VERSIONS)}", FIX)
