"""Processes that outlive their container: devices that are free according to the ledger and may still be in use.

A device that both doors may offer is allocated again only after a check found no compute process on it; until then it
is pending release, with the process named. ``PendingRelease`` decides, pure and for the event loop alone, which checks
to make and what follows; ``ProcessCheck`` makes them in a thread, one at a time, so that a driver that hangs keeps
devices pending and nothing else waiting.

Invariants: a device that nobody holds is either pending release or was found free (or released by a person) after its
last hold; a check counts only if the device was not held since the check was ordered. Trade-off: if the agent cannot
see processes, or a driver never reports them, the check is off and says so, instead of keeping devices forever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping

from node.clocks import Clocks
from node.events import EventBus, EventRecorder, EventType
from node.health.wording import named
from node.inventory.live.passing import in_passing
from node.inventory.model import Device
from node.ledger.events import HoldsObserver, ReleasesAdvanced, ReleasesPending
from node.ledger.holds import Hold, HoldState, pending_owner, slices_of, wholes_of
from node.ledger.processes import DAEMONS, ComputeProcesses, Process, has_processes, ignored
from node.values import Record, Value, record, value

log = logging.getLogger("ostler.holds")


QUICK, SLOW = 0.5, 10.0
"""Seconds between checks of a device with a process: most are just ending, so the first checks follow quickly."""
NAMED = 3
"""Most processes named for one device."""


@value
class CheckOrder(Value):
    """A check to make; ``number`` distinguishes it from checks of the same device before its last hold."""

    device: Device
    number: int


@record
class _Pending(Record):
    order: CheckOrder
    since: float
    due: float
    looks: int = 0
    left: tuple[Process, ...] = ()
    problem: str = ""

    @property
    def words(self) -> str:
        if self.left:
            return _named(self.left)
        fails = f", which fails: {self.problem}" if self.problem else ""
        return f"ostler is checking for processes that still use it{fails}"


class PendingRelease:
    """``off``: why nothing is checked, for people; devices are then free at once. ``ignore``: names of processes."""

    def __init__(self, *, ignore: Iterable[str] = DAEMONS, off: str = "") -> None:
        self.off = off
        self._ignore = tuple(ignore)
        self._numbers = 0
        self._pending: dict[str, _Pending] = {}
        self._wholes: dict[str, tuple[str, ...]] = {}
        """Devices that both doors may offer."""
        self._free: set[str] = set()
        """Devices that a check found free, that cannot be checked, or that a person has released."""

    def update(self, devices: Collection[Device], holds: Iterable[Hold], now: float, at: float) -> None:
        """Compare the devices that both doors may offer with the holds; ``now`` is monotonic, ``at`` Unix seconds.

        Call this in the same step in which a hold ends: from then on the device is pending release.
        """
        if self.off:
            return
        held: set[str] = set()
        places: set[str] = set()
        for hold in holds:
            if hold.door is not None and not hold.admin:
                held.add(hold.device)
                places.update((hold.device, *hold.within))
        seen = set()
        self._wholes = {device.name: wholes_of(device) for device in devices if has_processes(device)}
        for device in devices:
            name = device.name
            if name not in self._wholes or name in places or not held.isdisjoint(self._wholes[name]):
                continue
            seen.add(name)
            if (pending := self._pending.get(name)) is not None:
                # A new MIG device under its name has another UUID, and a search for the old one would find nothing.
                pending.order = CheckOrder(device, pending.order.number)
            elif name not in self._free:
                self._numbers += 1
                self._pending[name] = _Pending(CheckOrder(device, self._numbers), at, now)
        # Held devices, and those that no longer belong to both doors, are checked again when that changes.
        self._pending = {name: pending for name, pending in self._pending.items() if name in seen}
        self._free &= seen

    def taken(self, device: str, places: Collection[str]) -> None:
        """The device was taken, which is or is part of ``places``: what was found before does not count any more."""
        for name in (*self._pending, *self._free):
            if name in places or device in self._wholes.get(name, ()):
                self._pending.pop(name, None)
                self._free.discard(name)

    @property
    def has_findings(self) -> bool:
        """Whether ``taken`` has anything to forget."""
        return bool(self._pending or self._free)

    def due(self, now: float) -> tuple[CheckOrder, ...]:
        """Checks that are due."""
        return tuple(pending.order for pending in self._pending.values() if pending.due <= now)

    def next_due(self) -> float | None:
        """When the next check is due (monotonic); None for never."""
        return min((pending.due for pending in self._pending.values()), default=None)

    def looked(self, order: CheckOrder, processes: tuple[Process, ...] | None, now: float) -> tuple[Process, ...]:
        """Take in what a check found; None if the driver reports no processes. Returns those that block the device."""
        pending = self._current(order)
        if pending is None:
            return ()
        left = tuple(item for item in processes or () if not ignored(item.name, self._ignore))
        if left:
            self._again(pending, now)
            pending.left, pending.problem = left, ""
        else:
            del self._pending[order.device.name]
            self._free.add(order.device.name)
        return left

    def failed(self, order: CheckOrder, problem: str, now: float) -> None:
        """Note that a check failed this time; the device stays pending release."""
        pending = self._current(order)
        if pending is not None:
            self._again(pending, now)
            pending.problem = problem

    def release(self, device: str) -> bool:
        """Release the device because a person declares it free, until its next hold; False if it is not pending
        release."""
        if self._pending.pop(device, None) is None:
            return False
        self._free.add(device)
        return True

    @property
    def unchecked(self) -> frozenset[str]:
        """Devices for both doors that no check has found free since they, or devices that overlap them, were held."""
        return frozenset(self._wholes.keys() - self._free)

    def found_free(self, device: str) -> bool:
        """Whether nobody has held the device since a check found it free or a person released it."""
        return device in self._free

    def left(self, device: str) -> tuple[Process, ...]:
        """Processes that the last check found on a device that is pending release."""
        pending = self._pending.get(device)
        return () if pending is None else pending.left

    def wanted(self) -> Mapping[str, Hold]:
        """The holds of devices that are pending release, by device."""
        return {
            name: Hold(
                name,
                None,
                pending.words,
                pending.since,
                owner=pending_owner(name),
                within=wholes_of(pending.order.device),
                slices=slices_of(pending.order.device),
                state=HoldState.PENDING_RELEASE,
            )
            for name, pending in self._pending.items()
        }

    def _current(self, order: CheckOrder) -> _Pending | None:
        pending = self._pending.get(order.device.name)
        return pending if pending is not None and pending.order.number == order.number else None

    @staticmethod
    def _again(pending: _Pending, now: float) -> None:
        pending.due = now + min(QUICK * 2.0 ** min(pending.looks, 16), SLOW)
        pending.looks += 1


def _named(processes: tuple[Process, ...]) -> str:
    more = f" and {len(processes) - NAMED} more" if len(processes) > NAMED else ""
    return f"process{'es' if len(processes) > 1 else ''} {', '.join(map(str, processes[:NAMED]))}{more}"


@value
class _Finding(Value):
    order: CheckOrder
    processes: tuple[Process, ...] | None = None
    problem: str = ""


class ProcessCheck:
    """Makes the checks that are ordered while ``run`` runs, and publishes ``ReleasesAdvanced`` on ``bus``."""

    def __init__(
        self,
        pending_release: PendingRelease,
        processes: ComputeProcesses,
        bus: EventBus,
        *,
        clocks: Clocks,
        events: EventRecorder,
        observer: HoldsObserver = HoldsObserver(),  # noqa: B008 - it has no state
    ) -> None:
        self._pending_release = pending_release
        self._processes = processes
        self._bus = bus
        self._clock = clocks.monotonic
        self._events = events
        self._observer = observer
        self._named: dict[str, tuple[int, tuple[Process, ...]]] = {}
        """The processes already reported, and the number of the order that found them."""
        self._unseen: set[str] = set()
        """Devices whose driver was reported to show no processes."""
        self._woken = asyncio.Event()
        self._awaited: float | None = None
        """When the check is due that ``run`` waits for (monotonic); None for none."""
        bus.subscribe(ReleasesPending, self._wake)

    def _wake(self, _: ReleasesPending) -> None:
        """Wait for another check if another one is due first; most calls of Allocate publish this and order none."""
        if self._pending_release.next_due() != self._awaited:
            self._woken.set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self._woken.clear()
            due = self._awaited = self._pending_release.next_due()
            left = None if due is None else due - self._clock()
            if left is None or left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._woken.wait()
            else:
                await self._look(self._pending_release.due(self._clock()))

    async def _look(self, orders: tuple[CheckOrder, ...]) -> None:
        before = self._pending_release.wanted()
        findings = await in_passing(self._find, orders)
        for finding in findings:
            self._take(finding)
        self._report_unseen(
            {each.order.device.name for each in findings if not each.problem and each.processes is None}
        )
        if self._pending_release.wanted() != before:
            self._bus.publish(ReleasesAdvanced())

    def _find(self, orders: tuple[CheckOrder, ...]) -> list[_Finding]:
        """In the thread."""
        return [self._found(order) for order in orders]

    def _found(self, order: CheckOrder) -> _Finding:
        try:
            return _Finding(order, self._processes.compute_processes(order.device))
        except OSError as error:
            return _Finding(order, problem=error.strerror or str(error))

    def _take(self, finding: _Finding) -> None:
        order, now = finding.order, self._clock()
        name = order.device.name
        if finding.problem:
            self._pending_release.failed(order, finding.problem, now)
            return
        left = self._pending_release.looked(order, finding.processes, now)
        self._observer.looked(len(left))
        number, before = self._named.pop(name, (order.number, ()))
        if number != order.number:
            # The device was free or held in between.
            before = ()
        if left:
            self._named[name] = order.number, left
        if left and left != before:
            whose = f"{name} is free, but still used by {self._pending_release.wanted()[name].holder}"
            fix = f"it is offered again when no process uses it, or after 'ostler holds release {name}'"
            self._events.emit(EventType.WARNING, "DeviceDraining", f"{whose}; {fix}")
        elif before and not left and name not in self._pending_release.wanted():
            self._events.emit(EventType.NORMAL, "DeviceDrained", f"no process is left on {name}")

    def _report_unseen(self, names: set[str]) -> None:
        untold = sorted(names - self._unseen)
        self._unseen.update(untold)
        if untold:
            about = {"devices": named(untold)}
            log.warning("ostler does not check for left-over processes: the driver reports none", extra=about)
