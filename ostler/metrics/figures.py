"""What metrics show besides the counters, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.inventory.model import Snapshot
from node.offer import Offer
from plugin.door import ResourceStatus

if TYPE_CHECKING:
    from node.health.keeper import HealthCounters
    from node.inventory.live.hardware import LiveHardware
    from ostler.admin.dra import ClaimView, SlicesView
    from ostler.admin.health import HealthReport
    from ostler.admin.holds import HoldsReport
    from ostler.agent.node_events import NodeEvents
    from ostler.metrics.dra_counters import DraCounters
    from ostler.metrics.holds_counters import HoldsCounters


@dataclass(frozen=True, slots=True)
class DraFigures:
    """The second door's. ``registration``: a word of ``driver.door.registration.RegistrationState``."""

    counters: DraCounters
    registration: str
    slices: SlicesView
    claims: tuple[ClaimView, ...]


@dataclass(frozen=True, slots=True)
class HoldsFigures:
    """Who has what, and what has happened to that."""

    counters: HoldsCounters
    report: HoldsReport
    pending: Mapping[str, int]
    """Devices that are pending release, by what they wait for (``PENDING``)."""


@dataclass(frozen=True, slots=True)
class HealthFigures:
    """How devices are, and what has happened to that."""

    counters: HealthCounters
    report: HealthReport


@dataclass(frozen=True, slots=True)
class Figures:
    """What is shown besides the counters, as it is at this moment.

    ``snapshot`` is the newest one; ``offer`` is what the plugin door makes of the one that it shows. ``cdi_fault``: why
    our CDI specs are not on disk, empty when they are. ``scan_interval``: most seconds between two scans. ``live`` is
    None where nobody listens (yet), ``node_events`` where none are posted, ``dra`` where nothing is offered that way,
    ``holds`` and ``health`` where this process does not serve the kubelet.
    """

    role: str
    ready: bool
    quiesced: bool
    snapshot: Snapshot
    offer: Offer
    cdi_fault: str
    scan_interval: float
    resources: tuple[ResourceStatus, ...]
    events: dict[tuple[str, str], int]
    live: LiveHardware | None
    node_events: NodeEvents | None
    dra: DraFigures | None = None
    holds: HoldsFigures | None = None
    health: HealthFigures | None = None
