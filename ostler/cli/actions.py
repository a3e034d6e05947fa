"""``ostler rescan``, ``reload``, ``quiesce`` and ``resume``: calls that have the running agent do something."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Protocol

from ostler.cli.client import TIMEOUT, running_agent
from ostler.cli.exits import Exit
from ostler.cli.options import add_socket, sendable
from ostler.cli.output import emit, print_changes
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc

DRIVER_TIMEOUT = 60.0
"""Seconds: a driver that hangs delays the end of its library, and a new one initialises its GPUs."""


class Changes(Protocol):
    """An answer that lists what changed."""

    @property
    def changes(self) -> Sequence[str]:
        """A line for each change."""


class AgentAction:
    """A command that makes one call of the running agent. ``end``: what is printed after the changes."""

    def __init__(
        self,
        description: str,
        method: Callable[[agent_pb2_grpc.AgentStub, argparse.Namespace], Changes],
        *,
        takes_reason: bool = False,
        end: str = "",
    ) -> None:
        self._description = description
        self._method = method
        self._takes_reason = takes_reason
        self._end = end

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Describe the command."""
        parser.description = self._description
        if self._takes_reason:
            parser.add_argument(
                "--reason", type=sendable, default="", help="why, for the log and for people who look at the devices"
            )
        add_socket(parser)

    def run(self, arguments: argparse.Namespace) -> int:
        """Call the agent and print the changes."""
        with running_agent(arguments.socket) as agent:
            answer = self._method(agent, arguments)
        print_changes(answer.changes)
        emit(self._end)
        return Exit.OK


rescan = AgentAction(
    "Have the running agent scan the hardware now, and print what changed.",
    lambda stub, _: stub.Rescan(agent_pb2.RescanRequest(), timeout=TIMEOUT),
)
reload = AgentAction(
    "Have the running agent read its configuration again, as SIGHUP does, and print what changed.\n"
    "If the configuration has a problem, the old one stays in force (exit code 3).",
    lambda stub, _: stub.Reload(agent_pb2.ReloadRequest(), timeout=TIMEOUT),
)
quiesce = AgentAction(
    "Have the running agent close NVML and every device file, so that the driver's modules can be unloaded, and\n"
    "print what changed. Its devices are shown as unhealthy: running pods keep them, no new pod gets one. This\n"
    "lasts until 'ostler resume' or a reboot, also across restarts of the agent. A standby follows within seconds.\n"
    "Pods that use GPUs keep the driver busy: end them first. If a call into the driver does not return, the agent\n"
    "cannot close the driver: the command says so and fails.",
    lambda stub, given: stub.Quiesce(agent_pb2.QuiesceRequest(reason=given.reason), timeout=DRIVER_TIMEOUT),
    takes_reason=True,
    end="the driver is free of this agent; end with 'ostler resume'\n",
)
resume = AgentAction(
    "Have the running agent use the driver again, with the installed library, and print what changed.\n"
    "Does no harm if the driver is not quiesced.",
    lambda stub, _: stub.Resume(agent_pb2.ResumeRequest(), timeout=DRIVER_TIMEOUT),
)
