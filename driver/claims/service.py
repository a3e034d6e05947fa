"""Prepares and releases claims.

Invariants: the devices of a claim are in the ledger before anything of it is on disk, and until nothing of it is (or
what remains is known); a claim is answered only when its record and CDI file are on disk; a repeated call gets the same
answer; claims wait for each other only if they want the same device. Work that a caller began before it went away is
finished anyway: its next call, or the release, finds a complete claim.

Devices that pods have through the plugin door are in the same ledger. Its bus says when those holds change
(``HoldsChanged``), and when a reserved claim must lose its device (``ClaimRefused``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TypeVar

from driver.claims.admission import DeviceLost, Losers
from driver.claims.allocation import check_reference
from driver.claims.book import ClaimBook
from driver.claims.collection import Collector
from driver.claims.contracts import (
    ClaimObserver,
    ClaimOptions,
    ClaimReader,
    MovedInterfaces,
    StepObserver,
)
from driver.claims.locks import Waits
from driver.claims.model import (
    ClaimError,
    ClaimReference,
    ClaimStatus,
    PartitionNotMade,
    PartitionPending,
    PreparedDevice,
    Unavailable,
)
from driver.claims.partitions import ClaimPartitions, unpartitioned
from driver.claims.preparation import Preparation
from driver.claims.record import ClaimRecord
from driver.claims.recovery import recover
from driver.claims.sharing import ClaimSharing, SharingTools
from driver.devices.view import DoorView
from driver.metadata.files import MetadataFiles
from node.clocks import SYSTEM, Clocks
from node.events import EventRecorder
from node.ledger.events import ClaimRefused, HoldsChanged
from node.ledger.holds import slices_of, wholes_of
from node.ledger.ledger import Ledger
from node.rules import Door, Doors
from node.tasks import LastingTasks
from node.values import replace

T = TypeVar("T")


class ClaimService:
    """Prepares and releases claims; for the event loop only."""

    def __init__(
        self,
        options: ClaimOptions,
        reader: ClaimReader,
        *,
        events: EventRecorder,
        observer: ClaimObserver | None = None,
        ledger: Ledger | None = None,
        boot: str = "",
        clocks: Clocks = SYSTEM,
        steps: StepObserver | None = None,
        partitions: ClaimPartitions | None = None,
        sharing: ClaimSharing | None = None,
        interfaces: MovedInterfaces | None = None,
        metadata: MetadataFiles | None = None,
        is_known: Callable[[], bool] = lambda: True,
    ) -> None:
        """``boot``: this boot's id. ``partitions``: those that claims have made for them; None if none can be made.

        ``sharing``: of GPUs among the containers of a claim; None if it is not possible. ``interfaces``: moves those of
        NICs into pods; None if none moves. ``metadata``: the files that describe claims' devices; None: those in the
        state folder. The bus of ``ledger`` has ``OfferChanged`` when the ledger or ``contested`` changes. ``is_known``:
        whether the ledger has every device that the plugin door has allocated; ``HoldsChanged`` may change it.
        """
        self.ledger = ledger if ledger is not None else Ledger()
        self._viewed = asyncio.Event()
        self._recovered = asyncio.Event()
        self._tasks = LastingTasks(ClaimError)
        self._losers = Losers(self.ledger.bus)
        self._waits = Waits()
        self._book = ClaimBook(
            options,
            reader,
            ledger=self.ledger,
            events=events,
            observer=observer or ClaimObserver(),
            steps=steps or StepObserver(),
            boot=boot,
            clocks=clocks,
            partitions=partitions or unpartitioned(self.ledger.bus),
            sharing=sharing or ClaimSharing(SharingTools(), options.state_dir, boot),
            interfaces=interfaces or MovedInterfaces(),
            metadata=metadata or MetadataFiles(options.state_dir, options.cdi_dir, options.driver_name),
        )
        self._collector = Collector(self._book, self)
        self._preparation = Preparation(self._book, self._waits, self._losers, self._collector, is_known=is_known)
        self.ledger.bus.subscribe(DeviceLost, self._warn_lost)
        self.ledger.bus.subscribe(ClaimRefused, self._refused)
        self.ledger.bus.subscribe(HoldsChanged, self._holds_changed)

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        """Prepare the claim's devices; a repeated call gets the same answer.

        Raises ClaimError, or Unavailable if it is not the claim's fault.
        """
        tombstones = self._book.tombstones
        began = tombstones.serial
        try:
            answer = await self._counted(
                self._prepare(claim, began), f"prepare claim {claim}", self._book.observer.prepared
            )
        except ClaimError as error:
            # A claim that was released meanwhile belongs to nobody and waits for nothing.
            if (tombstones.serial_of(claim.uid) or 0) <= began:
                if str(error) != self._book.failures.problem(claim.uid):
                    self._warn_unmade(error)
                self._book.failures.add(claim, str(error))
            raise
        self._book.failures.forget(claim.uid)
        self.settled(claim.uid)
        return answer

    async def unprepare(self, claim: ClaimReference) -> None:
        """Release the claim's devices; an unknown claim counts as released.

        Raises Unavailable, or ClaimError for an invalid UID.
        """
        await self._counted(self._unprepare(claim), f"unprepare claim {claim}", self._book.observer.unprepared)
        self._book.failures.forget(claim.uid)

    def settled(self, uid: str) -> None:
        """Note that no pod of this node names the claim any more, so it waits for nothing."""
        self._losers.settled(uid)

    def contested(self) -> frozenset[str]:
        """Devices that a live pod has through the plugin door while a claim waits for them here, see ``Losers``."""
        return self._losers.contested(self.ledger)

    def losers(self) -> Mapping[str, tuple[str, ...]]:
        """The claims (``namespace/name``) that lost a device to the plugin door, by device."""
        return self._losers.by_device(self.ledger)

    def taken(self) -> Mapping[str, str]:
        """Devices that claims of this node have or are about to have, and which claims."""
        return {
            hold.device: f"claim {hold.holder}" for hold in self.ledger.all if hold.door is Door.DRA and not hold.admin
        }

    def prepared_for(self, key: tuple[str, str], pods: frozenset[str]) -> ClaimRecord | None:
        """The record of the claim with this namespace and name, if it is prepared and was reserved for one of ``pods``.

        The pods' UIDs distinguish it from an earlier claim of the same name.
        """
        for record in self._book.records.values():
            named = key == (record.claim.namespace, record.claim.name)
            if named and record.prepared_in(self._book.boot) and not pods.isdisjoint(record.users):
                return record
        return None

    @property
    def is_making(self) -> bool:
        """Whether a claim that is not answered yet has partitions made; safe to call from any thread."""
        return self._preparation.making > 0

    def apply(self, view: DoorView) -> None:
        """Prepare from these devices from now on."""
        self._preparation.use(view)
        parts = [each for each in view.devices if each.part is not None and each.part.made]
        self._book.partitions.shown(frozenset(each.device.name for each in parts))
        for_pods = [each for each in view.devices if each.rule.door is Doors.BOTH and each.must_leave_mig]
        self._book.partitions.leave_idle([each.device for each in for_pods], self._is_free)
        self._viewed.set()
        for uid, record in tuple(self._book.records.items()):
            if self._collector.is_to_prepare(uid) or not record.boot:
                self._place(uid, view)

    async def recover(self) -> None:
        """Take over what an earlier process left; calls wait until then. No other process may still prepare."""
        self._collector.prepare_again(await recover(self._book))
        for problem in await self._book.partitions.recover(self._book.records):
            self._book.warn("ClaimRecoveryIncomplete", problem)
        kept = {uid for uid, record in self._book.records.items() if record.made_in(self._book.boot)}
        for problem in await self._book.sharing.recover(kept):
            self._book.warn("ClaimRecoveryIncomplete", problem)
        prepared = [each for each in self._book.records.values() if each.prepared_in(self._book.boot)]
        for problem in await self._book.interfaces.recover(prepared):
            self._book.warn("ClaimRecoveryIncomplete", problem)
        if self._preparation.view is not None:
            self.apply(self._preparation.view)
        self._recovered.set()

    async def recovered(self) -> None:
        """Return when the ledger has the devices of what an earlier process left."""
        await self._recovered.wait()

    async def run(self) -> None:
        """Look for claims that nobody uses any more, until cancelled."""
        await self._recovered.wait()
        await self._viewed.wait()
        await self._collector.run()

    async def collect(self) -> int:
        """Look for them once, now; returns how many claims were released."""
        return await self._collector.look()

    async def close(self) -> None:
        """Begin nothing more, and return when everything begun is on disk: then a successor may ``recover``."""
        self._waits.end()
        self._book.wake()
        await self._collector.close()
        await self._tasks.wait()
        await self._book.close()

    def records(self) -> tuple[ClaimRecord, ...]:
        """Every claim that holds devices here, by namespace and name."""
        return tuple(sorted(self._book.records.values(), key=lambda record: (str(record.claim), record.claim.uid)))

    def statuses(self) -> tuple[ClaimStatus, ...]:
        """Every claim that holds devices or was refused lately, and what it waits for."""
        holding = {
            record.claim.uid: ClaimStatus(
                record.claim,
                record.shown_state(self._book.boot),
                record.answer,
                record.users,
                record.since,
                self._book.failures.problem(record.claim.uid),
                self._metadata_files(record),
            )
            for record in self.records()
        }
        found = {**self._book.failures.by_uid, **holding}.values()
        return tuple(sorted(found, key=lambda status: (str(status.claim), status.claim.uid)))

    def _metadata_files(self, record: ClaimRecord) -> tuple[str, ...]:
        if record.metadata is None:
            return ()
        return tuple(map(str, self._book.metadata.paths(record.claim, record.metadata)))

    async def _prepare(self, claim: ClaimReference, began: int) -> tuple[PreparedDevice, ...]:
        check_reference(claim)
        await self._ready(self._recovered, "the agent is still reading the claims of this node")
        await self._ready(self._viewed, "the agent is still finding the devices of this node")
        return await self._preparation.prepare(claim, began)

    async def _unprepare(self, claim: ClaimReference) -> None:
        check_reference(claim)
        self._book.tombstones.add(claim.uid)
        self.settled(claim.uid)
        self._book.wake()
        await self._ready(self._recovered, "the agent is still reading the claims of this node")
        async with self._book.locks.of(claim.uid):
            await self._book.release(claim)

    async def _counted(self, work: Coroutine[None, None, T], name: str, count: Callable[[str, float], None]) -> T:
        began = self._book.monotonic()
        outcome = "ok"
        try:
            return await self._finished(work, name)
        except ClaimError as error:
            outcome = "unavailable" if isinstance(error, Unavailable) else "refused"
            raise
        finally:
            count(outcome, self._book.monotonic() - began)

    async def _finished(self, work: Coroutine[None, None, T], name: str) -> T:
        """The work's result; the work continues if the caller goes away."""
        try:
            self._waits.check()
        except Unavailable:
            work.close()
            raise
        return await asyncio.shield(self._tasks.begin(work, name))

    def _holds_changed(self, _: HoldsChanged) -> None:
        """Wake every call that waits for a device: a hold of the plugin door may have ended or become known."""
        self._book.wake()

    def _refused(self, refused: ClaimRefused) -> None:
        """Enter a claim among the losers; a claim that is being released has lost nothing."""
        if self._book.tombstones.serial_of(refused.uid) is None and refused.uid not in self._book.records:
            self._losers.lost(refused.uid, refused.error.wanted.holder, refused.error)

    def _is_free(self, gpu: str) -> bool:
        """Whether nobody holds the GPU or a part of it."""
        return not any(gpu in (hold.device, *hold.within) for hold in self.ledger.all)

    def _warn_unmade(self, error: ClaimError) -> None:
        """Report a claim for which no partition can be made, whatever the kubelet does with the answer."""
        if isinstance(error, PartitionPending):
            self._book.warn("PartitionPending", str(error))
        elif isinstance(error, PartitionNotMade):
            self._book.warn("PartitionNotMade", str(error))

    def _warn_lost(self, lost: DeviceLost) -> None:
        self._book.observer.lost()
        self._book.warn(
            "ClaimLostDevice",
            f"claim {lost.claim} ({lost.uid}) was allocated a device that it cannot have: {lost.error}",
        )

    def _place(self, uid: str, view: DoorView) -> None:
        """Tell the ledger what the devices of a claim without a usable record are parts of, which the view knows."""
        record = self._book.records.get(uid)
        if record is None:
            return
        offered = [view.device(device.device) for device in record.devices]
        devices = tuple(
            device if each is None else replace(device, within=wholes_of(each.device), slices=slices_of(each.device))
            for device, each in zip(record.devices, offered, strict=True)
        )
        if devices != record.devices:
            self._book.restore(replace(record, devices=devices))

    async def _ready(self, event: asyncio.Event, problem: str) -> None:
        if event.is_set():
            return
        try:
            async with asyncio.timeout(self._book.options.ready_wait):
                await self._waits.of(event.wait())
        except TimeoutError as error:
            raise Unavailable(f"{problem}; the kubelet asks again") from error
