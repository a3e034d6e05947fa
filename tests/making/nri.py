"""Parts that act on pod sandboxes, scripted, and the plugin that hands them over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from driver.nri.plugin import NriPlugin
from driver.nri.sandboxes import Sandbox, SandboxRefused
from driver.nri.status import NriChanged, NriState, NriStatus
from node.clocks import SystemClocks
from node.events import EventBus
from protos.nri.v1alpha1.nri_pb2 import PodSandbox
from sandbox.nri import pod_sandbox
from tests.waiting import background, eventually

NETNS = "/var/run/netns/cni-1"


class ScriptedSandboxes:
    """Writes down what it is asked: ``calls`` has the verb and the sandbox's id, as soon as the call begins.

    ``refusals``: text of the error by ``verb id``. ``gates``: a call waits for the event of its ``verb id``.
    ``unconcerned``: ids that it does not care for. ``listed``: sandboxes of every synchronization.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ended: list[str] = []
        self.listed: list[list[Sandbox]] = []
        self.refusals: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.unconcerned: set[str] = set()
        self.seen: dict[str, Sandbox] = {}

    def refuse(self, call: str, text: str) -> None:
        """Have a call refused."""
        self.refusals[call] = SandboxRefused(text)

    def hold(self, call: str) -> asyncio.Event:
        """Have a call wait until the event is set."""
        self.gates[call] = asyncio.Event()
        return self.gates[call]

    def concerns(self, sandbox: Sandbox) -> bool:
        return sandbox.id not in self.unconcerned

    async def run(self, sandbox: Sandbox) -> None:
        await self._called("run", sandbox)

    async def stop(self, sandbox: Sandbox) -> None:
        await self._called("stop", sandbox)

    async def removed(self, sandbox: Sandbox) -> None:
        await self._called("removed", sandbox)

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        self.listed.append(list(sandboxes))
        await self._play("synchronize")

    async def _called(self, verb: str, sandbox: Sandbox) -> None:
        self.seen[sandbox.id] = sandbox
        await self._play(f"{verb} {sandbox.id}")

    async def _play(self, call: str) -> None:
        self.calls.append(call)
        if gate := self.gates.get(call):
            await gate.wait()
        if refusal := self.refusals.get(call):
            raise refusal
        self.ended.append(call)


class WatchedPlugin:
    """A plugin that runs, and every state that it published."""

    def __init__(self, socket: Path, sandboxes: ScriptedSandboxes) -> None:
        bus = EventBus()
        self.sandboxes = sandboxes
        self.published: list[NriStatus] = []
        bus.subscribe(NriChanged, lambda event: self.published.append(event.status))
        # No jitter: pauses between attempts are the shortest ones.
        self.plugin = NriPlugin(socket, sandboxes, bus=bus, clocks=SystemClocks(random=lambda: 0.0))

    async def reach(self, state: NriState, reason: str = "") -> NriStatus:
        """The state as soon as it is this one, with a reason that contains ``reason``."""

        def reached() -> NriStatus | None:
            now = self.plugin.state()
            return now if now.state is state and reason in now.reason else None

        found = await eventually(reached, f"state {state} with {reason!r}; published {self.published}")
        assert found is not None
        return found


@asynccontextmanager
async def running(socket: Path, sandboxes: ScriptedSandboxes | None = None) -> AsyncIterator[WatchedPlugin]:
    """A plugin until the end of the block."""
    watched = WatchedPlugin(socket, sandboxes or ScriptedSandboxes())
    async with background(watched.plugin.run()):
        yield watched


def pod(number: int = 1, netns: str = NETNS) -> PodSandbox:
    """Sandbox ``s1`` of the pod ``default/pod-1``, or those of another number."""
    return pod_sandbox(f"s{number}", f"uid-{number}", f"default/pod-{number}", netns)
