"""The device manager as a hint provider: which sets of NUMA nodes can serve a container's or a pod's devices.

Behaves as in Kubernetes 1.36 (up to 1.35 masks range over every node of the machine, not only over nodes that carry
devices). Two things are counted on purpose over all listed devices, free or not, healthy or not: the nodes that masks
range over, and the size from which on a hint is preferred. So a request that would fit one node of an idle machine, but
spans two now, gets no preferred hint. An id that a container holds but its plugin no longer lists makes released
kubelets panic; here it counts for nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import combinations

from sandbox.kubelet.allocation import AllocatedNode, DeviceAllocator
from sandbox.kubelet.devices import DeviceSet
from sandbox.kubelet.pod_devices import ContainerResource, PodDevices
from sandbox.kubelet.pods import Container, Pod
from sandbox.kubelet.topology import ProviderHints, TopologyHint

log = logging.getLogger("ostler.sandbox.kubelet")


class DeviceHints:
    """Hints for the devices of ``node``; ``numa_nodes`` are the machine's, ``all_nodes`` makes masks range over all."""

    def __init__(
        self,
        node: AllocatedNode,
        records: PodDevices,
        allocator: DeviceAllocator,
        numa_nodes: Collection[int],
        *,
        all_nodes: bool = False,
    ) -> None:
        self._node = node
        self._records = records
        self._allocator = allocator
        self._machine = frozenset(numa_nodes)
        self._all_nodes = all_nodes

    def of_container(self, pod: Pod, container: Container) -> ProviderHints:
        """Hints per device resource of ``container``, which may reuse devices of the pod's earlier init containers."""
        self._node.collect_garbage()
        return {
            resource: self._of_resource(
                resource,
                quantity,
                self._held(pod, (container,), resource),
                self._allocator.reusable(pod.uid, resource),
            )
            for resource, quantity in container.limits.items()
            if self._allocator.is_device_resource(resource)
        }

    def of_pod(self, pod: Pod) -> ProviderHints:
        """Hints per device resource for the whole pod's effective limits."""
        self._node.collect_garbage()
        return {
            resource: self._of_resource(resource, quantity, self._held(pod, pod.containers, resource), frozenset())
            for resource, quantity in pod.effective_limits().items()
            if self._allocator.is_device_resource(resource)
        }

    def _held(self, pod: Pod, containers: Iterable[Container], resource: str) -> frozenset[str]:
        records = (self._records.get(ContainerResource(pod.uid, container.name, resource)) for container in containers)
        return frozenset().union(*(record.ids for record in records if record is not None))

    def _of_resource(
        self, resource: str, required: int, held: Collection[str], reusable: Collection[str]
    ) -> tuple[TopologyHint, ...] | None:
        devices = self._node.device_set(resource)
        if devices is None or not any(device.numa for device in devices.known.values()):
            return None
        if held:
            return self._generate(devices, held, (), required) if len(held) == required else ()
        available = devices.healthy - self._records.taken(resource)
        if len(available.union(reusable)) < required:
            return ()
        return self._generate(devices, available, reusable, required)

    def _generate(
        self, devices: DeviceSet, available: Collection[str], reusable: Collection[str], required: int
    ) -> tuple[TopologyHint, ...]:
        nodes = self._machine if self._all_nodes else device_nodes(devices, self._machine)
        unknown = frozenset(node for device in devices.known.values() for node in device.numa or ()) - self._machine
        if unknown:
            log.info(
                "Ignoring NUMA node IDs reported by device plugin that are unknown to cadvisor",
                extra={"nodes": sorted(unknown)},
            )
        return generate_hints(devices, available, reusable, required, nodes)


def device_nodes(devices: DeviceSet, machine: frozenset[int]) -> frozenset[int]:
    """The machine's NUMA nodes that carry a listed device; all of them if the plugin names none of the machine's."""
    return frozenset(node for device in devices.known.values() for node in device.numa or ()) & machine or machine


def generate_hints(
    devices: DeviceSet, available: Collection[str], reusable: Collection[str], required: int, nodes: Collection[int]
) -> tuple[TopologyHint, ...]:
    """A hint for every mask over ``nodes`` that has ``required`` devices, small masks first.

    Each reusable device has to touch the mask, except those without a topology message. ``available`` and ``reusable``
    are ids; those without a node never count towards ``required``.
    """
    every = Counter(frozenset(device.numa or ()) for device in devices.known.values())
    free = Counter(frozenset(devices.numa_of(device_id)) for device_id in available)
    reused = [
        frozenset(devices.known[device_id].numa or ())
        for device_id in reusable
        if device_id in devices.known and devices.known[device_id].numa is not None
    ]
    smallest = len(nodes)
    fitting: list[frozenset[int]] = []
    for size in range(1, len(nodes) + 1):
        for mask in map(frozenset, combinations(sorted(nodes), size)):
            if size < smallest and _touching(every, mask) >= required:
                smallest = size
            if all(own & mask for own in reused) and len(reused) + _touching(free, mask) >= required:
                fitting.append(mask)
    return tuple(TopologyHint(mask, preferred=len(mask) == smallest) for mask in fitting)


def _touching(devices: Counter[frozenset[int]], mask: frozenset[int]) -> int:
    """How many devices have a node in ``mask``."""
    return sum(count for own, count in devices.items() if own & mask)
