"""Health as messages; loaded only when somebody asks."""

from __future__ import annotations

from node.health.state import HealthState
from ostler.admin.health import DeviceHealth, HealthReport
from protos.agent.v1alpha1 import agent_pb2


def health_message(report: HealthReport) -> agent_pb2.ListHealthResponse:
    """How every device is."""
    return agent_pb2.ListHealthResponse(
        devices=[_device_message(device) for device in report.devices],
        brakes=[
            agent_pb2.HealthBrake(kind=limit.kind.value, since=limit.since, reason=limit.reason, devices=limit.devices)
            for limit in report.eviction_limits
        ],
        dry_run=report.dry_run,
        sources=[
            agent_pb2.SourceStatus(name=source.name, state=source.state.value, detail=source.detail)
            for source in report.sources
        ],
    )


def _device_message(device: DeviceHealth) -> agent_pb2.DeviceHealth:
    health = device.health
    return agent_pb2.DeviceHealth(
        device=device.device,
        kind=device.kind.value,
        state=health.state.value,
        reason=health.reason,
        cause=health.cause,
        since=health.since,
        recovery=health.recovery.value,
        evicts=health.evicts,
        flapping=device.flapping,
        source=device.source,
        enforced=device.shown is health.state,
        shown_state=device.shown.value,
        until=device.until,
        of=device.of,
        also=device.also,
    )


def health_status_message(report: HealthReport) -> agent_pb2.HealthStatus:
    """Health in one line."""
    return agent_pb2.HealthStatus(
        degraded=report.count(HealthState.DEGRADED),
        unhealthy=report.count(HealthState.UNHEALTHY),
        unknown=report.count(HealthState.UNKNOWN),
        brakes=[limit.kind.value for limit in report.eviction_limits],
        dry_run=report.dry_run,
    )
