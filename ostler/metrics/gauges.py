"""The agent's gauges: computed at each scrape from ``Figures``, and each declared where it is computed."""

from __future__ import annotations

import os
import sys
from collections import Counter as Count
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from node.health.signal import Trouble
from node.health.state import HealthState
from node.inventory.live.udev import EventState
from node.inventory.model import Snapshot, SourceState
from node.ledger.holds import HoldState
from node.metrics import Counter, Gauge, Known, Metric, Sample, metrics_of, single
from node.offer import Offer
from node.rules import Door
from ostler import __version__
from plugin.door import ResourceStatus
from plugin.kubelet import RegistrationPath
from plugin.registration import PluginRegistrationState

if TYPE_CHECKING:
    from node.health.keeper import HealthMetrics
    from node.inventory.live.hardware import LiveHardware
    from node.mps.reports import MpsMetrics
    from ostler.agent.node_events import NodeEvents
    from ostler.metrics.counters import PluginMetrics
    from ostler.metrics.dra import DraFigures
    from protos.agent.v1alpha1 import agent_pb2

REVISION = "OSTLER_REVISION"
"""Environment variable in which an image says what it was built from."""
NO_DOOR = "none"
_STATES = {
    Door.PLUGIN.value: (HoldState.ALLOCATED, HoldState.LISTED, HoldState.RECORDED, HoldState.PENDING_RELEASE),
    Door.DRA.value: (HoldState.RESERVED, HoldState.PREPARED),
    NO_DOOR: (HoldState.PENDING_RELEASE,),
}


@dataclass(frozen=True, slots=True)
class HoldsFigures:
    """The holds of devices. ``pending``: devices pending release by cause, see ``Bookkeeping.pending``."""

    report: agent_pb2.ListHoldsResponse
    pending: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HealthFigures:
    """The health of devices, and counters of its changes."""

    metrics: HealthMetrics
    report: agent_pb2.ListHealthResponse


@dataclass(frozen=True, slots=True)
class Figures:
    """The values that a scrape shows besides the counters.

    ``snapshot``: the newest one; ``offer``: the plugin door's offer for the snapshot that it shows. ``cdi_fault``: why
    our CDI specs are not on disk, empty if they are. ``scan_interval``: most seconds between two scans. ``live`` is
    None if nobody listens for hardware events (yet), ``node_events`` if none are posted, ``dra`` if nothing is offered
    through DRA, ``mps`` if nothing shares GPUs by MPS, ``holds`` and ``health`` if this process does not serve the
    kubelet.
    """

    role: str
    ready: bool
    quiesced: bool
    snapshot: Snapshot
    offer: Offer
    cdi_fault: str
    scan_interval: float
    resources: tuple[ResourceStatus, ...]
    events: Counter
    live: LiveHardware | None
    node_events: NodeEvents | None
    dra: DraFigures | None = None
    holds: HoldsFigures | None = None
    health: HealthFigures | None = None
    mps: MpsMetrics | None = None

    @property
    def known(self) -> Known:
        """Values of labels for which counters have series from the start."""
        return {
            ("resource",): [(each.name,) for each in self.resources],
            ("resource", "path"): [(each.name, each.registration.path.value) for each in self.resources],
            ("kind",): sorted({(device.kind.value,) for device in self.snapshot.devices}),
        }


def process(figures: Figures) -> Iterator[Metric]:
    """Build, role, readiness, events."""
    build = (__version__, os.environ.get(REVISION, ""), sys.version.split()[0], grpc.__version__)
    yield Gauge(
        "ostler_build_info",
        "What this agent is built from; always 1.",
        ("version", "revision", "python", "grpc"),
        [(build, 1)],
    )
    yield single("ostler_active", "1 for the instance that serves, 0 for a standby.", figures.role == "active")
    yield single("ostler_ready", "1 if every resource with devices is registered; a standby is ready.", figures.ready)
    yield single("ostler_quiesced", "1 while the driver is left alone so that it can be replaced.", figures.quiesced)
    yield figures.events


def node_events(poster: NodeEvents) -> Iterator[Metric]:
    """Whether the agent can post its events on the Node."""
    yield from metrics_of(poster.metrics)
    yield single("ostler_node_events_failing", "1 while events cannot be posted on the Node.", bool(poster.failing))


def live(hardware: LiveHardware) -> Iterator[Metric]:
    """Where hardware events come from, and whether any were lost; a recorded node has none."""
    yield Gauge(
        "ostler_uevent_source",
        "1 for where uevents come from: udev, kernel, or polling where none do.",
        ("source",),
        _states(EventState, hardware.state.value),
    )
    yield from hardware.metrics


def inventory(figures: Figures) -> Iterator[Metric]:
    """Devices with their health, what is not offered and why, the sources and the scans."""
    devices, sources = figures.snapshot.devices, figures.snapshot.sources
    resources = {item.device.name: offer.resource for offer in figures.offer.resources for item in offer.devices}
    yield _counted(
        "ostler_devices",
        "Devices of the node; the resource is empty for one that is withheld.",
        ("kind", "vendor", "resource", "health"),
        (
            (device.kind.value, device.vendor, resources.get(device.name, ""), device.health.state.value)
            for device in devices
        ),
    )
    yield Gauge(
        "ostler_device_fault_timestamp_seconds",
        "Unix time since which a device is not healthy; there is no series for a healthy one.",
        ("device", "kind", "resource", "health"),
        [
            (
                (device.name, device.kind.value, resources.get(device.name, ""), device.health.state.value),
                device.health.since,
            )
            for device in devices
            if device.health.state is not HealthState.HEALTHY
        ],
    )
    yield _counted(
        "ostler_devices_withheld",
        "Devices not shown to the kubelet, by cause.",
        ("kind", "cause"),
        ((item.device.kind.value, item.cause.value) for item in figures.offer.withheld),
    )
    drivers = {(device.vendor, str(device.attribute("driverVersion") or "")) for device in devices}
    yield Gauge(
        "ostler_driver_info",
        "Version of a vendor's driver, where the driver reports it; always 1.",
        ("vendor", "version"),
        [(labels, 1) for labels in sorted(drivers) if labels[1]],
    )
    yield Gauge(
        "ostler_source_state",
        "1 for the state of a source of devices: ok, waiting for what it reads from, or failed.",
        ("source", "state"),
        [sample for source in sources for sample in _states(SourceState, source.state.value, source.name)],
    )
    yield single("ostler_scan_interval_seconds", "Most seconds between two scans.", figures.scan_interval)
    yield single(
        "ostler_snapshot_generation",
        "Number of the newest snapshot; it grows with every change and restarts with the process.",
        figures.snapshot.generation,
    )


def kubelet(figures: Figures) -> Iterator[Metric]:
    """The device list that the kubelet is shown."""
    yield Gauge(
        "ostler_resource_devices",
        "Devices shown to the kubelet, by the health that is shown.",
        ("resource", "health"),
        [
            sample
            for each in figures.resources
            for sample in (
                ((each.name, "healthy"), each.healthy),
                ((each.name, "unhealthy"), each.devices - each.healthy),
            )
        ],
    )
    yield _counted(
        "ostler_resource_unhealthy_devices",
        "Devices shown to the kubelet as unhealthy, by cause.",
        ("resource", "cause"),
        (
            (offer.resource, item.cause.value)
            for offer in figures.offer.resources
            for item in offer.devices
            if item.cause is not None
        ),
    )
    yield Gauge(
        "ostler_resource_list_rejected",
        "1 while the newest list is too large for the kubelet and an older one is shown.",
        ("resource",),
        [((each.name,), bool(each.problem)) for each in figures.resources],
    )
    yield single(
        "ostler_cdi_write_failed",
        "1 while CDI specs cannot be written and devices that need them are shown unhealthy.",
        bool(figures.cdi_fault),
    )


def registration(figures: Figures, plugin: PluginMetrics) -> Iterator[Metric]:
    """The state of each resource's registration, and since when."""
    resources = figures.resources
    yield Gauge(
        "ostler_registration_state",
        "1 for the state: waiting (no kubelet), offered, registered, contested (another plugin), failed.",
        ("resource", "state"),
        [
            sample
            for each in resources
            for sample in _states(PluginRegistrationState, each.registration.state.value, each.name)
        ],
    )
    yield Gauge(
        "ostler_registration_path",
        "1 for the way to register: registry (the kubelet watches a folder) or register (a call).",
        ("resource", "path"),
        [sample for each in resources for sample in _states(RegistrationPath, each.registration.path.value, each.name)],
    )
    yield Gauge(
        "ostler_registration_streams",
        "Device streams that the kubelet has open; at 0 it does not know the devices.",
        ("resource",),
        [((each.name,), each.streams) for each in resources],
    )
    yield Gauge(
        "ostler_registration_timestamp_seconds",
        "Unix time of the last registration; there is no series before the first.",
        ("resource",),
        [((each.name,), at) for each in resources if (at := plugin.registered_at.get(each.name))],
    )


def holds(figures: HoldsFigures) -> Iterator[Metric]:
    """Holds by door, devices that move between doors, and whether the kubelet's record can be read."""
    status = figures.report.status
    found = Count(
        (hold.door or NO_DOOR, hold.state)
        for device in figures.report.devices
        for hold in device.holds
        if not hold.admin
    )
    yield Gauge(
        "ostler_holds",
        "Holds of devices by door and by how they are known; draining: released, but perhaps still in use.",
        ("door", "state"),
        [((door, state.value), found[door, state.value]) for door, states in _STATES.items() for state in states],
    )
    yield from _shares(figures.report.shared)
    yield single(
        "ostler_moving_devices",
        "Devices that a rule moves to another door, where they are not allocated yet.",
        status.moving,
    )
    yield Gauge(
        "ostler_pending_release_devices",
        "Devices that no pod or claim holds and that are not free yet, by what they wait for: "
        "containers of a deleted pod, processes that still use them, or the first check for those.",
        ("cause",),
        [((cause,), count) for cause, count in figures.pending.items()],
    )
    yield single(
        "ostler_containers_seen",
        "1 while ostler sees whether containers of deleted pods still run; 0 while it relies on the kubelet.",
        not status.containers,
    )
    yield single(
        "ostler_door_both_off",
        "1 while rules with door both act as plugin; the status says why.",
        bool(status.both),
    )
    yield single(
        "ostler_hold_losers",
        "Claims of pods on this node that cannot get their device, because a pod has it through the plugin door.",
        status.losers,
    )
    yield single(
        "ostler_holds_known",
        "1 while ostler knows which devices containers have; otherwise it offers no further device to claims.",
        not status.kubelet,
    )


def _shares(shared: Sequence[agent_pb2.SharedDevice]) -> Iterator[Metric]:
    """How many shares of devices are held and free, and the capacity that they leave."""
    yield Gauge(
        "ostler_shared_device_shares",
        "Shares of a device that a rule shares, through both doors: held, and how many more can be allocated (free).",
        ("device", "resource", "state"),
        [
            sample
            for each in shared
            for sample in (
                ((each.device, each.resource, "held"), each.held),
                ((each.device, each.resource, "free"), each.free),
            )
        ],
    )
    yield Gauge(
        "ostler_shared_device_left_ratio",
        "What the shares of a device leave of its compute and memory: 1 for all of it.",
        ("device", "resource", "capacity"),
        [
            ((each.device, each.resource, left.name), left.value / whole.value)
            for each in shared
            for left, whole in zip(each.left, each.whole, strict=True)
        ],
    )


def health(report: agent_pb2.ListHealthResponse) -> Iterator[Metric]:
    """Verdicts on devices, and eviction limits."""
    kinds = sorted({device.kind for device in report.devices})
    found = Count((device.kind, device.state) for device in report.devices)
    yield Gauge(
        "ostler_device_health",
        "Devices by their judged state; a dry run shows them as scans find them.",
        ("kind", "health"),
        [((kind, state.value), found[kind, state.value]) for kind in kinds for state in HealthState],
    )
    yield _counted(
        "ostler_device_trouble",
        "Devices that are not healthy, by the trouble that decides what ends it, and by state.",
        ("kind", "trouble", "health"),
        (
            (device.kind, device.cause or Trouble.SCAN.value, device.state)
            for device in report.devices
            if device.state != HealthState.HEALTHY
        ),
    )
    flapping = Count(device.kind for device in report.devices if device.flapping)
    yield Gauge(
        "ostler_health_flapping_devices",
        "Devices with a trouble that comes and goes, which is held until it has been quiet.",
        ("kind",),
        [((kind,), flapping[kind]) for kind in kinds],
    )
    evicting = Count(device.kind for device in report.devices if device.evicts)
    yield Gauge(
        "ostler_health_evicting_devices",
        "Devices whose health evicts the pods that have them.",
        ("kind",),
        [((kind,), evicting[kind]) for kind in kinds],
    )
    limited = {limit.kind for limit in report.brakes}
    yield Gauge(
        "ostler_health_brake",
        "1 while no device of a kind may evict, because more than half of them went bad at once.",
        ("kind",),
        [((kind,), kind in limited) for kind in kinds],
    )
    yield single("ostler_health_dry_run", "1 in a dry run, in which verdicts on devices affect no pod.", report.dry_run)


def _counted(name: str, meaning: str, labels: tuple[str, ...], found: Iterable[tuple[str, ...]]) -> Gauge:
    """How often each combination of labels occurs."""
    return Gauge(name, meaning, labels, sorted(Count(found).items()))


def _states(possible: Iterable[str], present: str, *labels: str) -> Iterator[Sample]:
    """A sample for each possible state, 1 for the present one, so that a query never meets a gap."""
    for state in possible:
        yield (*labels, str(state)), float(state == present)
