"""The tour's second half: devices for claims, from their publication to their release, and one ledger for both doors.

Told only where the agent publishes devices through DRA. Each step waits for what it shows and for nothing else, and
leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from sandbox import configuration
from sandbox.cluster import samples
from sandbox.cluster.cluster import PodOutcome, SandboxCluster
from sandbox.cluster.samples import DRIVER
from sandbox.cluster.views import outcome_view, slice_view, tainted
from sandbox.hardware import HardwarePart, RecordedHardware
from sandbox.network import POD_ADDRESS, SandboxNetwork
from sandbox.node import SandboxNode
from sandbox.steps import TourStep

T = TypeVar("T")
Json = dict[str, Any]
Device = Mapping[str, Any]

KINDS = {"gpu": "a GPU", "mig": "a MIG device", "rdma": "an RDMA adapter", "nic": "a NIC"}
"""Kinds of devices, the first that a node has is shown."""
ISLAND = 4
REPLICAS = 4
SWITCHING = ("Hopper", "Blackwell")
"""Architectures whose GPUs enter and leave MIG mode without a reset."""
SECONDS = 15.0
"""How long a step waits for what it shows."""


async def claim_tour(node: SandboxNode) -> AsyncIterator[TourStep]:
    """Publish, allocate beside a device plugin, fail, heal, release; both doors; shares; a pair; islands."""
    cluster = node.cluster
    if cluster is None or await node.waits.published() is None:
        return
    slices = await cluster.slices(DRIVER)
    yield TourStep("slices", "It published these devices for claims", [slice_view(each) for each in slices])
    devices = [device for each in slices for device in each["spec"].get("devices") or () if not device.get("taints")]
    kinds = {_text(device, "type") for device in devices}
    kind = next((kind for kind in KINDS if kind in kinds), None)
    if kind is None:
        return
    async for step in _one(node, cluster, kind):
        yield step
    async for step in _both_doors(node, cluster, kind):
        yield step
    gpu = next((device for device in reversed(devices) if _is_shareable(device)), None)
    if gpu is not None and node.configuration is not None:
        yield await _shares(node, cluster, gpu)
        if _text(gpu, "architecture") in SWITCHING:
            yield await _partition(node, cluster, gpu)
    if _have_pair(devices):
        yield await _pair(node, cluster)
    if sum(_text(device, "type") == "gpu" for device in devices) >= ISLAND:
        yield await _islands(node, cluster)


async def _one(node: SandboxNode, cluster: SandboxCluster, kind: str) -> AsyncIterator[TourStep]:
    """One device by a claim, and one by a device plugin if there is one."""
    async with _template(cluster, samples.template("tour-one", kind=kind)) as name:
        plugin = next((name for name, free in sorted(node.kubelet.allocatable().items()) if free), None)
        pod = await cluster.run(samples.pod("claim-1", name, {plugin: 1} if plugin else None))
        beside = f" beside one with {plugin} of the device plugin" if plugin else ""
        title = f"A pod has a container with a claim for {KINDS[kind]}{beside}, and they get"
        yield TourStep("claim", title, outcome_view(pod))
        if pod.running and node.hardware is not None:
            async for step in _failure(node, cluster, node.hardware, pod):
                yield step
        await node.waits.seen()
        await _end(node, cluster, "claim-1")
        left = sorted(path.name for path in node.cdi.glob(f"{DRIVER}-claim_*"))
        claims = [claim["metadata"]["name"] for claim in await cluster.claims()]
        yield TourStep("released", "The pod ended; what is left of its claim", {"claims": claims, "specs": left})


async def _both_doors(node: SandboxNode, cluster: SandboxCluster, kind: str) -> AsyncIterator[TourStep]:
    """Devices at both doors: what one has given is withdrawn from the other, and is back when it is free."""
    before = node.kubelet.allocatable()
    published = [device for device in await node.devices() if "published" in device]
    shown = {str(device["name"]): str(device.get("resource", "")) for device in published}
    resource = next((name for device, name in shown.items() if device.startswith(kind) and before.get(name)), None)
    if resource is None:
        return
    async with _template(cluster, samples.template("tour-both", kind=kind)) as name:
        pod = await node.give(resource, 1)
        await cluster.run(samples.pod("both-1", name))
        taints = await _until(lambda: _other_door(cluster), bool)
        await _until(lambda: _allocatable(node, resource), lambda count: count < before[resource])
        await node.waits.noticed(pod.pod)
        output = await node.agent.command("holds")
        yield TourStep(
            "holds",
            "A pod took one device and a claim another: each is withheld from the other door",
            output.splitlines(),
        )
        seen = {"allocatable": {resource: node.kubelet.allocatable()[resource]}, "taints": taints}
        yield TourStep("withdrawn", "What others can still get meanwhile", seen)
        await node.over(pod.pod)
        await _end(node, cluster, "both-1")
        left = await _until(lambda: _allocatable(node, resource), lambda count: count == before[resource])
        seen = {
            "allocatable": {resource: left},
            "taints": await _until(lambda: _other_door(cluster), lambda found: not found),
        }
        yield TourStep("offered_again", "Both ended, and both doors offer every device again", seen)


async def _allocatable(node: SandboxNode, resource: str) -> int:
    return node.kubelet.allocatable().get(resource, 0)


async def _shares(node: SandboxNode, cluster: SandboxCluster, gpu: Device) -> TourStep:
    """One GPU for several pods through both doors, by a rule that is there for as long as this step."""
    own, name, resource = node.configuration, str(gpu["name"]), f"{_text(gpu, 'resource')}.shared"
    assert own is not None, "asked for the sandbox's own configuration alone"
    await node.change_configuration(configuration.with_shares(own, name, resource, REPLICAS))
    await _until(lambda: _allocatable(node, resource), lambda count: count == REPLICAS)
    await _until(lambda: _multiple(cluster), lambda found: name in found)
    choosing = f"device.attributes['{DRIVER}'].resource == '{resource}'"
    async with _template(cluster, samples.template("tour-share", choosing=choosing)) as template:
        pods = [await node.give(resource, 1) for _ in range(2)]
        await cluster.run(samples.pod("share-1", template))
        await node.waits.seen()
        output = (await node.agent.command("holds")).splitlines()
        for each in pods:
            await node.over(each.pod)
        await _end(node, cluster, "share-1")
    await node.change_configuration(own)
    await _until(lambda: _multiple(cluster), lambda found: name not in found)
    title = f"A rule shares {name} among {REPLICAS} pods: two take a share by {resource}, one by a claim"
    return TourStep("shares", title, output)


async def _partition(node: SandboxNode, cluster: SandboxCluster, gpu: Device) -> TourStep:
    """A MIG device that is made for a claim and removed after it, and then a claim for all of its GPU."""
    own, name = node.configuration, str(gpu["name"])
    assert own is not None, "asked for the sandbox's own configuration alone"
    await node.change_configuration(configuration.with_partitions(own, name, _text(gpu, "resource")))
    profile = await _until(lambda: _smallest_partition(cluster), bool)
    choosing = f"device.attributes['{DRIVER}'].profile == '{profile}'"
    async with _template(cluster, samples.template("tour-mig", kind="mig", choosing=choosing)) as template:
        part = outcome_view(await cluster.run(samples.pod("mig-1", template)))
        made = [device for device in await node.devices() if device.get("parent") == name]
        await _end(node, cluster, "mig-1")
    await _until(lambda: _parts_of(node, name), lambda found: not found)
    choosing = f"device.attributes['{DRIVER}'].uuid == '{_text(gpu, 'uuid')}'"
    async with _template(cluster, samples.template("tour-whole", choosing=choosing)) as template:
        whole = outcome_view(await cluster.run(samples.pod("whole-1", template)))
        await _end(node, cluster, "whole-1")
    await node.change_configuration(own)
    await _until(lambda: _smallest_partition(cluster), lambda found: not found)
    seen = {"part": part, "made": [f"{each['name']} ({each['uuid']})" for each in made], "whole": whole}
    title = f"A claim has a MIG device {profile} of {name} made for it, and the next one gets the whole GPU again"
    return TourStep("partition", title, seen)


async def _parts_of(node: SandboxNode, gpu: str) -> list[object]:
    return [device["name"] for device in await node.devices() if device.get("parent") == gpu]


async def _smallest_partition(cluster: SandboxCluster) -> str:
    """The profile of the first partition that can be made; empty for none."""
    slices = await cluster.slices(DRIVER)
    devices = (device for each in slices for device in each["spec"].get("devices") or ())
    parts = (device for device in devices if device.get("consumesCounters") and _text(device, "type") == "mig")
    return next((_text(device, "profile") for device in parts), "")


async def _multiple(cluster: SandboxCluster) -> set[str]:
    """Devices that several claims can have at a time."""
    slices = await cluster.slices(DRIVER)
    devices = (device for each in slices for device in each["spec"].get("devices") or ())
    return {device["name"] for device in devices if device.get("allowMultipleAllocations")}


def _is_shareable(device: Device) -> bool:
    return _text(device, "type") == "gpu" and "memory" in (device.get("capacity") or {})


async def _pair(node: SandboxNode, cluster: SandboxCluster) -> TourStep:
    """A GPU and a NIC below one PCIe switch."""
    async with _template(cluster, samples.pair("tour-pair", "gpu", "nic", "switch")) as name:
        pod = await cluster.run(samples.pod("pair-1", name))
        await _end(node, cluster, "pair-1")
    return TourStep("claim_pair", "A pod asked for a GPU and a NIC that share a PCIe switch", outcome_view(pod))


async def moved(node: SandboxNode, cluster: SandboxCluster, network: SandboxNetwork, nic: Device) -> TourStep:
    """The interface of a NIC moves into a pod and back, by a rule that is there for as long as this step."""
    own, name, interface = node.configuration, str(nic["name"]), _text(nic, "ifName")
    assert own is not None, "asked for the sandbox's own configuration alone"
    network.wire(interface)
    network.address_switch(interface)
    resource = f"{_text(nic, 'resource')}.moved"
    await node.change_configuration(configuration.with_moved_interface(own, name, resource))
    await _until(lambda: _offered_as(cluster, resource), bool)
    choosing = f"device.attributes['{DRIVER}'].resource == '{resource}'"
    asked: Json = {"kind": "NicConfig", "interface": {"name": "net1", "addresses": [POD_ADDRESS]}}
    template = samples.with_parameters(samples.template("tour-moved", kind="nic", choosing=choosing), asked)
    async with _template(cluster, template) as made:
        pod = await run_until_running(cluster, samples.pod("moved-1", made))
        during = network.view()
        traffic = network.echo("default/moved-1") if pod.running else pod.message
        status = await _until(lambda: _network_status(cluster), bool) if pod.running else {}
        await _end(node, cluster, "moved-1")
        after = network.view()
    await node.change_configuration(own)
    await _until(lambda: _offered_as(cluster, resource), lambda found: not found)
    title = f"A pod got the interface {interface} of {name} as net1, in real network namespaces"
    seen = {"pod": outcome_view(pod), "during": during, "traffic": traffic, "status": status, "after": after}
    return TourStep("moved", title, seen)


async def run_until_running(cluster: SandboxCluster, pod: Json) -> PodOutcome:
    """Run a pod and try again with it as a kubelet does: the agent refuses a sandbox that takes it too long."""
    outcome = await cluster.run(pod)
    if not outcome.running:
        outcome = await _until(lambda: cluster.retry(outcome.pod), lambda found: found.running)
    return outcome


async def _offered_as(cluster: SandboxCluster, resource: str) -> list[object]:
    """The devices that slices offer under this name."""
    slices = await cluster.slices(DRIVER)
    devices = (device for each in slices for device in each["spec"].get("devices") or ())
    return [each["name"] for each in devices if _text(each, "resource") == resource and not each.get("taints")]


async def _network_status(cluster: SandboxCluster) -> Json:
    """``networkData`` of the first device whose condition NetworkReady is true."""
    for claim in await cluster.claims():
        for device in (claim.get("status") or {}).get("devices") or ():
            if any(each["type"] == "NetworkReady" and each["status"] == "True" for each in device["conditions"]):
                found: Json = device["networkData"]
                return found
    return {}


def has_interface(device: Device) -> bool:
    """Whether it is a NIC with a network interface that may be offered."""
    return _text(device, "type") == "nic" and bool(_text(device, "ifName"))


async def _islands(node: SandboxNode, cluster: SandboxCluster) -> TourStep:
    """GPUs that belong together, and a claim for which nothing is left."""
    seen: list[Json] = []
    async with _template(cluster, samples.template("tour-island", ISLAND, match=f"cell{ISLAND}")) as name:
        running = True
        while running:
            pod = await cluster.run(samples.pod(f"island-{len(seen) + 1}", name))
            running = pod.running
            seen.append(outcome_view(pod))
        await _end(node, cluster, *(str(each["pod"]) for each in seen))
    return TourStep("islands", f"Pods asked for {ISLAND} GPUs with the same cell{ISLAND}, until none were left", seen)


async def _failure(
    node: SandboxNode, cluster: SandboxCluster, hardware: RecordedHardware, pod: PodOutcome
) -> AsyncIterator[TourStep]:
    """The device of a claim fails: its slice says so, and so does the pod's status."""
    device = next(iter(pod.claims.values()))[0].rpartition("/")[2]
    part = hardware.breakable([device])
    if part is None:
        return
    hardware.fail(part)
    await node.agent.rescan()
    taints = await _until(lambda: _taints(cluster), lambda found: device in found)
    health = await _until(lambda: _health(node, pod), lambda found: "Unhealthy" in str(found))
    title = f"{part} of the claim {_fault(part)}; no new claim gets it, and the pod's status says so"
    yield TourStep("claim_failure", title, {"part": str(part), "taints": taints, "podStatus": health})
    if part.gpu:
        output = await node.agent.command("health", "--faults")
        yield TourStep("health", "What ostler knows of the fault, and what ends it", output.splitlines())
    hardware.heal(part)
    await node.agent.rescan()
    taints = await _until(lambda: _taints(cluster), lambda found: device not in found)
    health = await _until(lambda: _health(node, pod), lambda found: "Unhealthy" not in str(found))
    seen = {"part": str(part), "taints": taints, "podStatus": health}
    yield TourStep("claim_recovery", f"{part} is back, and its taint is gone", seen)


async def _end(node: SandboxNode, cluster: SandboxCluster, *pods: str) -> None:
    """End those pods; what they had is offered again then, so that the next step does not find it draining."""
    for pod in pods:
        await cluster.end(pod)
    for pod in pods:
        await node.waits.freed(pod)


@asynccontextmanager
async def _template(cluster: SandboxCluster, template: Json) -> AsyncIterator[str]:
    """The name of the template, for as long as it is there."""
    await cluster.apply([template])
    yield template["metadata"]["name"]
    await cluster.remove(template)


async def _other_door(cluster: SandboxCluster) -> dict[str, list[str]]:
    """Taints of devices that pods hold through the plugin door."""
    return {name: taints for name, taints in (await _taints(cluster)).items() if "other-door" in str(taints)}


async def _taints(cluster: SandboxCluster) -> dict[str, list[str]]:
    return tainted(await cluster.slices(DRIVER))


async def _health(node: SandboxNode, outcome: PodOutcome) -> dict[str, list[Json]]:
    """``allocatedResourcesStatus`` of the pod's container."""
    pod = next(pod for pod in node.kubelet.pods() if pod.name == outcome.pod)
    found = node.kubelet.claim_health(pod, "main")
    return {name: [_without_empty(asdict(each)) for each in resources] for name, resources in found.items()}


def _without_empty(facts: Json) -> Json:
    return {name: value for name, value in facts.items() if value != ""}


async def _until(look: Callable[[], Awaitable[T]], enough: Callable[[T], bool]) -> T:
    """Return what ``look`` sees once it is enough, or after ``SECONDS`` whatever it is."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while True:
        found = await look()
        if enough(found) or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(0.05)


def _fault(part: HardwarePart) -> str:
    return "fails" if part.gpu else "loses its link"


def _have_pair(devices: Iterable[Device]) -> bool:
    """Whether a GPU and a NIC have a switch in common."""
    by_switch: dict[str, set[bool]] = {}
    for device in devices:
        if _text(device, "switch"):
            by_switch.setdefault(_text(device, "switch"), set()).add(_text(device, "type") == "gpu")
    return any(len(both) > 1 for both in by_switch.values())


def _text(device: Device, attribute: str) -> str:
    found = (device.get("attributes") or {}).get(attribute) or {}
    return str(found.get("string", ""))
