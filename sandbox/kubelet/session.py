"""One life of the embedded kubelet, from a start to the stop: its two managers, servers and plugin watcher.

Start order is a kubelet's: read the checkpoint, clear the plugin folder of sockets, then listen. Whatever the plugins
do, ``close`` ends every task, connection and server; calls to a hanging plugin fail by it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2_grpc as device_plugin
from protos.podresources.v1 import api_pb2_grpc as pod_resources
from sandbox.kubelet.admission import PodAdmission
from sandbox.kubelet.allocation import DeviceAllocator, Order
from sandbox.kubelet.device_hints import DeviceHints
from sandbox.kubelet.devicemanager import DeviceManager
from sandbox.kubelet.dialling import DIAL_SECONDS
from sandbox.kubelet.dra.manager import DraManager
from sandbox.kubelet.dra.settings import DraManagerSettings
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.events import Door, EventFeed, PluginRegistered
from sandbox.kubelet.generations import Generation, behaviour_of
from sandbox.kubelet.plugin_watcher import PluginHandler, PluginWatcher
from sandbox.kubelet.podresources import PodResourcesService
from sandbox.kubelet.pods import ActivePods
from sandbox.kubelet.registration import SOCKET_NAME, RegistrationService, check_plugin, remove_sockets
from sandbox.kubelet.topology import TopologyManager


@dataclass(frozen=True, slots=True)
class EmbeddedKubeletSettings:
    """How a kubelet is set up; the fields are those of ``Kubelet``."""

    root: Path
    device_plugin_dir: Path
    generation: Generation
    reconcile_interval: float
    clock: Callable[[], float]
    watch_plugins: bool
    call_timeout: float | None
    dial_timeout: float
    keep_known_holes: bool
    order: Order
    dra: DraManagerSettings
    topology: TopologyManager
    seen_as: Path | None

    @property
    def registry_dir(self) -> Path:
        """Where plugins put their registration sockets."""
        return self.root / "plugins_registry"

    def here(self, endpoint: str) -> str:
        """The path at which the kubelet finds an endpoint; the plugin may see the root elsewhere."""
        if self.seen_as is None or not Path(endpoint).is_relative_to(self.seen_as):
            return endpoint
        return str(self.root / Path(endpoint).relative_to(self.seen_as))

    @property
    def pod_resources_socket(self) -> Path:
        """Where podresources is served."""
        return self.root / "pod-resources" / SOCKET_NAME


class KubeletSession:
    """Everything that lives from one start to the stop."""

    def __init__(
        self,
        settings: EmbeddedKubeletSettings,
        pods: ActivePods,
        feed: EventFeed,
    ) -> None:
        settings.device_plugin_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        settings.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._settings = settings
        self._pods = pods
        self._feed = feed
        self.manager = DeviceManager(
            settings.device_plugin_dir,
            generation=settings.generation,
            clock=settings.clock,
            pods=pods,
            feed=feed,
            call_seconds=settings.call_timeout,
        )
        self.allocator = DeviceAllocator(
            self.manager, self.manager.records, keep_known_holes=settings.keep_known_holes, order=settings.order
        )
        self.hints = DeviceHints(
            self.manager,
            self.manager.records,
            self.allocator,
            settings.topology.numa_nodes,
            all_nodes=behaviour_of(settings.generation).masks_span_machine,
        )
        self.admission = PodAdmission(settings.topology, self.hints, self.allocator, self.manager.records)
        self.dra = DraManager(
            settings.root,
            settings.dra,
            generation=settings.generation,
            pods=pods,
            feed=feed,
        )
        self.registration = RegistrationService(settings.device_plugin_dir, self, feed)
        self.registrations: Counter[str] = Counter()
        self._servers: list[grpc.aio.Server] = []
        self._watcher: asyncio.Task[None] | None = None

    async def open(self, running: Collection[tuple[str, str]]) -> None:
        """Start; raises ``KubeletError`` if it cannot bind the sockets, and leaves nothing open then."""
        settings = self._settings
        self.manager.recover(running)
        try:
            remove_sockets(settings.device_plugin_dir)
            registration, lister = grpc.aio.server(), grpc.aio.server()
            device_plugin.add_RegistrationServicer_to_server(self.registration, registration)
            service = PodResourcesService(self.manager, self.dra.claims, self._pods, time.monotonic)
            pod_resources.add_PodResourcesListerServicer_to_server(service, lister)
            settings.pod_resources_socket.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            await self._serve(registration, settings.device_plugin_dir / SOCKET_NAME)
            await self._serve(lister, settings.pod_resources_socket)
            self.dra.start()
            if settings.watch_plugins:
                settings.registry_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
                self._watcher = asyncio.create_task(self._watch(), name="plugin watcher")
        except (OSError, RuntimeError) as error:
            await self.close()
            raise KubeletError(f"the kubelet cannot start in {settings.root}: {error}") from error

    async def close(self) -> None:
        """End everything; can be called again."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait([watcher])
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(None)
        await self.manager.connections.close()
        await self.dra.close()

    async def _serve(self, server: grpc.aio.Server, socket: Path) -> None:
        self._servers.append(server)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()

    async def _watch(self) -> None:
        handlers: dict[str, PluginHandler] = {
            "DevicePlugin": DevicePluginHandler(self),
            "DRAPlugin": self.dra.drivers,
        }
        await PluginWatcher(
            self._settings.registry_dir,
            handlers,
            generation=self._settings.generation,
            interval=self._settings.reconcile_interval,
            feed=self._feed,
            here=self._settings.here,
        ).run()

    async def connect(self, resource: str, socket: str, door: Door) -> None:
        """Connect a plugin that came through ``door``; raises ``RegistrationError``."""
        await self.manager.connections.connect(resource, socket, min(DIAL_SECONDS, self._settings.dial_timeout))
        self.registrations[resource] += 1
        self._feed.emit(PluginRegistered(resource, socket, door))


class DevicePluginHandler:
    """Handles device plugins for the plugin watcher."""

    def __init__(self, session: KubeletSession) -> None:
        self._session = session

    def validate(self, name: str, socket: str, versions: Sequence[str]) -> None:
        """Raise ``RegistrationError`` for a version or resource name that a kubelet does not take."""
        check_plugin(name, versions)

    async def register(self, name: str, socket: str, versions: Sequence[str]) -> None:
        """Connect the plugin at ``socket`` as it stands, so the path has to be absolute."""
        await self._session.connect(name, socket, "watcher")

    def deregister(self, name: str, socket: str) -> None:
        """Disconnect the plugin; kubelets up to 1.36 look only at the name."""
        self._session.manager.connections.disconnect(name, socket)
