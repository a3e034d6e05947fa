"""Makes, tracks and removes the partitions of GPUs that claims ask for.

The maker (``node.partitions.PartitionMaker``) blocks as long as the driver does, so it runs in threads of its own: a
slow GPU delays neither claims of other GPUs nor the loop. One call at a time changes a GPU; while a hanging driver
keeps that call, no other call starts for the GPU, so it never occupies more than one thread. The maker keeps its own
record of what it is about to make, by the claim's UID. This module knows it as well, because an instance that a claim
made belongs to the claim, and every other instance to somebody else (``driver.devices.partitions``).

The order of the steps makes a kill between any two of them harmless: the claim's record says what will be made, the
maker makes the partition, the inventory sees it, and then it is prepared like any MIG device. At the release the CDI
file goes first, then the partition, then the record. The next start removes partitions of claims that are no longer on
record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from driver.claims.contracts import ClaimObserver
from driver.claims.model import ClaimReference, PartitionNotMade, PartitionPending, Unavailable
from node.clocks import SYSTEM, Clocks
from node.events import EventBus
from node.inventory.model import Device, PartitionShape
from node.ledger.events import OfferChanged
from node.partitions import (
    Partition,
    PartitionError,
    PartitionMaker,
    PartitionsRemoved,
    partition_name,
    whole_of_partition,
)
from node.tasks import report_fault
from node.values import Value, value

T = TypeVar("T")
log = logging.getLogger("ostler.claims")

THREADS = 8
"""GPUs whose partitions change at the same time."""
FADING = 1.0
"""Seconds until the inventory looks for removed partitions, for all of them at once."""
_AGAIN = 60.0
"""Seconds until a GPU that could not leave MIG mode is tried again."""
_PATIENCE = 40.0
"""Seconds for a call to the maker; the kubelet gives its own call 45."""
_HANGS = "the driver does not answer"
_PENDING = "ostler tries again when the kubelet asks again"


@value
class PartitionWork(Value):
    """The changes that must precede a claim's preparation: ``make`` on these GPUs, ``leave`` MIG mode on those."""

    make: tuple[tuple[Device, PartitionShape], ...] = ()
    leave: tuple[Device, ...] = ()

    @property
    def gpus(self) -> frozenset[str]:
        """UUIDs of the GPUs that change."""
        return frozenset(gpu.uuid or "" for gpu in (*(gpu for gpu, _ in self.make), *self.leave))

    def __bool__(self) -> bool:
        return bool(self.make or self.leave)

    def __str__(self) -> str:
        made = [f"making {shape.profile} on {gpu.name}" for gpu, shape in self.make]
        return " and ".join((*made, *(f"leaving MIG mode on {gpu.name}" for gpu in self.leave)))


class ClaimPartitions:
    """Makes and removes the partitions of claims; for the event loop only.

    ``rescan``: scans at least the GPUs with these UUIDs again, or everything if there are none; returns when the
    inventory has published the result. ``patience``: seconds for the driver.
    """

    def __init__(
        self,
        maker: PartitionMaker | None,
        rescan: Callable[[frozenset[str]], Awaitable[object]],
        observer: ClaimObserver,
        clocks: Clocks,
        bus: EventBus,
        *,
        patience: float = _PATIENCE,
    ) -> None:
        self._maker = maker
        self._patience = patience
        self._rescan = rescan
        self._bus = bus
        self._observer = observer
        self._monotonic = clocks.monotonic
        self._made: dict[str, dict[str, str]] = {}
        """By claim, the UUID of each of its partitions by device name; empty while the partition is being made."""
        self._fading: dict[str, bool] = {}
        """Names of partitions being removed that may still be shown; whether the inventory has scanned since."""
        self._gone: dict[str, str] = {}
        """The UUIDs of these partitions."""
        self._tried: dict[str, float] = {}
        """When a GPU was last asked to leave MIG mode."""
        self._locks: dict[str, asyncio.Lock] = {}
        self._calls: dict[str, asyncio.Future[Any]] = {}
        """The last call about each GPU, by name."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="partitions")
        self._tasks: set[asyncio.Task[None]] = set()

    def names(self) -> frozenset[str]:
        """Every partition that was made for a claim, is being made, or may still be visible."""
        return frozenset(name for made in self._made.values() for name in made) | self._fading.keys()

    def uuids(self) -> frozenset[str]:
        """The UUIDs of the same partitions."""
        made = [uuid for parts in self._made.values() for uuid in parts.values() if uuid]
        return frozenset((*made, *self._gone.values()))

    def of(self, uid: str) -> Mapping[str, str]:
        """The partitions of a claim by device name, and their UUIDs."""
        return self._made.get(uid, {})

    def shown(self, existing: Collection[str]) -> None:
        """Note that the doors show these partitions as existing; they never show an older state again."""
        for name in [name for name, looked in self._fading.items() if looked and name not in existing]:
            del self._fading[name]
            self._gone.pop(name, None)

    async def recover(self, owners: Collection[str]) -> tuple[str, ...]:
        """Take over what an earlier process made for these claims, remove the rest; returns what failed."""
        if self._maker is None:
            return ()
        problems = []
        if self._maker.fault:
            fix = (
                "if 'ostler devices' shows one that no claim has, remove it (nvidia-smi mig -dci, nvidia-smi mig -dgi)"
            )
            problems.append(f"{self._maker.fault}; partitions that it named stay when their claims end; {fix}")
        try:
            self._know(await self._in_thread(self._maker.made))
            if not self._made.keys() <= set(owners):
                swept = await self._ask((), self._maker.sweep, frozenset(owners))
                self._know(await self._in_thread(self._maker.made))
                self._fade(swept)
                self._observer.partitions_removed(len(swept))
        except PartitionError as error:
            problems.append(f"partitions of released claims may remain: {error}")
        return tuple(problems)

    async def make(self, claim: ClaimReference, work: PartitionWork) -> None:
        """Make the partitions; raises ``PartitionPending`` or ``PartitionNotMade``, and keeps those already made."""
        for gpu in work.leave:
            async with self._lock(gpu.name):
                await self._do(claim, (gpu.name,), self._required().leave_partitioning, gpu)
        for gpu, shape in work.make:
            made = self._made.setdefault(claim.uid, {})
            made.setdefault(partition_name(gpu.name, shape), "")
            async with self._lock(gpu.name):
                began = self._monotonic()
                partition = await self._do(claim, (gpu.name,), self._required().make, gpu, shape, claim.uid)
                self._observer.partition_made(self._monotonic() - began)
            made[partition_name(gpu.name, shape)] = partition.uuid

    async def remove(self, claim: ClaimReference, gpus: Iterable[str] = ()) -> None:
        """Remove the claim's partitions from these GPUs.

        Raises ``PartitionPending`` or ``PartitionNotMade``.
        """
        if self._maker is None:
            return
        wholes = sorted({*gpus, *map(whole_of_partition, self.of(claim.uid))})
        async with contextlib.AsyncExitStack() as stack:
            for gpu in wholes:
                await stack.enter_async_context(self._lock(gpu))
            gone = await self._do(claim, wholes, self._maker.remove, claim.uid)
        self._made.pop(claim.uid, None)
        self._fade(gone)
        self._observer.partitions_removed(len(gone))

    def leave_idle(self, gpus: Iterable[Device], is_free: Callable[[str], bool]) -> None:
        """Have these GPUs leave MIG mode, since pods may get them whole; one that cannot is tried again later.

        ``is_free``: called with a GPU's name at the last moment; whether nobody holds the GPU or a part of it.
        """
        for gpu in gpus:
            if self._maker is None or self._tried.get(gpu.name, -math.inf) + _AGAIN > self._monotonic():
                continue
            self._tried[gpu.name] = self._monotonic()
            self._spawn(self._left(gpu, is_free))

    async def _left(self, gpu: Device, is_free: Callable[[str], bool]) -> None:
        async with self._lock(gpu.name):
            if not is_free(gpu.name):
                self._tried.pop(gpu.name, None)
                return
            try:
                await self._ask((gpu.name,), self._required().leave_partitioning, gpu)
            except PartitionError as error:
                log.info("a GPU remains in MIG mode for now", extra={"device": gpu.name, "reason": error.reason})
                return
        self._tried.pop(gpu.name, None)
        with contextlib.suppress(Unavailable):
            await self.look(frozenset(filter(None, (gpu.uuid,))))

    def leftovers(self, owners: Collection[str]) -> tuple[str, ...]:
        """UIDs of claims other than these that still have partitions."""
        return tuple(sorted(self._made.keys() - set(owners)))

    async def look(self, gpus: frozenset[str] = frozenset()) -> None:
        """Have the inventory scan the GPUs with these UUIDs, or everything if there are none.

        Raises Unavailable if the inventory has ended.
        """
        try:
            await self._rescan(gpus)
        except Exception as error:  # Whatever it is, the claim cannot go on: the kubelet learns of it, and asks again.
            raise Unavailable(f"the devices cannot be scanned: {error}; the kubelet asks again") from error

    async def close(self) -> None:
        """Return when all calls that were begun have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self._threads.shutdown)

    def _required(self) -> PartitionMaker:
        if self._maker is None:
            raise PartitionNotMade(
                "partitions of GPUs cannot be made on this node: no driver that makes them is loaded"
            )
        return self._maker

    def _know(self, partitions: Iterable[Partition]) -> None:
        self._made = {}
        for each in partitions:
            self._made.setdefault(each.owner, {})[each.device] = each.uuid

    async def _do(self, claim: ClaimReference, gpus: Collection[str], work: Callable[..., T], *arguments: object) -> T:
        try:
            return await self._ask(gpus, work, *arguments)
        except PartitionError as error:
            self._observer.partition_failed(pending=error.pending)
            if error.pending:
                raise PartitionPending(f"claim {claim} waits: {error}; {_PENDING}") from error
            raise PartitionNotMade(f"claim {claim}: {error}") from error

    async def _ask(self, gpus: Collection[str], work: Callable[..., T], *arguments: object) -> T:
        """The maker's answer about these GPUs; raises PartitionError, also while an earlier call is still running."""
        for gpu in gpus:
            if gpu in self._calls and not self._calls[gpu].done():
                raise PartitionError(gpu, f"{_HANGS} an earlier call", pending=True)
        call = asyncio.ensure_future(self._in_thread(work, *arguments))
        self._calls.update(dict.fromkeys(gpus, call))
        # It goes on when nobody waits for it any more: a call into the driver cannot be cancelled.
        try:
            done, _ = await asyncio.wait([call], timeout=self._patience)
        finally:
            if not call.done():
                report_fault(call, "a call into the driver that nobody waits for", (PartitionError,))
        if not done:
            raise PartitionError(", ".join(gpus) or "the sweep", f"{_HANGS} within {self._patience:g} s", pending=True)
        return call.result()

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    @contextlib.asynccontextmanager
    async def _lock(self, gpu: str) -> AsyncIterator[None]:
        async with self._locks.setdefault(gpu, asyncio.Lock()):
            yield

    def _fade(self, gone: Iterable[Partition]) -> None:
        """Treat these removed partitions as ours until the inventory has seen that they are gone."""
        gone = tuple(gone)
        names = [each.device for each in gone]
        if not names:
            return
        self._bus.publish(PartitionsRemoved(frozenset(each.uuid for each in gone)))
        self._fading.update(dict.fromkeys(names, False))
        self._gone.update({each.device: each.uuid for each in gone})
        self._spawn(self._faded(names, frozenset(each.gpu_uuid for each in gone)))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _faded(self, names: Iterable[str], gpus: frozenset[str]) -> None:
        # The next claim has the devices scanned anyway, and must not wait for this scan to end.
        await asyncio.sleep(FADING)
        try:
            await self.look(gpus)
        except Unavailable as error:
            log.info("the scan for removed partitions failed", extra={"reason": str(error)})
        self._fading.update(dict.fromkeys(names, True))
        self._bus.publish(OfferChanged())


def unpartitioned(bus: EventBus) -> ClaimPartitions:
    """Partitions on a node that can make none."""

    async def look(_: frozenset[str]) -> None:
        """Do nothing: there are no partitions."""

    return ClaimPartitions(None, look, ClaimObserver(), SYSTEM, bus)
