"""Reports where the interfaces of claims are: to the containers by metadata files, to everybody by the claims' status.

The files come first, because the runtime creates containers as soon as ``attached`` returns.
"""

from __future__ import annotations

import asyncio
import logging

from driver.claims.claim_status import ClaimStatusWriter
from driver.claims.interfaces import ClaimObserver
from driver.claims.model import ClaimReference, Unavailable
from driver.metadata.content import networks_of
from driver.metadata.files import MetadataFiles
from driver.metadata.model import ClaimMetadata
from node.events import EventSink, EventType
from node.interfaces.model import AttachedInterface

log = logging.getLogger("ostler.claims")


class InterfaceReports:
    """An ``InterfaceReporter``; for the event loop only."""

    def __init__(
        self, files: MetadataFiles, status: ClaimStatusWriter, *, events: EventSink, observer: ClaimObserver
    ) -> None:
        self._files = files
        self._status = status
        self._events = events
        self._observer = observer

    async def attached(
        self, claim: ClaimReference, interfaces: tuple[AttachedInterface, ...], metadata: ClaimMetadata | None
    ) -> None:
        """See ``InterfaceReporter``."""
        if metadata is not None and metadata.concern({interface.device for interface in interfaces}):
            try:
                await asyncio.to_thread(self._files.set_networks, claim, metadata, networks_of(interfaces))
            except Unavailable as error:
                self._observer.metadata_failed()
                text = f"metadata files of claim {claim}: they lack the interfaces in the pod: {error}"
                log.warning(text, extra={"reason": "ClaimMetadataFailed"})
                self._events.emit(EventType.WARNING, "ClaimMetadataFailed", text)
        self._status.attached(claim, interfaces)

    async def detached(self, claim: ClaimReference, problem: str = "") -> None:
        """See ``InterfaceReporter``."""
        self._status.detached(claim, problem)
