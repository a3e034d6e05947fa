"""Reports of MPS to people: events that name the pods concerned, notes at the GPUs, and metrics.

Claims' own daemons count together: their names come from requests, and a metric's label must not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from node.clocks import Clocks
from node.events import EventBus, EventRecorder, EventType
from node.health.signal import HealthEvent, Trouble
from node.metrics import Counter, Gauge
from node.mps.daemon import MpsResource
from node.mps.storage import FULL, StorageUsage

log = logging.getLogger("ostler.mps")

CRASHED = "MpsServerCrashed"
"""Reason of the event that pods have lost their MPS server."""
FAILED = "MpsFailed"
ENDED = "MpsDaemonEnded"
"""Reason of the event that an agent has ended the daemon of a resource that its rules do not share."""
STORAGE_FULL = "MpsFileSystemFull"
"""Reason of the event that a daemon's file system is full."""
STORAGE_BUSY = "MpsFileSystemBusy"
"""Reason of the event that a file system could not be unmounted, or a folder not removed."""
MOST_NAMED = 10
_RELAXED = 0.9
"""Part in use below which a file system no longer counts as full."""


class MpsMetrics:
    """Counters of daemons, by resource; the label is empty for claims' own daemons, all of them together."""

    def __init__(self) -> None:
        self.starts = Counter(
            "ostler_mps_daemon_starts",
            "Starts of MPS control daemons, by outcome; the resource is empty for claims' own daemons.",
            ("resource", "outcome"),
        )
        self.crashes = Counter(
            "ostler_mps_crashes",
            "Times that an MPS server or control daemon ended while it was needed; pods lost their GPU contexts.",
            ("resource",),
        )
        self.daemons = Gauge("ostler_mps_daemons", "MPS control daemons that run.", ("resource",))
        self.clients = Gauge(
            "ostler_mps_clients", "Processes that are clients of an MPS server, at the last look.", ("resource",)
        )
        self.storage = Gauge(
            "ostler_mps_file_system_used_ratio",
            "Part of a daemon's file system that is in use, of bytes or of files; the fullest daemon's.",
            ("resource",),
        )
        self._found: dict[str, tuple[int, float]] = {}

    def begin(self, name: str) -> None:
        """Give the daemons of a resource, or those of claims, their series."""
        label = _label(name)
        for outcome in ("started", "failed"):
            self.starts.add(label, outcome, by=0)
        self.crashes.add(label, by=0)
        self._sum(label)

    def started(self, name: str, *, well: bool) -> None:
        """A daemon was started, or could not be."""
        self.starts.add(_label(name), "started" if well else "failed")
        if well:
            self.found(name, 0, 0.0)

    def crashed(self, name: str) -> None:
        """A server or a daemon ended."""
        self.crashes.add(_label(name))

    def found(self, name: str, clients: int, ratio: float) -> None:
        """A running daemon has that many clients, and this part of its file system is in use."""
        self._found[name] = clients, ratio
        self._sum(_label(name))

    def ended(self, name: str) -> None:
        """A daemon has ended."""
        self._found.pop(name, None)
        self._sum(_label(name))

    def _sum(self, label: str) -> None:
        found = [each for name, each in self._found.items() if _label(name) == label]
        self.daemons.set(len(found), label)
        self.clients.set(sum(clients for clients, _ in found), label)
        self.storage.set(max((ratio for _, ratio in found), default=0.0), label)


def _label(name: str) -> str:
    """A resource's name has a slash, a claim's daemon has none."""
    return name if "/" in name else ""


class MpsReports:
    """Reports on daemons; for the event loop. ``bus``: publishes a ``HealthEvent`` for every device concerned."""

    def __init__(self, clocks: Clocks, events: EventRecorder, bus: EventBus, metrics: MpsMetrics) -> None:
        self._clocks = clocks
        self._events = events
        self._bus = bus
        self.metrics = metrics
        self._full: set[str] = set()

    def crashed(self, resource: MpsResource, reason: str, holders: Sequence[str]) -> None:
        """Pods have lost their server."""
        lost = f"{_named(holders)} lost their GPU contexts; restart them" if holders else "no pod has a share"
        message = f"{resource.name} on {_devices(resource)}: {reason}; {lost}"
        log.warning("an MPS server crashed", extra={"resource": resource.name, "pods": list(holders)})
        self.metrics.crashed(resource.name)
        self._events.emit(EventType.WARNING, CRASHED, message)
        for device in resource.devices if holders else ():
            event = HealthEvent(device.name, Trouble.MPS, self._clocks.clock(), f"MPS of {resource.name}: {reason}")
            self._bus.publish(event)

    def failed(self, name: str, reason: str) -> None:
        """Report that a daemon cannot be started, or that its changes cannot be undone."""
        log.warning("MPS does not work", extra={"resource": name, "reason": reason})
        self._events.emit(EventType.WARNING, FAILED, f"{name}: {reason}")

    def unneeded(self, name: str) -> None:
        """A daemon of an earlier agent is ended: no rule, or no claim, needs it any more."""
        log.info("a daemon of an earlier agent is not needed any more", extra={"resource": name})
        if "/" in name:
            text = "no rule shares it by MPS any more, so its control daemon was ended"
            self._events.emit(EventType.WARNING, ENDED, f"{name}: {text}; restart pods that still have shares")

    def left(self, name: str, what: str) -> None:
        """Report that something of an ended daemon remains for now; ``what`` is empty if nothing does."""
        if what:
            log.warning("leftovers of MPS remain", extra={"resource": name, "what": what})
            self._events.emit(EventType.WARNING, STORAGE_BUSY, f"{name}: {what}")

    def looked(self, resource: MpsResource, clients: int, usage: StorageUsage, holders: Sequence[str]) -> None:
        """Report once to its pods when the file system of a running daemon becomes full."""
        name = resource.name
        self.metrics.found(name, clients, usage.ratio)
        if usage.ratio < _RELAXED:
            self._full.discard(name)
        elif usage.ratio >= FULL and name not in self._full:
            self._full.add(name)
            culprits = "a pod of any of the node's MPS daemons, which share it," if usage.shared else ""
            culprits = culprits or f"one of {_named(holders)}"
            whose = f"{culprits} fills it: restart that pod" if holders else "no pod has a share"
            text = (
                f"{name} on {_devices(resource)}: the file system of its MPS daemon is full ({usage}), so new "
                f"processes of its pods may fail to use the GPU; {whose}, or {usage.remedy}"
            )
            log.warning("a file system of MPS is full", extra={"resource": name, "usage": str(usage)})
            self._events.emit(EventType.WARNING, STORAGE_FULL, text)

    def ended(self, name: str) -> None:
        """A daemon has ended."""
        self._full.discard(name)
        self.metrics.ended(name)


def _named(holders: Sequence[str]) -> str:
    more = f" and {len(holders) - MOST_NAMED} more" if len(holders) > MOST_NAMED else ""
    return f"{', '.join(holders[:MOST_NAMED])}{more}"


def _devices(resource: MpsResource) -> str:
    return ", ".join(device.name for device in resource.devices)
