"""The tour's second half: devices for claims, from their publication to their release.

Told only where the agent publishes devices through DRA. Each step waits for what it shows and for nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from sandbox.cluster import samples
from sandbox.cluster.classes import DRIVER
from sandbox.cluster.cluster import Cluster, PodOutcome
from sandbox.cluster.views import outcome_view, slice_view, tainted
from sandbox.hardware import NoSuchPart, Part, RecordedHardware
from sandbox.node import SandboxNode
from sandbox.step import Step

T = TypeVar("T")

ISLAND = 4
SECONDS = 15.0
"""How long a step waits for what it shows."""


async def claim_tour(node: SandboxNode) -> AsyncIterator[Step]:
    """Publish, allocate beside a device plugin, fail, heal, release."""
    cluster = node.cluster
    if cluster is None or await node.published() is None:
        return
    slices = await cluster.slices(DRIVER)
    yield Step("slices", "It published these devices for claims", [slice_view(each) for each in slices])
    gpus = [device for each in slices for device in each["spec"].get("devices") or () if _is_gpu(device)]
    if not gpus:
        return
    async for step in _one(node, cluster):
        yield step
    if len(gpus) >= ISLAND:
        async for step in _island(cluster):
            yield step


async def _one(node: SandboxNode, cluster: Cluster) -> AsyncIterator[Step]:
    """One GPU by a claim, and one by a device plugin where there is one."""
    await cluster.apply([samples.template("one-gpu")])
    plugin = next((name for name, free in sorted(node.kubelet.allocatable().items()) if free), None)
    pod = await cluster.run(samples.pod("claim-1", "one-gpu", {plugin: 1} if plugin else None))
    beside = f" beside one with {plugin} of the device plugin" if plugin else ""
    yield Step("claim", f"A pod has a container with a claim for a GPU{beside}, and they get", outcome_view(pod))
    if pod.running and node.hardware is not None:
        async for step in _failure(node, cluster, node.hardware, pod):
            yield step
    await cluster.end("claim-1")
    left = sorted(path.name for path in node.cdi.glob(f"{DRIVER}-claim_*"))
    claims = [claim["metadata"]["name"] for claim in await cluster.claims()]
    yield Step("released", "The pod ended; of its claim there is left", {"claims": claims, "specs": left})


async def _island(cluster: Cluster) -> AsyncIterator[Step]:
    """Four GPUs that belong together, and a claim for which nothing is left."""
    await cluster.apply([samples.template("island", ISLAND, match=f"cell{ISLAND}")])
    first = await cluster.run(samples.pod("island-1", "island"))
    seen = [outcome_view(first)]
    pods = ["island-1"]
    while first.running:
        pods.append(f"island-{len(pods) + 1}")
        further = await cluster.run(samples.pod(pods[-1], "island"))
        seen.append(outcome_view(further))
        if not further.running:
            break
    title = f"Pods asked for {ISLAND} GPUs that agree in cell{ISLAND}, until there were none"
    yield Step("islands", title, seen)
    for name in pods:
        await cluster.end(name)


async def _failure(
    node: SandboxNode, cluster: Cluster, hardware: RecordedHardware, pod: PodOutcome
) -> AsyncIterator[Step]:
    """The GPU of a claim fails: its slice says so, and so does the pod's status."""
    device = next(iter(pod.claims.values()))[0].rpartition("/")[2]
    part = _part(hardware, device)
    if part is None:
        return
    hardware.fail(part)
    await node.agent.rescan()
    taints = await _until(lambda: _taints(cluster), lambda found: device in found)
    health = await _until(lambda: _health(node, pod), lambda found: "Unhealthy" in str(found))
    seen = {"part": str(part), "taints": taints, "podStatus": health}
    yield Step("claim_failure", f"{part} of the claim fails; no new claim gets it, and the pod's status says so", seen)
    hardware.heal(part)
    await node.agent.rescan()
    taints = await _until(lambda: _taints(cluster), lambda found: device not in found)
    health = await _until(lambda: _health(node, pod), lambda found: "Unhealthy" not in str(found))
    seen = {"part": str(part), "taints": taints, "podStatus": health}
    yield Step("claim_recovery", f"{part} is back", seen)


async def _taints(cluster: Cluster) -> dict[str, list[str]]:
    return tainted(await cluster.slices(DRIVER))


async def _health(node: SandboxNode, outcome: PodOutcome) -> dict[str, list[dict[str, Any]]]:
    """``allocatedResourcesStatus`` of the pod's container."""
    pod = next(pod for pod in node.kubelet.pods() if pod.name == outcome.pod)
    found = node.kubelet.claim_health(pod, "main")
    return {name: [asdict(each) for each in resources] for name, resources in found.items()}


async def _until(look: Callable[[], Awaitable[T]], enough: Callable[[T], bool]) -> T:
    """What ``look`` sees once it is enough, or after a while whatever it is."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while True:
        found = await look()
        if enough(found) or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(0.05)


def _part(hardware: RecordedHardware, device: str) -> Part | None:
    try:
        return hardware.find(device)
    except NoSuchPart:
        return None


def _is_gpu(device: Mapping[str, Any]) -> bool:
    kind = (device.get("attributes") or {}).get("type") or {}
    return kind.get("string") == "gpu" and not device.get("taints")
