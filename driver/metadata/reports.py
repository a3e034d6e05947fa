"""Reports where the interfaces of claims are: to the containers by metadata files, to everybody by the claims' status.

The files come first, because the runtime creates containers as soon as ``attached`` returns.
"""

from __future__ import annotations

from driver.claims.claim_status import ClaimStatusWriter
from driver.claims.model import ClaimReference
from driver.claims.service import ClaimService
from node.interfaces.model import AttachedInterface


class InterfaceReports:
    """An ``InterfaceReporter``; for the event loop only."""

    def __init__(self, claims: ClaimService, status: ClaimStatusWriter) -> None:
        self._claims = claims
        self._status = status

    async def attached(self, claim: ClaimReference, interfaces: tuple[AttachedInterface, ...]) -> None:
        """See ``InterfaceReporter``."""
        await self._claims.set_interfaces(claim.uid, interfaces)
        self._status.attached(claim, interfaces)

    async def detached(self, claim: ClaimReference, problem: str = "") -> None:
        """See ``InterfaceReporter``."""
        self._status.detached(claim, problem)
