"""Reports where the interfaces of claims are: to the containers by metadata files, to everybody by the claims' status.

The files come first, because containers read them as soon as they start; the status can follow.
"""

from __future__ import annotations

import logging

from driver.claims.claim_status import ClaimStatusWriter
from driver.claims.contracts import ClaimObserver
from driver.claims.model import ClaimReference, Unavailable
from driver.metadata.content import networks_of
from driver.metadata.files import MetadataFiles
from driver.metadata.model import ClaimMetadata
from node.events import EventRecorder, EventType
from node.interfaces.model import AttachedInterface

log = logging.getLogger("ostler.claims")


class InterfaceReports:
    """An ``InterfaceReporter``; for the event loop only, but for ``describe``."""

    def __init__(
        self, files: MetadataFiles, status: ClaimStatusWriter, *, events: EventRecorder, observer: ClaimObserver
    ) -> None:
        self._files = files
        self._status = status
        self._events = events
        self._observer = observer

    def describe(
        self, claim: ClaimReference, interfaces: tuple[AttachedInterface, ...], metadata: ClaimMetadata | None
    ) -> str:
        """See ``InterfaceReporter``."""
        if metadata is not None and metadata.concern({interface.device for interface in interfaces}):
            try:
                self._files.set_networks(claim, metadata, networks_of(interfaces))
            except Unavailable as error:
                return f"metadata files of claim {claim}: they lack the interfaces in the pod: {error}"
        return ""

    def attached(self, claim: ClaimReference, interfaces: tuple[AttachedInterface, ...], undescribed: str = "") -> None:
        """See ``InterfaceReporter``."""
        if undescribed:
            self._observer.metadata_failed()
            log.warning(undescribed, extra={"reason": "ClaimMetadataFailed"})
            self._events.emit(EventType.WARNING, "ClaimMetadataFailed", undescribed)
        self._status.attached(claim, interfaces)

    def detached(self, claim: ClaimReference, problem: str = "") -> None:
        """See ``InterfaceReporter``."""
        self._status.detached(claim, problem)
