"""``ResourceClaim.status.devices``: what a claim's user may want to know of its NICs, and of refused parameters.

Written after the kubelet was answered, never failing a preparation: one entry for each NIC that was prepared, beside
those of other drivers, which stay. The network interface is not moved into the pod, and the entry says so: condition
``NetworkReady`` is false, and ``networkData`` has no name of an interface in the pod, because there is none.

A claim whose parameters are refused gets the condition ``Ready`` false with the reason ``ParametersRefused`` at each of
its devices, and true once it is prepared after all.

Every write begins with the claim as it is: one that is gone, is another of the same name, or has lost its allocation,
is left alone; a conflict begins anew; what is already there is not written. Nor is a claim that nests as deep as is
read: what is deeper was left out, and would be lost with the write. The API server drops the entries with the
allocation, so nothing is taken back at a release.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from driver.claims.device_status import merged, nic_entries, ready_entries
from driver.claims.errors import Unavailable
from driver.claims.model import ClaimReference, PreparedDevice
from driver.devices.offered import DoorView
from kube.bodies import JsonObject, is_deeper, object_at, text_at
from kube.errors import Forbidden, Invalid, NotFound, WriteConflict
from kube.json_stream import DEPTH
from node.events import EventSink, EventType

log = logging.getLogger("ostler.driver")

Entries = Callable[[JsonObject], tuple[JsonObject, ...]]
"""What to enter into a claim, as it is when it is written."""
MOST_REFUSED = 256
"""Refused claims that are remembered; the oldest go first."""

AT_ONCE = 4
"""Claims whose status is written at a time: preparation has the API server's first attention."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 60.0
"""Seconds between attempts at one claim, growing."""
ATTEMPTS = 20
"""Attempts at one claim, some ten minutes of them; its status is not worth more."""


class StatusApi(Protocol):
    """The API server, as ``driver.resource_api.async_client.AsyncResourceApi`` asks it."""

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        """The claim as v1, None when there is none; raises ``Unavailable``."""
        ...

    async def replace_claim_status(self, claim: JsonObject) -> JsonObject:
        """What the server made of it.

        Raises ``kube.errors`` WriteConflict, NotFound, Invalid and Forbidden, and ``Unavailable`` for everything else.
        """
        ...


class ClaimStatus:
    """Writes what ``prepared`` told, while ``run`` runs: a ``Reporter`` of the door; for the event loop alone.

    ``clock``: Unix seconds. ``random``: numbers in [0, 1), for jitter.
    """

    def __init__(
        self,
        driver_name: str,
        api: StatusApi,
        *,
        events: EventSink,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.problem = ""
        """Why the last claim's status could not be written; empty when it could."""
        self._driver_name = driver_name
        self._api = api
        self._events = events
        self._clock = clock
        self._random = random
        self._view: DoorView | None = None
        self._wanted: dict[str, tuple[ClaimReference, tuple[PreparedDevice, ...] | str]] = {}
        self._refused: dict[str, None] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._woken = asyncio.Event()

    @property
    def pending(self) -> int:
        """How many claims are still to be written."""
        return len(self._wanted) + len(self._writing)

    def apply(self, view: DoorView) -> None:
        """Know the devices."""
        self._view = view
        self._woken.set()

    def prepared(self, claim: ClaimReference, devices: tuple[PreparedDevice, ...]) -> None:
        """Write the claim's status; also for claims that an earlier process prepared."""
        self._wanted[claim.uid] = (claim, devices)
        self._woken.set()

    def refused(self, claim: ClaimReference, problem: str) -> None:
        """Write that the claim's parameters are refused, and why."""
        self._wanted[claim.uid] = (claim, problem)
        self._refused[claim.uid] = None
        if len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._woken.set()

    def released(self, claim: ClaimReference) -> None:
        """Nothing more is to be said of the claim."""
        self._refused.pop(claim.uid, None)
        self._wanted.pop(claim.uid, None)
        writing = self._writing.pop(claim.uid, None)
        if writing is not None:
            writing.cancel()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                if self._view is not None:
                    for uid in [uid for uid in self._wanted if uid not in self._writing]:
                        claim, said = self._wanted.pop(uid)
                        entries = self._entries(claim, said, self._view)
                        if entries is not None:
                            self._begin(group, claim, entries)
                await self._woken.wait()

    def _entries(self, claim: ClaimReference, said: tuple[PreparedDevice, ...] | str, view: DoorView) -> Entries | None:
        """What is to be entered; None for nothing."""
        name = self._driver_name
        if isinstance(said, str):
            return lambda found: ready_entries(name, found, said)
        nics = nic_entries(name, said, view)
        if claim.uid in self._refused:
            del self._refused[claim.uid]
            return lambda found: (*ready_entries(name, found), *nics)
        return (lambda _: nics) if nics else None

    def _begin(self, group: asyncio.TaskGroup, claim: ClaimReference, entries: Entries) -> None:
        task = self._writing[claim.uid] = group.create_task(self._write(claim, entries), name=f"status of {claim}")

        def ended(_: asyncio.Task[None]) -> None:
            if self._writing.get(claim.uid) is task:
                del self._writing[claim.uid]
            self._woken.set()

        task.add_done_callback(ended)

    async def _write(self, claim: ClaimReference, entries: Entries) -> None:
        delay = FIRST_DELAY
        for _ in range(ATTEMPTS):
            try:
                async with self._slots:
                    await self._attempt(claim, entries)
            except WriteConflict:
                # Somebody else wrote in between: the next attempt reads anew.
                pass
            except Unavailable as error:
                self._tell(claim, str(error), event=False)
            except Forbidden as error:
                self._tell(claim, self._right(error.message), event=True)
                return
            except Invalid as error:
                lacks_driver_right = "resourceclaims/driver" in error.message
                self._tell(claim, self._right(error.message) if lacks_driver_right else str(error), event=True)
                return
            except NotFound:
                return
            else:
                return
            await asyncio.sleep(delay * (1 + self._random()) / 2)
            delay = min(2 * delay, LONGEST_DELAY)
        log.warning("the claim's status is given up", extra={"claim": str(claim), "reason": self.problem})

    async def _attempt(self, claim: ClaimReference, entries: Entries) -> None:
        found = await self._api.claim(claim.namespace, claim.name)
        if found is None or text_at(found, "metadata", "uid") != claim.uid:
            return
        if is_deeper(found, DEPTH - 1):
            deep = f"claim {claim} nests deeper than {DEPTH - 1} levels, so its status is not written"
            self._tell(claim, f"{deep}; shorten its parameters", event=False)
            return
        changed = merged(found, self._driver_name, entries(found), self._clock())
        if changed is None:
            return
        kept = await self._api.replace_claim_status(changed)
        if not object_at(kept, "status").get("devices"):
            gate = "the API server keeps no status.devices; its feature gate DRAResourceClaimDeviceStatus is off"
            self._tell(claim, gate, event=False)
            return
        self.problem = ""
        log.debug("claim's status written", extra={"claim": str(claim)})

    def _right(self, message: str) -> str:
        return (
            f"the API server does not let us write status.devices of NICs' claims ({message}); give the agent's "
            "account the verbs update and patch on resourceclaims/status, and associated-node:update and "
            f"associated-node:patch on resourceclaims/driver (resourceNames: [{self._driver_name}]) of "
            "resource.k8s.io; claims work without it"
        )

    def _tell(self, claim: ClaimReference, problem: str, *, event: bool) -> None:
        """A line in the log, and an event where somebody has to do something; once for each text."""
        if problem == self.problem:
            return
        self.problem = problem
        log.warning("the claim's status cannot be written", extra={"claim": str(claim), "reason": problem})
        if event:
            self._events.emit(EventType.WARNING, "ClaimStatusRefused", problem)
