"""NVML's signals of health for the event loop: events as they happen, and looks at an interval.

Each session of NVML has two daemon threads, made when the inventory opens the session and gone soon after it ends: one
waits for events, one polls. They use the inventory's session and never open their own; a node without NVIDIA's driver
has no session and so no thread. They hand what they find to the loop by ``call_soon_threadsafe``, under the device
names of the last snapshot; a finding about a GPU that no snapshot has shown yet waits for one that does.

Trade-off: threads that hang in a driver are left behind, since nothing can end them. They keep nobody waiting: the
session ends without them after a few seconds, the loop never waits for them, and the process ends without them.

A look can show that the last scan is out of date. Scans and looks read the same signs independently: a fault that a
scan has found counts until a scan finds it gone, and the next regular scan may be a minute away. So a look that finds
less than the last scan, or less than the look before, wakes the inventory. It does so once: where the two differ for
long, no scan follows each look.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from node.clocks import SELDOM, SYSTEM, Clocks, is_ahead, until_tick
from node.events import EventBus
from node.health.signal import Condition, HealthEvent, Look, Trouble
from node.inventory.facts import Fabric
from node.inventory.model import Device, DeviceKind, Snapshot, SourceState, SourceStatus
from node.inventory.nvidia.nvml_binding import Binding
from node.inventory.nvidia.nvml_session import NvmlSessions
from node.inventory.nvidia.signals.events import DOUBLE_BIT, UNAVAILABLE, WAIT, XID, EventWatch, GpuEvent
from node.inventory.nvidia.signals.gpus import GpuId
from node.inventory.nvidia.signals.polls import PULSE, LookMemory, NvmlPolls
from node.inventory.nvidia.signals.vitals import Vitals
from node.inventory.source import ScanWanted

log = logging.getLogger("ostler.nvml")

SOURCE = "nvml"
"""Name of the looks' source."""
STATUS = "nvml-signals"
"""Name of this source's status; the scan's is ``nvml``."""
ALL = 0xFFFFFFFF
"""How NVML writes that an event concerns every instance."""

_MOST_HUNG = 8
"""Threads left behind in the driver after which no more are made."""
_MOST_WAITING = 1000
"""Most different events that wait for the loop or for a snapshot; a driver with more repeats itself."""

HUNG = 30.0
"""Seconds after which a call counts as one that does not return."""
_VENDOR = "nvidia"

_Look = tuple[float, Mapping[GpuId, tuple[Condition, ...]], Mapping[GpuId, Vitals], float]
"""Unix seconds, the conditions and vitals of each GPU looked at, and how many seconds the look took."""


class NvmlSignals:
    """Publishes ``HealthEvent`` and ``Look`` on ``bus``, and ``ScanWanted`` when a scan should follow; on the loop.

    ``interval``: seconds between looks, ``pulse`` between questions whether GPUs answer; ``wait``: milliseconds of one
    wait for events; ``hung``: seconds after which a call is reported as hanging. All methods belong to the loop.
    """

    def __init__(
        self,
        sessions: NvmlSessions,
        bus: EventBus,
        *,
        clocks: Clocks = SYSTEM,
        interval: float = SELDOM,
        pulse: float = PULSE,
        wait: int = WAIT,
        hung: float = HUNG,
    ) -> None:
        self._sessions = sessions
        self._bus = bus
        self._clock = clocks.clock
        self._interval = interval
        self._pulse = pulse
        self._wait = wait
        self._hung = hung
        self._memory = LookMemory()
        self._names: dict[str, str] = {}
        self._unplaced_events: list[tuple[GpuEvent, float]] = []
        self._unplaced_found: dict[GpuId, tuple[float, tuple[Condition, ...]]] = {}
        self._unmonitored: dict[GpuId, str] = {}
        self._rescans = Rescans()
        self._faults: set[str] = set()
        self._reported: set[str] = set()
        self.vitals: dict[str, Vitals] = {}
        self.look_seconds = 0.0
        """How long the last look at all GPUs took."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        # Between the threads and the loop:
        self._lock = threading.Lock()
        self._arrived: dict[GpuEvent, float] = {}
        self._looks: deque[_Look] = deque()
        """Looks that the loop has not seen yet."""
        self._found: dict[GpuId, tuple[Condition, ...]] = {}
        """The last findings about each GPU; of the threads of the polls, of which one looks at a time."""
        self._polls: NvmlPolls | None = None
        self._watch: EventWatch | None = None

    async def run(self) -> None:
        """Report until cancelled; then the process is ending, and nobody waits for the threads any more."""
        self._loop = asyncio.get_running_loop()
        stop = self._sessions.follow(self._serve)
        try:
            while True:
                await asyncio.sleep(until_tick(self._interval, self._loop.time()))
                # As a call of its own, like those of the threads: what it raises is logged, and ends nothing.
                self._loop.call_soon(self._see_looks)
        finally:
            stop()
            self._ended.set()
            self._sessions.hurry()
            if self._polls is not None:
                self._polls.wake()

    def observe(self, snapshot: Snapshot) -> None:
        """Take in a snapshot, for the devices' names; call it with every published one."""
        self._rescans.observe(snapshot)
        names: dict[str, str] = {}
        for device in snapshot.devices:
            if device.kind is DeviceKind.GPU and device.vendor == _VENDOR:
                names |= {key: device.name for key in (device.pci_address, device.uuid) if key is not None}
        if names == self._names:
            return
        self._names = names
        self.vitals = {name: now for name, now in self.vitals.items() if name in names.values()}
        events, self._unplaced_events = self._unplaced_events, []
        for event, at in events:
            self._publish_event(event, at)
        found, self._unplaced_found = self._unplaced_found, {}
        for at in sorted({at for at, _ in found.values()}):
            self._publish_look(at, {gpu: conditions for gpu, (then, conditions) in found.items() if then == at})

    def look(self) -> None:
        """Look at all GPUs soon."""
        if self._polls is not None:
            self._polls.look()

    def notes(self) -> tuple[str, ...]:
        """Which GPUs are not watched and why, one sentence each; none of it is a fault of a device."""
        unheard = {
            f"{self._name(gpu) or 'GPUs'}: NVML reports no events ({reason}); health is polled only"
            for gpu, reason in self._unmonitored.items()
        }
        return tuple(sorted(unheard | self._failures()))

    def status(self) -> SourceStatus:
        """The status of the signals; a GPU without events is named, and is no failure."""
        reason = "; ".join(self.notes())
        if self._failures():
            return SourceStatus(STATUS, SourceState.FAILED, reason)
        if self._sessions.current is None:
            return SourceStatus(STATUS, SourceState.WAITING, "NVML is not open")
        return SourceStatus(STATUS, SourceState.OK, reason)

    def _failures(self) -> set[str]:
        found = set(self._faults)
        if self._polls is not None and self._hangs(self._polls.looking):
            found.add("the driver does not answer questions about health: a call does not return")
        if self._watch is not None and self._hangs(self._watch.waiting):
            found.add("the driver reports no events: a wait for them does not return")
        return found

    def _hangs(self, since: float | None) -> bool:
        return since is not None and time.monotonic() - since > self._hung

    # In the inventory's worker thread, when a session opens:

    def _serve(self, binding: Binding) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if self._ended.is_set():
            return
        self._post(self._faults.clear)
        if len(self._threads) >= _MOST_HUNG:
            fault = f"{len(self._threads)} threads hang in the driver: from now on only scans report health"
            self._post(self._faults.add, fault)
            return
        polls = NvmlPolls(binding, self, self._memory, self._ended, interval=self._interval, pulse=self._pulse)
        with self._lock:
            self._polls = polls
        self._watch = watch = EventWatch(binding, self, self._ended, self._wait)
        for name, target in (("nvml-events", watch.watch), ("nvml-polls", polls.poll)):
            thread = threading.Thread(target=self._guarded, args=(target,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    # In the threads:

    def _guarded(self, target: Callable[[], None]) -> None:
        try:
            target()
        except Exception as error:  # A bug of ours, until the next session; the log and the status report it.
            log.exception("listening to NVML ended")
            self._post(self._faults.add, f"listening to NVML ended: internal error: {type(error).__name__}: {error}")

    def on_event(self, event: GpuEvent) -> None:
        """An event of the driver."""
        with self._lock:
            first = not self._arrived
            if len(self._arrived) < _MOST_WAITING:
                self._arrived.setdefault(event, self._clock())
            polls = self._polls
        if first:
            self._post(self._drain)
        if polls is not None:
            polls.look((event.gpu,))

    def on_fault(self) -> None:
        """A GPU is lost, or the driver does not answer."""
        with self._lock:
            polls = self._polls
        if polls is not None:
            polls.look()
        self._post(self._bus.publish, ScanWanted())

    def on_unmonitored(self, gpus: dict[GpuId, str]) -> None:
        """Note which GPUs report no events."""
        self._post(self._note, gpus)

    def on_look(
        self, found: Mapping[GpuId, tuple[Condition, ...]], vitals: Mapping[GpuId, Vitals], seconds: float
    ) -> None:
        """Take in a look; the loop sees it at the next tick if it finds what the one before has found."""
        is_new = any(self._found.get(gpu) != conditions for gpu, conditions in found.items())
        self._found |= found
        self._looks.append((self._clock(), found, vitals, seconds))
        if is_new or not is_ahead(self._interval, time.monotonic()):
            self._post(self._see_looks)

    def _post(self, call: Callable[..., object], *arguments: object) -> None:
        loop = self._loop
        if loop is None or self._ended.is_set():
            return
        try:
            loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return  # The loop was closed: the process ends, and nobody is left to read it.

    # On the loop:

    def _drain(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, {}
        for event, at in arrived.items():
            self._publish_event(event, at)

    def _name(self, gpu: GpuId) -> str | None:
        return self._names.get(gpu.uuid or "") or self._names.get(gpu.address or "")

    def _publish_event(self, event: GpuEvent, at: float) -> None:
        device = self._name(event.gpu)
        if device is None:
            if len(self._unplaced_events) < _MOST_WAITING:
                self._unplaced_events.append((event, at))
            return
        found = _health_event(event, device, at)
        if found is not None:
            self._bus.publish(found)

    def _see_looks(self) -> None:
        while self._looks:
            self._see(*self._looks.popleft())

    def _see(
        self,
        at: float,
        found: Mapping[GpuId, tuple[Condition, ...]],
        vitals: Mapping[GpuId, Vitals],
        seconds: float,
    ) -> None:
        if len(vitals) >= len(self.vitals):
            self.look_seconds = seconds
        if self._rescans.follows({gpu: (self._name(gpu), each) for gpu, each in found.items()}, vitals):
            self._bus.publish(ScanWanted())
        self.vitals |= {name: now for gpu, now in vitals.items() if (name := self._name(gpu)) is not None}
        self._publish_look(at, found)

    def _publish_look(self, at: float, found: Mapping[GpuId, tuple[Condition, ...]]) -> None:
        placed = {}
        for gpu, conditions in found.items():
            name = self._name(gpu)
            if name is None:
                self._unplaced_found[gpu] = at, conditions
            else:
                placed[name] = conditions
        if placed:
            self._bus.publish(Look(SOURCE, at, placed))

    def _note(self, gpus: dict[GpuId, str]) -> None:
        self._unmonitored = gpus
        for note in self.notes():
            if note not in self._reported:
                self._reported.add(note)
                log.warning("%s", note)


def _health_event(event: GpuEvent, device: str, at: float) -> HealthEvent | None:
    """The health event for an event of the driver; None if it only calls for a look."""
    instance = None if event.gpu_instance == ALL else (event.gpu_instance, event.compute_instance)
    if event.kind == XID:
        return HealthEvent(device, Trouble.XID, at, f"XID {event.data}", event.data, instance)
    if event.kind == DOUBLE_BIT:
        return HealthEvent(device, Trouble.ECC, at, "the driver reports a double-bit memory error", None, instance)
    if event.kind == UNAVAILABLE:
        # Not LOST, which may cost pods: whether it left the bus is found by the look that follows.
        return HealthEvent(device, Trouble.RECOVERY, at, "the driver reports that the GPU is unavailable")
    return None


_SEEN_BY_BOTH = frozenset({Trouble.LOST, Trouble.RECOVERY, Trouble.ROW_REMAP, Trouble.SRAM, Trouble.FABRIC})
"""Troubles that both scans and looks report."""

Found = Mapping[GpuId, tuple[str | None, tuple[Condition, ...]]]
"""The name of a GPU's device, where a snapshot has it, and what a look found."""


class Rescans:
    """The findings of the last scan and of the last look at each GPU."""

    def __init__(self) -> None:
        self._scanned: dict[str, str] = {}
        """The cause by the device's name, until a look does not find it."""
        self._looked: dict[GpuId, frozenset[tuple[Trouble, int | None]]] = {}
        self._fabrics: dict[GpuId, Fabric | None] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """A scan was published."""
        self._scanned = {device.name: device.health.cause for device in snapshot.devices if _is_comparable(device)}

    def follows(self, found: Found, vitals: Mapping[GpuId, Vitals]) -> bool:
        """Whether a scan should follow this look."""
        differs = [self._has_another_fabric(gpu, now) for gpu, now in vitals.items()]
        differs += [self._finds_less(gpu, name, conditions) for gpu, (name, conditions) in found.items()]
        return any(differs)

    def _has_another_fabric(self, gpu: GpuId, now: Vitals) -> bool:
        """Whether the clique, which scans report, may have changed."""
        if now.gone is not None:
            return False
        before = self._fabrics.get(gpu, now.fabric)
        self._fabrics[gpu] = now.fabric
        return before != now.fabric

    def _finds_less(self, gpu: GpuId, name: str | None, conditions: tuple[Condition, ...]) -> bool:
        found = frozenset((each.kind, each.code) for each in conditions if each.kind in _SEEN_BY_BOTH)
        before, self._looked[gpu] = self._looked.get(gpu, frozenset()), found
        is_over = bool(before - found)
        # A look may see nothing of what a scan has seen, as when it came late.
        if name in self._scanned and self._scanned[name] not in {kind for kind, _ in found}:
            del self._scanned[name]
            is_over = True
        return is_over


def _is_comparable(device: Device) -> bool:
    return device.kind is DeviceKind.GPU and device.health.cause in _SEEN_BY_BOTH
