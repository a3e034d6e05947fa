"""The keeper of health as the agent's own service and metrics see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from node.health.keeper import BadWordError, DeviceEntry, DeviceUnknownError, HealthKeeper, NothingToClearError
from node.health.state import HealthState
from node.inventory.model import SourceStatus
from ostler.admin.health import DeviceHealth, EvictionLimit, HealthReport, NothingToClear, UnusableWord
from ostler.admin.holds import UnknownDevice


async def _at_once() -> str:
    return ""


class KeeperView:
    """A ``HealthView`` of ``keeper``.

    ``sources`` says how the sources of signals are, ``kept`` waits for the disk and says why it has not what was said.
    """

    def __init__(
        self,
        keeper: HealthKeeper,
        sources: Callable[[], Sequence[SourceStatus]] = tuple,
        kept: Callable[[], Awaitable[str]] = _at_once,
    ) -> None:
        self._keeper = keeper
        self._sources = sources
        self._kept = kept

    def health(self) -> HealthReport:
        """See ``HealthView``."""
        return HealthReport(
            tuple(_device(entry) for entry in self._keeper.entries()),
            tuple(
                EvictionLimit(limit.kind, limit.since, limit.reason, names)
                for limit, names in self._keeper.eviction_limits
            ),
            self._keeper.policy.dry_run,
            tuple(self._sources()),
        )

    def set_health(
        self, device: str, state: str, reason: str, seconds: float, *, dry_run: bool = False
    ) -> tuple[str, ...]:
        """See ``HealthView``."""
        if state not in set(HealthState):
            raise UnusableWord(f"state: is {state!r}; say healthy, degraded or unhealthy")
        try:
            return self._keeper.set(device, HealthState(state), reason, seconds or None, dry_run=dry_run)
        except DeviceUnknownError as error:
            raise UnknownDevice(device) from error
        except BadWordError as error:
            raise UnusableWord(str(error)) from error

    def clear_health(self, device: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """See ``HealthView``."""
        try:
            return self._keeper.clear(device, dry_run=dry_run)
        except DeviceUnknownError as error:
            raise UnknownDevice(device) from error
        except NothingToClearError as error:
            raise NothingToClear(str(error)) from error

    def release_eviction_limit(self, kind: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """See ``HealthView``."""
        try:
            return self._keeper.release_eviction_limit(kind, dry_run=dry_run)
        except BadWordError as error:
            raise UnusableWord(str(error)) from error
        except NothingToClearError as error:
            raise NothingToClear(str(error)) from error

    async def kept(self) -> str:
        """See ``HealthView``."""
        return await self._kept()


def _device(entry: DeviceEntry) -> DeviceHealth:
    return DeviceHealth(
        entry.device,
        entry.kind,
        entry.health,
        entry.shown,
        entry.flapping,
        entry.source,
        entry.until or 0.0,
        entry.of,
        entry.also,
    )
