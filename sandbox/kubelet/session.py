"""One life of the embedded kubelet, from a start to the stop: its two managers, podresources and plugin watcher.

The device manager starts first, as in kubelets. Whatever the plugins do, ``close`` ends every task, connection and
server; calls to a hanging plugin fail by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from sandbox.kubelet.admission import PodAdmission
from sandbox.kubelet.devicemanager import DeviceManager, DeviceManagerSettings, Manager
from sandbox.kubelet.dra.manager import DraManager
from sandbox.kubelet.dra.settings import DraManagerSettings
from sandbox.kubelet.errors import KubeletError, cause_of
from sandbox.kubelet.events import EventFeed
from sandbox.kubelet.generations import behaviour_of
from sandbox.kubelet.metrics import KubeletMetrics
from sandbox.kubelet.plugin_watcher import PluginHandler, PluginWatcher
from sandbox.kubelet.podresources import PodResourcesService, TokenBucket, pod_resources_server
from sandbox.kubelet.pods import ActivePods
from sandbox.kubelet.registration import SOCKET_NAME
from sandbox.kubelet.reported_resources import ReportedResources
from sandbox.kubelet.topology import TopologyManager


@dataclass(frozen=True, slots=True)
class EmbeddedKubeletSettings:
    """How a kubelet is set up; the fields are those of ``Kubelet``, with ``devices`` for its device manager."""

    root: Path
    reconcile_interval: float
    watch_plugins: bool
    devices: DeviceManagerSettings
    dra: DraManagerSettings
    topology: TopologyManager
    seen_as: Path | None
    device_manager: Manager | None

    @property
    def device_plugin_dir(self) -> Path:
        """Where device plugins put their sockets, and the kubelet its own."""
        return self.devices.directory

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
        node: ReportedResources,
    ) -> None:
        settings.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._settings = settings
        self._pods = pods
        self._feed = feed
        self.metrics = KubeletMetrics()
        self.manager: Manager = settings.device_manager or DeviceManager(settings.devices, pods, feed, self.metrics)
        self._behaviour = behaviour_of(settings.devices.generation)
        self.admission = PodAdmission(
            settings.topology, self.manager, pods, node, behaviour=self._behaviour, metrics=self.metrics
        )
        self.dra = DraManager(
            settings.root,
            settings.dra,
            generation=settings.devices.generation,
            pods=pods,
            feed=feed,
        )
        self._lister: grpc.aio.Server | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def open(self, running: Collection[tuple[str, str]]) -> None:
        """Start; raises ``KubeletError`` if it cannot use its folder, and leaves nothing open then."""
        settings = self._settings
        try:
            await self.manager.start(running)
            settings.pod_resources_socket.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._lister = await pod_resources_server(
                settings.pod_resources_socket,
                PodResourcesService(
                    self.manager,
                    self.dra.claims,
                    self._pods,
                    TokenBucket(settings.devices.clock),
                    self.metrics,
                    has_get=self._behaviour.gets_pod_resources,
                ),
            )
            if self._behaviour.has_dra:
                self.dra.start()
            if settings.watch_plugins:
                settings.registry_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
                self._watcher = asyncio.create_task(self._watch(), name="plugin watcher")
        except (OSError, KubeletError) as error:
            await self.close()
            where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
            raise KubeletError(f"the kubelet cannot start in {settings.root}: {where}{cause_of(error)}") from error

    async def close(self) -> None:
        """End everything; can be called again."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait([watcher])
        lister, self._lister = self._lister, None
        if lister is not None:
            await lister.stop(None)
        await self.manager.stop()
        await self.dra.close()

    async def _watch(self) -> None:
        handlers: dict[str, PluginHandler] = {}
        device_plugins = self.manager.watcher_handler()
        if device_plugins is not None:
            handlers["DevicePlugin"] = device_plugins
        if self._behaviour.has_dra:
            handlers["DRAPlugin"] = self.dra.drivers
        await PluginWatcher(
            self._settings.registry_dir,
            handlers,
            generation=self._settings.devices.generation,
            interval=self._settings.reconcile_interval,
            feed=self._feed,
            here=self._settings.here,
            dial_seconds=self._settings.devices.dial_seconds,
            clock=self._settings.devices.clock,
        ).run()
