"""The command line's connection to the running agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import grpc

from ostler.cli.exits import CommandFailed, Exit
from protos.agent.v1alpha1 import agent_pb2_grpc

TIMEOUT = 15.0
"""Seconds for a call; a rescan waits for NVML."""
LATE = "the agent at {} has not answered in time: it hangs, or is still working and may yet finish; its log says more"


class NoAgent(CommandFailed):
    """Nobody answers at the agent's socket."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"no agent answers at {path} ({reason}); start it with 'ostler run'", Exit.NO_AGENT)


@contextmanager
def running_agent(path: Path) -> Iterator[agent_pb2_grpc.AgentStub]:
    """A stub for the agent at ``path``; a call that fails inside the block becomes a message of this command.

    Raises ``NoAgent`` if no agent answers.
    """
    if not path.exists():
        raise NoAgent(path, "there is no such socket")
    with grpc.insecure_channel(f"unix:{path}") as channel:
        try:
            yield agent_pb2_grpc.AgentStub(channel)
        except grpc.RpcError as error:
            fault = cast("grpc.Call", error)  # What a call raises is always the call itself, too.
            code, details = fault.code(), fault.details() or str(error)
            if code is grpc.StatusCode.UNAVAILABLE:
                raise NoAgent(path, details) from error
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise CommandFailed(LATE.format(path)) from error
            refused = code is grpc.StatusCode.FAILED_PRECONDITION
            raise CommandFailed(details, Exit.CONFIG if refused else Exit.FAILED) from error
