"""Holds as messages; loaded only when somebody asks."""

from __future__ import annotations

from node.ledger.ledger import Hold
from ostler.admin.holds import DeviceHolds, HoldsReport, HoldsStatus
from protos.agent.v1alpha1 import agent_pb2


def holds_message(report: HoldsReport) -> agent_pb2.ListHoldsResponse:
    """Who has what."""
    return agent_pb2.ListHoldsResponse(
        devices=[_device_message(device) for device in report.devices], status=holds_status_message(report.status)
    )


def _device_message(device: DeviceHolds) -> agent_pb2.DeviceHolds:
    return agent_pb2.DeviceHolds(
        device=device.device,
        doors="" if device.doors is None else device.doors.value,
        holds=[_hold_message(hold) for hold in device.holds],
        withheld=[
            agent_pb2.Withholding(
                door=each.door.value, cause=taint_word(each.cause), why=each.why, waits_for=each.waits_for
            )
            for each in device.withheld
        ],
        losers=device.losers,
    )


def taint_word(cause: str) -> str:
    """A cause as it stands in keys of taints."""
    return str(cause).replace("_", "-")


def _hold_message(hold: Hold) -> agent_pb2.Hold:
    return agent_pb2.Hold(
        door="" if hold.door is None else hold.door.value,
        holder=hold.holder,
        owner=hold.owner,
        since=hold.since,
        state=hold.state.value,
        share=hold.share,
        admin=hold.admin,
    )


def holds_status_message(status: HoldsStatus) -> agent_pb2.HoldsStatus:
    """Holds in one line."""
    return agent_pb2.HoldsStatus(
        by_plugin=status.by_plugin,
        by_dra=status.by_dra,
        draining=status.draining,
        moving=status.moving,
        losers=status.losers,
        kubelet=status.kubelet,
        api_server=status.api_server,
        both=status.both,
        doors=status.doors,
        processes=status.processes,
        containers=status.containers,
    )
