"""The network interfaces of claims, from the start of their pods' sandboxes to their end.

The runtime reports sandboxes (``PodSandboxes``), the claim service prepares and releases claims. Invariants: the
interfaces of a claim are all in one sandbox, or on the node, or on record on their way; a container of the claim starts
only while all are in its pod (``driver.interfaces.guard``); a released claim has its interfaces back on the node, so
its devices are free only then.

If interfaces take longer than the runtime waits for a plugin, the sandbox may live on: the work continues
(``driver.interfaces.retrying``), and the guard keeps the containers of the claim from starting before it is done.

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

from driver.claims.contracts import InterfaceReporter, MovedInterfaces
from driver.claims.kubelet import read_kubelet_claims
from driver.claims.model import ClaimError, ClaimReference
from driver.claims.record import ClaimRecord
from driver.interfaces.claim_mover import PACE, ClaimMover, InterfacePace, interfaces_of
from driver.interfaces.moving import InterfaceMoves, namespace_of
from driver.interfaces.observers import InterfaceObserver, InterfacePlace, PodLinks
from driver.interfaces.retrying import RetriedMoves
from driver.nri.sandboxes import Sandbox, SandboxRefused
from node.clocks import Clocks
from node.events import EventRecorder
from node.interfaces.model import InterfaceError
from node.ledger.ledger import Ledger

log = logging.getLogger("ostler.interfaces")


class ClaimInterfaces(MovedInterfaces):
    """``PodSandboxes`` for claims with interfaces; for the event loop only.

    ``kubelet_root``: has the kubelet's record of claims. ``reporter`` gets interfaces before their guard lets
    containers start. The devices of lost interfaces are held in ``ledger``. ``on_host_network``: which of the pods with
    these UIDs is known to use the node's network, empty for none.
    """

    def __init__(
        self,
        moves: InterfaceMoves,
        kubelet_root: Path,
        ledger: Ledger,
        *,
        events: EventRecorder,
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
        self._retried = RetriedMoves(self._mover, pace)
        self._damaged: dict[str, str] = {}
        """Claims whose journal was damaged, with why, until the runtime has said which sandboxes there are."""

    def check(self, record: ClaimRecord) -> None:
        """See ``MovedInterfaces``. A pod that is not known yet is judged when its sandbox starts."""
        pod = self._on_host_network(record.users) if interfaces_of(record) else ""
        if pod:
            raise ClaimError(_on_host_network(pod, record))

    def expect(self, record: ClaimRecord) -> None:
        """Move the interfaces of this prepared claim, if it has any, when its pod's sandbox starts."""
        self._retried.expect(record)

    @property
    def is_needed(self) -> bool:
        """Whether there is a claim with interfaces."""
        return bool(self._retried.records or self._mover.out)

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
        for uid, sandbox in self._retried.due.items():
            if sandbox is not None and uid not in self._mover.out and uid in self._retried.records:
                for interface in interfaces_of(self._retried.records[uid]):
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
        self._damaged = {uid: why for uid, why in found.unreadable.items() if uid in self._retried.records}
        for uid, move in self._mover.out.items():
            if namespace_of(move.sandbox) is None:
                self._retried.again(uid, None)
            elif move.attached:
                known = self._retried.records.get(uid)
                await self._mover.report_moved(move, known.metadata if known is not None else None)
        lost = [f"the journal of moved interfaces of claim {uid}: {why}" for uid, why in found.unreadable.items()]
        return (
            *(f"{each}; its interfaces are looked for by their marks" for each in lost),
            *(f"{each}; check the state folder and its disk" for each in found.stuck),
            *unkept,
        )

    async def take_back(self, claim: ClaimReference) -> None:
        """See ``RetriedMoves.release``."""
        await self._retried.release(claim)

    async def retry(self) -> None:
        """Try once, now, what has failed."""
        await self._retried.retry()

    async def keep(self) -> None:
        """Try again what has failed, and look for lost interfaces, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retried.run(), name="interfaces to be tried again")
            group.create_task(self._mover.lost.run(), name="lost interfaces")

    def on_inventory_changed(self) -> None:
        """The inventory has seen something new; a lost interface may be back."""
        self._mover.lost.on_inventory_changed()

    async def close(self) -> None:
        """Return when everything begun is done: then a successor may ``recover``."""
        await self._retried.tasks.wait()
        await self._mover.close()

    def concerns(self, sandbox: Sandbox) -> bool:
        """See ``PodSandboxes``. Any pod may have a claim that was prepared for another, so all concern us."""
        return self.is_needed

    async def run(self, sandbox: Sandbox) -> None:
        """See ``PodSandboxes``; raises SandboxRefused."""
        until = self._monotonic() + self._pace.deadline
        # The pod's own claims need not wait until the kubelet's record is read.
        tasks = self._begin(sandbox, _of_pod(self._retried.records.values(), sandbox, {}))
        pods = await self._kubelet_pods()
        passed_on = _of_pod(self._retried.records.values(), sandbox, pods)
        tasks |= self._begin(sandbox, [each for each in passed_on if each.claim.uid not in tasks])
        if not tasks:
            return
        done, late = await asyncio.wait(tasks.values(), timeout=max(0.0, until - self._monotonic()))
        failures = _failures(done)
        if failures:
            # Nothing may stay in a sandbox that fails: the runtime need not tell of its end.
            self._retried.end(sandbox)
            for uid in tasks:
                self._retried.tasks.begin(self._retried.take_back(uid, sandbox.id), f"interfaces of claim {uid}")
            raise SandboxRefused("; ".join(failures))
        for uid, task in tasks.items():
            if task in late:
                log.warning("the interfaces of a pod arrive late", extra={"pod": sandbox.pod, "claim": uid})
                self._retried.tasks.begin(self._retried.arrive(uid, sandbox), f"interfaces of claim {uid}")

    def _begin(self, sandbox: Sandbox, records: Sequence[ClaimRecord]) -> dict[str, asyncio.Task[None]]:
        """Begin to move the interfaces of these claims; the tasks by the claim's UID. Raises SandboxRefused."""
        if records and (sandbox.host_network or not sandbox.netns):
            raise SandboxRefused(_on_host_network(sandbox.pod, records[0]))
        return {
            record.claim.uid: self._retried.tasks.begin(
                self._retried.attach(record.claim.uid, sandbox), f"interfaces of claim {record.claim}"
            )
            for record in records
        }

    async def stop(self, sandbox: Sandbox) -> None:
        """See ``PodSandboxes``; raises InterfaceError for what cannot be taken back now, and tries again later."""
        self._retried.end(sandbox)
        for uid, wanted in list(self._retried.due.items()):
            if wanted is not None and wanted.id == sandbox.id:
                self._retried.settled(uid)
        there = [uid for uid, move in self._mover.out.items() if move.sandbox.id == sandbox.id]
        # A move that is under way is not on record yet, but has the lock.
        there += [uid for uid in self._retried.records if uid not in there and self._retried.locks.busy(uid)]
        tasks = [
            self._retried.tasks.begin(self._retried.take_back(uid, sandbox.id), f"interfaces of claim {uid}")
            for uid in there
        ]
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
                work.append(self._retried.arrive(uid, alive[move.sandbox.id]))
            else:
                work.append(self._retried.take_back(uid, move.sandbox.id))
        pods = await self._kubelet_pods()
        # A pod can have sandboxes that failed beside the one that runs its containers.
        for sandbox in sorted(alive.values(), key=lambda each: bool(each.containers), reverse=True):
            for record in _of_pod(self._retried.records.values(), sandbox, pods):
                uid = record.claim.uid
                out, due = self._mover.out.get(uid), self._retried.due.get(uid)
                has = {out.sandbox.id if out is not None else "", due.id if due is not None else ""}
                if not has & alive.keys():
                    self._retried.expect_in(uid, sandbox)
                    work.append(self._retried.arrive(uid, sandbox))
        if work:
            await asyncio.wait(
                [self._retried.tasks.begin(each, "interfaces of a claim") for each in work], timeout=self._pace.deadline
            )

    async def _rebuild(self, alive: Iterable[Sandbox]) -> None:
        """Put claims whose journal was damaged on record again, as far as their interfaces are marked."""
        for uid in list(self._damaged):
            async with self._retried.locks.of(uid):
                record = self._retried.records.get(uid)
                if record is None or uid in self._mover.out:
                    self._damaged.pop(uid, None)
                    continue
                users = [each for each in alive if each.uid in record.users]
                for sandbox in users or [Sandbox("", "", record.claim.namespace, "")]:
                    try:
                        work, claim, interfaces = self._mover.work.found, record.claim, interfaces_of(record)
                        found = await self._mover.in_thread(work, claim, interfaces, sandbox)
                    except (InterfaceError, OSError) as error:
                        self._mover.warn("InterfaceNotReturned", f"claim {record.claim}: {error}")
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
