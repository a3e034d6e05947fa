"""What the running agent says of itself, or why it says nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from node.rules import Doors
from ostler.cli.client import NoAgent, call
from ostler.cli.exits import CommandFailed
from protos.agent.v1alpha1 import agent_pb2

NO_AGENT = "no agent answers"
"""What every check says that needs one."""

TIMEOUT = 5.0
"""Seconds for each question; all are answered from memory."""


@dataclass(frozen=True, slots=True)
class AgentAnswers:
    """``status`` and ``devices`` are None when it did not answer; ``fault`` says why, ``listening`` if one is there.

    ``holds``: None also where it serves nobody yet, or is too old to tell.
    """

    status: agent_pb2.GetStatusResponse | None = None
    devices: agent_pb2.ListDevicesResponse | None = None
    holds: agent_pb2.ListHoldsResponse | None = None
    fault: str = ""
    listening: bool = True

    @property
    def pid(self) -> int | None:
        """Its process id as it sees it."""
        return self.status.pid if self.status is not None else None

    def healthy_ids(self) -> dict[str, frozenset[str]]:
        """Ids that it shows the kubelet as healthy, by resource; a resource without any is there, too.

        What is offered by claims alone is not the kubelet's.
        """
        found: dict[str, set[str]] = {item.name: set() for item in self.status.resources} if self.status else {}
        for device in self.devices.devices if self.devices is not None else ():
            if device.offered_as == "Healthy" and device.door != Doors.DRA:
                found.setdefault(device.resource, set()).add(device.offered_id)
        return {resource: frozenset(ids) for resource, ids in found.items()}


def ask_agent(socket: Path) -> AgentAnswers:
    """Status, devices and holds of the agent at ``socket``."""
    try:
        status = call(socket, lambda stub: stub.GetStatus(agent_pb2.GetStatusRequest(), timeout=TIMEOUT))
        devices = call(socket, lambda stub: stub.ListDevices(agent_pb2.ListDevicesRequest(), timeout=TIMEOUT))
    except NoAgent as error:
        return AgentAnswers(fault=str(error), listening=False)
    except OSError as error:
        return AgentAnswers(fault=f"{socket} cannot be reached ({error.strerror})", listening=False)
    except CommandFailed as error:
        return AgentAnswers(fault=str(error))
    try:
        holds = call(socket, lambda stub: stub.ListHolds(agent_pb2.ListHoldsRequest(), timeout=TIMEOUT))
    except CommandFailed:
        holds = None  # A standby, or an agent before 1.0 that does not know the question: its status has been told.
    return AgentAnswers(status, devices, holds)
