"""What is measured, step by step. Shares, partitions and whole GPUs of one agent take turns in everything.

A partition is made by calls of the stub NVML library that are delayed on purpose and report what they took, so that
what ostler adds can be told from what a driver takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from bench.dra.drivers import AgentDriver
from bench.dra.kubelet import DraKubelet, Driver
from bench.figures import latency_figures
from bench.hardware import Hardware
from bench.kubelet import LOCAL, BareKubelet, NothingCame
from bench.measures import allocate, one_by_one
from bench.process import undisturbed
from bench.sharing.figures import PREFIX
from bench.sharing.stage import (
    ALL_SHARED,
    CLAIMED,
    CLAIMED_SHARED,
    DIVIDED,
    GPUS,
    MADE,
    ON_DEMAND,
    PER_GPU,
    PODS,
    PROFILES,
    RECORDED,
    REPLICAS,
    SEVERAL,
    SHARED,
    WHOLE,
    ClaimingServer,
    consumption,
)
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc
from tests.cluster.rig.api import Object

SETTLE = 3.0
"""Seconds after which an agent that is registered and has published counts as idle."""
RELEASED_WITHIN = 60.0
BLOCK = 25
"""Claims of one turn."""
DELAYS = {
    "nvmlDeviceSetMigMode": 200,
    "nvmlDeviceCreateGpuInstanceWithPlacement": 100,
    "nvmlGpuInstanceCreateComputeInstance": 50,
    "nvmlComputeInstanceDestroy": 20,
    "nvmlGpuInstanceDestroy": 50,
}
"""Milliseconds of NVML's calls that change MIG, of the order of a real driver's."""


@dataclass(frozen=True, slots=True)
class SharingEffort:
    """How much is measured, in numbers; ``block``: calls of Allocate in one turn."""

    calls: int
    block: int
    claims: int
    partitions: int


FULL = SharingEffort(calls=10_000, block=500, claims=500, partitions=21)
QUICK = SharingEffort(calls=1000, block=250, claims=50, partitions=3)


class SharingRun:
    """One run below ``root``; ``say`` is told what is being measured.

    Every step raises ``NothingCame``, ``ProcessFailed``, ``DriverCallFailed`` or gRPC's own error when a part fails.
    """

    def __init__(
        self,
        server: ClaimingServer,
        kubelets: tuple[DraKubelet, BareKubelet],
        root: Path,
        *,
        effort: SharingEffort,
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._kubelet, self._plugins = kubelets
        self._hardware = Hardware(RECORDED, _made(root / "driver-several"))
        self._root = root
        self._effort = effort
        self._say = say

    async def figures(self) -> dict[str, float]:
        """Everything, by name."""
        self._say("starting")
        async with self._agent("several", SEVERAL, self._hardware) as agent:
            parts = await self._server.published(DIVIDED, PROFILES)
            whole = await self._server.published(CLAIMED, 2)
            shared = await self._server.published(CLAIMED_SHARED, 2)
            await asyncio.sleep(SETTLE)
            figures = await self._allocations(agent)
            figures |= await self._claims(agent.driver, {"whole": whole, "share": shared, "partition": parts})
            figures |= await self._made(agent.driver)
        return {f"{PREFIX}{name}": value for name, value in (figures | await self._pods()).items()}

    def _agent(self, name: str, resources: Sequence[Object], hardware: Hardware) -> AgentDriver:
        return AgentDriver(
            self._kubelet,
            self._plugins,
            self._server.kubeconfig,
            self._root / name,
            resources=resources,
            flags=hardware.flags,
            environment=hardware.environment,
        )

    async def _allocations(self, agent: AgentDriver) -> dict[str, float]:
        """Allocate of a share beside that of a whole GPU; the first turn is a warm-up."""
        calls = {}
        for kind, resource in (("whole", WHOLE), ("share", SHARED)):
            shown = await agent.lists(resource).list_where(lambda shown: shown.unhealthy == 0)
            calls[kind] = allocate(agent.lists(resource), sorted(shown.healths)[:1])
        taken: dict[str, list[float]] = {kind: [] for kind in calls}
        for turn in range(self._effort.calls // self._effort.block + 1):
            self._say(f"call {turn * self._effort.block} of {self._effort.calls}")
            for kind, call in calls.items():
                latencies = await one_by_one(call, self._effort.block)
                taken[kind] += latencies if turn else []
        return _latencies("allocate", taken)

    async def _claims(self, driver: Driver, devices: Mapping[str, Sequence[str]]) -> dict[str, float]:
        """Prepare of a share, and of a partition that exists, beside that of a whole GPU; the first turn is a warm-up.

        Each claim is released before the next is prepared.
        """
        consumed = {"share": consumption(REPLICAS)}
        taken: dict[str, list[float]] = {kind: [] for kind in devices}
        for turn in range(self._effort.claims // BLOCK + 1):
            self._say(f"claim {turn * BLOCK} of {self._effort.claims}")
            for kind, names in devices.items():
                claims = [self._server.claim(names[n % len(names)], consumed.get(kind)) for n in range(BLOCK)]
                with undisturbed():
                    for claim in claims:
                        seconds = await _seconds(driver.prepare(claim))
                        await driver.unprepare(claim)
                        taken[kind] += [seconds] if turn else []
        return _latencies("prepare", taken)

    async def _made(self, driver: Driver) -> dict[str, float]:
        """Partitions that are made and removed: the first one turns MIG mode on, and the whole GPU turns it off."""
        (whole,) = await self._server.published(ON_DEMAND, 1, type="gpu")
        parts = await self._server.published(MADE, PROFILES)
        self._hardware.delay(DELAYS)
        taken: dict[str, list[tuple[float, float]]] = {}
        for turn in range(self._effort.partitions):
            self._say(f"partition {turn} of {self._effort.partitions}")
            first, second, all_of_it = (self._server.claim(name) for name in (*parts[:2], whole))
            for name, call in (
                ("make_first_partition", driver.prepare(first)),
                ("make_partition", driver.prepare(second)),
                ("remove_partition", driver.unprepare(second)),
                ("", driver.unprepare(first)),
                ("leave_mig_mode", driver.prepare(all_of_it)),
                ("", driver.unprepare(all_of_it)),
            ):
                before = self._hardware.delays()
                seconds = await _seconds(call)
                taken.setdefault(name, []).append((seconds, self._hardware.delays() - before))
        del taken[""]
        figures: dict[str, float] = {}
        for name, pairs in taken.items():
            # Of the pairs the one with the median difference, for this is what ostler adds.
            seconds, nvml = sorted(pairs, key=lambda pair: pair[0] - pair[1])[len(pairs) // 2]
            figures |= {f"{name}_s": seconds, f"{name}_nvml_s": nvml}
        return figures

    async def _pods(self) -> dict[str, float]:
        """200 shares of eight GPUs, half of them through each door, held at the same time and released."""
        hardware = Hardware(RECORDED, _made(self._root / "driver-pods"))
        async with self._agent("pods", ALL_SHARED, hardware) as agent:
            await self._server.published(SHARED, len(GPUS))
            lists = agent.lists(SHARED)
            shown = await lists.list_where(lambda shown: len(shown.healths) == PODS and shown.unhealthy == 0)
            ids = _half(shown.healths)
            claims = [self._server.claim(name, consumption(PER_GPU)) for name in GPUS for _ in range(_BY_CLAIM)]
            # The agent loads its own service at the first call, which is no part of what pods cost.
            await _holds(agent, 0)
            await asyncio.sleep(SETTLE)
            rss, cpu = agent.process.rss_bytes, agent.process.cpu_seconds
            self._say(f"{PODS} pods")
            began = time.perf_counter()
            for number, id_ in enumerate(ids):
                await allocate(lists, [id_])()
                self._plugins.pods[f"pod-{number}"] = (SHARED, id_)
            for claim in claims:
                await agent.driver.prepare(claim)
            filled = time.perf_counter() - began
            await _holds(agent, PODS)
            figures = {"200_pods_fill_s": filled, "200_pods_cpu_s": agent.process.cpu_seconds - cpu}
            figures["rss_bytes"] = agent.process.rss_bytes
            self._say(f"{PODS} pods end")
            cpu = agent.process.cpu_seconds
            self._plugins.pods.clear()
            for claim in claims:
                await agent.driver.unprepare(claim)
            await _holds(agent, 0)
            figures["200_pods_release_cpu_s"] = agent.process.cpu_seconds - cpu
            return figures | {"rss_growth_200_pods_bytes": agent.process.rss_bytes - rss}


_BY_CLAIM = PER_GPU // 2
"""Shares of each GPU that claims have."""


def _half(healths: Mapping[str, str]) -> list[str]:
    """Ids of the replicas of the plugin door: of every GPU as many as claims leave."""
    return sorted(id_ for id_ in healths if int(id_.rpartition("::")[2]) < PER_GPU - _BY_CLAIM)


def _latencies(call: str, taken: Mapping[str, Sequence[float]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for kind, latencies in taken.items():
        figures |= latency_figures(f"{call}_{kind}", latencies)
    return figures


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def _seconds(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    await call
    return time.perf_counter() - began


async def _holds(agent: AgentDriver, count: int) -> None:
    """Wait until the agent's ledger has so many shares that are held; raises ``NothingCame``."""
    deadline = time.monotonic() + RELEASED_WITHIN
    async with grpc.aio.insecure_channel(f"unix:{agent.socket}", options=LOCAL) as channel:
        stub = agent_pb2_grpc.AgentStub(channel)
        while True:
            answer = await stub.ListHolds(agent_pb2.ListHoldsRequest())
            held = sum(device.held for device in answer.shared)
            if held == count:
                return
            if time.monotonic() > deadline:
                raise NothingCame(f"the ledger has {held} shares and not {count} after {RELEASED_WITHIN:g} s")
            await asyncio.sleep(0.2)
