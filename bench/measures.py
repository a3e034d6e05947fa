"""What is measured, step by step. The agent and the floor take turns in everything, because machines are noisy.

Latencies of calls are seconds seen by a client of the kubelet's kind, the same for every plugin. They include the
client's own share, which is in the floor's figures as well.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import allocation, cells, extender, large, placement, pools
from bench.figures import FLOOR, latency_figures, median, percentile
from bench.hardware import Hardware, announce
from bench.kubelet import WITHIN, BareKubelet, NothingCame, Registered
from bench.plugins import BETWEEN_SCANS, AgentPlugin, FloorPlugin, MeasuredPlugin
from bench.process import install_bytecode, undisturbed
from protos.deviceplugin.v1beta1 import api_pb2

SETTLE = 3.0
"""Seconds after which a plugin that has just shown its list counts as idle; the agent tidies its memory before."""
WARM_UP = 200
"""Calls that are made before those that are measured."""
_HELD_UP = re.compile(r'msg="the event loop was held up" seconds=([0-9.]+)')
SCANS = 3
SCANS_ALONE = {
    "apiVersion": "ostler.dev/v1alpha1",
    "kind": "Config",
    "health": {"actions": {"lost": "ignore"}, "quiet": {"looks": 1}},
}
"""A configuration: a lost GPU is out of order as long as scans find it so, however often that happens."""
CONCURRENT = 8
Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class BenchEffort:
    """How much is measured: numbers, and ``idle`` in seconds."""

    starts: int
    calls: int
    block: int
    rounds: int
    changes: int
    takeovers: int
    idle: float


FULL = BenchEffort(starts=7, calls=20_000, block=500, rounds=1000, changes=12, takeovers=5, idle=185.0)
QUICK = BenchEffort(starts=3, calls=2_000, block=250, rounds=100, changes=3, takeovers=1, idle=6.0)


class BenchRun:
    """One run on ``hardware`` below ``root``; ``say`` is told what is being measured.

    Every step raises ``NothingCame``, ``ProcessFailed`` or gRPC's own error when something does not work.
    """

    def __init__(
        self, kubelet: BareKubelet, hardware: Hardware, root: Path, effort: BenchEffort, say: Callable[[str], None]
    ) -> None:
        self._kubelet = kubelet
        self._hardware = hardware
        self._root = root
        self._effort = effort
        self._say = say
        self._agents = 0
        self._ids: list[str] = []
        self._paths: list[str] = []

    async def figures(self) -> dict[str, float]:
        """Everything, by name."""
        self._say("warming up")
        await self._learn()
        figures = await self._starts()
        figures |= await self._monitored()
        figures |= await self._with_http()
        async with self._agent() as agent, self._floor() as floor:
            figures |= await self._idle(agent, floor)
            figures |= await self._calls(agent, floor)
        figures |= await self._changes()
        figures |= await self._takeovers()
        self._say("decisions and scans without processes")
        figures |= await asyncio.to_thread(placement.figures, quick=self._effort is QUICK)
        figures |= await asyncio.to_thread(allocation.figures, quick=self._effort is QUICK)
        explain = self._root / "explain"
        figures |= await asyncio.to_thread(allocation.explanation_figures, explain, quick=self._effort is QUICK)
        figures |= await asyncio.to_thread(pools.figures, self._root / "pools", quick=self._effort is QUICK)
        figures |= await asyncio.to_thread(cells.figures)
        figures |= await asyncio.to_thread(extender.figures, self._root / "extender", quick=self._effort is QUICK)
        return figures | await asyncio.to_thread(large.figures, self._root / "large")

    def _agent(self, flags: dict[str, str] | None = None) -> AgentPlugin:
        self._agents += 1
        return AgentPlugin(self._kubelet, self._hardware, self._root, f"agent-{self._agents}", flags)

    def _floor(self) -> FloorPlugin:
        return FloorPlugin(self._kubelet, self._root / "floor.log", self._ids, self._paths)

    async def _learn(self) -> None:
        """A first start of both, which also leaves bytecode; the floor will answer as large as the agent does."""
        async with self._agent() as agent:
            shown = await agent.registered.list_where(lambda shown: shown.unhealthy == 0)
            self._ids = sorted(shown.healths)
            answer = await agent.allocate(self._ids)
            self._paths = [node.host_path for node in answer.container_responses[0].devices]
        if not self._paths:
            raise NothingCame("the agent's answer has no device node")
        async with self._floor():
            pass
        await install_bytecode()

    async def _starts(self) -> dict[str, float]:
        figures: dict[str, list[float]] = {}
        for number in range(self._effort.starts):
            self._say(f"start {number + 1} of {self._effort.starts}")
            for prefix, plugin in (("", self._agent()), (FLOOR, self._floor())):
                async with plugin:
                    registered = plugin.registered
                    first = await registered.list_where(lambda shown: shown.unhealthy == 0)
                    asked = time.perf_counter()
                    await allocate(registered, self._ids)()
                    answered = time.perf_counter()
                began = plugin.process.started_at
                figures.setdefault(f"{prefix}start_to_register_s", []).append(registered.at - began)
                figures.setdefault(f"{prefix}register_to_first_list_s", []).append(first.at - registered.at)
                figures.setdefault(f"{prefix}first_allocate_s", []).append(answered - asked)
        return {name: median(values) for name, values in figures.items()}

    async def _monitored(self) -> dict[str, float]:
        """The longest step of the agent's event loop from the first list on, as its debug log tells it."""
        self._say("the event loop")
        async with self._agent({"--http": "127.0.0.1:0", "--log-level": "debug"}) as agent:
            await agent.registered.list_where(lambda shown: shown.unhealthy == 0)
            await agent.logged("msg=registered")
            await asyncio.sleep(2 * SETTLE)
            log = agent.process.log.read_text(errors="replace").partition("msg=registered")[2]
        return {"loop_held_up_s": max(map(float, _HELD_UP.findall(log)), default=0.0)}

    async def _with_http(self) -> dict[str, float]:
        """The agent with probes and metrics served, as most will run it."""
        self._say("with probes and metrics")
        scans = []
        async with self._agent({"--http": "127.0.0.1:0"}) as agent:
            line = await agent.logged("serving probes and metrics")
            port = int(line.rpartition("port=")[2].split()[0])
            await asyncio.sleep(SETTLE)
            rss = agent.process.rss_bytes
            seconds, count = await asyncio.to_thread(_scans, port)
            for _ in range(SCANS):
                await asyncio.sleep(BETWEEN_SCANS)
                await agent.rescan()
                before = seconds, count
                seconds, count = await asyncio.to_thread(_scans, port)
                scans.append((seconds - before[0]) / (count - before[1]))
        return {"rss_idle_http_bytes": rss, "scan_8_gpus_s": median(scans)}

    async def _idle(self, agent: MeasuredPlugin, floor: MeasuredPlugin) -> dict[str, float]:
        """Both at the same time, since they hardly do anything."""
        self._say(f"idle for {self._effort.idle:g} s")
        await asyncio.sleep(SETTLE)
        plugins = (("", agent.process), (FLOOR, floor.process))
        before = [process.cpu_seconds for _, process in plugins]
        await asyncio.sleep(self._effort.idle)
        figures: dict[str, float] = {}
        for (prefix, process), cpu in zip(plugins, before, strict=True):
            figures[f"{prefix}cpu_idle_ratio"] = (process.cpu_seconds - cpu) / self._effort.idle
            figures[f"{prefix}rss_idle_bytes"] = process.rss_bytes
            figures[f"{prefix}threads_idle"] = process.threads
        return figures

    async def _calls(self, agent: MeasuredPlugin, floor: MeasuredPlugin) -> dict[str, float]:
        effort, figures = self._effort, dict[str, float]()
        plugins = (("", agent, list[float](), list[float]()), (FLOOR, floor, list[float](), list[float]()))
        cpu = dict.fromkeys(("", FLOOR), 0.0)
        for _, plugin, _, _ in plugins:
            await one_by_one(allocate(plugin.registered, self._ids), WARM_UP)
        before = [plugin.process.rss_bytes for _, plugin, _, _ in plugins]
        self._say(f"{effort.calls} calls of Allocate")
        for _ in range(effort.calls // effort.block):
            for prefix, plugin, single, _ in plugins:
                used = plugin.process.cpu_seconds
                single.extend(await one_by_one(allocate(plugin.registered, self._ids), effort.block))
                cpu[prefix] += plugin.process.cpu_seconds - used
        for (prefix, plugin, single, _), rss in zip(plugins, before, strict=True):
            figures |= latency_figures(f"{prefix}allocate", single)
            figures[f"{prefix}allocate_cpu_s"] = cpu[prefix] / len(single)
            figures[f"{prefix}rss_growth_20000_calls_bytes"] = plugin.process.rss_bytes - rss
        self._say(f"{CONCURRENT} calls at once")
        for _ in range(10):
            for _, plugin, _, many in plugins:
                many.extend(await at_once(allocate(plugin.registered, self._ids), effort.rounds // 10))
        for prefix, _, _, many in plugins:
            figures[f"{prefix}allocate_8_concurrent_p99_s"] = percentile(many, 99)
        self._say("GetPreferredAllocation")
        call = preferred(agent.registered, self._ids, 4)
        await one_by_one(call, WARM_UP)
        figures["preferred_8_rpc_p99_s"] = percentile(await one_by_one(call, effort.calls // 10), 99)
        return figures

    async def _changes(self) -> dict[str, float]:
        """What scans find, and nothing but that: where signals are heeded, a GPU takes its time to be well again."""
        configuration = self._root / "scans.yaml"
        configuration.write_text(json.dumps(SCANS_ALONE))
        ours: list[float] = []
        floors: list[float] = []
        async with self._agent({"--config": str(configuration)}) as agent, self._floor() as floor:
            # The first change is a warm-up.
            for number in range(self._effort.changes + 1):
                self._say(f"change {number} of {self._effort.changes}")
                ours.append(await agent.change())
                floors.append(await floor.change())
            self._say("an event of the kernel")
            events = [await agent.event(lambda: announce(self._root)) for _ in range(self._effort.changes)]
        return {
            "change_to_list_s": median(ours[1:]),
            f"{FLOOR}change_to_list_s": median(floors[1:]),
            "event_to_list_s": max(events),
        }

    async def _takeovers(self) -> dict[str, float]:
        """Each standby becomes the active instance that the next one follows."""
        times = []
        active = self._agent()
        await active.start()
        try:
            for number in range(self._effort.takeovers):
                self._say(f"take-over {number + 1} of {self._effort.takeovers}")
                ending, active = active, self._agent()
                try:
                    await active.start_standby()
                    await asyncio.sleep(SETTLE)
                    times.append(await active.take_over_from(ending))
                finally:
                    await ending.stop()
        finally:
            await active.stop()
        return {"takeover_s": median(times)}


def _scans(port: int) -> tuple[float, float]:
    """Seconds that all scans have taken, and how many there were."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN) as answer:
        text = answer.read().decode()
    found = dict(re.findall(r"^ostler_scan_duration_seconds_(sum|count) (\S+)$", text, re.MULTILINE))
    if found.keys() != {"sum", "count"}:
        raise NothingCame("/metrics does not tell how long scans took")
    return float(found["sum"]), float(found["count"])


def allocate(registered: Registered, ids: Sequence[str]) -> Call:
    """Allocate of one container with these devices."""
    request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
    return lambda: registered.stub.Allocate(request)


def preferred(registered: Registered, ids: Sequence[str], size: int) -> Call:
    """GetPreferredAllocation of ``size`` out of these devices."""
    wanted = api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=size)
    request = api_pb2.PreferredAllocationRequest(container_requests=[wanted])
    return lambda: registered.stub.GetPreferredAllocation(request)


async def one_by_one(call: Call, count: int) -> list[float]:
    """Latencies of calls that follow each other."""
    latencies = []
    with undisturbed():
        for _ in range(count):
            began = time.perf_counter()
            await call()
            latencies.append(time.perf_counter() - began)
    return latencies


async def at_once(call: Call, rounds: int) -> list[float]:
    """Latencies of every call when eight are made at once and the next eight follow when all are answered."""
    latencies: list[float] = []
    with undisturbed():
        for _ in range(rounds):
            latencies += await asyncio.gather(*(_timed(call) for _ in range(CONCURRENT)))
    return latencies


async def _timed(call: Call) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began
