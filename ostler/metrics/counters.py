"""The agent's counters since its start: scans, configuration, event loop, the plugin door, and holds.

To add a counter, declare it here (or in the part that counts, see ``node.metrics``) and increment it where the event
happens; the table in ``docs/metrics.md`` must name it. Only the loop's thread writes to these counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node.clocks import SYSTEM, Clocks
from node.health.state import HealthState
from node.inventory.loop import ScanDone, SnapshotPublished
from node.inventory.model import SourceState
from node.ledger.events import HoldsObserver, ReadingOutcome
from node.metrics import Counter, Gauge, Histogram
from node.rules import Door
from node.sockets import FileId
from ostler.config.errors import NoteKind
from plugin.observer import PluginObserver

CALLS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
"""Upper bounds in seconds: answers come from memory, so anything above a few milliseconds is worth seeing."""
SCANS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a small recorded node to a driver that is about to hang."""
DELAYS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
"""From an idle machine to a loop that a probe calls dead."""
READINGS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""From an answer from memory to a kubelet that does not answer."""
_RESULTS = {"OK": "granted", "INVALID_ARGUMENT": "refused"}
"""Result of an Allocate call by its status code; every other code is a fault of ours."""
_WELL, _ILL = HealthState.HEALTHY.value, HealthState.UNHEALTHY.value


def _each(words: Iterable[str]) -> list[tuple[str]]:
    return [(str(word),) for word in words]


class ScanMetrics:
    """Scans of the hardware and what they found."""

    def __init__(self, clocks: Clocks = SYSTEM) -> None:
        self._clock = clocks.clock
        self.durations = Histogram("ostler_scan_duration_seconds", "Time to scan all hardware.", SCANS)
        self.last = Gauge(
            "ostler_last_scan_timestamp_seconds",
            "Unix time at which the last scan ended; there is no series before the first.",
        )
        self.failures = Counter("ostler_source_failures", "Scans in which a source failed.", ("source",))
        self.changes = Counter(
            "ostler_device_changes",
            "Devices that came or went after the first scan.",
            ("kind", "change"),
            _each(["added", "removed"]),
            per=("kind",),
        )
        self.transitions = Counter(
            "ostler_health_transitions",
            "Devices whose health changed between two scans; ostler_health_verdicts has the resulting verdicts.",
            ("kind", "from", "to"),
            [(_WELL, _ILL), (_ILL, _WELL)],
            per=("kind",),
        )

    def scanned(self, done: ScanDone) -> None:
        """A scan ended, whether it found anything new or not."""
        self.durations.observe(done.seconds)
        self.last.set(self._clock())
        for source in done.sources:
            self.failures.add(source.name, by=source.state is SourceState.FAILED)

    def published(self, published: SnapshotPublished) -> None:
        """Count a published snapshot; the findings of the first scan are no changes."""
        found = published.changes
        if published.snapshot.generation <= 1:
            return
        for device in found.added:
            self.changes.add(device.kind.value, "added")
        for device in found.removed:
            self.changes.add(device.kind.value, "removed")
        for change in found.changed:
            old, new = change.old.health.state.value, change.new.health.state.value
            if old != new:
                self.transitions.add(change.new.kind.value, old, new)


class ConfigMetrics:
    """Reads of the configuration, and facts about the one in force. ``now``: Unix seconds of the first read."""

    def __init__(self, now: float) -> None:
        self.successful = Gauge(
            "ostler_config_last_reload_successful", "1 if the last attempt to read the configuration succeeded."
        )
        self.loaded = Gauge(
            "ostler_config_last_reload_success_timestamp_seconds",
            "Unix time at which the configuration in force was read.",
        )
        self.reloads = Counter(
            "ostler_config_reloads",
            "Attempts to read the configuration again.",
            ("result",),
            _each(["success", "failure"]),
        )
        self.pending = Gauge(
            "ostler_config_pending_settings",
            "Settings that the file changed and that take effect with the next restart.",
        )
        self.notes = Gauge(
            "ostler_config_notes",
            "Notes on the configuration in force: values taken or ignored, remarks, faults.",
            ("kind",),
        )
        self._read(now, 0)
        self.noted({})

    def noted(self, notes: Mapping[str, int]) -> None:
        """The configuration in force has that many notes of each kind."""
        for kind in sorted(NoteKind):
            self.notes.set(notes.get(kind.value, 0), kind.value)

    def reloaded(self, now: float, pending: int) -> None:
        """A reload took effect; ``pending`` settings need a restart."""
        self._read(now, pending)
        self.reloads.add("success")

    def failed(self) -> None:
        """A reload was refused and the old configuration is in force."""
        self.successful.set(0)
        self.reloads.add("failure")

    def _read(self, now: float, pending: int) -> None:
        self.successful.set(1)
        self.loaded.set(now)
        self.pending.set(pending)


class LoopMetrics:
    """Signs of life of the event loop: the time of the newest (Unix seconds), and how late they come."""

    def __init__(self, now: float) -> None:
        self.heartbeat = Gauge(
            "ostler_heartbeat_timestamp_seconds", "Unix time of the event loop's last sign of life, due every 9.5 s."
        )
        self.heartbeat.set(now)
        self.delays = Histogram("ostler_loop_delay_seconds", "How late the event loop's signs of life came.", DELAYS)


class PluginMetrics(PluginObserver):
    """The ``PluginObserver`` of the plugin door. ``registered_at``: Unix seconds by resource."""

    def __init__(self, clocks: Clocks = SYSTEM) -> None:
        self._clock = clocks.clock
        self._kubelet: FileId | None = None
        self.registered_at: dict[str, float] = {}
        self.calls = Counter(
            "ostler_kubelet_calls",
            "Calls of the kubelet that were answered, by gRPC status code.",
            ("resource", "method", "code"),
        )
        self.latencies = Histogram(
            "ostler_kubelet_call_duration_seconds",
            "Time to answer a call of the kubelet.",
            CALLS,
            ("resource", "method"),
        )
        self.allocations = Counter(
            "ostler_allocations",
            "Allocate calls of the kubelet: granted, refused (a device cannot be allocated), or failed.",
            ("resource", "result"),
            _each([*_RESULTS.values(), "failed"]),
            per=("resource",),
        )
        self.devices = Counter(
            "ostler_allocated_devices",
            "Devices handed to containers; a device counts every time.",
            ("resource",),
            per=("resource",),
        )
        self.lists = Counter("ostler_list_updates", "Device lists shown to the kubelet.", ("resource",))
        self.restarts = Counter("ostler_kubelet_restarts", "Restarts of the kubelet, known by its new socket.")
        self.attempts = Counter(
            "ostler_registration_attempts",
            "Attempts to register the resource: the kubelet asked (registry), or Register was called (register).",
            ("resource", "path"),
            per=("resource", "path"),
        )
        self.registrations = Counter(
            "ostler_registrations",
            "Registrations after which the kubelet opened the device stream.",
            ("resource", "path"),
            per=("resource", "path"),
        )
        self.failures = Counter(
            "ostler_registration_failures",
            "Registrations that failed: refused, not answered in time, or without a socket.",
            ("resource", "path"),
            per=("resource", "path"),
        )
        self.conflicts = Counter(
            "ostler_registration_conflicts",
            "Times that another plugin for the resource was found.",
            ("resource",),
            per=("resource",),
        )
        self.losses = Counter(
            "ostler_registration_losses",
            "Times that the kubelet had other devices than those shown, although its device stream was open.",
            ("resource",),
            per=("resource",),
        )

    def called(self, resource: str, method: str, code: str, seconds: float) -> None:
        """A call of the kubelet ended."""
        self.calls.add(resource, method, code)
        self.latencies.observe(seconds, resource, method)
        if method == "Allocate":
            self.allocations.add(resource, _RESULTS.get(code, "failed"))

    def granted(self, resource: str, devices: int) -> None:
        """A container got devices."""
        self.devices.add(resource, by=devices)

    def listed(self, resource: str, devices: int, healthy: int) -> None:
        """A new device list is shown."""
        self.lists.add(resource)

    def kubelet_seen(self, socket: FileId) -> None:
        """Note the kubelet's socket; every resource reports the same one, and another one means a restart."""
        if self._kubelet is not None and socket != self._kubelet:
            self.restarts.add()
        self._kubelet = socket

    def attempted(self, resource: str, path: str) -> None:
        """Count an announcement of the resource to the kubelet."""
        self.attempts.add(resource, path)

    def registered(self, resource: str, path: str) -> None:
        """The kubelet opened a device stream."""
        self.registrations.add(resource, path)
        self.registered_at[resource] = self._clock()

    def failed(self, resource: str, path: str) -> None:
        """Count a registration that failed."""
        self.failures.add(resource, path)

    def contested(self, resource: str) -> None:
        """Another plugin was found."""
        self.conflicts.add(resource)

    def lost(self, resource: str) -> None:
        """The kubelet had other devices."""
        self.losses.add(resource)


class HoldsMetrics(HoldsObserver):
    """Counts events of holds: the ``HoldsObserver`` of the kubelet's readings, and reports of others."""

    def __init__(self, clocks: Clocks = SYSTEM) -> None:
        self._clock = clocks.clock
        self.conflicts = Counter(
            "ostler_hold_conflicts",
            "Times that a door (the one that lost) refused a device, because it or an overlapping one was held.",
            ("door",),
            _each(Door),
        )
        self.waits = Counter(
            "ostler_release_waits",
            "Times that an Allocate has waited for containers of a deleted pod, by whether it got the device.",
            ("outcome",),
            _each(["given", "refused"]),
        )
        self.evictions = Counter(
            "ostler_hold_evictions", "Times that a taint asked to evict pods whose claim had lost its device."
        )
        self.records = Counter(
            "ostler_pod_records",
            "Pods with devices recorded by a scheduler, by whether the kubelet gave them these (honoured), those of"
            " another pod, which then got this pod's record (swapped), or others.",
            ("outcome",),
            _each(["honoured", "swapped", "other"]),
        )
        self.readings = Counter(
            "ostler_hold_readings",
            "Readings of the kubelet's record of devices in containers: complete (whole), partial, or failed.",
            ("outcome",),
            _each(ReadingOutcome),
        )
        self.reading = Histogram("ostler_hold_reading_duration_seconds", "Time that such a reading took.", READINGS)
        self.read_at = Gauge(
            "ostler_hold_reading_timestamp_seconds",
            "Unix time of the last complete reading; there is no series before the first.",
        )
        self.looks = Counter(
            "ostler_hold_looks",
            "Checks of free devices for processes that still use them: none found (clean), or one (process).",
            ("result",),
            _each(["clean", "process"]),
        )

    def waited(self, *, given: bool) -> None:
        """An Allocate has waited for containers of a deleted pod."""
        self.waits.add("given" if given else "refused")

    def lost(self, door: Door) -> None:
        """A pod or claim could not be given a device through ``door``, because the other door has allocated it."""
        self.conflicts.add(door.value)

    def read(self, outcome: ReadingOutcome, seconds: float) -> None:
        """Count a reading of the devices that containers have, from the kubelet."""
        self.readings.add(outcome.value)
        self.reading.observe(seconds)
        if outcome is ReadingOutcome.WHOLE:
            self.read_at.set(self._clock())

    def looked(self, processes: int) -> None:
        """Count a check of a free device."""
        self.looks.add("process" if processes else "clean")

    def evicted(self) -> None:
        """Count an eviction by the taint of a contested device."""
        self.evictions.add()


class AgentMetrics:
    """The counters of every agent."""

    def __init__(self, clocks: Clocks = SYSTEM) -> None:
        self.scans = ScanMetrics(clocks)
        self.config = ConfigMetrics(clocks.clock())
        self.loop = LoopMetrics(clocks.clock())
        self.plugin = PluginMetrics(clocks)
        self.holds = HoldsMetrics(clocks)
