"""The agent as a process of its own, as on a real node: started, asked over its socket, ended by a signal."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

import grpc
import grpc.aio

from node.interfaces.namespace import NetworkNamespace
from node.sockets import is_answered
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc

START_TIMEOUT = 30.0
"""Seconds until the agent must answer on its socket."""
ANSWER_TIMEOUT = 15.0
"""Seconds until it must answer a question there."""


class AgentFailed(Exception):
    """The agent ended or did not come up; the end of its log says why."""

    def __init__(self, problem: str, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        super().__init__("\n  ".join((f"the agent {problem}; the end of its log ({log}):", *lines)))


class AgentCommandFailed(Exception):
    """A command of ostler's ended with an error; ``problem`` is what it wrote."""

    def __init__(self, command: str, problem: str) -> None:
        super().__init__(f"'ostler {command}' failed: {problem}")


class OstlerProcess(Protocol):
    """A process that runs ``ostler WORDS``."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, below 0 for a signal; None while it runs."""

    def send_signal(self, signal: int, /) -> None:
        """Send it a signal; raises ProcessLookupError when it has ended."""

    async def wait(self) -> int:
        """Wait for its end; the exit code."""


class _ProcessInNamespace:
    """``ostler WORDS`` in a network namespace, as an ``OstlerProcess``."""

    def __init__(self, namespace: NetworkNamespace, command: Sequence[str], out: IO[bytes], err: IO[bytes]) -> None:
        # asyncio would start it in the calling thread, which stays in its own namespace.
        self._process = namespace.run(lambda: subprocess.Popen(command, stdout=out, stderr=err))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, below 0 for a signal; None while it runs."""
        return self._process.poll()

    def send_signal(self, signal: int, /) -> None:
        """Send it a signal; nothing happens if it has ended."""
        self._process.send_signal(signal)

    async def wait(self) -> int:
        """Wait for its end; the exit code."""
        return await asyncio.to_thread(self._process.wait)


async def execute_ostler(
    words: Sequence[str], out: IO[bytes], err: IO[bytes], namespace: NetworkNamespace | None = None
) -> OstlerProcess:
    """Start ``ostler WORDS`` with an interpreter of its own, in the network namespace if one is given."""
    command = [sys.executable, "-m", "ostler", *words]
    if namespace is not None:
        return _ProcessInNamespace(namespace, command, out, err)
    return await asyncio.create_subprocess_exec(*command, stdout=out, stderr=err)


start_ostler = execute_ostler
"""How the node in a box starts processes; the tests fork them from one that has imported ostler."""


async def ostler_output(*words: str) -> tuple[int, str, str]:
    """Run ``ostler WORDS``; its exit code and what it wrote to standard output and standard error."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = await (await start_ostler(words, out, err)).wait()
        written = []
        for each in (out, err):
            each.seek(0)
            written.append(each.read().decode(errors="replace"))
    return code, written[0], written[1]


class AgentProcess:
    """``python -m ostler run`` with ``flags`` (by name); use it with ``async with``."""

    def __init__(
        self,
        flags: Mapping[str, str],
        *,
        arguments: Sequence[str] = (),
        log: Path,
        namespace: NetworkNamespace | None = None,
    ) -> None:
        """``namespace``: the network namespace it runs in; None for that of this process."""
        self._namespace = namespace
        self.flags = dict(flags)
        self._words = ["run", *arguments, *(word for item in flags.items() for word in item)]
        self._socket = Path(flags["--socket"])
        self._log = log
        self._process: OstlerProcess | None = None
        self._channel: grpc.aio.Channel | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it and wait until it answers; raises ``AgentFailed``."""
        await self.spawn()
        await self.answered()

    async def spawn(self) -> None:
        """Start it and do not wait: a standby answers only when it has become active."""
        with self._log.open("ab") as log:
            self._process = await start_ostler(self._words, log, log, self._namespace)

    async def answered(self) -> None:
        """Wait until it answers on its socket; raises ``AgentFailed``."""
        assert self._process is not None
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT
        # Answered, and not only there: a killed predecessor leaves its socket behind.
        while not is_answered(self._socket):
            if self._process.returncode is not None:
                raise AgentFailed(f"ended with exit code {self._process.returncode}", self._log)
            if asyncio.get_running_loop().time() > deadline:
                raise AgentFailed(f"did not serve its socket within {START_TIMEOUT:g} s", self._log)
            await asyncio.sleep(0.02)
        local = (("grpc.use_local_subchannel_pool", 1),)
        self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}", options=local)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal and return its exit code (0 when it was not running)."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self._process.send_signal(number)
        code = await self._process.wait()
        self._process = None
        return code

    async def devices(self) -> agent_pb2.ListDevicesResponse:
        """Every device as the agent sees it."""
        answer: agent_pb2.ListDevicesResponse = await self._stub().ListDevices(
            agent_pb2.ListDevicesRequest(), timeout=ANSWER_TIMEOUT
        )
        return answer

    async def status(self) -> agent_pb2.GetStatusResponse:
        """The agent's status."""
        answer: agent_pb2.GetStatusResponse = await self._stub().GetStatus(
            agent_pb2.GetStatusRequest(), timeout=ANSWER_TIMEOUT
        )
        return answer

    async def topology(self) -> agent_pb2.GetTopologyResponse:
        """The places of its devices."""
        answer: agent_pb2.GetTopologyResponse = await self._stub().GetTopology(
            agent_pb2.GetTopologyRequest(), timeout=ANSWER_TIMEOUT
        )
        return answer

    async def command(self, *words: str) -> str:
        """The output of ``ostler WORDS``; raises ``AgentCommandFailed``."""
        code, out, err = await ostler_output(*words, "--socket", str(self._socket))
        if code:
            raise AgentCommandFailed(" ".join(words), err.strip())
        return out

    async def slices(self) -> agent_pb2.ListSlicesResponse | None:
        """The slices it publishes, None where no device is offered to claims."""
        try:
            answer: agent_pb2.ListSlicesResponse = await self._stub().ListSlices(
                agent_pb2.ListSlicesRequest(), timeout=ANSWER_TIMEOUT
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return None
            raise
        return answer

    async def claims(self) -> agent_pb2.ListClaimsResponse:
        """The claims that hold devices of its node, or were refused them lately."""
        answer: agent_pb2.ListClaimsResponse = await self._stub().ListClaims(
            agent_pb2.ListClaimsRequest(), timeout=ANSWER_TIMEOUT
        )
        return answer

    async def holds(self) -> agent_pb2.ListHoldsResponse:
        """The holds on its node's devices."""
        answer: agent_pb2.ListHoldsResponse = await self._stub().ListHolds(
            agent_pb2.ListHoldsRequest(), timeout=ANSWER_TIMEOUT
        )
        return answer

    async def rescan(self) -> agent_pb2.RescanResponse:
        """Have it look at the hardware now."""
        answer: agent_pb2.RescanResponse = await self._stub().Rescan(
            agent_pb2.RescanRequest(), timeout=2 * ANSWER_TIMEOUT
        )
        return answer

    def _stub(self) -> agent_pb2_grpc.AgentStub:
        if self._channel is None:
            raise AgentFailed("is not running", self._log)
        return agent_pb2_grpc.AgentStub(self._channel)

    async def __aenter__(self) -> AgentProcess:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def unsettled(slices: agent_pb2.ListSlicesResponse, newest: int) -> str:
    """Why the agent's slices are not settled, empty when they are; ``newest``: generation of its snapshot."""
    if not slices.pools:
        return "no slice is published"
    if slices.generation < newest:
        return f"the slices are those of snapshot {slices.generation}, not yet of {newest}"
    found = [
        f"device {device.name} is {device.state}"
        for pool in slices.pools
        for device in pool.devices
        if device.state not in ("published", "withheld")
    ]
    behind = [f"pool {pool.name}: {pool.problem or 'not written yet'}" for pool in slices.pools if not pool.in_order]
    return "; ".join(behind + found)
