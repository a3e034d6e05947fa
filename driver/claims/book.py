"""The claims that hold devices, kept in step in the ledger, in memory and on disk.

The order of the steps makes a kill between any two of them harmless:

- Preparing: ledger, record ``started``, CDI file, metadata files, record ``completed``, answer. A restart that finds
  ``started`` knows that the kubelet got no answer and that the devices are taken; the files may or may not exist.
- Releasing: interfaces, CDI file, metadata files, changes to GPUs for the claim (sharing, then partitions), record,
  ledger. A restart that finds the record still knows what to release.

Worker threads do all disk work, each piece in one go: a claim costs two changes of threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from driver.claims.contracts import ClaimObserver, ClaimOptions, ClaimReader, ClaimStep, MovedInterfaces, StepObserver
from driver.claims.disk import ClaimSpecs, RecordStore
from driver.claims.kubelet import KubeletFile, read_kubelet_claims
from driver.claims.locks import ClaimLocks, Tombstones
from driver.claims.model import (
    ClaimError,
    ClaimReference,
    ClaimState,
    ClaimStatus,
    PartitionNotMade,
    RecordState,
    Unavailable,
)
from driver.claims.partitions import ClaimPartitions
from driver.claims.record import ClaimRecord
from driver.claims.sharing import ClaimSharing, SharingWork
from driver.metadata.content import unnamed
from driver.metadata.files import MetadataFiles
from driver.names import file_prefix
from node.clocks import Clocks
from node.events import EventRecorder, EventType
from node.files import FileError
from node.ledger.events import OfferChanged
from node.ledger.holds import Hold
from node.ledger.ledger import Ledger
from node.values import replace

T = TypeVar("T")
log = logging.getLogger("ostler.claims")

MOST_FAILURES = 256
"""Failed claims to remember; the oldest are dropped first."""


class Failures:
    """The last problem of every claim that could not be prepared."""

    def __init__(self, clocks: Clocks) -> None:
        self._clock = clocks.clock
        self.by_uid: dict[str, ClaimStatus] = {}

    def add(self, claim: ClaimReference, problem: str) -> None:
        """Remember why the claim could not be prepared."""
        self.forget(claim.uid)
        self.by_uid[claim.uid] = ClaimStatus(claim, ClaimState.REFUSED, since=self._clock(), problem=problem)
        if len(self.by_uid) > MOST_FAILURES:
            del self.by_uid[next(iter(self.by_uid))]

    def problem(self, uid: str) -> str:
        """The claim's last problem, empty if there is none."""
        return self.by_uid[uid].problem if uid in self.by_uid else ""

    def forget(self, uid: str) -> None:
        """Forget the problem: the claim is prepared, or released."""
        self.by_uid.pop(uid, None)


class ClaimBook:
    """The claims that hold devices, with the locks, tombstones, failures and clocks of all work on claims.

    ``records`` by UID: every claim that has taken its devices; ``kubelet``: the claims that the kubelet has on record.
    Preparation, recovery and collection share it. Publishes ``OfferChanged`` on the ledger's bus. For the event loop
    only.
    """

    def __init__(
        self,
        options: ClaimOptions,
        reader: ClaimReader,
        *,
        ledger: Ledger,
        events: EventRecorder,
        observer: ClaimObserver,
        steps: StepObserver,
        boot: str,
        clocks: Clocks,
        partitions: ClaimPartitions,
        sharing: ClaimSharing,
        interfaces: MovedInterfaces,
        metadata: MetadataFiles,
    ) -> None:
        """``boot``: the id of this boot. ``partitions``: those made for claims. ``sharing``: of GPUs by containers.

        ``interfaces``: of NICs, that move into pods. ``metadata``: files that describe claims' devices.
        """
        self.options = options
        self.reader = reader
        self.observer = observer
        self.boot = boot
        self.clock = clocks.clock
        self.monotonic = clocks.monotonic
        self.random = clocks.random
        self.locks = ClaimLocks()
        self.tombstones = Tombstones(options.tombstone_age, clocks)
        self.failures = Failures(clocks)
        self.records: dict[str, ClaimRecord] = {}
        self.ledger = ledger
        self.store = RecordStore(options.state_dir / "claims")
        self.specs = ClaimSpecs(options.cdi_dir, file_prefix(options.driver_name))
        self.metadata = metadata
        self.kubelet = KubeletFile(lambda: self.in_thread(read_kubelet_claims, options.kubelet_root))
        self.steps = steps
        self.partitions = partitions
        self.sharing = sharing
        self.interfaces = interfaces
        self.events = events
        self.remains: set[str] = set()
        """Released claims of which the disk still has something that could not be removed."""
        self._freed = asyncio.Event()
        self._threads = ThreadPoolExecutor(options.threads, thread_name_prefix="claims")

    async def in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Run blocking work in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def close(self) -> None:
        """End the threads once they have finished their work."""
        await self.partitions.close()
        await self.interfaces.close()
        await asyncio.to_thread(self._threads.shutdown)

    def take(self, record: ClaimRecord) -> None:
        """Take the record's devices in the ledger; raises ``HeldError`` and changes nothing."""
        self.ledger.take(record.claim.uid, record.holds)
        self.records[record.claim.uid] = record
        self.ledger.bus.publish(OfferChanged())

    def restore(self, record: ClaimRecord) -> None:
        """Enter the devices that the claim held before, even if somebody else holds them now."""
        for conflict in self.ledger.restore(record.claim.uid, record.holds):
            self.warn("ClaimsOverlap", f"claim {record.claim} ({record.claim.uid}): {conflict}; both keep it")
        self.records[record.claim.uid] = record
        self.ledger.bus.publish(OfferChanged())

    def give_up(self, uid: str) -> tuple[Hold, ...]:
        """Forget the claim in the ledger and in memory, and wake the calls that wait. Call it with the claim locked."""
        self.kubelet.released(uid)
        self.records.pop(uid, None)
        released = self.ledger.release(uid)
        self.wake()
        self.ledger.bus.publish(OfferChanged())
        return released

    def wake(self) -> None:
        """Wake every call that waits for a device."""
        self._freed.set()
        self._freed = asyncio.Event()

    async def freed(self, seconds: float) -> None:
        """Return after the next ``wake``, or after ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._freed.wait()

    async def prepare(self, record: ClaimRecord, *, has_begun: bool = False) -> ClaimRecord:
        """Write a claim that has taken its devices to disk, up to ``completed``; returns the record as written.

        It is without metadata files if these could not be written and are not required. Raises Unavailable: an older
        claim then keeps the state that it had, and nothing of a new one remains. ``has_begun``: ``begin`` has already
        written the record as ``started``.
        """
        try:
            written, problem = await self.in_thread(self._write_all, record, has_begun)
        except FileError as error:
            raise Unavailable(f"{error}; check the state folder and its disk") from error
        if problem:
            self._warn_no_metadata(record.claim, f"its containers get none: {problem}")
        self.records[record.claim.uid] = written
        self.interfaces.expect(written)
        return written

    async def begin(self, record: ClaimRecord) -> None:
        """Write to disk what is about to be made for a claim that has taken its devices; raises Unavailable."""
        started = replace(record, state=RecordState.STARTED)
        try:
            await self.in_thread(self.store.write, started)
        except FileError as error:
            raise Unavailable(f"{error}; check the state folder and its disk") from error
        self.records[record.claim.uid] = started
        self.steps.reached(ClaimStep.STARTED, record.claim.uid)

    async def renew(self, record: ClaimRecord) -> None:
        """Repair the CDI file and the metadata files of a completed claim, and its record if that differs."""
        try:
            problem = await self.in_thread(self._rewrite, record, self.records.get(record.claim.uid) != record)
        except FileError as error:
            raise Unavailable(f"{error}; check the state folder and its disk") from error
        if problem:
            self._warn_no_metadata(record.claim, f"{problem}; ostler tries again")
        self.records[record.claim.uid] = record
        self.interfaces.expect(record)

    def incomplete(self, records: Iterable[ClaimRecord]) -> list[ClaimRecord]:
        """Those of the records whose claims lack a file; blocking, for worker threads."""
        there = self.specs.uids()
        return [
            record
            for record in records
            if (record.spec and record.claim.uid not in there)
            or (record.metadata is not None and not self.metadata.is_whole(record.claim, record.metadata))
        ]

    def described(self) -> frozenset[str]:
        """UIDs of claims that have a CDI file or metadata files; blocking, for worker threads."""
        return self.specs.uids() | self.metadata.uids()

    async def release(self, claim: ClaimReference) -> None:
        """Release the claim's devices, first on disk. Call it with the claim locked.

        Raises ClaimError while a partition that was made for it is in use; the claim then keeps its devices. A
        partition that the driver cannot remove because its GPU is lost keeps no pod from ending: the collection tries
        again, and makes nothing in its place until then. An interface that cannot be taken back keeps the claim as
        well: its device is not free.
        """
        await self.take_back(claim)
        try:
            left = await self.unmake(claim)
        except PartitionNotMade as error:
            left = (f"a partition that was made for it remains for now: {error}",)
        left += await self.erase(claim.uid)
        self.give_up(claim.uid)
        self.steps.reached(ClaimStep.RELEASED, claim.uid)
        for problem in left:
            self.warn("ClaimReleaseIncomplete", f"claim {claim} is released, but {problem}")

    async def share(self, claim: ClaimReference, work: SharingWork) -> None:
        """Set up sharing of the claim's devices; raises ClaimError, and then has changed nothing."""
        if work or self.sharing.of(claim.uid):
            await self.sharing.apply(claim, work)
            self.steps.reached(ClaimStep.SHARED, claim.uid)

    async def take_back(self, claim: ClaimReference) -> None:
        """Take the claim's interfaces back from its pod; raises Unavailable."""
        is_out = self.interfaces.is_out(claim.uid)
        await self.interfaces.take_back(claim)
        if is_out:
            self.steps.reached(ClaimStep.TAKEN_BACK, claim.uid)

    async def unmake(self, claim: ClaimReference) -> tuple[str, ...]:
        """Undo the changes to GPUs for the claim, after removing the CDI file that needs them; returns what remains.

        Raises ClaimError if a partition that was made for it cannot be removed.
        """
        uid = claim.uid
        record = self.records.get(uid)
        gpus = [gpu for device in record.devices if device.partition for gpu in device.within] if record else []
        is_parted = bool(gpus or self.partitions.of(uid))
        if not is_parted and not self.sharing.of(uid):
            return ()
        await self.in_thread(self._remove_spec, uid)
        left: tuple[str, ...] = ()
        if self.sharing.of(uid):
            left = await self.sharing.remove(claim)
            self.steps.reached(ClaimStep.UNSHARED, uid)
        if is_parted:
            await self.partitions.remove(claim, gpus)
            self.steps.reached(ClaimStep.REMOVED, uid)
        return left

    async def erase(self, uid: str) -> tuple[str, ...]:
        """Remove the claim's files; returns what remains, in words.

        What remains does not keep a claim from being released: nobody will be given the names in a leftover CDI file,
        and the collection removes a leftover record.
        """
        left = await self.in_thread(self._remove_all, uid)
        if left:
            self.remains.add(uid)
        else:
            self.remains.discard(uid)
        return left

    def warn(self, reason: str, message: str) -> None:
        """Log a warning and post it as an event."""
        log.warning(message, extra={"reason": reason})
        self.events.emit(EventType.WARNING, reason, message)

    def _warn_no_metadata(self, claim: ClaimReference, problem: str) -> None:
        self.observer.metadata_failed()
        self.warn("ClaimMetadataFailed", f"metadata files of claim {claim}: {problem}")

    def _write_all(self, record: ClaimRecord, has_begun: bool) -> tuple[ClaimRecord, str]:
        """The record as written, and why it is without metadata files after all; empty if nothing failed."""
        uid = record.claim.uid
        if not has_begun:
            self.store.write(replace(record, state=RecordState.STARTED))
            self.steps.reached(ClaimStep.STARTED, uid)
        self.specs.ensure(uid, record.spec)
        self.steps.reached(ClaimStep.DESCRIBED, uid)
        problem = self._write_metadata(record)
        if problem:
            with contextlib.suppress(ClaimError):  # The sweep tries again.
                self.metadata.remove_any(uid)
            devices = unnamed(record.devices, self.options.driver_name)
            record = replace(record, devices=devices, metadata=None)
        self.steps.reached(ClaimStep.METADATA, uid)
        self.store.write(record)
        self.steps.reached(ClaimStep.COMPLETED, uid)
        return record, problem

    def _rewrite(self, record: ClaimRecord, changed: bool) -> str:
        """Why the metadata files could not be repaired, empty if they are there."""
        self.specs.ensure(record.claim.uid, record.spec)
        problem = self._write_metadata(record)
        if changed:
            self.store.write(record)
        return problem

    def _write_metadata(self, record: ClaimRecord) -> str:
        """Why the claim's metadata files are not written, empty if they are; Unavailable if they are required."""
        if record.metadata is not None:
            try:
                self.metadata.ensure(record.claim, record.metadata)
            except Unavailable as error:
                if self.options.metadata_required:
                    raise
                return str(error)
        return ""

    def _remove_spec(self, uid: str) -> None:
        with contextlib.suppress(ClaimError):  # The record's removal tries again and reports it.
            self.specs.remove(uid)

    def _remove_all(self, uid: str) -> tuple[str, ...]:
        left = []
        self.steps.reached(ClaimStep.RELEASING, uid)
        try:
            self.specs.remove(uid)
        except ClaimError as error:
            left.append(str(error))
        self.steps.reached(ClaimStep.UNDESCRIBED, uid)
        record = self.records.get(uid)
        try:
            if record is not None and record.metadata is not None:
                self.metadata.remove(record.claim, record.metadata)
            else:
                self.metadata.remove_any(uid)
        except ClaimError as error:
            left.append(str(error))
        self.steps.reached(ClaimStep.METADATA_GONE, uid)
        try:
            self.store.remove(uid)
        except FileError as error:
            left.append(f"{error}; check the state folder and its disk")
        self.steps.reached(ClaimStep.FORGOTTEN, uid)
        return tuple(left)
