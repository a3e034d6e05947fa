"""How devices are, as people see it: plain values for the agent's own service and the command line."""

from __future__ import annotations

from typing import Protocol

from node.health.state import Health, HealthState
from node.inventory.model import DeviceKind, SourceStatus
from node.values import Value, value


@value
class DeviceHealth(Value):
    """A device and how it is.

    ``flapping``: it comes and goes, and is held back until it is quiet. ``source``: who says so (``nvml``, ``scan``,
    ``person``). ``shown``: the state that the doors show, another one in a dry run. ``until``: Unix seconds at which it
    ends by itself, 0 where that is not known. ``of``: name of the device whose trouble it is, empty where its own.
    ``also``: what else speaks against it, the hardest to end first.
    """

    device: str
    kind: DeviceKind
    health: Health
    shown: HealthState
    flapping: bool = False
    source: str = ""
    until: float = 0.0
    of: str = ""
    also: tuple[str, ...] = ()


@value
class EvictionLimit(Value):
    """So many devices of a kind went bad at once that none of them may evict, since a time in Unix seconds."""

    kind: DeviceKind
    since: float
    reason: str
    devices: tuple[str, ...] = ()


@value
class HealthReport(Value):
    """Every device in the order of the inventory, the eviction limits that hold, and where signals come from."""

    devices: tuple[DeviceHealth, ...] = ()
    eviction_limits: tuple[EvictionLimit, ...] = ()
    dry_run: bool = False
    sources: tuple[SourceStatus, ...] = ()

    def count(self, state: HealthState) -> int:
        """How many devices are in that state."""
        return sum(device.health.state is state for device in self.devices)


class UnusableWord(Exception):
    """What somebody says of a device cannot be meant; the text names field, value and fix."""


class NothingToClear(Exception):
    """Nobody said anything about the device, and nothing about it waits for a person; or no eviction limit holds."""


class HealthView(Protocol):
    """What the agent's own service asks about health. ``device`` is a name or a UUID; unknown: ``UnknownDevice``.

    ``dry_run``: only say what would change.
    """

    def health(self) -> HealthReport:
        """How every device is."""
        ...

    def set_health(
        self, device: str, state: str, reason: str, seconds: float, *, dry_run: bool = False
    ) -> tuple[str, ...]:
        """Take a person's word, for ``seconds`` or (0) until it is cleared; what changed, one line a device.

        Raises ``UnknownDevice`` and ``UnusableWord``.
        """
        ...

    def clear_health(self, device: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """Take it back, and forget what only a person could end; what changed. Raises ``NothingToClear``."""
        ...

    def release_eviction_limit(self, kind: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """Release the eviction limit of a kind; what changed. Raises ``UnusableWord`` and ``NothingToClear``."""
        ...

    async def kept(self) -> str:
        """Wait until what was said last is on the disk; in words why it is not, empty where it is."""
        ...
