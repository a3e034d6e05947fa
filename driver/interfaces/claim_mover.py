"""Moves the interfaces of a claim in a worker thread and takes them back, counts it, and reports it.

``ClaimInterfaces`` decides which interfaces move. This module keeps those that are out, and why one is not where it
should be.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from driver.claims.contracts import InterfaceReporter
from driver.claims.model import ClaimReference
from driver.claims.record import ClaimRecord
from driver.interfaces.journal import ClaimMove
from driver.interfaces.lost import LostInterfaces
from driver.interfaces.moving import InterfaceMissing, InterfaceMoves, MoveFailed
from driver.interfaces.observers import InterfaceObserver, PodLinks
from driver.metadata.model import ClaimMetadata
from driver.nri.sandboxes import Sandbox
from node.clocks import Clocks
from node.events import EventRecorder, EventType
from node.interfaces.model import InterfaceError, MovableInterface
from node.ledger.ledger import Ledger
from node.values import Value, replace, value

log = logging.getLogger("ostler.interfaces")


@value
class InterfacePace(Value):
    """Times in seconds.

    ``deadline``: for an answer to the runtime, which drops a plugin after 2 s; ``reading``: the part of it for the
    kubelet's record, at most. ``missing``: until an interface that is nowhere counts as lost, and ``look`` between two
    looks for it. ``first_pause`` and ``longest_pause``: before what failed is tried again, doubling.
    """

    deadline: float = 1.3
    reading: float = 0.5
    missing: float = 10.0
    look: float = 0.1
    first_pause: float = 0.5
    longest_pause: float = 30.0


PACE = InterfacePace()


class ClaimMover:
    """Works for one call per claim at a time; for the event loop only.

    ``out``: by the claim's UID, what the journal has. ``problems``: why the interfaces of a claim are not where they
    should be. ``lost``: interfaces that did not come back. ``reporter`` gets interfaces before their guard lets
    containers start.
    """

    def __init__(
        self,
        work: InterfaceMoves,
        ledger: Ledger,
        *,
        events: EventRecorder,
        reporter: InterfaceReporter,
        clocks: Clocks,
        links: PodLinks | None,
        observer: InterfaceObserver,
        pace: InterfacePace,
    ) -> None:
        self.work = work
        self.out: dict[str, ClaimMove] = {}
        self.problems: dict[str, str] = {}
        self._missing: dict[str, float] = {}
        """Since when interfaces of a claim are nowhere, in monotonic seconds."""
        self._events = events
        self._reporter = reporter
        self._monotonic = clocks.monotonic
        self._links = links
        self._observer = observer
        self._pace = pace
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="interfaces")
        self._is_warm = False
        self.lost = LostInterfaces(work, ledger, self.in_thread, events=events, observer=observer, clocks=clocks)

    async def in_thread(self, work: Any, *arguments: object) -> Any:
        """Run blocking work in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def warm(self) -> None:
        """Prepare the first move, once. If that fails, the move itself reports why."""
        if not self._is_warm:
            self._is_warm = True
            with suppress(RuntimeError):  # The agent is stopping.
                self._threads.submit(self.work.warm)

    async def close(self) -> None:
        """End the threads once they have finished their work."""
        await asyncio.to_thread(self._threads.shutdown)

    async def bring_in(self, record: ClaimRecord, sandbox: Sandbox, begun: ClaimMove | None) -> None:
        """Move the claim's interfaces, then let its containers start; raises MoveFailed. Call it with the claim locked.

        ``begun``: the move that is on record, perhaps completed. All that a pod waits for happens in one worker thread:
        on a busy node each change of threads costs as much as the rest of what is done here.
        """
        began = self._monotonic()
        try:
            if begun is None:
                await self._await_lost(record)
            move, undescribed = await self.in_thread(self._bring_in, record, sandbox, begun)
        except MoveFailed as error:
            self._observer.moved("failed", self._monotonic() - began)
            self._failed(record.claim, sandbox, error)
            raise
        if begun is None or not begun.attached:
            seconds = self._monotonic() - began
            self._observer.moved("ok", seconds)
            names = [each.name for each in move.attached]
            shown = {"claim": str(record.claim), "pod": sandbox.pod, "interfaces": names, "seconds": round(seconds, 3)}
            log.info("the interfaces of a claim are in its pod", extra=shown)
        self.out[record.claim.uid] = move
        self._report_moved(move, undescribed)
        self.settle(move.claim.uid)

    async def _await_lost(self, record: ClaimRecord) -> None:
        """Restore lost interfaces of the claim that are back; raises MoveFailed if one is not.

        Such an interface still has the settings that its last pod gave it.
        """
        devices = [each.device for each in interfaces_of(record) if each.device in self.lost]
        if devices:
            await self.lost.look(devices)
        problems = list(filter(None, map(self.lost.problem, devices)))
        if problems:
            raise MoveFailed(f"claim {record.claim}: {'; '.join(problems)}", None)

    def _bring_in(self, record: ClaimRecord, sandbox: Sandbox, begun: ClaimMove | None) -> tuple[ClaimMove, str]:
        """The move, and why the containers' metadata files lack the interfaces; blocking. Raises MoveFailed."""
        if begun is not None and begun.attached:
            move = begun
        else:
            move = self.work.move(record.claim, sandbox, interfaces_of(record), begun)
        undescribed = self._reporter.describe(move.claim, move.attached, record.metadata)
        self.work.guard(move)
        return move, undescribed

    async def report_moved(self, move: ClaimMove, metadata: ClaimMetadata | None) -> None:
        """Report interfaces that an earlier process moved; ``metadata``: of the claim's record."""
        undescribed = await self.in_thread(self._reporter.describe, move.claim, move.attached, metadata)
        self._report_moved(move, undescribed)

    def _report_moved(self, move: ClaimMove, undescribed: str) -> None:
        self._reporter.attached(move.claim, move.attached, undescribed)
        if self._links is not None:
            for each in move.attached:
                self._links.watch(each.device, Path(move.sandbox.netns))

    def _report_not_moved(self, claim: ClaimReference, devices: Iterable[str], problem: str = "") -> None:
        self._reporter.detached(claim, problem)
        if self._links is not None:
            for device in devices:
                self._links.forget(device)

    def _failed(self, claim: ClaimReference, sandbox: Sandbox, error: MoveFailed) -> None:
        """Note and report a move that failed and was undone, as far as that was possible."""
        before = self.out.pop(claim.uid, None)
        if error.left is not None:
            self.out[claim.uid] = replace(error.left, attached=())
        if self._is_new(claim.uid, str(error)):
            self.warn("InterfaceNotMoved", f"pod {sandbox.pod}: {error}")
        self._report_not_moved(claim, before.devices if before is not None else (), str(error))

    async def take_back(self, move: ClaimMove) -> None:
        """Take the claim's interfaces back; raises InterfaceError. Call it with the claim locked."""
        uid, began = move.claim.uid, self._monotonic()
        # Until it is over, nobody knows what is still in the pod.
        self.out[uid] = replace(move, attached=())
        try:
            renamed = await self.in_thread(self.work.take_back, move)
        except InterfaceMissing as error:
            if began - self._missing.setdefault(uid, began) < self._pace.missing:
                self.problems[uid] = str(error)
                raise
            try:
                await self.lost.keep(move, error.missing)
            except InterfaceError as unkept:
                self.problems[uid] = str(unkept)
                raise
            self._observer.lost(len(error.missing))
            await self.in_thread(self.work.forget, move)
        except InterfaceError as error:
            self._observer.returned("failed", self._monotonic() - began)
            if self._is_new(uid, str(error)):
                self.warn("InterfaceNotReturned", f"claim {move.claim}, pod {move.sandbox.pod}: {error}")
            raise
        else:
            self._observer.returned("ok", self._monotonic() - began)
            for each in renamed:
                self.warn("InterfaceRenamed", f"claim {move.claim}, pod {move.sandbox.pod}: {each}; rename one of them")
            log.info("the interfaces of a claim are back", extra={"claim": str(move.claim), "pod": move.sandbox.pod})
        self.out.pop(uid, None)
        self.settle(uid)
        self._report_not_moved(move.claim, move.devices)

    async def bring_home(self, move: ClaimMove) -> None:
        """Take the claim's interfaces back, and wait for those that a vanished namespace has yet to give back."""
        while True:
            try:
                return await self.take_back(move)
            except InterfaceMissing:
                await asyncio.sleep(self._pace.look)

    def settle(self, uid: str) -> None:
        """Forget the claim's problem."""
        self.problems.pop(uid, None)
        self._missing.pop(uid, None)

    def _is_new(self, uid: str, problem: str) -> bool:
        """Keep the claim's problem for people; whether it differs from the one before."""
        before, self.problems[uid] = self.problems.get(uid), problem
        return before != problem

    def warn(self, reason: str, message: str) -> None:
        """Log a warning and post it as an event."""
        log.warning(message, extra={"reason": reason})
        self._events.emit(EventType.WARNING, reason, message)


def interfaces_of(record: ClaimRecord) -> tuple[MovableInterface, ...]:
    """The interfaces that move into the claim's pod."""
    return tuple(each.interface for each in record.devices if each.interface is not None)
