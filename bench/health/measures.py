"""What is measured, step by step; a device is used once, since getting well takes its time on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import median
from bench.health import hardware
from bench.health.agents import DescribedHardware, MeasuredAgent, StandInSlices
from bench.health.figures import CARRIER, FLAPS, UNBIND, XID, to_list
from bench.kubelet import BareKubelet, Registered

BETWEEN = 0.7
"""Seconds between two devices, so that no scan is under way because of the last one."""
AFTER_EVENTS = 2.0
"""Seconds after an event within which the agent has looked again by itself; later it looks at its interval."""
QUIET = 5.0
"""Seconds after the last flap within which everything has been told."""
HEALED_WITHIN = 120.0
_DOMAIN = "bench.ostler.dev"
GPUS, LINKS, FUNCTIONS = f"{_DOMAIN}/gpus", f"{_DOMAIN}/links", f"{_DOMAIN}/functions"


@dataclass(frozen=True, slots=True)
class HealthEffort:
    """How many devices of each kind are used for events, and how many for what is polled."""

    devices: int
    polled: int


FULL, QUICK = HealthEffort(8, 4), HealthEffort(2, 1)


class HealthRun:
    """One run below ``root``; ``say`` is told what is being measured.

    Every step raises ``NothingCame``, ``ProcessFailed``, ``Missing`` or gRPC's own error when something does not work.
    """

    def __init__(self, kubelet: BareKubelet, root: Path, effort: HealthEffort, say: Callable[[str], None]) -> None:
        self._kubelet = kubelet
        self._root = root
        self._effort = effort
        self._say = say

    async def figures(self) -> dict[str, float]:
        """Everything, by name."""
        hardware.check()
        figures: dict[str, float] = {}
        seconds = {XID: await self._xids()}
        figures |= await self._losses()
        figures |= await self._nics(seconds)
        figures["health_to_taint_s"] = await self._taints()
        with hardware.cables(range(1)):
            async with hardware.bed(1, 0) as bed:
                figures["health_1000_flaps_slice_writes"] = await self._flap_writes(bed)
        return figures | to_list(seconds)

    def _agent(
        self,
        hardware: DescribedHardware,
        name: str,
        resources: list[dict[str, Any]],
        slices: StandInSlices | None = None,
    ) -> MeasuredAgent:
        kubeconfig = None if slices is None else slices.kubeconfig
        return MeasuredAgent(self._kubelet, hardware, self._root / name, resources, kubeconfig)

    def _nic_rules(self, door: str = "plugin") -> list[dict[str, Any]]:
        # By name: an interface of the kind veth is not one that the node could use for itself, as far as anybody knows.
        interfaces = [hardware.interface_of(number) for number in range(self._effort.devices + 1)]
        wired = {"name": LINKS, "door": door, "linkHealth": True, "devices": {"kind": "nic", "interfaces": interfaces}}
        return [wired, {"name": FUNCTIONS, "door": door, "devices": {"kind": "nic"}}]

    async def _nics(self, seconds: dict[str, list[float]]) -> dict[str, float]:
        """Everything that one agent is asked about NICs; the times of their signals go into ``seconds``."""
        # One NIC with a cable more, for the flaps, and some without for what has no event.
        wired, bare = self._effort.devices + 1, self._effort.devices + self._effort.polled
        with hardware.cables(range(wired)):
            async with hardware.bed(wired, bare) as bed, self._agent(bed.hardware, "nics", self._nic_rules()) as agent:
                links, functions = agent.lists(LINKS), agent.lists(FUNCTIONS)
                seconds[CARRIER] = await self._carriers(links)
                seconds[UNBIND] = await self._unbinds(functions, bed)
                return {
                    "health_polled_to_list_s": await self._polled(functions, bed),
                    "health_healed_to_list_s": await self._healed(links),
                    "health_1000_flaps_lists": await self._flap_lists(links),
                }

    async def _xids(self) -> list[float]:
        made = hardware.Gpus(self._root / "gpus")
        times = []
        async with self._agent(made.hardware, "xids", [{"name": GPUS, "devices": {"kind": "gpu"}}]) as agent:
            await made.listened_to()
            lists = agent.lists(GPUS)
            await lists.list_where(lambda shown: shown.unhealthy == 0)
            for index in range(self._effort.devices):
                self._say(f"XID {index + 1} of {self._effort.devices}")
                await asyncio.sleep(BETWEEN)
                began = made.fail(index)
                times.append(await _one_more(lists, index, began))
        return times

    async def _losses(self) -> dict[str, float]:
        """GPUs that fall off the bus, without an event and with an XID, and are back: the longest wait."""
        made = hardware.Gpus(self._root / "lost-gpus")
        seen, healed, after_xid = [], [], []
        async with self._agent(made.hardware, "lost", [{"name": GPUS, "devices": {"kind": "gpu"}}]) as agent:
            await made.listened_to()
            lists = agent.lists(GPUS)
            await lists.list_where(lambda shown: shown.unhealthy == 0)
            for index in range(self._effort.polled):
                self._say(f"lost GPU {index + 1} of {self._effort.polled}")
                await asyncio.sleep(BETWEEN)
                seen.append(await _one_more(lists, 0, made.lose(index)))
                healed.append(await _well(lists, made.find()))
            self._say("lost GPU with XID")
            # The list may come because of the XID alone.
            began = made.fail(self._effort.polled)
            made.lose(self._effort.polled)
            await _one_more(lists, 0, began)
            await asyncio.sleep(AFTER_EVENTS)
            after_xid.append(await _well(lists, made.find()))
        return {
            "health_lost_to_list_s": max(seen),
            "health_lost_healed_s": max(healed),
            "health_lost_with_xid_healed_s": max(after_xid),
        }

    async def _carriers(self, lists: Registered) -> list[float]:
        times = []
        await lists.list_where(lambda shown: shown.unhealthy == 0)
        for number in range(self._effort.devices):
            self._say(f"carrier {number + 1} of {self._effort.devices}")
            await asyncio.sleep(BETWEEN)
            times.append(await _one_more_told(lists, number, await hardware.pull(number)))
        return times

    async def _unbinds(self, lists: Registered, bed: hardware.Bed) -> list[float]:
        times = []
        first = self._effort.devices + 1
        await lists.list_where(lambda shown: shown.unhealthy == 0)
        for number in range(self._effort.devices):
            self._say(f"unbind {number + 1} of {self._effort.devices}")
            await asyncio.sleep(BETWEEN)
            times.append(await _one_more_told(lists, number, await bed.unbind(first + number)))
        return times

    async def _polled(self, lists: Registered, bed: hardware.Bed) -> float:
        """PCIe errors that could not be corrected: the kernel counts them and tells nobody. The longest wait."""
        times = []
        first = 2 * self._effort.devices + 1
        for number in range(self._effort.polled):
            self._say(f"what is polled {number + 1} of {self._effort.polled}")
            await asyncio.sleep(AFTER_EVENTS)
            began = await bed.err(first + number)
            times.append(await _one_more(lists, self._effort.devices + number, began))
        return max(times)

    async def _healed(self, lists: Registered) -> float:
        """A cable that is put back, until the device is offered again: the policy's quiet time, mostly."""
        self._say("waiting for a NIC to be well again")
        signal = await hardware.pull(0, up=True)
        wanted = self._effort.devices - 1
        async with asyncio.timeout(HEALED_WITHIN):
            while True:
                newest = lists.lists[-1]
                if newest.at >= signal.asked and newest.unhealthy == wanted:
                    return max(0.0, newest.at - signal.told)
                await asyncio.sleep(0.02)

    async def _flap_lists(self, lists: Registered) -> float:
        before = len(lists.lists)
        await self._flap(self._effort.devices)
        return len(lists.lists) - before

    async def _flap(self, number: int) -> None:
        self._say(f"{FLAPS} flaps of a link")
        other = f"{hardware.interface_of(number)}x"
        await asyncio.to_thread(hardware.ip, *(f"link set {other} {to}" for _ in range(FLAPS) for to in ("down", "up")))
        await asyncio.sleep(QUIET)

    async def _taints(self) -> float:
        made = hardware.Gpus(self._root / "tainted-gpus")
        rules = [{"name": GPUS, "door": "dra", "devices": {"kind": "gpu"}}]
        times = []
        with StandInSlices(self._root / "kubeconfig-gpus") as slices:
            async with self._agent(made.hardware, "taints", rules, slices):
                await made.listened_to()
                await slices.published(hardware.COUNT)
                for index in range(self._effort.devices):
                    self._say(f"taint {index + 1} of {self._effort.devices}")
                    await asyncio.sleep(BETWEEN)
                    began = made.fail(index)
                    times.append(await slices.tainted(index + 1) - began)
        return median(times)

    async def _flap_writes(self, bed: hardware.Bed) -> float:
        with StandInSlices(self._root / "kubeconfig-nics") as slices:
            async with self._agent(bed.hardware, "flaps", self._nic_rules("dra"), slices):
                await slices.published(1)
                await asyncio.sleep(QUIET)
                before = slices.writes
                await self._flap(0)
                return slices.writes - before


async def _one_more(lists: Registered, unhealthy: int, began: float) -> float:
    """Seconds from ``began`` until one device more than so many is shown unhealthy."""
    return (await lists.list_where(lambda shown: shown.unhealthy == unhealthy + 1, began)).at - began


async def _one_more_told(lists: Registered, unhealthy: int, signal: hardware.Signal) -> float:
    """The same since the kernel told of it; none where the agent was quicker."""
    return max(0.0, await _one_more(lists, unhealthy, signal.asked) - (signal.told - signal.asked))


async def _well(lists: Registered, began: float) -> float:
    """Seconds from ``began`` until every device is shown healthy."""
    async with asyncio.timeout(HEALED_WITHIN):
        while not (lists.lists[-1].at >= began and lists.lists[-1].unhealthy == 0):
            await asyncio.sleep(0.02)
    return lists.lists[-1].at - began
