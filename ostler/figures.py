"""What metrics show besides the counters, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.inventory.model import Snapshot
from plugin.door import ResourceStatus

if TYPE_CHECKING:
    from node.inventory.live.hardware import LiveHardware


@dataclass(frozen=True, slots=True)
class Figures:
    """What is shown besides the counters, as it is at this moment; ``live`` is None where nobody listens (yet)."""

    role: str
    ready: bool
    snapshot: Snapshot
    scans: int
    last_scan_seconds: float
    resources: tuple[ResourceStatus, ...]
    events: dict[tuple[str, str], int]
    quiesced: bool
    live: LiveHardware | None
