"""Waits until a node in a box has settled: its agent, its kubelet and the API server agree on devices and holders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from protos.agent.v1alpha1 import agent_pb2
from sandbox.cluster.cluster import SandboxCluster
from sandbox.cluster.controllers import allocation
from sandbox.kubelet.kubelet import Kubelet
from sandbox.process import AgentProcess, unsettled

_BY_HOLDS = tuple(f"ostler.dev/{cause}" for cause in ("other-door", "overlap", "draining", "holds-unknown", "moving"))
"""Keys of the taints that holds cause."""

REGISTRATION_TIMEOUT = 40.0
"""Seconds until every resource must be registered: the kubelet looks every second, Register is tried after five.

The first scan of 1,000 devices has taken 19 on two cores that had eight other nodes in boxes to run.
"""


class NodeWaits:
    """Waits of a node; ``cluster``: None if it has no API server. Raises TimeoutError with what is missing."""

    def __init__(self, agent: AgentProcess, kubelet: Kubelet, cluster: SandboxCluster | None) -> None:
        self._agent = agent
        self._kubelet = kubelet
        self._cluster = cluster

    async def registered(self) -> agent_pb2.GetStatusResponse:
        """Wait until the agent is ready and the kubelet has its lists; the agent's status then.

        Raises TimeoutError with the reasons.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REGISTRATION_TIMEOUT
        status = await self._agent.status()
        while not status.ready:
            if loop.time() > deadline:
                raise TimeoutError("; ".join(status.reasons))
            await asyncio.sleep(0.05)
            status = await self._agent.status()
        for resource in status.resources:
            await self._kubelet.wait_for(resource.name, healthy=resource.healthy, within=REGISTRATION_TIMEOUT)
        await self.published(deadline)
        return status

    async def published(self, deadline: float | None = None) -> agent_pb2.ListSlicesResponse | None:
        """Wait until the API server has what the agent offers now through DRA; None if that is nothing.

        ``deadline``: by the loop's clock. Raises TimeoutError with what is missing.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REGISTRATION_TIMEOUT if deadline is None else deadline
        newest = (await self._agent.status()).snapshot_generation
        while True:
            slices = await self._agent.slices()
            missing = "" if slices is None else unsettled(slices, newest) or await self._behind()
            if slices is None or not missing:
                return slices
            if loop.time() > deadline:
                raise TimeoutError(missing)
            await asyncio.sleep(0.05)

    async def _behind(self) -> str:
        """Which devices' taints at the API server are not those of what the agent knows to be held; empty for none."""
        assert self._cluster is not None
        held = {
            device.device
            for device in (await self._agent.holds()).devices
            if any(withheld.door == "dra" for withheld in device.withheld)
        }
        published = {
            device["name"]: any(taint["key"] in _BY_HOLDS for taint in device.get("taints", ()))
            for each in await self._cluster.slices()
            for device in each["spec"].get("devices") or ()
        }
        behind = [name for name, tainted in published.items() if tainted != (name in held)]
        return f"taints are not written yet: {', '.join(behind)}" if behind else ""

    async def noticed(self, pod: str) -> None:
        """Wait until the kubelet lists for that pod what it has of the plugin door; raises TimeoutError."""
        # Not until nothing is unseen: the latest grants may not be reported yet.
        await self._until(
            lambda devices: any(
                hold.state == "listed" and f"default/{pod}" in hold.holder.split(", ")
                for device in devices
                for hold in device.holds
            ),
            f"pod {pod} is not seen at the kubelet yet",
        )

    async def seen(self) -> None:
        """Wait until the agent has seen at the kubelet all that it has allocated; raises TimeoutError.

        What it has not seen stays held for some seconds after its pod has ended.
        """
        await self._until(
            lambda devices: not any(hold.state == "allocated" for device in devices for hold in device.holds),
            "the kubelet does not show all allocated devices yet",
        )

    async def freed(self, pod: str, namespace: str = "default") -> None:
        """Wait until what that pod had, and what claims without an allocation had, is offered again.

        Raises TimeoutError.
        """
        own = f"{namespace}/{pod}"
        claims = await self._cluster.claims() if self._cluster is not None else ()
        allocated = {"{namespace}/{name}".format_map(claim["metadata"]) for claim in claims if allocation(claim)}

        def has(device: agent_pb2.DeviceHolds) -> bool:
            return any(
                hold.state == "draining" or hold.holder == own or (hold.door == "dra" and hold.holder not in allocated)
                for hold in device.holds
            )

        await self._until(
            lambda devices: not any(map(has, devices)), f"what pod {pod} had is still held though it has ended"
        )
        await self.registered()

    async def _until(self, right: Callable[[Sequence[agent_pb2.DeviceHolds]], bool], problem: str) -> None:
        """With one door there is nothing to wait for: the agent rarely reads the kubelet's allocations."""
        if await self._agent.slices() is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REGISTRATION_TIMEOUT
        while not right((await self._agent.holds()).devices):
            if loop.time() > deadline:
                raise TimeoutError(problem)
            await asyncio.sleep(0.05)
