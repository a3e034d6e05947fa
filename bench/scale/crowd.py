"""The processes in which the agents run (``bench.scale.agents``), and commands to all of them at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.dra.kubelet import AllocatedClaim
from bench.kubelet import NothingCame
from bench.process import ProcessFailed, clean_environment
from bench.scale.agents import Crowd

ANSWERED_WITHIN = 600.0
"""Seconds: hundreds of agents in one process take turns on its processor time."""
LOOKS = 0.5
"""Seconds between two looks at the agents, which cost them time."""
REPORTS = 10.0
"""Seconds between two words on how far a step is."""
PER_PROCESS = 50
"""Agents of a process, of which each has eight threads.

When the server goes, all of them have something to do at the same moment, and the event loop gets its turn among them.
"""
FEWEST_PROCESSES = 4
AGENT_DEVICES = "h100-sxm-8"


@dataclass(frozen=True, slots=True)
class CrowdState:
    """How all agents are: a few ``problems`` of all that there are, and the processes' threads and memory."""

    problems: tuple[str, ...]
    troubled: int
    threads: int
    rss_bytes: int


class _AgentProcess:
    def __init__(self, process: asyncio.subprocess.Process, names: tuple[str, ...], log: Path) -> None:
        self._process = process
        self._log = log
        self._turn = asyncio.Lock()
        self.names = names

    async def ask(self, command: str, about: object = None) -> Any:
        """The answer to a command; raises ``ProcessFailed``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps({"do": command, "with": about}).encode() + b"\n")
            await self._process.stdin.drain()
            try:
                async with asyncio.timeout(ANSWERED_WITHIN):
                    line = await self._process.stdout.readline()
            except TimeoutError as error:
                raise ProcessFailed(f"no answer to {command!r} within {ANSWERED_WITHIN:g} s", self._log) from error
        if not line:
            raise ProcessFailed("a process of agents ended by itself", self._log)
        return json.loads(line)

    async def stop(self) -> None:
        """Kill it: its agents hold nothing."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class AgentCrowd:
    """All agents; ``names``: of their nodes."""

    def __init__(self, processes: Sequence[_AgentProcess]) -> None:
        self._processes = processes
        self.names = tuple(name for process in processes for name in process.names)

    async def start(self) -> None:
        """Start all agents."""
        await self._each("start")

    async def lose(self, device: int) -> None:
        """All lose this device."""
        await self._each("lose", device)

    async def prepare(self, claims: Mapping[str, Sequence[AllocatedClaim]]) -> None:
        """Prepare claims by node; raises ``NothingCame`` if one is refused."""

        async def prepared(process: _AgentProcess) -> list[str]:
            wanted = [
                [name, each.namespace, each.name, each.uid] for name in process.names for each in claims.get(name, ())
            ]
            failures: list[str] = (await process.ask("prepare", wanted))["failures"]
            return failures

        failures = [each for found in await asyncio.gather(*map(prepared, self._processes)) for each in found]
        if failures:
            raise NothingCame(f"claims are not prepared: {'; '.join(failures[:3])}")

    async def state(self) -> CrowdState:
        """How they are."""
        found = await self._each("look")
        return CrowdState(
            tuple(each for one in found for each in one["problems"]),
            sum(one["troubled"] for one in found),
            sum(one["threads"] for one in found),
            sum(one["rss"] for one in found),
        )

    async def calm(self, within: float, say: Callable[[str], None]) -> CrowdState:
        """Wait until no agent has a problem; raises ``NothingCame``."""
        deadline = time.monotonic() + within
        report = time.monotonic() + REPORTS
        while True:
            state = await self.state()
            if not state.troubled:
                return state
            if time.monotonic() > deadline:
                raise NothingCame(f"agents are not well within {within:g} s: {state}")
            if time.monotonic() > report:
                report += REPORTS
                say(f"  {state.troubled} problems of agents")
            await asyncio.sleep(LOOKS)

    async def _each(self, command: str, about: object = None) -> list[Any]:
        return list(await asyncio.gather(*(process.ask(command, about) for process in self._processes)))


def processes_for(agents: int) -> int:
    """How many processes that many agents need."""
    return min(agents, max(FEWEST_PROCESSES, -(-agents // PER_PROCESS)))


@contextlib.asynccontextmanager
async def crowd(names: Sequence[str], processes: int, kubeconfig: Path, root: Path) -> AsyncIterator[AgentCrowd]:
    """So many processes with these agents between them, not started yet; they are gone afterwards."""
    root.mkdir()
    made: list[_AgentProcess] = []
    try:
        for number in range(processes):
            own = tuple(names[number::processes])
            folder = root / str(number)
            folder.mkdir()
            wanted = Crowd(own, AGENT_DEVICES, str(kubeconfig), str(folder)).write(folder / "crowd.json")
            log = folder / "log"
            with log.open("wb") as errors:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "bench.scale.agents", str(wanted),
                    env=clean_environment(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                    stderr=errors, limit=16 << 20,
                )  # fmt: skip
            made.append(_AgentProcess(process, own, log))
        yield AgentCrowd(made)
    finally:
        for each in made:
            await each.stop()
