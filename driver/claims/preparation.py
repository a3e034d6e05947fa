"""Prepares one claim, from reading it at the API server to its record on disk.

The claim is read before anything is locked, and refused if it is released meanwhile: a late duplicate call must not
bring back what the kubelet has released. Everything that can be wrong with the claim is found before anything is
changed; if something fails after that, the earlier state is restored. The ledger alone says who has a device, and is
asked last (``driver.claims.admission``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from driver.claims.admission import AdmissionRefusal, Losers, take
from driver.claims.allocation import allocation_of, name_in_pod, pod_claim_name
from driver.claims.book import ClaimBook
from driver.claims.collection import Collector
from driver.claims.contracts import ClaimStep
from driver.claims.locks import Waits
from driver.claims.model import (
    Allocation,
    ClaimError,
    ClaimReference,
    PartitionPending,
    PreparedDevice,
    RecordState,
    Unavailable,
)
from driver.claims.partitions import PartitionWork
from driver.claims.plan import ClaimPlan, planned
from driver.claims.record import ClaimRecord, check_size
from driver.claims.sharing import SharingWork
from driver.devices.view import DoorView
from driver.metadata.content import described, named
from driver.parameters.errors import UnservedParameter
from kube.bodies import JsonObject
from node.values import replace

_LOOK = 1.0
"""Seconds between two scans for a partition that was made."""


class Preparation:
    """Prepares one claim per call, from the newest view given to ``use``.

    ``is_known``: whether the ledger has every device that the plugin door has allocated.
    """

    def __init__(
        self,
        book: ClaimBook,
        waits: Waits,
        losers: Losers,
        collector: Collector,
        *,
        is_known: Callable[[], bool],
    ) -> None:
        self.making = 0
        """How many claims have their partitions made at present; a claim counts until its record is on disk."""
        self._view: DoorView | None = None
        self._used = asyncio.Event()
        """Set when the next view comes."""
        self._book = book
        self._waits = waits
        self._losers = losers
        self._collector = collector
        self._is_known = is_known

    @property
    def view(self) -> DoorView | None:
        """The view that claims are prepared from, None until the devices are known."""
        return self._view

    def use(self, view: DoorView) -> None:
        """Prepare from this view from now on, including claims that wait for a device."""
        self._view = view
        self._used.set()
        self._used = asyncio.Event()

    async def prepare(self, claim: ClaimReference, began: int) -> tuple[PreparedDevice, ...]:
        """Prepare the claim; ``began``: the tombstones' serial when the call came.

        Raises ClaimError, or Unavailable if it is not the claim's fault.
        """
        try:
            body = await self._waits.of(self._book.reader.claim(claim.namespace, claim.name))
        except Unavailable as error:
            return await self._answer_from_record(claim, error)
        self._book.steps.reached(ClaimStep.FETCHED, claim.uid)
        allocation = allocation_of(body, claim, self._book.options.driver_name, self._book.options.peers)
        async with self._book.locks.of(claim.uid):
            self._book.kubelet.asked(claim.uid)
            record = self._book.records.get(claim.uid)
            if record is None:
                await self._refuse_late(claim, began)
            return await self._prepared(allocation, body, record, began)

    async def _answer_from_record(self, claim: ClaimReference, refusal: Unavailable) -> tuple[PreparedDevice, ...]:
        """The answer that a prepared claim got before; for any other claim raises the API server's refusal."""
        async with self._book.locks.of(claim.uid):
            self._book.kubelet.asked(claim.uid)
            record = self._book.records.get(claim.uid)
            if record is None or not record.prepared_in(self._book.boot) or self._lacks_partition(record):
                raise refusal
            await self._book.renew(record)
            return record.answer

    def _lacks_partition(self, record: ClaimRecord) -> bool:
        """Whether a partition of a prepared claim is gone because its release had begun."""
        made = self._book.partitions.of(record.claim.uid)
        return any(device.partition is not None and not made.get(device.device) for device in record.devices)

    async def _refuse_late(self, claim: ClaimReference, began: int) -> None:
        """Raise ClaimError if the call came before the claim's release, or if the kubelet no longer knows the claim."""
        released = self._book.tombstones.serial_of(claim.uid)
        if released is None:
            return
        if released > began:
            raise _overtaken(claim)
        known = await self._book.kubelet.claims()
        if known.lacks(claim.uid):
            raise ClaimError(f"claim {claim} was released, and the kubelet no longer knows it: the call came too late")

    async def _prepared(
        self, allocation: Allocation, body: JsonObject | None, record: ClaimRecord | None, began: int
    ) -> tuple[PreparedDevice, ...]:
        until = self._book.monotonic() + self._book.options.device_wait
        view = self._known_view()
        wanted, plan = self._wanted(allocation, body, view, record)
        while plan.work or not self._stands(record, wanted):
            refusal = take(self._book, replace(wanted, state=RecordState.STARTED), known=self._is_known())
            if refusal is None:
                self._book.steps.reached(ClaimStep.TAKEN, allocation.claim.uid)
                if not plan.work:
                    wanted = await self._write(wanted, plan.sharing, record)
                    break
                self.making += 1
                try:
                    wanted, plan = await self._made(allocation, body, wanted, plan.work, record)
                    wanted = await self._write(wanted, plan.sharing, record, has_begun=True)
                finally:
                    self.making -= 1
                break
            await self._freed(allocation.claim, refusal, until, began)
            if self._view is not view:
                view = self._known_view()
                wanted, plan = self._wanted(allocation, body, view, record)
        else:
            if self._book.sharing.of(allocation.claim.uid) != plan.sharing.own:
                await self._book.share(allocation.claim, plan.sharing)
            await self._book.renew(wanted)
        self._book.steps.reached(ClaimStep.ANSWERED, allocation.claim.uid)
        return wanted.answer

    def _known_view(self) -> DoorView:
        assert self._view is not None, "calls wait until the devices are known"
        return self._view

    def _stands(self, record: ClaimRecord | None, wanted: ClaimRecord) -> bool:
        """Whether the claim is already prepared, with the same devices."""
        return record is not None and record.prepared_in(self._book.boot) and record.same_allocation(wanted.devices)

    def _wanted(
        self, allocation: Allocation, body: JsonObject | None, view: DoorView, before: ClaimRecord | None
    ) -> tuple[ClaimRecord, ClaimPlan]:
        """The record that the claim will have once it is prepared from this view, and the plan to get there.

        Raises ClaimError.
        """
        options, boot = self._book.options, self._book.boot
        if before is not None and self._is_out(allocation, before):
            return before, self._as_before(before)
        had = [device.device for device in before.devices] if before is not None and before.made_in(boot) else []
        name = name_in_pod(body, allocation.claim)
        try:
            plan = planned(
                allocation,
                name,
                view,
                driver=options.driver_name,
                pool=options.pool,
                had=had,
                made=self._book.partitions.of(allocation.claim.uid),
                mps_root=options.mps_root,
                guard_dir=options.guard_dir,
            )
        except ClaimError as error:
            if before is None or not self._left_alone(allocation, view, before, error):
                raise
            return before, self._as_before(before)
        if before is not None and self._is_other_daemon(before, plan):
            return before, self._as_before(before)
        wanted = self._record(allocation, body, plan, view, before)
        self._book.interfaces.check(wanted)
        return wanted, plan

    def _as_before(self, record: ClaimRecord) -> ClaimPlan:
        """A plan that changes nothing."""
        return ClaimPlan(record.devices, record.spec, sharing=self._book.sharing.of(record.claim.uid))

    def _is_out(self, allocation: Allocation, record: ClaimRecord) -> bool:
        """Whether interfaces of a prepared claim are in its pod, which keeps them as they are."""
        return (
            self._book.interfaces.is_out(record.claim.uid)
            and record.prepared_in(self._book.boot)
            and _keys(allocation) == {(device.pool, device.device, device.share_id or "") for device in record.devices}
        )

    def _is_other_daemon(self, record: ClaimRecord, plan: ClaimPlan) -> bool:
        """Whether a prepared claim would get another MPS control daemon while processes use its GPU."""
        return (
            record.prepared_in(self._book.boot)
            and not plan.work
            and record.same_allocation(plan.devices)
            and record.spec != plan.spec
            and self._book.sharing.of(record.claim.uid).daemon != plan.sharing.daemon
        )

    def _left_alone(self, allocation: Allocation, view: DoorView, record: ClaimRecord, error: ClaimError) -> bool:
        """Whether a prepared claim keeps the devices that it has.

        It does if the rules merely no longer offer them, or if parameters for another driver were not checked when it
        was prepared.
        """
        return (
            record.prepared_in(self._book.boot)
            and _keys(allocation) == {(device.pool, device.device, device.share_id or "") for device in record.devices}
            and (
                isinstance(error, UnservedParameter) or any(view.device(each.device) is None for each in record.devices)
            )
        )

    def _record(
        self,
        allocation: Allocation,
        body: JsonObject | None,
        plan: ClaimPlan,
        view: DoorView,
        before: ClaimRecord | None,
    ) -> ClaimRecord:
        same = before is not None and before.same_allocation(plan.devices)
        options = self._book.options
        if before is not None and same and before.prepared_in(self._book.boot):
            metadata = before.metadata  # A repeated call gets the same answer, whatever the options say by now.
        elif plan.work:
            metadata = None
        else:
            versions, pod_claim = options.metadata_versions, pod_claim_name(body)
            metadata = described(allocation, view, versions, pod_claim=pod_claim, peers=options.peers)
        uid = allocation.claim.uid
        record = ClaimRecord(
            allocation.claim,
            RecordState.COMPLETED,
            boot=self._book.boot,
            since=before.since if before is not None and same else self._book.clock(),
            devices=named(plan.devices, options.driver_name, uid) if metadata is not None else plan.devices,
            users=allocation.reserved_for,
            spec=plan.spec,
            metadata=metadata,
        )
        kept = before.kept_by(record) if before is not None else record
        check_size(kept)
        return kept

    async def _made(
        self,
        allocation: Allocation,
        body: JsonObject | None,
        wanted: ClaimRecord,
        work: PartitionWork,
        before: ClaimRecord | None,
    ) -> tuple[ClaimRecord, ClaimPlan]:
        """Make the partitions of a claim that has taken its devices; returns its record and plan.

        On failure the earlier state is restored.
        """
        claim = allocation.claim
        try:
            await self._book.begin(wanted)
            await self._book.partitions.make(claim, work)
            made = await self._seen(allocation, body, work, before)
        except _NotSeen:
            raise  # They are there: the next call finds them.
        except Exception:
            await self._undo(claim, before)
            raise
        self._book.steps.reached(ClaimStep.MADE, claim.uid)
        return made

    async def _seen(
        self, allocation: Allocation, body: JsonObject | None, work: PartitionWork, before: ClaimRecord | None
    ) -> tuple[ClaimRecord, ClaimPlan]:
        """Record and plan from the first view in which nothing is left to do."""
        left = self._book.options.partition_wait
        until = self._book.monotonic() + left
        changed = work.gpus
        while True:
            used = self._used
            await self._book.partitions.look(changed)
            changed = frozenset()  # What these GPUs alone do not show, everything may.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LOOK)):
                    await used.wait()
            wanted, plan = self._wanted(allocation, body, self._known_view(), before)
            if not plan.work:
                return wanted, plan
            left = until - self._book.monotonic()
            if left <= 0:
                done = f"claim {allocation.claim}: {plan.work} is done"
                raise _NotSeen(f"{done}, but the driver does not show the result yet; the kubelet asks again")

    async def _undo(self, claim: ClaimReference, before: ClaimRecord | None) -> None:
        """Restore the state before anything was done to GPUs for the claim."""
        try:
            await self._book.unmake(claim)
        except ClaimError as error:
            # It keeps its devices: the kubelet asks again, or releases it.
            self._book.warn("PartitionLeft", f"the partitions made for claim {claim} remain for now: {error}")
            return
        if before is not None:
            self._book.restore(before)
        elif not await self._book.erase(claim.uid):
            self._book.give_up(claim.uid)

    async def _write(
        self, wanted: ClaimRecord, sharing: SharingWork, before: ClaimRecord | None, *, has_begun: bool = False
    ) -> ClaimRecord:
        """Write a claim that has taken its devices to disk; returns the record as written.

        On failure the earlier state is restored.
        """
        claim = wanted.claim
        try:
            await self._book.share(claim, sharing)
            return await self._book.prepare(wanted, has_begun=has_begun)
        except Exception:
            await self._undo(claim, before)
            raise

    async def _freed(self, claim: ClaimReference, refusal: AdmissionRefusal, until: float, began: int) -> None:
        """Return when something may have changed; raises Unavailable if waiting is pointless or took too long."""
        self._waits.check()
        if (self._book.tombstones.serial_of(claim.uid) or 0) > began:
            raise _overtaken(claim) from refusal.cause
        for error in refusal.lost:
            self._losers.lost(claim.uid, str(claim), error)
        if refusal.lost:
            raise Unavailable(str(refusal)) from refusal.cause
        self._note_wait(claim, refusal)
        left = until - self._book.monotonic()
        if left <= 0:
            raise Unavailable(str(refusal)) from refusal.cause
        await self._book.freed(left)
        if (self._book.tombstones.serial_of(claim.uid) or 0) > began:
            raise _overtaken(claim) from refusal.cause

    def _note_wait(self, claim: ClaimReference, refusal: AdmissionRefusal) -> None:
        """Note in the claim's status, once, what it waits for; have the claim that holds the device checked."""
        problem = f"waiting: {refusal.text}"
        if self._book.failures.problem(claim.uid) == problem:
            return  # It was woken by a change that did not concern it.
        self._book.failures.add(claim, problem)
        if refusal.holder:
            self._collector.poke(refusal.holder)


def _keys(allocation: Allocation) -> set[tuple[str, str, str]]:
    return {device.key for device in allocation.devices}


class _NotSeen(PartitionPending):
    """The partition exists, but the inventory does not see it yet."""


def _overtaken(claim: ClaimReference) -> ClaimError:
    return ClaimError(f"claim {claim} was released while it was being prepared")
