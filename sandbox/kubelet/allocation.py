"""Which devices a container gets, and the plugin calls that make it so: the kubelet's allocation, step by step.

One container is allocated at a time, as in the kubelet's admission, so a hanging plugin holds up every other one.
Ids are reserved as soon as they are chosen and given back after any error; released kubelets forget to give them back
in some cases, which ``keep_known_holes`` reproduces. Wherever a kubelet's order is random, ids and a container's
resources are taken in the orders that the caller gives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from node.kubelet.checkpoint import NO_NUMA
from node.metrics import Histogram
from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.devices import DeviceSet, IdOrder, in_order
from sandbox.kubelet.errors import DeviceAllocationError, KubeletError, cause_of
from sandbox.kubelet.plugin_clients import PluginEndpoint
from sandbox.kubelet.pod_devices import ContainerResource, PodDevices, record_of
from sandbox.kubelet.pods import Container, Pod
from sandbox.kubelet.topology import TopologyHint

Order = Callable[[Iterable[str]], Sequence[str]]
"""Puts a container's resources into the order in which they are allocated."""


class AllocatedNode(Protocol):
    """The node as far as allocation needs it."""

    def device_set(self, resource: str) -> DeviceSet | None:
        """The devices of a resource, None if its plugin never listed any or it was forgotten."""

    def endpoint(self, resource: str) -> PluginEndpoint | None:
        """The plugin to ask."""

    def runs_since_start(self, pod_uid: str, container: str) -> bool:
        """Whether pods are still being read after a start and this container was running at that start."""

    def collect_garbage(self) -> None:
        """Drop the records of pods that are gone."""

    def write_checkpoint(self) -> None:
        """Write the checkpoint; raises OSError."""


class DeviceAllocator:
    """Allocates containers against ``node``, with what is held in ``records``.

    ``order`` is that of a container's resources, ``ids`` that of equally good devices. ``skip_claimed``: a resource
    that a DRA claim serves is not allocated here. ``durations`` gets the seconds of Allocate by resource.
    """

    def __init__(
        self,
        node: AllocatedNode,
        records: PodDevices,
        *,
        keep_known_holes: bool = False,
        order: Order = sorted,
        ids: IdOrder = in_order,
        skip_claimed: bool = True,
        durations: Histogram | None = None,
    ) -> None:
        self._node = node
        self._records = records
        self._keep_holes = keep_known_holes
        self._order = order
        self._ids = ids
        self._skip_claimed = skip_claimed
        self._durations = durations
        self._turn = asyncio.Lock()
        self._reusable: dict[str, set[str]] = {}
        self._reusable_of = ""

    def is_device_resource(self, resource: str) -> bool:
        """Whether a limit on ``resource`` concerns device plugins."""
        return self._node.device_set(resource) is not None or resource in self._records.resources()

    def reusable(self, pod_uid: str, resource: str) -> frozenset[str]:
        """Ids of the pod's ordinary init containers that its next containers may use."""
        return frozenset(self._reusable.get(resource, ()) if self._reusable_of == pod_uid else ())

    async def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give ``container`` all its devices; raises ``DeviceAllocationError`` or another ``KubeletError``.

        Later containers of the same pod may use what ordinary init containers had; sidecars and app containers keep
        theirs to themselves.
        """
        async with self._turn:
            if self._reusable_of != pod.uid:
                self._reusable, self._reusable_of = {}, pod.uid
            await self._allocate_resources(pod, container, affinity)
            for resource, record in self._records.of_container(pod.uid, container.name).items():
                if container.kind == "init":
                    self._reusable.setdefault(resource, set()).update(record.ids)
                else:
                    self._reusable.get(resource, set()).difference_update(record.ids)

    async def _allocate_resources(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        collected = written = False
        for resource in self._order(container.limits):
            quantity = container.limits[resource]
            is_claimed = self._skip_claimed and (container.name, resource) in pod.claim_backed
            if is_claimed or not self.is_device_resource(resource):
                continue
            if not collected:
                self._node.collect_garbage()
                collected = True
            holder = ContainerResource(pod.uid, container.name, resource)
            written |= await self._allocate_resource(holder, quantity, affinity)
        if written:
            try:
                self._node.write_checkpoint()
            except OSError as error:
                raise KubeletError(
                    f'failed to write checkpoint file "kubelet_internal_checkpoint": {cause_of(error)}'
                ) from error

    async def _allocate_resource(self, holder: ContainerResource, quantity: int, affinity: TopologyHint) -> bool:
        """Choose and allocate; whether anything was given. The reservation never outlives this call."""
        self._records.reserve(holder)
        hole = False
        try:
            choice = _Choice(self._node, self._records, holder, quantity, affinity, ids=self._ids)
            hole = self._keep_holes
            ids = await choice.make(self._reusable.get(holder.resource, ()))
            if not ids:
                return False
            hole = False
            endpoint = self._node.endpoint(holder.resource)
            if endpoint is None:
                raise DeviceAllocationError(holder.resource, f"unknown Device Plugin {holder.resource}")
            response = await self._call(endpoint, ids)
            if not response.container_responses:
                hole = self._keep_holes
                raise DeviceAllocationError(
                    holder.resource, f"no containers return in allocation response {str(response).strip()}"
                )
            self._records.commit(holder, record_of(ids, choice.devices, response.container_responses[0]))
        except BaseException:  # The caller gets it; what was taken is given back first.
            if not hole:
                self._records.rebuild()
            raise
        finally:
            self._records.release(holder, keep=hole)
        return True

    async def _call(self, endpoint: PluginEndpoint, ids: Iterable[str]) -> api_pb2.AllocateResponse:
        began = time.monotonic()
        try:
            return await endpoint.allocate(self._ids(ids))
        finally:
            if self._durations is not None:
                self._durations.observe(time.monotonic() - began, endpoint.resource)


class _Choice:
    """The choice of ids for one holder; they are taken in the holder's reservation as they are chosen."""

    def __init__(
        self,
        node: AllocatedNode,
        records: PodDevices,
        holder: ContainerResource,
        required: int,
        affinity: TopologyHint,
        *,
        ids: IdOrder,
    ) -> None:
        self._node = node
        self._records = records
        self._holder = holder
        self._required = required
        self._affinity = affinity
        self._ids = ids
        self._taken: dict[str, None] = {}
        self.devices = DeviceSet()

    @property
    def _needed(self) -> int:
        return self._required - len(self._taken)

    async def make(self, reusable: Collection[str]) -> list[str]:
        """The chosen ids; empty if nothing has to be given. Raises ``KubeletError``."""
        if self._nothing_to_do() or self._take(self._ids(reusable)):
            return list(self._taken)
        resource = self._holder.resource
        available = self.devices.healthy - self._records.taken(resource)
        if len(available) < self._needed:
            raise DeviceAllocationError(
                resource,
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {self._needed}, Available: {len(available)}",
            )
        found = filter_by_affinity(self.devices, available, self._affinity, self._ids)
        if self._needed < len(found.aligned):
            # The aligned ones suffice with a choice left, which is the plugin's first.
            preferred = await self._preferred(found.aligned)
            aligned = frozenset(found.aligned)
            self._take(device_id for device_id in preferred if device_id in aligned)
            self._take(found.aligned)
            return list(self._taken)
        if self._take(found.aligned):
            return list(self._taken)
        preferred = await self._preferred(available)
        wanted = [device_id for device_id in preferred if device_id in available]
        if not (self._take(wanted) or self._take(found.unaligned) or self._take(found.no_affinity)):
            raise DeviceAllocationError(
                resource,
                "unexpectedly allocated less resources than required. "
                f"Requested: {self._required}, Got: {len(self._taken)}",
            )
        return list(self._taken)

    def _nothing_to_do(self) -> bool:
        """The checks before anything is chosen; true if the holder has what it asks for."""
        resource, record = self._holder.resource, self._records.get(self._holder)
        held = frozenset() if record is None else record.ids
        if held and len(held) != self._required:
            raise DeviceAllocationError(
                resource,
                f'pod "{self._holder.pod_uid}" container "{self._holder.container}" changed request for resource '
                f'"{resource}" from {len(held)} to {self._required}',
            )
        if self._node.runs_since_start(self._holder.pod_uid, self._holder.container):
            return True
        devices = self._node.device_set(resource)
        if devices is None:
            raise DeviceAllocationError(resource, f"cannot allocate unregistered device {resource}")
        if not devices.healthy:
            raise DeviceAllocationError(
                resource, f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        if not held <= devices.healthy:
            raise DeviceAllocationError(
                resource,
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}",
            )
        self.devices = devices
        return bool(held) or self._required == 0

    def _take(self, ids: Iterable[str]) -> bool:
        """Take from ``ids`` in their order until there are enough; whether there are."""
        for device_id in ids:
            if self._needed <= 0:
                break
            if device_id not in self._taken:
                self._taken[device_id] = None
                self._records.take(self._holder, (device_id,))
        return self._needed <= 0

    async def _preferred(self, available: Collection[str]) -> tuple[str, ...]:
        endpoint = self._node.endpoint(self._holder.resource)
        if endpoint is None:
            raise DeviceAllocationError(
                self._holder.resource, f"endpoint not found in cache for a registered resource: {self._holder.resource}"
            )
        if endpoint.options is None or not endpoint.options.get_preferred_allocation_available:
            return ()
        offered = self._ids({*available, *self._taken})
        try:
            return await endpoint.preferred(offered, self._ids(self._taken), self._required)
        except KubeletError as error:
            raise DeviceAllocationError(
                self._holder.resource, f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class Alignment:
    """Free ids by how well they fit; every id is in exactly one list, each list in order of preference."""

    aligned: tuple[str, ...] = ()
    unaligned: tuple[str, ...] = ()
    no_affinity: tuple[str, ...] = ()


def filter_by_affinity(
    devices: DeviceSet, available: Iterable[str], affinity: TopologyHint, ids: IdOrder = in_order
) -> Alignment:
    """Sort ``available`` into those on the affinity's nodes, elsewhere, and without a node (kubelet 1.36).

    Nodes are visited those of the mask first, then the others, small ones first; an id on several nodes goes where it
    is met first. Without a mask, or if no device of the resource has a node, nothing is aligned.
    """
    if affinity.nodes is None or not any(device.numa for device in devices.known.values()):
        return Alignment(no_affinity=tuple(ids(available)))
    buckets: dict[int, list[str]] = {}
    for device_id in ids(available):
        for node in devices.numa_of(device_id) or (NO_NUMA,):
            buckets.setdefault(node, []).append(device_id)
    mask = affinity.nodes
    order = sorted(buckets, key=lambda node: (node == NO_NUMA, node not in mask, len(buckets[node]), node))
    lists: dict[str, list[str]] = {"aligned": [], "unaligned": [], "no_affinity": []}
    seen: set[str] = set()
    for node in order:
        kind = "no_affinity" if node == NO_NUMA else "aligned" if node in mask else "unaligned"
        lists[kind] += [device_id for device_id in buckets[node] if device_id not in seen]
        seen.update(buckets[node])
    return Alignment(*(tuple(lists[kind]) for kind in ("aligned", "unaligned", "no_affinity")))
