"""Writes ``ResourceClaim.status.devices``: facts about a claim's NICs, and why its parameters were refused.

It writes after the kubelet has its answer and never fails a preparation. Each prepared NIC gets one entry
(``driver.claims.status_entries``); entries of other drivers stay. Where an interface is, ``attached`` and ``detached``
say; after a restart the writer does not know until then. A claim whose interface moves is written a moment after its
first report (``SETTLING``): more follow while its pod starts, and one write after the start serves all of them.

Every write begins by reading the claim. A claim that is gone, has been replaced by another of the same name, or has
lost its allocation is left alone; after a conflict the write starts again; an entry that is already there is not
written. A claim that is nested deeper than the reader goes is not written either: the write would lose the part that
was not read. The API server drops the entries together with the allocation, so a release removes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from driver.claims.model import ClaimReference, PreparedDevice, Unavailable
from driver.claims.status_entries import (
    PARAMETERS_REFUSED,
    UNREPORTED,
    ClaimReport,
    InterfacesReport,
    merged,
    nic_entries,
)
from driver.devices.view import DoorView
from kube.bodies import JsonObject, is_deeper, object_at, text_at
from kube.errors import Forbidden, Invalid, NotFound, WriteConflict
from kube.json_stream import DEPTH
from node.clocks import SYSTEM, Clocks
from node.events import EventRecorder, EventType
from node.interfaces.model import AttachedInterface

log = logging.getLogger("ostler.driver")

MOST_REFUSED = 256
"""Refused claims to remember; the oldest are dropped first."""

AT_ONCE = 4
"""Status writes at a time: preparation takes precedence at the API server."""
SETTLING = 1.0
"""Seconds from the first report about a claim whose interface moves until it is written."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 60.0
"""Seconds between attempts at one claim, growing."""
ATTEMPTS = 20
"""Attempts at one claim, over about ten minutes; its status is not worth more."""


class StatusApi(Protocol):
    """The part of ``driver.resource_api.async_client.AsyncResourceApi`` that this module needs."""

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        """The claim as v1, None if there is none; raises ``Unavailable``."""

    async def replace_claim_status(self, claim: JsonObject) -> JsonObject:
        """Replace the claim's status and return the stored claim.

        Raises WriteConflict, NotFound, Invalid and Forbidden of ``kube.errors``, and ``Unavailable`` for everything
        else.
        """


class ClaimStatusWriter:
    """The door's ``ClaimReporter``: writes its reports while ``run`` runs; for the event loop only."""

    def __init__(
        self,
        driver_name: str,
        api: StatusApi,
        *,
        events: EventRecorder,
        clocks: Clocks = SYSTEM,
    ) -> None:
        self.problem = ""
        """Why the last status write failed; empty if it succeeded."""
        self._driver_name = driver_name
        self._api = api
        self._events = events
        self._clock = clocks.clock
        self._random = clocks.random
        self._view: DoorView | None = None
        self._wanted: dict[str, tuple[ClaimReference, tuple[PreparedDevice, ...] | ClaimReport]] = {}
        self._refused: dict[str, None] = {}
        self._moving: dict[str, tuple[ClaimReference, tuple[PreparedDevice, ...]]] = {}
        """Prepared claims with an interface that is moved."""
        self._due: dict[str, float] = {}
        """By the claim's UID, when it may be written, in the event loop's seconds; others may be now."""
        self._interfaces: dict[str, InterfacesReport] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._woken = asyncio.Event()

    @property
    def pending(self) -> int:
        """How many claims wait for a status write."""
        return len(self._wanted) + len(self._writing)

    def apply(self, view: DoorView) -> None:
        """Take the current devices, for the facts about NICs."""
        self._view = view
        self._woken.set()

    def prepared(self, claim: ClaimReference, devices: tuple[PreparedDevice, ...]) -> None:
        """Write the claim's status; also for claims that an earlier process prepared."""
        self._wanted[claim.uid] = (claim, devices)
        if any(device.interface for device in devices):
            self._moving[claim.uid] = (claim, devices)
            self._due.setdefault(claim.uid, asyncio.get_running_loop().time() + SETTLING)
        self._woken.set()

    def attached(self, claim: ClaimReference, interfaces: tuple[AttachedInterface, ...]) -> None:
        """Write that the interfaces are in the claim's pod; also for those that an earlier process moved."""
        self._set_interfaces(claim, InterfacesReport(interfaces))

    def detached(self, claim: ClaimReference, problem: str = "") -> None:
        """Write that no interface of the claim is in its pod; ``problem``: why it could not be moved, empty if it is
        back on the node or not moved yet.
        """
        if claim.uid in self._moving:  # Else it has been released, which takes the interfaces back.
            self._set_interfaces(claim, InterfacesReport(problem=problem))

    def refused(self, claim: ClaimReference, problem: str, reason: str = PARAMETERS_REFUSED) -> None:
        """Write that the claim is not ready, and why; ``reason`` is the condition's."""
        self._wanted[claim.uid] = (claim, ClaimReport(problem=problem, reason=reason))
        self._refused[claim.uid] = None
        if len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._woken.set()

    def released(self, claim: ClaimReference) -> None:
        """Stop writing the claim's status."""
        for known in (self._refused, self._moving, self._interfaces, self._due, self._wanted):
            known.pop(claim.uid, None)
        writing = self._writing.pop(claim.uid, None)
        if writing is not None:
            writing.cancel()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                until: float | None = None
                if self._view is not None:
                    for uid in self._writable():
                        claim, said = self._wanted.pop(uid)
                        self._due.pop(uid, None)
                        report = self._report(claim, said, self._view)
                        if report is not None:
                            self._begin(group, claim, report)
                    until = min(self._due.values(), default=None)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await self._woken.wait()

    def _writable(self) -> list[str]:
        """UIDs of the claims to be written now."""
        now = asyncio.get_running_loop().time()
        self._due = {uid: due for uid, due in self._due.items() if due > now}
        return [uid for uid in self._wanted if uid not in self._writing and uid not in self._due]

    def _set_interfaces(self, claim: ClaimReference, report: InterfacesReport) -> None:
        self._interfaces[claim.uid] = report
        if claim.uid in self._moving:
            self._wanted[claim.uid] = self._moving[claim.uid]
            self._due.setdefault(claim.uid, asyncio.get_running_loop().time() + SETTLING)
            self._woken.set()

    def _report(
        self, claim: ClaimReference, said: tuple[PreparedDevice, ...] | ClaimReport, view: DoorView
    ) -> ClaimReport | None:
        """The report to write; None if there is nothing to write."""
        if isinstance(said, ClaimReport):
            return said
        interfaces = self._interfaces.get(claim.uid, UNREPORTED)
        nics = nic_entries(self._driver_name, said, view, interfaces)
        moved = frozenset(device.device for device in said if device.interface)
        unconfirmed = frozenset() if interfaces.is_known else moved
        if claim.uid in self._refused:
            del self._refused[claim.uid]
            return ClaimReport(nics, problem="", unconfirmed=unconfirmed)
        return ClaimReport(nics, unconfirmed=unconfirmed) if nics else None

    def _begin(self, group: asyncio.TaskGroup, claim: ClaimReference, report: ClaimReport) -> None:
        task = self._writing[claim.uid] = group.create_task(self._write(claim, report), name=f"status of {claim}")

        def ended(_: asyncio.Task[None]) -> None:
            if self._writing.get(claim.uid) is task:
                del self._writing[claim.uid]
            self._woken.set()

        task.add_done_callback(ended)

    async def _write(self, claim: ClaimReference, report: ClaimReport) -> None:
        delay = FIRST_DELAY
        for _ in range(ATTEMPTS):
            try:
                async with self._slots:
                    await self._attempt(claim, report)
            except WriteConflict:
                # Somebody else wrote in between: the next attempt reads the claim again.
                pass
            except Unavailable as error:
                self._note(claim, str(error), event=False)
            except Forbidden as error:
                self._note(claim, self._right(error.message), event=True)
                return
            except Invalid as error:
                lacks_driver_right = "resourceclaims/driver" in error.message
                self._note(claim, self._right(error.message) if lacks_driver_right else str(error), event=True)
                return
            except NotFound:
                return
            else:
                return
            if claim.uid in self._wanted:
                return  # There is a newer report.
            await asyncio.sleep(delay * (1 + self._random()) / 2)
            delay = min(2 * delay, LONGEST_DELAY)
        log.warning("gave up writing the claim's status", extra={"claim": str(claim), "reason": self.problem})

    async def _attempt(self, claim: ClaimReference, report: ClaimReport) -> None:
        found = await self._api.claim(claim.namespace, claim.name)
        if found is None or text_at(found, "metadata", "uid") != claim.uid:
            self._moving.pop(claim.uid, None)
            self._interfaces.pop(claim.uid, None)
            return
        if is_deeper(found, DEPTH - 1):
            deep = f"claim {claim} nests deeper than {DEPTH - 1} levels, so its status is not written"
            self._note(claim, f"{deep}; shorten its parameters", event=False)
            return
        changed = merged(found, self._driver_name, report.entries(self._driver_name, found), self._clock())
        if changed is None:
            return
        kept = await self._api.replace_claim_status(changed)
        if not object_at(kept, "status").get("devices"):
            gate = "the API server does not keep status.devices: its feature gate DRAResourceClaimDeviceStatus is off"
            self._note(claim, gate, event=False)
            return
        self.problem = ""
        log.debug("claim's status written", extra={"claim": str(claim)})

    def _right(self, message: str) -> str:
        return (
            f"the API server does not let the agent write status.devices of NICs' claims ({message}); give the agent's "
            "account the verbs update and patch on resourceclaims/status, and associated-node:update and "
            f"associated-node:patch on resourceclaims/driver (resourceNames: [{self._driver_name}]) of "
            "resource.k8s.io; claims work without it"
        )

    def _note(self, claim: ClaimReference, problem: str, *, event: bool) -> None:
        """Log each problem once, and post an event if a person has to act."""
        if problem == self.problem:
            return
        self.problem = problem
        log.warning("cannot write the claim's status", extra={"claim": str(claim), "reason": problem})
        if event:
            self._events.emit(EventType.WARNING, "ClaimStatusRefused", problem)
