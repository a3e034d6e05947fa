"""Moves the interfaces of each claim in and back, one piece of work at a time, and tries again what failed.

Work on a claim runs in a worker thread and is never abandoned half-way. What fails when there is no sandbox to refuse
(it ran already when the runtime connected, or an interface does not come back) is tried again until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging

from driver.claims.locks import ClaimLocks
from driver.claims.model import ClaimReference, Unavailable
from driver.claims.record import ClaimRecord
from driver.interfaces.claim_mover import ClaimMover, InterfacePace, interfaces_of
from driver.interfaces.journal import ClaimMove
from driver.interfaces.moving import MoveFailed, namespace_of
from driver.nri.sandboxes import Sandbox, SandboxRefused
from node.files import FileError
from node.interfaces.model import InterfaceError
from node.tasks import LastingTasks

log = logging.getLogger("ostler.interfaces")

_MOST_ENDED = 4096
"""Ended sandboxes to remember, in which nothing may move any more."""


class RetriedMoves:
    """For the event loop only.

    ``records``: prepared claims with interfaces, by UID. ``due``: claims to be tried again: into this sandbox, or back
    to the node for None. ``tasks`` go on when the runtime does not wait for them any more.
    """

    def __init__(self, mover: ClaimMover, pace: InterfacePace) -> None:
        self._mover = mover
        self._pace = pace
        self.records: dict[str, ClaimRecord] = {}
        self.due: dict[str, Sandbox | None] = {}
        self._ended: dict[str, None] = {}
        """IDs of sandboxes that have ended or were refused."""
        self._woken = asyncio.Event()
        self.locks = ClaimLocks()
        self.tasks = LastingTasks(InterfaceError, SandboxRefused, FileError)

    def expect(self, record: ClaimRecord) -> None:
        """Move the interfaces of this prepared claim, if it has any, when its pod's sandbox starts."""
        if interfaces_of(record):
            self._mover.warm()
            self.records[record.claim.uid] = record
        else:
            self.records.pop(record.claim.uid, None)

    async def release(self, claim: ClaimReference) -> None:
        """Take back what is still out for a claim that is released; raises Unavailable if that fails.

        An interface that nobody has after a while counts as lost. It does not keep the claim from being released, but
        its device stays held.
        """
        async with self.locks.of(claim.uid):
            self.due.pop(claim.uid, None)
            move = self._mover.out.get(claim.uid)
            if move is not None:
                try:
                    await self._mover.bring_home(move)
                except InterfaceError as error:
                    kept = "it keeps its devices until they are back, and the kubelet asks again"
                    raise Unavailable(f"claim {claim}: {error}; {kept}") from error
                self.settled(claim.uid)
            self.records.pop(claim.uid, None)

    async def run(self) -> None:
        """Try again what has failed, until cancelled."""
        pause = self._pace.first_pause
        while True:
            await self._woken.wait()
            await asyncio.sleep(pause)
            await self.retry()
            pause = min(2 * pause, self._pace.longest_pause) if self.due else self._pace.first_pause
            if not self.due:
                self._woken.clear()

    async def retry(self) -> None:
        """Try once, now, what has failed."""
        due = list(self.due.items())
        tasks = [
            self.tasks.begin(
                self.take_back(uid) if sandbox is None else self.arrive(uid, sandbox, again=True),
                f"interfaces of claim {uid}",
            )
            for uid, sandbox in due
        ]
        # What is expected of them is noted where it is raised, and LastingTasks logs the rest.
        await asyncio.gather(*tasks, return_exceptions=True)

    async def attach(self, uid: str, sandbox: Sandbox, *, again: bool = False) -> None:
        """Move the claim's interfaces into the sandbox; raises InterfaceError, or SandboxRefused.

        ``again``: only if that is still due; the pod may have got a new sandbox meanwhile.
        """
        async with self.locks.of(uid):
            if again and self.due.get(uid) != sandbox:
                return
            record, before = self.records.get(uid), self._mover.out.get(uid)
            if record is None:
                raise SandboxRefused(f"claim {uid} of pod {sandbox.pod} was released; the kubelet prepares it again")
            if sandbox.id in self._ended:
                raise SandboxRefused(f"the sandbox of pod {sandbox.pod} has ended")
            if before is not None and before.sandbox.id != sandbox.id:
                if before.sandbox.uid != sandbox.uid and namespace_of(before.sandbox) is not None:
                    raise SandboxRefused(_in_other_pod(record, before, sandbox))
                await self._mover.bring_home(before)
                before = None
            try:
                await self._mover.bring_in(record, sandbox, before)
            except MoveFailed:
                if uid in self._mover.out:
                    self.again(uid, None)
                raise
            self.settled(uid)

    async def take_back(self, uid: str, sandbox_id: str = "") -> None:
        """Take back what is in the sandbox, and try again later if that fails; raises InterfaceError.

        Without a sandbox: whatever is out, if that is still due.
        """
        async with self.locks.of(uid):
            move, is_due = self._mover.out.get(uid), uid in self.due and self.due[uid] is None
            if move is None:
                if is_due:
                    self.settled(uid)
                return
            if move.sandbox.id != sandbox_id if sandbox_id else not is_due:
                return
            try:
                await self._mover.take_back(move)
            except InterfaceError:
                self.again(uid, None)
                raise
            self.settled(uid)

    async def arrive(self, uid: str, sandbox: Sandbox, *, again: bool = False) -> None:
        """Move the claim's interfaces into a sandbox that lives already, and try again later if that fails."""
        try:
            await self.attach(uid, sandbox, again=again)
        except SandboxRefused as error:
            if self.due.get(uid) == sandbox:
                del self.due[uid]
            log.info("interfaces are not moved", extra={"pod": sandbox.pod, "reason": str(error)})
        except (InterfaceError, FileError) as error:
            self._mover.problems.setdefault(uid, str(error))
            if sandbox.id not in self._ended and namespace_of(sandbox) is not None:
                self.again(uid, sandbox)
            elif uid not in self._mover.out:
                self.settled(uid)

    def expect_in(self, uid: str, sandbox: Sandbox) -> None:
        """Note that the claim's interfaces belong in this sandbox, which runs already."""
        self.due[uid] = sandbox

    def again(self, uid: str, sandbox: Sandbox | None) -> None:
        """Try again soon: into this sandbox, or back to the node for None."""
        self.due[uid] = sandbox
        self._woken.set()

    def settled(self, uid: str) -> None:
        """Forget what was due for the claim, and why."""
        self.due.pop(uid, None)
        self._mover.settle(uid)

    def end(self, sandbox: Sandbox) -> None:
        """Let nothing more move into this sandbox."""
        self._ended[sandbox.id] = None
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]


def _in_other_pod(record: ClaimRecord, move: ClaimMove, sandbox: Sandbox) -> str:
    return (
        f"the network interface of device {move.devices[0]} of claim {record.claim} is in pod {move.sandbox.pod}; pod "
        f"{sandbox.pod} gets it when that pod has ended; give each pod a claim of its own by a ResourceClaimTemplate"
    )
