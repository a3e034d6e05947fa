"""The agent's state: whether it is ready and why, for probes and systemd, and the whole status as a message."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from node.events import Event
from node.inventory.model import SourceState, SourceStatus
from node.rules import Rule, offers_nics
from node.values import Value, replace, value
from ostler import __version__
from plugin.door import ResourceStatus

if TYPE_CHECKING:
    from protos.agent.v1alpha1 import agent_pb2

NETWORK = "network"
"""The name of the source of network interfaces."""


@value
class Readiness(Value):
    """``role`` is ``standby`` or ``active``; ``reasons`` say why it is or is not ready, one sentence each."""

    role: str
    ready: bool
    reasons: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The same in one line."""
        return "; ".join((self.role, "ready" if self.ready else "not ready", *self.reasons))


def in_view_of(sources: tuple[SourceStatus, ...], rules: Iterable[Rule]) -> tuple[SourceStatus, ...]:
    """The sources as they matter to ``rules``: if no rule is about NICs, the agent does not wait for interfaces.

    An agent that offers only GPUs may run in a pod's network namespace, where it sees NICs without interfaces.
    """
    if offers_nics(rules):
        return sources
    return tuple(
        replace(source, state=SourceState.OK, detail="interfaces of this network namespace; no rule is about NICs")
        if source.name == NETWORK and source.state is SourceState.WAITING
        else source
        for source in sources
    )


def readiness(
    role: str,
    devices: int,
    sources: tuple[SourceStatus, ...],
    waiting_for: tuple[str, ...],
    *,
    scanned: bool,
    offered: bool,
) -> Readiness:
    """Whether the agent is ready, and why or why not.

    Ready means: it has scanned once, has ``offered`` what it found, and a device stream is open for every resource with
    devices. A node without devices, or one whose driver is not loaded yet, is ready and says so, because otherwise a
    rollout would hang on it; so is a standby.
    """
    if not scanned:
        return Readiness(role, False, ("the first scan has not ended",))
    if role == "standby":
        return Readiness(role, True, ("standby: another instance is active",))
    if not offered:
        return Readiness(role, False, ("the devices of the first scan are not offered yet",))
    if waiting_for:
        return Readiness(role, False, waiting_for)
    unwell = tuple(f"{source.name}: {source.detail}" for source in sources if source.state is not SourceState.OK)
    return Readiness(role, True, unwell if devices else unwell or ("no devices on this node",))


def status_message(
    readiness: Readiness,
    generation: int,
    sources: Iterable[SourceStatus],
    resources: Iterable[ResourceStatus],
    events: Sequence[Event],
    *,
    node_name: str,
    quiesced: bool,
    dra: agent_pb2.DraStatus | None,
    holds: agent_pb2.HoldsStatus | None,
    health: agent_pb2.HealthStatus | None,
) -> agent_pb2.GetStatusResponse:
    """The status. ``dra``: None without DRA. ``holds``, ``health``: None while this process does not serve the kubelet.

    ``quiesced``: whether the driver is left alone so that it can be replaced.
    """
    # Imported here: the kubelet can be served before messages are needed.
    from ostler.admin.messages import source_message
    from protos.agent.v1alpha1 import agent_pb2

    return agent_pb2.GetStatusResponse(
        version=__version__,
        node_name=node_name,
        pid=os.getpid(),
        role=readiness.role,
        ready=readiness.ready,
        reasons=readiness.reasons,
        snapshot_generation=generation,
        sources=[source_message(source) for source in sources],
        resources=[
            agent_pb2.ResourceStatus(
                name=each.name,
                devices=each.devices,
                healthy=each.healthy,
                registration=each.registration.state.value,
                path=each.registration.path.value,
                socket=str(each.registration.socket or ""),
                open_streams=each.streams,
                detail=each.problem or each.registration.detail,
            )
            for each in resources
        ],
        events=[
            agent_pb2.Event(time=each.time, type=each.type.value, reason=each.reason, message=each.message)
            for each in events
        ],
        quiesced=quiesced,
        dra=dra,
        holds=holds,
        health=health,
    )
