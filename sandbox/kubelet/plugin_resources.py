"""The device plugin resources of a node: what their plugins last listed, who answers for them, and the checkpoint.

One instance lives from one start of the kubelet to its stop; everything that survives a restart is in the checkpoint.
Invariants: the checkpoint is written after every list, after every allocation that gave something and when a resource
is forgotten, never else; a plugin's end is final until it registers again. All state changes happen on the loop
without waiting in between, so no lock guards them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from node.kubelet.checkpoint import Checkpoint, CheckpointNotFoundError
from node.kubelet.gojson import KubeletStateError
from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.devices import DeviceSet
from sandbox.kubelet.errors import cause_of
from sandbox.kubelet.events import CheckpointFailed, EventFeed, HealthChanged, ListReceived, PluginDeregistered
from sandbox.kubelet.generations import KubeletBehaviour
from sandbox.kubelet.plugin_clients import PluginEndpoint
from sandbox.kubelet.pod_devices import PodDevices
from sandbox.kubelet.pod_status import PodUpdates, pods_to_update
from sandbox.kubelet.pods import ActivePods, NodeCapacity
from sandbox.kubelet.state_files import CheckpointFile

log = logging.getLogger("ostler.sandbox.kubelet")


class PluginResources:
    """State of all device plugin resources of the node; ``clock`` counts seconds and never goes back."""

    def __init__(
        self,
        directory: Path,
        *,
        behaviour: KubeletBehaviour,
        clock: Callable[[], float],
        pods: ActivePods,
        feed: EventFeed,
    ) -> None:
        self.records = PodDevices()
        self.updates = PodUpdates()
        self.lists: Counter[str] = Counter()
        self.last_lists: dict[str, api_pb2.ListAndWatchResponse] = {}
        self._behaviour = behaviour
        self._clock = clock
        self._pods = pods
        self._feed = feed
        self._file = CheckpointFile(directory)
        self._devices: dict[str, DeviceSet] = {}
        self._endpoints: dict[str, PluginEndpoint] = {}
        self._running: frozenset[tuple[str, str]] = frozenset()

    def recover(self, running: Collection[tuple[str, str]]) -> None:
        """Take over the checkpoint; an unusable one is logged, and the start continues without state.

        ``running`` are the (pod UID, container) that the runtime reports at this start.
        """
        self._running = frozenset(running)
        try:
            checkpoint = self._file.read()
        except CheckpointNotFoundError as error:
            log.info("Failed to read data from checkpoint", extra={"path": str(self._file.path), "error": str(error)})
            return
        except (KubeletStateError, OSError) as error:
            log.warning(
                "Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date",
                extra={"path": str(self._file.path), "error": str(error)},
            )
            self._feed.emit(CheckpointFailed(str(self._file.path), cause_of(error), "read"))
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
        self._feed.emit(PluginDeregistered(resource, endpoint.socket, survivor is None, endpoint.end_reason))

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
        registered = {resource: tuple(sorted(devices.healthy)) for resource, devices in self._devices.items()}
        self._file.write(Checkpoint(self.records.entries(), registered))

    def _write_or_log(self) -> None:
        try:
            self.write_checkpoint()
        except OSError as error:
            log.warning("writing checkpoint failed", extra={"path": str(self._file.path), "error": str(error)})
            self._feed.emit(CheckpointFailed(str(self._file.path), cause_of(error), "written"))
