"""The network interfaces of claims, from the start of their pods' sandboxes to their end.

The runtime reports sandboxes (``PodSandboxes``), the claim service prepares and releases claims. Invariants: the
interfaces of a claim are all in one sandbox, or on the node, or on record on their way; a container of the claim starts
only while all are in its pod (``driver.interfaces.guard``); a released claim has its interfaces back on the node, so
its devices are free only then.

Work on a claim runs in a worker thread, one piece at a time, and is never abandoned half-way. If interfaces take longer
than the runtime waits for a plugin, the sandbox may live on: the work continues, and the guard keeps the containers of
the claim from starting before it is done. What fails when there is no sandbox to refuse (it ran already when the
runtime connected, or an interface does not come back) is tried again until it succeeds.

The journal is believed about what has moved, the runtime's list about which sandboxes there are. A namespace that
vanishes gives physical interfaces back to the node a moment later; one that does not come back is lost, and restored
whenever it appears (``driver.interfaces.lost``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from driver.claims.interfaces import InterfaceReporter, MovedInterfaces
from driver.claims.kubelet import read_kubelet_claims
from driver.claims.locks import ClaimLocks
from driver.claims.model import ClaimError, ClaimReference, Unavailable
from driver.claims.record import ClaimRecord
from driver.interfaces.claim_mover import PACE, ClaimMover, InterfacePace, interfaces_of
from driver.interfaces.journal import ClaimMove
from driver.interfaces.moving import InterfaceMoves, MoveFailed, namespace_of
from driver.interfaces.observers import InterfaceObserver, InterfacePlace, PodLinks
from driver.nri.sandboxes import Sandbox, SandboxRefused
from driver.tasks import LastingTasks
from node.clocks import Clocks
from node.events import EventSink
from node.files import FileError
from node.interfaces.model import InterfaceError
from node.ledger.ledger import Ledger

log = logging.getLogger("ostler.interfaces")

_MOST_ENDED = 4096
"""Ended sandboxes to remember, in which nothing may move any more."""


class ClaimInterfaces(MovedInterfaces):
    """``PodSandboxes`` for claims with interfaces; for the event loop only.

    ``kubelet_root``: has the kubelet's record of claims. ``reporter`` hears of interfaces before their guard lets
    containers start. The devices of lost interfaces are held in ``ledger``.
    ``on_host_network``: which of the pods with these UIDs is known to use the node's network, empty for none.
    """

    def __init__(
        self,
        moves: InterfaceMoves,
        kubelet_root: Path,
        ledger: Ledger,
        *,
        events: EventSink,
        reporter: InterfaceReporter,
        clocks: Clocks,
        on_host_network: Callable[[Collection[str]], str] = lambda _: "",
        links: PodLinks | None = None,
        observer: InterfaceObserver | None = None,
        pace: InterfacePace = PACE,
    ) -> None:
        self._kubelet_root = kubelet_root
        self._on_host_network = on_host_network
        self._pace = pace
        self._monotonic = clocks.monotonic
        self._mover = ClaimMover(
            moves,
            ledger,
            events=events,
            reporter=reporter,
            clocks=clocks,
            links=links,
            observer=observer or InterfaceObserver(),
            pace=pace,
        )
        self._records: dict[str, ClaimRecord] = {}
        """Prepared claims with interfaces, by UID."""
        self._damaged: dict[str, str] = {}
        """Claims whose journal was damaged, with why, until the runtime has said which sandboxes there are."""
        self._ended: dict[str, None] = {}
        """IDs of sandboxes that have ended or were refused."""
        self._due: dict[str, Sandbox | None] = {}
        """Claims to be tried again: into this sandbox, or back to the node for None."""
        self._woken = asyncio.Event()
        self._locks = ClaimLocks()
        self._tasks = LastingTasks()

    def check(self, record: ClaimRecord) -> None:
        """See ``MovedInterfaces``. A pod that is not known yet is judged when its sandbox starts."""
        pod = self._on_host_network(record.users) if interfaces_of(record) else ""
        if pod:
            raise ClaimError(_on_host_network(pod, record))

    def expect(self, record: ClaimRecord) -> None:
        """Move the interfaces of this prepared claim, if it has any, when its pod's sandbox starts."""
        if interfaces_of(record):
            self._mover.warm()
            self._records[record.claim.uid] = record
        else:
            self._records.pop(record.claim.uid, None)

    @property
    def is_needed(self) -> bool:
        """Whether there is a claim with interfaces."""
        return bool(self._records or self._mover.out)

    def is_out(self, uid: str) -> bool:
        """Whether an interface of the claim is in a pod, or on its way."""
        return uid in self._mover.out

    def leftovers(self, owners: Collection[str]) -> tuple[str, ...]:
        """UIDs of claims that are out without a record, which must be taken back."""
        return tuple(sorted(self._mover.out.keys() - set(owners)))

    def places(self) -> Mapping[str, InterfacePlace]:
        """Where the interfaces are, by device; without those that are on the node and should be."""
        found = dict(self._mover.lost.places())
        for uid, move in self._mover.out.items():
            problem = self._mover.problems.get(uid, "" if move.attached else "it is being moved")
            names = [each.name for each in move.attached] or [each.interface.interface for each in move.moves]
            for device, name in zip(move.devices, names, strict=True):
                found[device] = InterfacePlace(move.sandbox.pod, name, problem)
        for uid, sandbox in self._due.items():
            if sandbox is not None and uid not in self._mover.out and uid in self._records:
                for interface in interfaces_of(self._records[uid]):
                    problem = self._mover.problems.get(uid, "")
                    found[interface.device] = InterfacePlace(sandbox.pod, interface.interface, problem)
        return found

    async def recover(self, records: Iterable[ClaimRecord]) -> tuple[str, ...]:
        """Take over what an earlier process left, and expect these claims; returns what failed, in words."""
        for record in records:
            self.expect(record)
        found = await self._mover.in_thread(self._mover.work.load)
        self._mover.out.update(found.moves)
        unkept = await self._mover.lost.recover({each for move in found.moves.values() for each in move.devices})
        self._damaged = {uid: why for uid, why in found.unreadable.items() if uid in self._records}
        for uid, move in self._mover.out.items():
            if namespace_of(move.sandbox) is None:
                self._again(uid, None)
            elif move.attached:
                known = self._records.get(uid)
                await self._mover.report_moved(move, known.metadata if known is not None else None)
        lost = [f"the journal of moved interfaces of claim {uid}: {why}" for uid, why in found.unreadable.items()]
        return (
            *(f"{each}; its interfaces are looked for by their marks" for each in lost),
            *(f"{each}; check the state folder and its disk" for each in found.stuck),
            *unkept,
        )

    async def take_back(self, claim: ClaimReference) -> None:
        """Take back what is still out for a claim that is released; raises Unavailable if that fails.

        An interface that nobody has after a while counts as lost, and keeps no claim from being released; its device is
        held on.
        """
        async with self._locks.of(claim.uid):
            self._due.pop(claim.uid, None)
            move = self._mover.out.get(claim.uid)
            if move is not None:
                try:
                    await self._mover.bring_home(move)
                except InterfaceError as error:
                    kept = "it keeps its devices until they are back, and the kubelet asks again"
                    raise Unavailable(f"claim {claim}: {error}; {kept}") from error
                self._settled(claim.uid)
            self._records.pop(claim.uid, None)

    async def keep(self) -> None:
        """Try again what has failed, and look for lost interfaces, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_trying(), name="interfaces to be tried again")
            group.create_task(self._mover.lost.run(), name="lost interfaces")

    def on_inventory_changed(self) -> None:
        """The inventory has seen something new; a lost interface may be back."""
        self._mover.lost.on_inventory_changed()

    async def _keep_trying(self) -> None:
        pause = self._pace.first_pause
        while True:
            await self._woken.wait()
            await asyncio.sleep(pause)
            await self.retry()
            pause = min(2 * pause, self._pace.longest_pause) if self._due else self._pace.first_pause
            if not self._due:
                self._woken.clear()

    async def retry(self) -> None:
        """Try once, now, what has failed."""
        due = list(self._due.items())
        tasks = [
            self._tasks.begin(self._taken_back(uid) if sandbox is None else self._arrived(uid, sandbox, again=True))
            for uid, sandbox in due
        ]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Return when everything begun is done: then a successor may ``recover``."""
        await self._tasks.wait()
        await self._mover.close()

    def concerns(self, sandbox: Sandbox) -> bool:
        """See ``PodSandboxes``. Any pod may have a claim that was prepared for another, so all concern us."""
        return self.is_needed

    async def run(self, sandbox: Sandbox) -> None:
        """See ``PodSandboxes``; raises SandboxRefused."""
        until = self._monotonic() + self._pace.deadline
        # The pod's own claims need not wait until the kubelet's record is read.
        tasks = self._begin(sandbox, _of_pod(self._records.values(), sandbox, {}))
        pods = await self._kubelet_pods()
        passed_on = _of_pod(self._records.values(), sandbox, pods)
        tasks |= self._begin(sandbox, [each for each in passed_on if each.claim.uid not in tasks])
        if not tasks:
            return
        done, late = await asyncio.wait(tasks.values(), timeout=max(0.0, until - self._monotonic()))
        failures = _failures(done)
        if failures:
            # Nothing may stay in a sandbox that fails: the runtime need not tell of its end.
            self._end(sandbox)
            for uid in tasks:
                self._tasks.begin(self._taken_back(uid, sandbox.id))
            raise SandboxRefused("; ".join(failures))
        for uid, task in tasks.items():
            if task in late:
                log.warning("the interfaces of a pod arrive late", extra={"pod": sandbox.pod, "claim": uid})
                self._tasks.begin(self._arrived(uid, sandbox))

    def _begin(self, sandbox: Sandbox, records: Sequence[ClaimRecord]) -> dict[str, asyncio.Task[None]]:
        """Begin to move the interfaces of these claims; the tasks by the claim's UID. Raises SandboxRefused."""
        if records and (sandbox.host_network or not sandbox.netns):
            raise SandboxRefused(_on_host_network(sandbox.pod, records[0]))
        return {
            record.claim.uid: self._tasks.begin(
                self._attach(record.claim.uid, sandbox), name=f"interfaces of {record.claim}"
            )
            for record in records
        }

    async def stop(self, sandbox: Sandbox) -> None:
        """See ``PodSandboxes``; raises InterfaceError for what cannot be taken back now, and tries again later."""
        self._end(sandbox)
        for uid, wanted in list(self._due.items()):
            if wanted is not None and wanted.id == sandbox.id:
                self._settled(uid)
        there = [uid for uid, move in self._mover.out.items() if move.sandbox.id == sandbox.id]
        # A move that is under way is not on record yet, but has the lock.
        there += [uid for uid in self._records if uid not in there and self._locks.busy(uid)]
        tasks = [self._tasks.begin(self._taken_back(uid, sandbox.id)) for uid in there]
        if tasks:
            done, _ = await asyncio.wait(tasks, timeout=self._pace.deadline)
            failures = _failures(done)
            if failures:
                raise InterfaceError("; ".join(failures))

    async def removed(self, sandbox: Sandbox) -> None:
        """See ``PodSandboxes``."""
        await self.stop(sandbox)

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        """See ``PodSandboxes``."""
        alive = {each.id: each for each in sandboxes if namespace_of(each) is not None and not each.host_network}
        await self._rebuild(alive.values())
        work: list[Coroutine[Any, Any, object]] = []
        for uid, move in list(self._mover.out.items()):
            if move.sandbox.id in alive:
                work.append(self._arrived(uid, alive[move.sandbox.id]))
            else:
                work.append(self._taken_back(uid, move.sandbox.id))
        pods = await self._kubelet_pods()
        # A pod can have sandboxes that failed beside the one that runs its containers.
        for sandbox in sorted(alive.values(), key=lambda each: bool(each.containers), reverse=True):
            for record in _of_pod(self._records.values(), sandbox, pods):
                uid = record.claim.uid
                out, due = self._mover.out.get(uid), self._due.get(uid)
                has = {out.sandbox.id if out is not None else "", due.id if due is not None else ""}
                if not has & alive.keys():
                    self._due[uid] = sandbox
                    work.append(self._arrived(uid, sandbox))
        if work:
            await asyncio.wait([self._tasks.begin(each) for each in work], timeout=self._pace.deadline)

    async def _rebuild(self, alive: Iterable[Sandbox]) -> None:
        """Put claims whose journal was damaged on record again, as far as their interfaces are marked."""
        for uid in list(self._damaged):
            async with self._locks.of(uid):
                record = self._records.get(uid)
                if record is None or uid in self._mover.out:
                    self._damaged.pop(uid, None)
                    continue
                users = [each for each in alive if each.uid in record.users]
                for sandbox in users or [Sandbox("", "", record.claim.namespace, "")]:
                    try:
                        work, claim, interfaces = self._mover.work.found, record.claim, interfaces_of(record)
                        found = await self._mover.in_thread(work, claim, interfaces, sandbox)
                    except (InterfaceError, OSError) as error:
                        self._mover.tell("InterfaceNotReturned", f"claim {record.claim}: {error}")
                        continue
                    if found.moves:
                        self._mover.out[uid] = found
                        break
                self._damaged.pop(uid, None)

    async def _kubelet_pods(self) -> Mapping[str, tuple[str, ...]]:
        """By the claim's UID, the pods that have it according to the kubelet; empty if its record cannot be read.

        A disk that hangs must not keep other pods of the node from starting.
        """
        try:
            async with asyncio.timeout(self._pace.reading):
                known = (await asyncio.to_thread(read_kubelet_claims, self._kubelet_root)).claims
        except TimeoutError:
            return {}
        return {uid: tuple(info.pods or ()) for uid, info in known.items()}

    async def _attach(self, uid: str, sandbox: Sandbox, *, again: bool = False) -> None:
        """Move the claim's interfaces into the sandbox; raises InterfaceError, or SandboxRefused.

        ``again``: only if that is still due; the pod may have got a new sandbox meanwhile.
        """
        async with self._locks.of(uid):
            if again and self._due.get(uid) != sandbox:
                return
            record, before = self._records.get(uid), self._mover.out.get(uid)
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
                    self._again(uid, None)
                raise
            self._settled(uid)

    async def _taken_back(self, uid: str, sandbox_id: str = "") -> None:
        """Take back what is in the sandbox, and try again later if that fails; raises InterfaceError.

        Without a sandbox: whatever is out, if that is still due.
        """
        async with self._locks.of(uid):
            move, is_due = self._mover.out.get(uid), uid in self._due and self._due[uid] is None
            if move is None:
                if is_due:
                    self._settled(uid)
                return
            if move.sandbox.id != sandbox_id if sandbox_id else not is_due:
                return
            try:
                await self._mover.take_back(move)
            except InterfaceError:
                self._again(uid, None)
                raise
            self._settled(uid)

    async def _arrived(self, uid: str, sandbox: Sandbox, *, again: bool = False) -> None:
        """Move the claim's interfaces into a sandbox that lives already, and try again later if that fails."""
        try:
            await self._attach(uid, sandbox, again=again)
        except SandboxRefused as error:
            if self._due.get(uid) == sandbox:
                del self._due[uid]
            log.info("interfaces are not moved", extra={"pod": sandbox.pod, "reason": str(error)})
        except (InterfaceError, FileError) as error:
            self._mover.problems.setdefault(uid, str(error))
            if sandbox.id not in self._ended and namespace_of(sandbox) is not None:
                self._again(uid, sandbox)
            elif uid not in self._mover.out:
                self._settled(uid)

    def _again(self, uid: str, sandbox: Sandbox | None) -> None:
        self._due[uid] = sandbox
        self._woken.set()

    def _settled(self, uid: str) -> None:
        """Forget what was due for the claim, and why."""
        self._due.pop(uid, None)
        self._mover.settle(uid)

    def _end(self, sandbox: Sandbox) -> None:
        self._ended[sandbox.id] = None
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]


def _failures(done: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Why tasks failed, in words; raises what ends the process."""
    errors = [error for task in done if (error := task.exception()) is not None]
    for error in errors:
        if not isinstance(error, Exception):
            raise error
    return [str(error) for error in errors]


def _of_pod(records: Iterable[ClaimRecord], sandbox: Sandbox, pods: Mapping[str, tuple[str, ...]]) -> list[ClaimRecord]:
    """The claims that the sandbox's pod has; ``pods``: by the claim's UID, as the kubelet has them on record.

    A claim that was prepared for one pod may have passed to the next without a call to us; only the kubelet knows.
    """
    return [each for each in records if sandbox.uid in each.users or sandbox.uid in pods.get(each.claim.uid, ())]


def _on_host_network(pod: str, record: ClaimRecord) -> str:
    return (
        f"pod {pod} uses the node's network (hostNetwork: true), but the network interface of device "
        f"{interfaces_of(record)[0].device} of claim {record.claim} moves into the pod's own; set hostNetwork to "
        "false, or claim a NIC of a resource without moveInterface"
    )


def _in_other_pod(record: ClaimRecord, move: ClaimMove, sandbox: Sandbox) -> str:
    return (
        f"the network interface of device {move.devices[0]} of claim {record.claim} is in pod {move.sandbox.pod}; pod "
        f"{sandbox.pod} gets it when that pod has ended; give each pod a claim of its own by a ResourceClaimTemplate"
    )
