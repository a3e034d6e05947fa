"""The tour: what the sandbox shows a newcomer of a node, step by step.

Each step is plain data with a title, so that the same tour appears on a terminal and as JSON. Steps that need hardware
that can break, or devices at all, are left out if there are none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from google.protobuf.json_format import MessageToDict

from node.inventory.model import DeviceKind
from node.inventory.places import bridges_above
from node.inventory.vendors import VENDORS
from node.sharing import replica_of
from node.topology.model import Place, proximity
from protos.agent.v1alpha1 import agent_pb2
from sandbox.claimtour import claim_tour
from sandbox.configuration import NIC_RESOURCES
from sandbox.node import PodResult, SandboxNode
from sandbox.steps import TourStep

GPU_RESOURCES = tuple(
    resource.name for vendor in VENDORS for resource in vendor.resources if DeviceKind.GPU in resource.kinds
)


async def tour(node: SandboxNode) -> AsyncIterator[TourStep]:
    """Find, register, allocate, fail, heal, allocate together; then the same devices with claims, and who has what."""
    status = await node.registered()
    devices = await node.devices()
    yield TourStep("devices", "The agent found these devices", devices)
    if len((await node.agent.topology()).places) > 1:
        drawn = await node.agent.command("topology", "-o", "matrix")
        yield TourStep("topology", "How close they are to each other", drawn.splitlines())
    resources = [MessageToDict(item, preserving_proto_field_name=True) for item in status.resources]
    yield TourStep("resources", "It registered these resources with the kubelet", resources)
    yield TourStep("capacity", "The kubelet now offers", capacity(node))
    given = []
    for resource, count in sorted(node.kubelet.allocatable().items()):
        if count:
            given.append(await node.give(resource, min(2, count)))
    if given:
        async for step in _plugin_tour(node, given):
            yield step
    async for step in claim_tour(node):
        yield step


async def _plugin_tour(node: SandboxNode, given: list[PodResult]) -> AsyncIterator[TourStep]:
    """Pods with devices of the plugin door: allocation, refusal, failure."""
    yield TourStep("allocations", "Pods asked for devices; their containers get", [described(each) for each in given])
    refused = await node.give(next(iter(given[0].asked)), 1000)
    yield TourStep("refused", "A pod that asks for more than is available is refused", described(refused))
    if node.hardware is not None:
        async for step in _failures(node, given):
            yield step
    for each in given:
        await node.over(each.pod)
    async for step in _pairs(node):
        yield step


async def _pairs(node: SandboxNode) -> AsyncIterator[TourStep]:
    """Pods that ask for a GPU and a NIC: each NIC should be the one that is nearest to its GPU."""
    free = node.kubelet.allocatable()
    gpu = next((name for name in GPU_RESOURCES if free.get(name)), None)
    nic = next((name for name in NIC_RESOURCES if free.get(name)), None)
    if gpu is None or nic is None:
        return
    pods = [await node.give_together({gpu: 1, nic: 1}) for _ in range(2)]
    served = [pod for pod in pods if pod.admission.admitted]
    if served:
        near = DeviceDistances(await node.agent.devices(), await node.agent.topology())
        seen = [
            {**described(pod), "proximity": near.between(pod.devices[gpu][0], pod.devices[nic][0])} for pod in served
        ]
        yield TourStep("pairs", "Pods asked for a GPU and a NIC, and get the NIC that is closest to their GPU", seen)
    for pod in served:
        await node.over(pod.pod)


async def _failures(node: SandboxNode, given: list[PodResult]) -> AsyncIterator[TourStep]:
    """A GPU falls off the bus and comes back, or a NIC loses its link; only its own devices are touched."""
    assert node.hardware is not None
    breakable = [(each, part) for each in given if (part := node.hardware.breakable(each.ids)) is not None]
    if not breakable:
        return
    held, part = next((pair for pair in breakable if pair[1].gpu), breakable[0])
    resource = next(iter(held.asked))
    what = "falls off the bus" if part.gpu else "loses its link"
    before = node.kubelet.allocatable()
    node.hardware.fail(part)
    changes = list((await node.agent.rescan()).changes)
    lost = await _healthy_now(node, resource)
    yield TourStep(
        "failure",
        f"{part} {what}; running pods keep it, no new pod gets it",
        {"part": str(part), "changes": changes, "allocatable_before": before, "allocatable": lost},
    )
    node.hardware.heal(part)
    changes = list((await node.agent.rescan()).changes)
    healed = await _healthy_now(node, resource)
    yield TourStep(
        "recovery",
        f"{part} is back, and so are its devices, without a restart",
        {"part": str(part), "changes": changes, "allocatable": healed},
    )


async def _healthy_now(node: SandboxNode, resource: str) -> Mapping[str, int]:
    """Allocatable once the kubelet has what the agent shows."""
    status = await node.agent.status()
    shown = next(item.healthy for item in status.resources if item.name == resource)
    await node.kubelet.wait_for(resource, healthy=shown)
    return node.kubelet.allocatable()


def capacity(node: SandboxNode) -> dict[str, dict[str, int]]:
    """Capacity and allocatable of every resource."""
    capacity = node.kubelet.capacity()
    return {
        name: {"capacity": count, "allocatable": capacity.allocatable.get(name, 0)}
        for name, count in sorted(capacity.capacity.items())
    }


def described(given: PodResult) -> dict[str, object]:
    """A pod's fate as plain data."""
    facts: dict[str, object] = {"pod": given.pod, "asked": dict(given.asked)}
    if not given.admission.admitted:
        return {**facts, "admitted": False, "reason": given.admission.reason, "message": given.admission.message}
    devices = {resource: list(ids) for resource, ids in given.devices.items()}
    return {**facts, "admitted": True, "devices": devices, "container": dict(given.response)}


class DeviceDistances:
    """Distances between devices by the ids that they are offered under.

    The agent's topology has the last word, since an override file may have moved a device; virtual functions, which it
    leaves out, are where their path says.
    """

    def __init__(self, devices: agent_pb2.ListDevicesResponse, topology: agent_pb2.GetTopologyResponse) -> None:
        self._devices = {device.offered_id: device for device in devices.devices if device.offered_id}
        self._places = {place.name: place for place in topology.places}

    def between(self, first: str, second: str) -> str:
        """Their proximity class as ``nvidia-smi topo`` writes it; raises KeyError for an id that is not offered.

        A replica is where its device is.
        """
        one, other = (self._devices.get(id_) or self._devices[replica_of(id_)[0]] for id_ in (first, second))
        return proximity(self._place(one), self._place(other)).value

    def _place(self, device: agent_pb2.Device) -> Place:
        # A partition is where its GPU is.
        known = self._places.get(device.name) or self._places.get(device.parent)
        if known is not None:
            numa_node = known.numa_node if known.HasField("numa_node") else None
            return Place(device.name, "", known.gpu, tuple(known.path), known.pci_address or None, numa_node)
        numa_node = device.numa_node if device.HasField("numa_node") else None
        path = bridges_above(device.location, device.pci_address)
        return Place(device.name, "", False, path, device.pci_address or None, numa_node)
