"""How the agent is, as one value: for probes, the command line and metrics alike."""

from __future__ import annotations

from node.events import Event
from node.inventory.model import SourceState, SourceStatus
from node.values import Value, value
from plugin.door import ResourceStatus


@value
class AgentStatus(Value):
    """``role`` is ``standby`` or ``active``; ``reasons`` say why it is (not) ready, one sentence each.

    ``quiesced``: the driver is left alone, so that it can be replaced.
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
