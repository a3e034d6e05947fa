"""The tour: what a newcomer is shown of a node in a box, step by step.

Each step is plain data with a title, so that the same tour is told on a terminal and printed as JSON. Steps that need
hardware that can break, or that need devices at all, are left out where there are none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from google.protobuf.json_format import MessageToDict

from sandbox.node import Given, SandboxNode


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the tour: a key for programs, a title for people, and what was seen."""

    key: str
    title: str
    seen: object


async def tour(node: SandboxNode) -> AsyncIterator[Step]:
    """Find, register, allocate, fail, heal."""
    status = await node.registered()
    yield Step("devices", "The agent found these devices", await node.devices())
    resources = [MessageToDict(item, preserving_proto_field_name=True) for item in status.resources]
    yield Step("resources", "It registered these resources with the kubelet", resources)
    yield Step("capacity", "The kubelet now offers", capacity(node))
    given = []
    for resource, count in sorted(node.kubelet.allocatable().items()):
        if count:
            given.append(await node.give(resource, min(2, count)))
    if not given:
        return
    yield Step("allocations", "Pods asked for devices, and their containers get", [described(each) for each in given])
    refused = await node.give(given[0].resource, 1000)
    yield Step("refused", "A pod that asks for more than there is, is refused", described(refused))
    if node.hardware is not None:
        async for step in _failure(node, given[0]):
            yield step
    for each in given:
        node.end(each.pod)


async def _failure(node: SandboxNode, given: Given) -> AsyncIterator[Step]:
    """A GPU falls off the bus and comes back; only its own devices are touched."""
    assert node.hardware is not None
    index = node.hardware.find(given.ids[0])
    before = node.kubelet.allocatable()
    node.hardware.fail(index)
    changes = list((await node.agent.rescan()).changes)
    lost = await _healthy_now(node, given.resource)
    yield Step(
        "failure",
        f"GPU {index} falls off the bus; running pods keep it, no new pod gets it",
        {"gpu": index, "changes": changes, "allocatable_before": before, "allocatable": lost},
    )
    node.hardware.heal(index)
    changes = list((await node.agent.rescan()).changes)
    healed = await _healthy_now(node, given.resource)
    yield Step(
        "recovery",
        f"GPU {index} is back, and so are its devices, without a restart",
        {"gpu": index, "changes": changes, "allocatable": healed},
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


def described(given: Given) -> dict[str, object]:
    """A pod's fate as plain data."""
    facts: dict[str, object] = {"pod": given.pod, "resource": given.resource, "count": given.count}
    if not given.admission.admitted:
        return {**facts, "admitted": False, "reason": given.admission.reason, "message": given.admission.message}
    return {**facts, "admitted": True, "devices": list(given.ids), "container": dict(given.response)}
