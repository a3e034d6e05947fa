"""How the agent is, as one value: for probes, the command line and metrics alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from node.events import Event
from node.inventory.model import SourceState, SourceStatus
from node.rules import Rule, offers_nics
from node.values import Value, replace, value
from plugin.door import ResourceStatus

if TYPE_CHECKING:
    from ostler.admin.health import HealthReport
    from ostler.admin.holds import HoldsStatus
    from protos.agent.v1alpha1 import agent_pb2

NETWORK = "network"
"""Name of the source of network interfaces."""


@value
class AgentStatus(Value):
    """``role`` is ``standby`` or ``active``; ``reasons`` say why it is (not) ready, one sentence each.

    ``quiesced``: the driver is left alone, so that it can be replaced. ``dra``: None without the second door.
    ``holds``, ``health``: None while this process does not serve the kubelet.
    """

    version: str
    node_name: str
    pid: int
    role: str
    ready: bool
    reasons: tuple[str, ...]
    generation: int
    sources: tuple[SourceStatus, ...]
    resources: tuple[ResourceStatus, ...]
    events: tuple[Event, ...]
    quiesced: bool = False
    dra: agent_pb2.DraStatus | None = None
    holds: HoldsStatus | None = None
    health: HealthReport | None = None


def in_view_of(sources: tuple[SourceStatus, ...], rules: Iterable[Rule]) -> tuple[SourceStatus, ...]:
    """The sources as ``rules`` make them matter: where none is about NICs nobody waits for network interfaces.

    An agent that offers GPUs alone runs in a pod's network namespace and sees NICs without interfaces.
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
    scanned: bool, role: str, devices: int, sources: tuple[SourceStatus, ...], waiting_for: tuple[str, ...]
) -> tuple[bool, tuple[str, ...]]:
    """Whether the agent is ready, and why (not).

    Ready means: scanned once, and a device stream open for every resource with devices. A node without devices, or one
    whose driver is not there yet, is ready and says so, or a rollout would hang on it; so is a standby.
    """
    if not scanned:
        return False, ("the first scan has not ended",)
    if role == "standby":
        return True, ("standby: another instance is active",)
    if waiting_for:
        return False, waiting_for
    unwell = tuple(f"{source.name}: {source.detail}" for source in sources if source.state is not SourceState.OK)
    if not devices:
        return True, unwell or ("no devices on this node",)
    return True, unwell
