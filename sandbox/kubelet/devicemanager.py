"""The device manager of a kubelet: registration, lists, allocation, hints and run options of all device plugins.

``Manager`` is what the kubelet's other parts need of it: admission, podresources, the plugin watcher and container
starts know nothing else, so a ``ManagerStub`` can take its place. ``DeviceManager`` is the real one. It lives from one
start of the kubelet to its stop; what survives a restart is in the checkpoint.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.allocation import DeviceAllocator, Order
from sandbox.kubelet.device_hints import DeviceHints
from sandbox.kubelet.devices import in_order, random_order
from sandbox.kubelet.dialling import DIAL_SECONDS, listen_at
from sandbox.kubelet.errors import ContainerStartError, KubeletError
from sandbox.kubelet.events import Door, EventFeed, PluginRegistered, RunOptionsConflict
from sandbox.kubelet.generations import Generation, behaviour_of
from sandbox.kubelet.metrics import KubeletMetrics
from sandbox.kubelet.plugin_calls import PENDING_SECONDS, PluginCalls
from sandbox.kubelet.plugin_clients import Connections
from sandbox.kubelet.plugin_resources import PluginResources
from sandbox.kubelet.plugin_watcher import PluginHandler
from sandbox.kubelet.pod_devices import ContainerResource, RunOptions, merge
from sandbox.kubelet.pod_status import allocated_resources_status, raised_allocatable
from sandbox.kubelet.pods import ActivePods, Container, NodeCapacity, Pod
from sandbox.kubelet.registration import (
    DEPRECATION_MARKER,
    SOCKET_NAME,
    DevicePluginHandler,
    RegistrationService,
    remove_sockets,
)
from sandbox.kubelet.topology import ProviderHints, TopologyHint

DeviceNodes = Mapping[str, Mapping[str, tuple[int, ...] | None]]
"""Resource -> id -> NUMA nodes; None for a device without a topology."""

NO_AFFINITY = TopologyHint()


class Manager(Protocol):
    """A device manager as the kubelet's other parts see it."""

    async def start(self, running: Collection[tuple[str, str]] = ()) -> None:
        """Read the checkpoint and serve registrations; ``running``: (pod UID, container) the runtime reports."""

    async def stop(self) -> None:
        """End all servers and connections; can be called again, and without a start."""

    async def allocate(self, pod: Pod, container: Container, affinity: TopologyHint = NO_AFFINITY) -> None:
        """Give a container all its devices; raises ``KubeletError``."""

    async def run_options(
        self, pod: Pod, container: Container, affinity: TopologyHint = NO_AFFINITY
    ) -> RunOptions | None:
        """What a start of the container adds, None if it holds nothing; raises ``KubeletError``."""

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Topology hints for one container."""

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Topology hints for a whole pod."""

    def capacity(self) -> NodeCapacity:
        """Capacity and allocatable per resource, and the resources that were forgotten by this very call."""

    def raised_allocatable(self, pod_uid: str, allocatable: Mapping[str, int]) -> dict[str, int]:
        """The node's allocatable, raised to what is in use if the pod holds anything."""

    def allocated_resources_status(self, pod: Pod) -> dict[str, dict[str, dict[str, str]]]:
        """App container -> resource -> id -> health."""

    def allocatable_devices(self) -> DeviceNodes:
        """All healthy devices, in use or not."""

    def devices_of(self, pod_uid: str, container: str) -> DeviceNodes:
        """What a container holds."""

    def collect_garbage(self) -> None:
        """Drop the records of pods that are gone."""

    def should_reset_capacity(self) -> bool:
        """Whether the node counts as new, so that its extended resources are set to zero."""

    def watcher_handler(self) -> PluginHandler | None:
        """What handles plugins of type DevicePlugin for the plugin watcher."""

    def health_error(self) -> str:
        """The error of the kubelet's health check ``device-plugin``; empty while it is healthy."""


@dataclass(frozen=True, slots=True)
class DeviceManagerSettings:
    """How a device manager is set up; the fields are those of ``Kubelet``."""

    directory: Path
    generation: Generation = "1.36"
    clock: Callable[[], float] = time.monotonic
    numa_nodes: Collection[int] = (0,)
    call_seconds: float | None = None
    dial_seconds: float = DIAL_SECONDS
    pending_seconds: float = PENDING_SECONDS
    keep_known_holes: bool = False
    order: Order = sorted
    seed: int | None = None


class DeviceManager:
    """Manages the device plugins of a node whose pods are ``pods``; tells ``feed`` what happens.

    ``settings.directory`` is the device plugin folder; raises ``KubeletError`` unless it is absolute.
    """

    def __init__(
        self,
        settings: DeviceManagerSettings,
        pods: ActivePods,
        feed: EventFeed,
        metrics: KubeletMetrics | None = None,
    ) -> None:
        self.socket = settings.directory / SOCKET_NAME
        if not self.socket.is_absolute():
            raise KubeletError(f"bad socketPath, must be an absolute path: {self.socket}")
        settings.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._settings = settings
        self.metrics = metrics or KubeletMetrics()
        self._behaviour = behaviour_of(settings.generation)
        self._pods = pods
        self._feed = feed
        clock = settings.clock
        self.state = PluginResources(settings.directory, behaviour=self._behaviour, clock=clock, pods=pods, feed=feed)
        self.records = self.state.records
        self.updates = self.state.updates
        calls = PluginCalls(feed, settings.pending_seconds)
        self.connections = Connections(self.state, self._behaviour, calls, settings.call_seconds)
        ids = in_order if settings.seed is None else random_order(settings.seed)
        self.allocator = DeviceAllocator(
            self.state,
            self.records,
            keep_known_holes=settings.keep_known_holes,
            order=settings.order if settings.seed is None else ids,
            ids=ids,
            skip_claimed=self._behaviour.serves_resources_by_claims,
            durations=self.metrics.allocations,
        )
        self.hints = DeviceHints(
            self.state,
            self.records,
            self.allocator,
            settings.numa_nodes,
            all_nodes=self._behaviour.masks_span_machine,
        )
        self.registration = RegistrationService(
            settings.directory, self, feed, self.metrics, in_background=self._behaviour.registers_in_background
        )
        self.registrations: Counter[str] = Counter()
        self._server: grpc.aio.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._health_error = ""

    async def start(self, running: Collection[tuple[str, str]] = ()) -> None:
        """Read the checkpoint, clear the folder of sockets, listen; raises OSError or ``KubeletError``.

        Containers in ``running`` keep their devices unchecked until all pods are read.
        """
        if self._server is not None:
            raise KubeletError("the device manager is already running; stop it first")
        self.state.recover(running)
        remove_sockets(self._settings.directory)
        if self._behaviour.marks_deprecation:
            (self._settings.directory / DEPRECATION_MARKER).touch()
        server = self._server = grpc.aio.server()
        api_pb2_grpc.add_RegistrationServicer_to_server(self.registration, server)
        listen_at(server, self.socket)
        await server.start()
        self._serving = asyncio.create_task(self._watch_server(server), name="device plugin registration")

    async def stop(self) -> None:
        """End the server and disconnect every plugin; safe without a start and more than once."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving
        await self.registration.close()
        await self.connections.close()

    async def connect(
        self, resource: str, socket: str, door: Door, options: api_pb2.DevicePluginOptions | None = None
    ) -> None:
        """Connect a plugin that came through ``door``; raises ``RegistrationError``."""
        await self.connections.connect(resource, socket, min(DIAL_SECONDS, self._settings.dial_seconds), options)
        self.registrations[resource] += 1
        self._feed.emit(PluginRegistered(resource, socket, door))

    def disconnect(self, resource: str, socket: str) -> None:
        """Disconnect a plugin from the kubelet's side; an unknown one is no error."""
        self.connections.disconnect(resource, socket)

    async def allocate(self, pod: Pod, container: Container, affinity: TopologyHint = NO_AFFINITY) -> None:
        """Give ``container`` all its devices; raises ``DeviceAllocationError`` or another ``KubeletError``."""
        await self.allocator.allocate(pod, container, affinity)

    async def run_options(
        self, pod: Pod, container: Container, affinity: TopologyHint = NO_AFFINITY
    ) -> RunOptions | None:
        """The options of one start of a container, None if it holds nothing.

        As in kubelets, an active pod without a record is allocated now, unless its plugin wants PreStartContainer,
        which fails without a record; and PreStartContainer is called at every start, even for a pod that is no longer
        active. Raises ``ContainerStartError`` (the container stays waiting) or ``DeviceAllocationError``.
        """
        is_active, is_late = pod.uid in self._pods.by_uid, False
        for resource, quantity in sorted(container.limits.items()):
            if not quantity or not self.allocator.is_device_resource(resource):
                continue
            holder = ContainerResource(pod.uid, container.name, resource)
            await self._pre_start(holder)
            is_late = is_late or (is_active and self.records.get(holder) is None)
        if is_late:
            await self.allocate(pod, container, affinity)
        records = self.records.of_container(pod.uid, container.name)
        if not records:
            return None
        answers = {resource: record.answer for resource, record in records.items()}
        options = merge(answers, with_cdi_devices=self._behaviour.injects_cdi_devices)
        for conflict in options.conflicts:
            self._feed.emit(RunOptionsConflict(pod.uid, container.name, conflict))
        return options

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:
        """See ``DeviceHints.of_container``."""
        return self.hints.of_container(pod, container)

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """See ``DeviceHints.of_pod``."""
        return self.hints.of_pod(pod)

    def capacity(self) -> NodeCapacity:
        """Capacity and allocatable; forgets resources whose plugins have been gone for over 5 minutes."""
        return self.state.capacity()

    def raised_allocatable(self, pod_uid: str, allocatable: Mapping[str, int]) -> dict[str, int]:
        """The node's allocatable, raised to what is in use if the pod holds anything, so that it passes again."""
        return raised_allocatable(self.records, pod_uid, allocatable)

    def allocated_resources_status(self, pod: Pod) -> dict[str, dict[str, dict[str, str]]]:
        """App container -> resource -> id -> ``Healthy`` or ``Unhealthy``; empty before kubelet 1.36."""
        if not self._behaviour.reports_device_health:
            return {}
        return allocated_resources_status(pod, self.records, self.state.device_set)

    def allocatable_devices(self) -> DeviceNodes:
        """All healthy devices, in use or not, in natural order of ids."""
        devices: dict[str, dict[str, tuple[int, ...] | None]] = {}
        for resource in self.state.resources():
            listed = self.state.device_set(resource)
            if listed is not None:
                devices[resource] = {each.id: each.numa for each in listed.only(listed.healthy).values()}
        return devices

    def devices_of(self, pod_uid: str, container: str) -> DeviceNodes:
        """What a container holds by the records, with the topology of the time of its allocation."""
        return {resource: record.numa for resource, record in self.records.of_container(pod_uid, container).items()}

    def collect_garbage(self) -> None:
        """Drop the records of pods that are gone, once all pods are read; does not write the checkpoint."""
        self.state.collect_garbage()

    def should_reset_capacity(self) -> bool:
        """Whether a kubelet takes the node for a new one: nothing visible is in the device plugin folder."""
        return not any(not path.name.startswith(".") for path in self._settings.directory.iterdir())

    def watcher_handler(self) -> PluginHandler:
        """The handler of plugins of type DevicePlugin."""
        return DevicePluginHandler(self)

    def health_error(self) -> str:
        """Why the health check ``device-plugin`` fails; empty while it passes, as it does after a stop."""
        return self._health_error

    async def _watch_server(self, server: grpc.aio.Server) -> None:
        await server.wait_for_termination()
        if self._server is server:
            self._health_error = (
                "device registration error: device plugin registration gRPC server failed and no device plugins "
                "can register: the server ended"
            )

    async def _pre_start(self, holder: ContainerResource) -> None:
        endpoint = self.state.endpoint(holder.resource)
        if endpoint is None:
            raise ContainerStartError(f"endpoint not found in cache for a registered resource: {holder.resource}")
        if endpoint.options is None or not endpoint.options.pre_start_required:
            return
        record = self.records.get(holder)
        if record is None:
            raise ContainerStartError(
                f"no devices found allocated in local cache for pod {holder.pod_uid}, container {holder.container}, "
                f"resource {holder.resource}"
            )
        try:
            await endpoint.pre_start(in_order(record.ids))
        except KubeletError as error:
            raise ContainerStartError(f"device plugin PreStartContainer rpc failed with err: {error}") from error
