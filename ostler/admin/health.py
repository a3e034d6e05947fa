"""Health for people: the keeper's knowledge as messages, and the commands that change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from node.health.keeper import DeviceEntry, HealthKeeper, InvalidRequest
from node.health.state import HealthState
from node.inventory.model import SourceStatus
from ostler.admin.messages import source_message
from protos.agent.v1alpha1 import agent_pb2


class HealthView:
    """Answers people's questions about health from ``keeper``.

    ``sources``: the sources of signals. ``saved``: waits until the last change is on disk and returns the
    reason if it is not, empty if it is; None: nothing is saved.
    """

    def __init__(
        self,
        keeper: HealthKeeper,
        sources: Sequence[SourceStatus] = (),
        saved: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._keeper = keeper
        self._sources = sources
        self._saved = saved

    def report(self) -> agent_pb2.ListHealthResponse:
        """Every device in the order of the inventory, the eviction limits in force, and the sources of signals."""
        return agent_pb2.ListHealthResponse(
            devices=[_device(entry) for entry in self._keeper.entries()],
            brakes=[
                agent_pb2.HealthBrake(kind=limit.kind.value, since=limit.since, reason=limit.reason, devices=names)
                for limit, names in self._keeper.eviction_limits
            ],
            dry_run=self._keeper.policy.dry_run,
            sources=[source_message(source) for source in self._sources],
        )

    def summary(self) -> agent_pb2.HealthStatus:
        """Health in one line."""
        states = Counter(entry.verdict.health.state for entry in self._keeper.entries())
        return agent_pb2.HealthStatus(
            degraded=states[HealthState.DEGRADED],
            unhealthy=states[HealthState.UNHEALTHY],
            unknown=states[HealthState.UNKNOWN],
            brakes=[limit.kind.value for limit, _ in self._keeper.eviction_limits],
            dry_run=self._keeper.policy.dry_run,
        )

    async def set_health(self, request: agent_pb2.SetHealthRequest) -> tuple[str, ...]:
        """Override a device's health, for that many seconds or (0) until cleared; returns the changes, a line a device.

        Raises ``UnknownDevice`` and ``InvalidRequest``.
        """
        if request.state not in set(HealthState):
            raise InvalidRequest(f"state: must be healthy, degraded or unhealthy, not {request.state!r}")
        changes = self._keeper.set(
            request.device,
            HealthState(request.state),
            request.reason,
            request.seconds or None,
            dry_run=request.dry_run,
        )
        return await self._kept(changes, dry_run=request.dry_run)

    async def clear_health(self, request: agent_pb2.ClearHealthRequest) -> tuple[str, ...]:
        """Remove the override, and troubles that only a person ends; raises ``UnknownDevice``, ``NothingToClear``."""
        changes = self._keeper.clear(request.device, dry_run=request.dry_run)
        return await self._kept(changes, dry_run=request.dry_run)

    async def release_eviction_limit(self, request: agent_pb2.ReleaseBrakeRequest) -> tuple[str, ...]:
        """Release the eviction limit of a kind. Raises ``InvalidRequest`` and ``NothingToClear``."""
        changes = self._keeper.release_eviction_limit(request.kind, dry_run=request.dry_run)
        return await self._kept(changes, dry_run=request.dry_run)

    async def _kept(self, changes: tuple[str, ...], *, dry_run: bool) -> tuple[str, ...]:
        """``changes`` once they are on disk, or with a line that says why a restart would forget them."""
        problem = "" if dry_run or self._saved is None else await self._saved()
        return (*changes, f"a restart would forget this: {problem}") if problem else changes


def _device(entry: DeviceEntry) -> agent_pb2.DeviceHealth:
    device, verdict, health = entry.device, entry.verdict, entry.verdict.health
    return agent_pb2.DeviceHealth(
        device=device.name,
        kind=device.kind.value,
        state=health.state.value,
        reason=health.reason,
        cause=health.cause,
        since=health.since,
        recovery=health.recovery.value,
        evicts=health.evicts,
        flapping=verdict.flapping,
        source=verdict.source,
        enforced=entry.shown is health.state,
        shown_state=entry.shown.value,
        until=verdict.until or 0.0,
        of=verdict.of,
        also=verdict.also,
    )
