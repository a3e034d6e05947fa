"""The extended resources in the status of the kubelet's Node, and the last check of a pod's admission against them.

The device manager allocates before this check, so a pod fails here only if the device manager let it pass without
devices: the Node still names a resource that the device manager has forgotten. A resource that the Node does not name
is no obstacle; such a pod runs without devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.pods import NodeCapacity, Pod


class OutOfResourceError(KubeletError):
    """The node has too little of a resource for a pod; ``reason`` is that of the pod's status."""

    def __init__(self, resource: str, requested: int, used: int, capacity: int) -> None:
        super().__init__(
            f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
        self.reason = f"OutOf{resource}"


@dataclass(slots=True)
class ReportedResources:
    """What the kubelet last reported. The Node outlives the kubelet, so this outlives a restart."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]

    def report(self, seen: NodeCapacity) -> None:
        """Enter what the device manager reports; a forgotten resource stays, with nothing of it."""
        gone = dict.fromkeys(seen.deleted, 0)
        self.capacity = {**self.capacity, **gone, **seen.capacity}
        self.allocatable = {**self.allocatable, **gone, **seen.allocatable}

    def reset(self) -> None:
        """Set every resource to zero, as a kubelet does that finds no state of its own for an existing Node."""
        self.capacity = dict.fromkeys(self.capacity, 0)
        self.allocatable = dict.fromkeys(self.allocatable, 0)


def check_fit(pod: Pod, others: Iterable[Pod], allocatable: Mapping[str, int], *, skip_claimed: bool) -> None:
    """Raise ``OutOfResourceError`` unless ``pod`` fits beside ``others``; only resources in ``allocatable`` count."""
    used: dict[str, int] = {}
    for other in others:
        for resource, quantity in requested(other, skip_claimed=skip_claimed).items():
            used[resource] = used.get(resource, 0) + quantity
    for resource, quantity in requested(pod, skip_claimed=skip_claimed).items():
        capacity = allocatable.get(resource)
        if capacity is not None and quantity and used.get(resource, 0) + quantity > capacity:
            raise OutOfResourceError(resource, quantity, used.get(resource, 0), capacity)


def requested(pod: Pod, *, skip_claimed: bool) -> dict[str, int]:
    """What the pod asks the node for; without resources that a DRA claim serves."""
    claimed = {resource for _, resource in pod.claim_backed} if skip_claimed else set()
    return {resource: quantity for resource, quantity in pod.effective_limits().items() if resource not in claimed}
