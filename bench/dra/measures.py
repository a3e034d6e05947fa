"""What is measured, step by step. The agent and the floor take turns wherever both can do it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.dra import library
from bench.dra.drivers import CLAIMED_RESOURCE, AgentDriver, DriverProcess, FloorDriver
from bench.dra.kubelet import AllocatedClaim, AllocatedClaims, DraKubelet, Driver, DriverCallFailed
from bench.dra.server import NODE, Server, Shown, SliceWatch, delete_slices, watching
from bench.figures import FLOOR, latency_figures, median
from bench.hardware import Hardware
from bench.kubelet import BareKubelet
from bench.process import install_bytecode, undisturbed
from bench.recording import many_gpus
from tests.cluster.dra.claims import DRIVER

SETTLE = 5.0
"""Seconds after which an agent that is registered and has published counts as idle; it tidies its memory before."""
WARM_UP = 20
"""Claims that are prepared before those that are measured."""
BLOCK = 25
"""Claims of one turn."""
RECORDED = "h100-sxm-8"
DEVICE_WAIT = 10.0
"""Seconds that the agent lets a claim wait for a device (``driver.claims.contracts.ClaimOptions.device_wait``)."""
"""The shipped node whose hardware is behind the stub NVML library."""
DEVICES, AT_ONCE = 256, 200


@dataclass(frozen=True, slots=True)
class DraEffort:
    """How much is measured, in numbers."""

    starts: int
    claims: int
    bursts: int
    repairs: int
    libraries: int


FULL = DraEffort(starts=7, claims=1000, bursts=5, repairs=5, libraries=3)
QUICK = DraEffort(starts=3, claims=100, bursts=1, repairs=1, libraries=1)


class DraRun:
    """One run below ``root``; ``say`` is told what is being measured.

    Every step raises ``NothingCame``, ``ProcessFailed``, ``DriverCallFailed`` or gRPC's own error when a part
    fails.
    """

    def __init__(
        self,
        server: Server,
        kubelets: tuple[DraKubelet, BareKubelet],
        root: Path,
        *,
        effort: DraEffort,
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._kubelet, self._plugins = kubelets
        self._hardware = Hardware(RECORDED, root)
        self._root = root
        self._effort = effort
        self._say = say
        self._claims = AllocatedClaims(server.api)
        self._agents = 0

    async def figures(self) -> dict[str, float]:
        """Everything, by name."""
        with watching(self._server.api, DRIVER) as watch:
            figures = await self._starts(watch)
            figures |= await self._one_by_one(watch)
            figures |= await self._many(watch)
        return figures | await self._library()

    def _agent(self) -> AgentDriver:
        """On the stub NVML library and a /sys of 8 GPUs and 13 NICs."""
        return AgentDriver(
            self._kubelet,
            self._plugins,
            self._server.kubeconfig,
            self._folder(),
            flags=self._hardware.flags,
            environment=self._hardware.environment,
        )

    def _large_agent(self) -> AgentDriver:
        folder = self._folder()
        folder.mkdir()
        return AgentDriver(
            self._kubelet,
            self._plugins,
            self._server.kubeconfig,
            folder,
            resources=({"name": CLAIMED_RESOURCE, "door": "dra", "devices": {"kind": "gpu"}},),
            flags={"--recorded": str(many_gpus(folder / "gpus.yaml", DEVICES))},
        )

    def _folder(self) -> Path:
        self._agents += 1
        return self._root / f"agent-{self._agents}"

    def _floor(self) -> FloorDriver:
        return FloorDriver(self._kubelet, self._server, self._root / "floor")

    async def _starts(self, watch: SliceWatch) -> dict[str, float]:
        """Each on a node without slices; the first one of each, which also leaves bytecode, is not counted."""
        figures: dict[str, list[float]] = {}
        for number in range(self._effort.starts + 1):
            self._say(f"start {number} of {self._effort.starts}")
            await self._without_slices(watch)
            for prefix, driver in (("", self._agent()), (FLOOR, self._floor())):
                async with driver:
                    began = driver.process.started_at
                    times = {f"{prefix}start_to_dra_registration_s": driver.driver.at - began}
                    if not prefix:
                        shown = await _shown(watch, "a slice is published", lambda shown: shown.devices > 0, began)
                        times["start_to_first_slice_s"] = shown - began
                for name, seconds in times.items():
                    figures.setdefault(name, []).append(seconds)
            if not number:
                await install_bytecode()
        return {name: median(values[1:]) for name, values in figures.items()}

    async def _one_by_one(self, watch: SliceWatch) -> dict[str, float]:
        """Memory while idle, then claims that follow each other, each prepared and released before the next."""
        await self._without_slices(watch)
        began = time.perf_counter()
        async with self._agent() as agent, self._floor() as floor:
            await _shown(watch, "slices are published", lambda shown: shown.devices > 0, began)
            self._say(f"idle for {SETTLE:g} s")
            await asyncio.sleep(SETTLE)
            figures: dict[str, float] = {"rss_both_doors_bytes": agent.process.rss_bytes}
            figures[f"{FLOOR}rss_both_doors_bytes"] = floor.process.rss_bytes
            self._say("making claims")
            devices = watch.devices
            count = WARM_UP + self._effort.claims
            claims = await self._allocated([devices[index % len(devices)] for index in range(count)])
            drivers = (("", agent), (FLOOR, floor))
            taken = {prefix: (list[float](), list[float]()) for prefix, _ in drivers}
            for _, process in drivers:
                await _each(process.driver, claims[:WARM_UP])
            measured = claims[WARM_UP:]
            for first in range(0, len(measured), BLOCK):
                self._say(f"claim {first} of {len(measured)}")
                for prefix, process in drivers:
                    prepares, unprepares = await _each(process.driver, measured[first : first + BLOCK])
                    taken[prefix][0].extend(prepares)
                    taken[prefix][1].extend(unprepares)
            for prefix, (prepares, unprepares) in taken.items():
                figures |= latency_figures(f"{prefix}prepare", prepares)
                figures |= latency_figures(f"{prefix}unprepare", unprepares)
        return figures

    async def _many(self, watch: SliceWatch) -> dict[str, float]:
        """A node of 256 GPUs: its slices deleted, and 200 claims at once."""
        await self._without_slices(watch)
        began = time.perf_counter()
        async with self._large_agent() as agent, self._floor() as floor:
            await _shown(watch, "all devices are published", lambda shown: shown.devices == DEVICES, began)
            await asyncio.sleep(SETTLE)
            figures = {
                "deleted_slice_repair_s": median([await self._repair(watch) for _ in range(self._effort.repairs)])
            }
            bursts: dict[str, list[float]] = {}
            for number in range(self._effort.bursts + 1):
                self._say(f"{AT_ONCE} claims at once: {number} of {self._effort.bursts}")
                claims = await self._allocated(watch.devices[:AT_ONCE])
                for prefix, process in (("", agent), (FLOOR, floor)):
                    bursts.setdefault(f"{prefix}prepare_200_parallel_s", []).append(
                        await _burst(process.driver, claims)
                    )
            for _ in range(self._effort.bursts):
                self._say(f"{AT_ONCE} claims at once, one of which has to wait")
                bursts.setdefault("prepare_199_beside_one_waiting_s", [0.0]).append(
                    await self._beside_one_waiting(agent, watch.devices[:AT_ONCE])
                )
        # The first burst makes threads and connections.
        return figures | {name: median(values[1:]) for name, values in bursts.items()}

    async def _repair(self, watch: SliceWatch) -> float:
        """Delete the node's slices; the seconds until all of them are back."""
        self._say("slices are deleted")
        before = watch.now
        began = time.perf_counter()
        await asyncio.to_thread(delete_slices, self._server.api, DRIVER, NODE)
        gone = before.deleted + before.slices
        return (
            await _shown(
                watch, "all are back", lambda shown: shown.deleted >= gone and shown.devices == before.devices, began
            )
            - began
        )

    async def _beside_one_waiting(self, agent: DriverProcess, devices: Sequence[str]) -> float:
        """Seconds until 199 claims are answered while one more wants a device that another claim has.

        Raises ``DriverCallFailed`` if that one gets the device before it is free, or does not get it then. The agent
        refuses a claim that has waited for ``DEVICE_WAIT``; on a slow machine that may happen, and it asks again.
        """
        driver = agent.driver
        holder, waiting, *others = await self._allocated([devices[0], *devices])
        await driver.prepare(holder)
        late = asyncio.create_task(driver.prepare(waiting))
        with undisturbed():
            began = time.perf_counter()
            await asyncio.gather(*(driver.prepare(claim) for claim in others))
            taken = time.perf_counter() - began
        if late.done() and late.exception() is None:
            raise DriverCallFailed(f"{waiting.name} was given the device that {holder.name} had: {late.result()}")
        await driver.unprepare(holder)
        try:
            await late
        except DriverCallFailed:
            if time.perf_counter() - began < DEVICE_WAIT:
                raise
            await driver.prepare(waiting)
        await asyncio.gather(*(driver.unprepare(claim) for claim in (waiting, *others)))
        return taken

    async def _library(self) -> dict[str, float]:
        runs = []
        for number in range(self._effort.libraries):
            self._say(f"10,000 devices: {number + 1} of {self._effort.libraries}")
            runs.append(await asyncio.to_thread(library.publish, self._server))
        return {
            "slices_10000_devices_converge_s": median([run.converge for run in runs]),
            "slices_10000_devices_writes": max(run.writes for run in runs),
            "slices_one_change_s": median([run.change for run in runs]),
            "slices_one_change_writes": max(run.change_writes for run in runs),
        }

    async def _allocated(self, devices: Sequence[str]) -> list[AllocatedClaim]:
        return await asyncio.to_thread(self._claims.allocated, devices)

    async def _without_slices(self, watch: SliceWatch) -> None:
        """No agent runs: what the last one left is deleted."""
        await asyncio.to_thread(delete_slices, self._server.api, DRIVER, NODE)
        now = watch.now
        if now.slices:
            await _shown(watch, "no slice is left", lambda shown: shown.slices == 0, now.at)


async def _shown(watch: SliceWatch, what: str, condition: Callable[[Shown], bool], after: float) -> float:
    """When a watch first showed something, see ``SliceWatch.wait``."""
    return (await asyncio.to_thread(watch.wait, what, condition, after)).at


async def _each(driver: Driver, claims: Sequence[AllocatedClaim]) -> tuple[list[float], list[float]]:
    """Seconds of preparing and of releasing each."""
    prepares, unprepares = [], []
    with undisturbed():
        for claim in claims:
            prepares.append(await _timed(driver.prepare(claim)))
            unprepares.append(await _timed(driver.unprepare(claim)))
    return prepares, unprepares


async def _burst(driver: Driver, claims: Sequence[AllocatedClaim]) -> float:
    """Seconds until the last of them is prepared, each by a call of its own; they are released afterwards."""
    with undisturbed():
        began = time.perf_counter()
        await asyncio.gather(*(driver.prepare(claim) for claim in claims))
        taken = time.perf_counter() - began
    await asyncio.gather(*(driver.unprepare(claim) for claim in claims))
    return taken


async def _timed(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    await call
    return time.perf_counter() - began
