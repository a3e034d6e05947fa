"""The device manager: which resources exist, what their plugins last said, and what the checkpoint remembers.

One instance lives from one start of the kubelet to its stop; everything that survives a restart is in the checkpoint.
Invariants: the checkpoint is written after every list, after every allocation that gave something and when a resource
is forgotten, never else; a plugin's end is final until it registers again. All state changes happen on the loop
without waiting in between, so no lock guards them.

The functions below the manager compute what the node reports of devices in use. They are pure.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from node.kubelet.checkpoint import Checkpoint, CheckpointError, CheckpointNotFoundError
from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.devices import DeviceSet, in_order
from sandbox.kubelet.events import EventFeed, HealthChanged, ListReceived, PluginDeregistered
from sandbox.kubelet.generations import Generation, behaviour_of
from sandbox.kubelet.plugin_clients import Connections, PluginEndpoint
from sandbox.kubelet.pod_devices import PodDevices
from sandbox.kubelet.pods import ActivePods, NodeCapacity, Pod
from sandbox.kubelet.state_files import CheckpointFile

log = logging.getLogger("ostler.sandbox.kubelet")
QUEUE: Final = 100


class DeviceManager:
    """State of all device plugin resources of the node.

    ``clock`` counts seconds and never goes back.
    """

    def __init__(
        self,
        directory: Path,
        *,
        generation: Generation,
        clock: Callable[[], float],
        pods: ActivePods,
        feed: EventFeed,
        call_seconds: float | None = None,
    ) -> None:
        self.directory = directory
        self._behaviour = behaviour_of(generation)
        self.connections = Connections(self, self._behaviour.slot, call_seconds)
        self.records = PodDevices()
        self.updates = PodUpdates()
        self.lists: Counter[str] = Counter()
        self.last_lists: dict[str, api_pb2.ListAndWatchResponse] = {}
        self._clock = clock
        self._pods = pods
        self._feed = feed
        self._file = CheckpointFile(directory)
        self._devices: dict[str, DeviceSet] = {}
        self._endpoints: dict[str, PluginEndpoint] = {}
        self._running: frozenset[tuple[str, str]] = frozenset()

    def recover(self, running: Collection[tuple[str, str]]) -> None:
        """Take over the checkpoint; one that cannot be used is logged and the start goes on without state.

        ``running`` are the (pod UID, container) that the runtime reports at this start.
        """
        self._running = frozenset(running)
        try:
            checkpoint = self._file.read()
        except CheckpointNotFoundError:
            return
        except (CheckpointError, OSError) as error:
            log.warning(
                "Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date",
                extra={"path": str(self._file.path), "error": str(error)},
            )
            return
        self.records.restore(checkpoint)
        for resource in checkpoint.registered or {}:
            self._devices[resource] = DeviceSet()
            self._endpoints[resource] = PluginEndpoint.remembered(resource, self._clock())

    def connected(self, endpoint: PluginEndpoint) -> None:
        """A plugin is connected and is the one to ask; its devices come with its first list."""
        self._endpoints[endpoint.resource] = endpoint

    def received(self, resource: str, message: api_pb2.ListAndWatchResponse) -> None:
        """A list arrived: it replaces everything known of the resource."""
        before, now = self._devices.get(resource, DeviceSet()), DeviceSet.listed(message)
        self._devices[resource] = now
        self.lists[resource] += 1
        self.last_lists[resource] = message
        if self._behaviour.reports_device_health:
            scoped = self._behaviour.scopes_health_by_resource
            self.updates.note(pods_to_update(self.records, resource, before, now, scoped=scoped))
        self._write_or_log()
        self._feed.emit(ListReceived(resource, self.lists[resource], len(now.healthy), len(now.unhealthy)))
        for device_id in now.changed_since(before):
            old = before.known.get(device_id)
            if old is not None:
                self._feed.emit(HealthChanged(resource, device_id, old.health, now.known[device_id].health))

    def disconnected(self, endpoint: PluginEndpoint, survivor: PluginEndpoint | None) -> None:
        """A plugin is gone; without a survivor its devices are unhealthy and the grace period starts."""
        resource = endpoint.resource
        current = self._endpoints.get(resource)
        if survivor is not None:
            endpoint.stop(self._clock())
            if current is endpoint:
                self._endpoints[resource] = survivor
        elif current is not None:
            current.stop(self._clock())
            if resource in self._devices:
                self._devices[resource] = self._devices[resource].lost()
        self._feed.emit(PluginDeregistered(resource, endpoint.socket, survivor is None))

    def capacity(self) -> NodeCapacity:
        """Capacity and allocatable per resource; forgets resources whose plugin has been gone for over 5 minutes."""
        capacity: dict[str, int] = {}
        allocatable: dict[str, int] = {}
        deleted = []
        for resource in sorted(self._devices):
            endpoint = self._endpoints.get(resource)
            if endpoint is None or endpoint.expired(self._clock()):
                deleted.append(resource)
                del self._devices[resource]
                self._endpoints.pop(resource, None)
                continue
            devices = self._devices[resource]
            capacity[resource] = len(devices.healthy) + len(devices.unhealthy)
            allocatable[resource] = len(devices.healthy)
        if deleted:
            self._write_or_log()
        return NodeCapacity(capacity, allocatable, tuple(deleted))

    def resources(self) -> tuple[str, ...]:
        """Resources that were listed or remembered and are not forgotten, sorted."""
        return tuple(sorted(self._devices))

    def device_set(self, resource: str) -> DeviceSet | None:
        """The devices of a resource, None if no list came yet or it was forgotten."""
        return self._devices.get(resource)

    def endpoint(self, resource: str) -> PluginEndpoint | None:
        """The plugin to ask for a resource; it may have stopped."""
        return self._endpoints.get(resource)

    def runs_since_start(self, pod_uid: str, container: str) -> bool:
        """Whether pods are still being read after a start and the container was running at that start."""
        return not self._pods.are_all and (pod_uid, container) in self._running

    def collect_garbage(self) -> None:
        """Drop the records of pods that are gone, once all pods are read; does not write the checkpoint."""
        if self._pods.are_all:
            self.records.drop_all_but(self._pods.by_uid.keys())

    def write_checkpoint(self) -> None:
        """Write the checkpoint; raises OSError."""
        registered = {resource: tuple(in_order(devices.healthy)) for resource, devices in self._devices.items()}
        self._file.write(Checkpoint(self.records.entries(), registered))

    def should_reset_capacity(self) -> bool:
        """Whether a kubelet takes the node for a new one: nothing visible is in the device plugin folder."""
        return not any(not path.name.startswith(".") for path in self.directory.iterdir())

    def _write_or_log(self) -> None:
        try:
            self.write_checkpoint()
        except OSError as error:
            log.warning("writing checkpoint failed", extra={"path": str(self._file.path), "error": str(error)})


class PodUpdates:
    """Pods (by UID) that hold a device whose health changed, one entry per ListAndWatch message; at most ``QUEUE``."""

    def __init__(self) -> None:
        self._queue: list[tuple[str, ...]] = []
        self.dropped = 0

    def note(self, pod_uids: frozenset[str]) -> None:
        """Add the pods of one message."""
        if not pod_uids:
            return
        if len(self._queue) >= QUEUE:
            self.dropped += 1
            return
        self._queue.append(tuple(sorted(pod_uids)))

    def drain(self) -> tuple[tuple[str, ...], ...]:
        """Return the pods noted since the last call."""
        queue, self._queue = tuple(self._queue), []
        return queue


def pods_to_update(
    records: PodDevices, resource: str, before: DeviceSet, now: DeviceSet, *, scoped: bool
) -> frozenset[str]:
    """UIDs of pods that hold a device whose health changed or that is new.

    Kubelets up to 1.36 look for the id in all resources and stop at the first pod (``scoped`` false), so an equal id of
    another resource can hide the right pod.
    """
    found = (records.pod_with(device_id, resource if scoped else None) for device_id in now.changed_since(before))
    return frozenset(uid for uid in found if uid is not None)


def allocated_resources_status(
    pod: Pod, records: PodDevices, devices: Callable[[str], DeviceSet | None]
) -> dict[str, dict[str, dict[str, str]]]:
    """App container -> resource -> id -> ``Healthy`` or ``Unhealthy``; an id that is not listed counts as healthy."""
    status: dict[str, dict[str, dict[str, str]]] = {}
    for container in pod.containers:
        if container.kind != "app":
            continue
        for resource, record in records.of_container(pod.uid, container.name).items():
            listed = devices(resource)
            known = {} if listed is None else listed.known
            status.setdefault(container.name, {})[resource] = {
                device_id: "Healthy" if device_id not in known or known[device_id].healthy else "Unhealthy"
                for device_id in record.numa
            }
    return status


def raised_allocatable(records: PodDevices, pod_uid: str, allocatable: Mapping[str, int]) -> dict[str, int]:
    """A node's allocatable, raised to what is in use if the pod holds anything, so that a placed pod passes again."""
    raised = dict(allocatable)
    if pod_uid in records.pods():
        for resource in records.resources():
            raised[resource] = max(raised.get(resource, 0), len(records.taken(resource)))
    return raised
