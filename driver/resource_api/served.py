"""Which version of resource.k8s.io is spoken with an API server: one decision for all callers and threads.

It is made by discovery when it is first needed. Whoever meets a sign that the version is gone (an upgrade took it)
says which one it used: the first to do so has it looked for again, all others get the new one. Callers that come while
it is looked for wait for that one look, and share its failure.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Final

from kube.discovery import Reads, served
from kube.errors import Forbidden, NotServed

GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Those with slices and claims that can be written, newest first."""
NEEDED: Final = ("resourceslices", "resourceclaims")
FIX: Final = (
    "dynamic resource allocation (DRA) is on since Kubernetes 1.34; 1.32 and 1.33 have it with the feature gate "
    "DynamicResourceAllocation and --runtime-config=resource.k8s.io/v1beta1=true"
)


class Served:
    """The version in use; ``server``: its URL, for people."""

    def __init__(self, client: Reads, server: str) -> None:
        self._client = client
        self._server = server
        self._lock = threading.Lock()
        self._version = ""
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
        """The version to use where ``version`` seems to be gone, which may be the same again."""
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
            # Discovery is open to all who are known, but can be taken away; the requests themselves will tell.
            return VERSIONS[0]
        for version, plurals in known.found.items():
            if plurals.issuperset(NEEDED):
                return version
        raise NotServed(self._server, GROUP, f"{' and '.join(NEEDED)} in {', '.join(VERSIONS)}", FIX)
