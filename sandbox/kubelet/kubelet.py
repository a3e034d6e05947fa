"""The embedded kubelet: real sockets, real protocols, no cluster. Any device plugin can be run against it.

It is the node's side of the device plugin and DRA contracts: both registration doors, the device manager and the DRA
manager with their state files, and podresources, as kubelet 1.36 behaves (``generation`` chooses 1.24, 1.35 or 1.37).
Pods are values handed to ``admit`` and ``prepare``; nothing runs their containers. Device plugins are the only hint
provider of its topology manager, because it manages neither CPUs nor memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.allocation import Order
from sandbox.kubelet.devicemanager import DeviceManager, DeviceManagerSettings, Manager
from sandbox.kubelet.devices import PluginDevice
from sandbox.kubelet.dialling import DIAL_SECONDS
from sandbox.kubelet.dra.claims import ResourceHealth, allocated_resources, cdi_devices
from sandbox.kubelet.dra.manager import DraManager, PrepareError
from sandbox.kubelet.dra.settings import DraManagerSettings
from sandbox.kubelet.errors import ContainerStartError, KubeletError
from sandbox.kubelet.events import EventFeed, EventStream, KubeletEvent, PodWarning
from sandbox.kubelet.generations import Generation, behaviour_of
from sandbox.kubelet.plugin_calls import PENDING_SECONDS
from sandbox.kubelet.pod_devices import RunOptions
from sandbox.kubelet.pods import ActivePods, NodeCapacity, Pod, PodAdmitResult
from sandbox.kubelet.reported_resources import ReportedResources
from sandbox.kubelet.session import EmbeddedKubeletSettings, KubeletSession
from sandbox.kubelet.topology import ProviderHints, TopologyHint, TopologyManager


class Kubelet:
    """A kubelet whose folder is ``root`` (``/var/lib/kubelet`` on a node; keep it short, sockets have 107 bytes).

    ``reconcile_interval``: seconds between two looks at the registered plugins. ``clock``: seconds for the grace
    period. ``watch_plugins`` false: a kubelet that never asks GetInfo. ``call_timeout``: seconds for Allocate,
    GetPreferredAllocation and GetDevicePluginOptions; None, as in real kubelets, lets a hanging plugin block
    admissions until ``stop``. ``keep_known_holes``: keep ids after some errors, as released kubelets do. ``order``
    puts a container's resources into the order of their allocation, which is random in real kubelets; with ``seed``
    resources and devices are taken in a random order. ``dra``: the API server and the intervals of the DRA manager.
    ``topology``: the topology manager, by default with policy none; a pod that it refuses has the reason
    TopologyAffinityError. ``pending_after``: seconds until a call without an answer is reported.
    ``device_manager``: takes the place of the kubelet's own, to test the other parts with a ``ManagerStub``.
    ``seen_as``: the path at which plugins with a mount namespace of their own see ``root``, as those of
    ``PluginProcess`` do.

    Usable as ``async with``; ``start`` after ``stop`` is a restart on the same checkpoint.
    """

    def __init__(
        self,
        root: Path,
        *,
        generation: Generation = "1.36",
        reconcile_interval: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        watch_plugins: bool = True,
        device_plugin_dir: Path | None = None,
        call_timeout: float | None = None,
        dial_timeout: float = DIAL_SECONDS,
        keep_known_holes: bool = False,
        order: Order = sorted,
        dra: DraManagerSettings = DraManagerSettings(),  # noqa: B008 - a frozen value
        topology: TopologyManager = TopologyManager(),  # noqa: B008 - never changes
        seen_as: Path | None = None,
        seed: int | None = None,
        pending_after: float = PENDING_SECONDS,
        device_manager: Manager | None = None,
    ) -> None:
        root = root.absolute()
        self.settings = EmbeddedKubeletSettings(
            root,
            reconcile_interval,
            watch_plugins,
            DeviceManagerSettings(
                root / "device-plugins" if device_plugin_dir is None else device_plugin_dir.absolute(),
                generation=generation,
                clock=clock,
                numa_nodes=topology.numa_nodes,
                call_seconds=call_timeout,
                dial_seconds=dial_timeout,
                pending_seconds=pending_after,
                keep_known_holes=keep_known_holes,
                order=order,
                seed=seed,
            ),
            dra,
            topology,
            seen_as,
            device_manager,
        )
        self._feed = EventFeed()
        self._active = ActivePods(keeps_ended=behaviour_of(generation).lists_ended_pods)
        self._reported = ReportedResources({}, {})
        self._session: KubeletSession | None = None
        self._admitting = asyncio.Lock()

    async def __aenter__(self) -> Kubelet:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(
        self,
        *,
        pods: Iterable[Pod] = (),
        running: Collection[tuple[str, str]] = (),
        sources_ready: bool = True,
    ) -> None:
        """Start and listen. ``pods`` count as active without an admission, besides those active before.

        ``running``: (pod UID, container) that the runtime reports; while ``sources_ready`` is false these keep their
        devices unchecked and nothing is garbage-collected. Raises ``KubeletError``.
        """
        if self._session is not None:
            raise KubeletError("the kubelet is already running; stop it first")
        for pod in pods:
            self._active.add(pod)
        session = KubeletSession(self.settings, self._active, self._feed, self._reported)
        if session.manager.should_reset_capacity():
            self._reported.reset()
        self._active.reading(done=sources_ready)
        await session.open(running)
        self._session = session

    async def stop(self) -> None:
        """End all servers, connections, tasks and event streams, whatever the plugins do; can be called again."""
        await self._close_session()
        self._feed.close()

    async def restart(self, running: Iterable[Pod] | None = None, *, reboot: bool = False) -> dict[str, PodAdmitResult]:
        """Stop, start on the same checkpoint and admit ``running`` again (None: all active pods); UID -> verdict.

        Containers of those pods but ordinary init containers are reported as running, so their devices are kept
        although no plugin is back yet; after a ``reboot`` none is, so pods are refused until their plugins are back.
        Pods that are not in ``running`` have ended. Event streams go on.
        """
        pods = tuple(self._active.by_uid.values()) if running is None else tuple(running)
        alive = {(pod.uid, container.name) for pod in pods for container in pod.containers if container.kind != "init"}
        await self._close_session()
        for pod_uid in tuple(self._active.by_uid):
            self._active.end(pod_uid)
        await self.start(pods=pods, running=() if reboot else alive, sources_ready=False)
        verdicts = {pod.uid: await self.admit(pod) for pod in pods}
        self.set_sources_ready(ready=True)
        return verdicts

    async def admit(
        self, pod: Pod, affinity: Mapping[str, TopologyHint] | TopologyHint | None = None
    ) -> PodAdmitResult:
        """Admit ``pod`` and allocate its devices; a refused pod is not active afterwards.

        ``affinity`` is the NUMA hint of every container, or of each by name, and takes the topology manager's place.
        """
        session = self._running
        hints = affinity
        if isinstance(hints, TopologyHint):
            hints = {container.name: hints for container in pod.containers}
        async with self._admitting:
            self._active.add(pod)
            verdict = None
            try:
                verdict = await session.admission.admit(pod, hints)
            finally:
                if verdict is None or not verdict.admitted:
                    self._drop(pod.uid)
            return verdict

    def terminate(self, pod_uid: str) -> None:
        """The pod has ended; its devices are free from the next allocation or podresources List on."""
        self._drop(pod_uid)

    def delete(self, pod_uid: str) -> None:
        """The pod is gone at the API server; up to kubelet 1.33 podresources lists one that has ended until then."""
        self._drop(pod_uid)
        self._active.delete(pod_uid)

    async def run_options(self, pod: Pod, container: str) -> RunOptions | None:
        """Start ``container`` of ``pod`` (again): PreStartContainer, then what it runs with; None without devices.

        Raises ``ContainerStartError``, which a real kubelet tells as a warning event and tries again, or
        ``DeviceAllocationError``.
        """
        session = self._running
        affinity = session.admission.affinity(pod.uid, container)
        try:
            return await session.manager.run_options(pod, pod.container(container), affinity)
        except ContainerStartError as error:
            self._feed.emit(PodWarning(pod.uid, "Failed", f"Error: {error}"))
            raise

    async def prepare(self, pod: Pod) -> None:
        """Have the drivers prepare the claims of an active pod; idempotent.

        Raises ``PrepareError``, which a real kubelet tells as a warning event and tries again after a minute or so.
        """
        try:
            await self._running.dra.prepare(pod)
        except PrepareError as error:
            message = f"Failed to prepare dynamic resources: {error}"
            self._feed.emit(PodWarning(pod.uid, "FailedPrepareDynamicResources", message))
            raise

    async def end(self, pod: Pod) -> None:
        """End ``pod`` as a kubelet does: its claims are unprepared first, and only then it is gone.

        Raises ``UnprepareError``; the pod stays active then.
        """
        await self._running.dra.unprepare(pod)
        self.delete(pod.uid)

    def claim_devices(self, pod: Pod, container: str) -> tuple[str, ...]:
        """The CDI names that a container's runtime gets for its claims; raises ``ContainerStartError``."""
        return cdi_devices(self._running.dra.claims, pod, pod.container(container))

    def claim_health(self, pod: Pod, container: str) -> dict[str, tuple[ResourceHealth, ...]]:
        """The pod's status for the devices of a container's claims, by ``claim:NAME[/REQUEST]``."""
        dra = self._running.dra
        return allocated_resources(dra.claims, dra.health, pod, pod.container(container))

    def topology_hints(self, pod: Pod, container: str | None = None) -> ProviderHints:
        """What the device manager offers to the topology manager for a container, or for the pod with scope pod."""
        manager = self._running.manager
        return manager.pod_hints(pod) if container is None else manager.container_hints(pod, pod.container(container))

    def set_sources_ready(self, *, ready: bool) -> None:
        """Set whether all pods of the node are known; until then no pod counts as gone."""
        self._active.reading(done=ready)

    def pods(self) -> tuple[Pod, ...]:
        """Active pods."""
        return tuple(self._active.by_uid.values())

    def capacity(self) -> NodeCapacity:
        """Capacity and allocatable; forgets resources whose plugins have been gone for over 5 minutes."""
        return self._running.manager.capacity()

    def report_node_status(self) -> ReportedResources:
        """Write capacity and allocatable into the Node's status, as a kubelet does every few seconds.

        Once a resource was reported, pods are refused that ask for it after the kubelet has forgotten it. A Node that
        nobody reports to names no resource and refuses none.
        """
        self._reported.report(self._running.manager.capacity())
        return replace(self._reported)

    def metrics(self) -> str:
        """The metrics of a kubelet that concern plugins, since the start, in Prometheus' text format."""
        return self._running.metrics.text()

    def allocatable(self) -> Mapping[str, int]:
        """Allocatable per resource, as ``capacity``."""
        return self.capacity().allocatable

    def resources(self) -> tuple[str, ...]:
        """Resources that were listed or are remembered, sorted."""
        return self.manager.state.resources()

    def devices(self, resource: str) -> tuple[PluginDevice, ...]:
        """A resource's devices in natural order of ids; after its plugin's end none is healthy."""
        devices = self.manager.state.device_set(resource)
        if devices is None:
            return ()
        return tuple(
            device
            if device.id in devices.healthy or not device.healthy
            else PluginDevice(device.id, "Unhealthy", device.numa)
            for device in devices.only(devices.known).values()
        )

    def allocated(self, pod_uid: str, container: str) -> dict[str, dict[str, tuple[int, ...] | None]]:
        """Resource -> id -> NUMA nodes (None: none) that a container holds by the kubelet's records."""
        held = self._running.manager.devices_of(pod_uid, container)
        return {resource: dict(ids) for resource, ids in held.items()}

    def disconnect(self, resource: str) -> None:
        """End the connections to a resource's plugins from the kubelet's side; they have to register again."""
        connections = self.manager.connections
        for endpoint in connections.connected(resource):
            connections.disconnect(resource, endpoint.socket)

    @property
    def manager(self) -> DeviceManager:
        """The device manager of this start, for looks inside; a restart makes a new one.

        Raises ``KubeletError`` if the kubelet was given another one.
        """
        manager = self._running.manager
        if not isinstance(manager, DeviceManager):
            raise KubeletError(f"the kubelet runs with a {type(manager).__name__} of the caller's; ask that one")
        return manager

    @property
    def dra(self) -> DraManager:
        """The DRA manager of this start, for looks inside; a restart makes a new one."""
        return self._running.dra

    @property
    def registrations(self) -> Counter[str]:
        """Successful registrations per resource since the start, through both doors."""
        return self.manager.registrations

    @property
    def register_calls(self) -> Counter[str]:
        """Register calls per resource since the start, refused ones included."""
        return self.manager.registration.calls

    @property
    def list_messages(self) -> Counter[str]:
        """ListAndWatch messages per resource since the start."""
        return self.manager.state.lists

    def last_list(self, resource: str) -> api_pb2.ListAndWatchResponse | None:
        """The last ListAndWatch message of a resource since the start, as it came."""
        return self.manager.state.last_lists.get(resource)

    def open_streams(self, resource: str) -> int:
        """ListAndWatch streams that are open for a resource."""
        return self.manager.connections.streams(resource)

    def events(self) -> EventStream:
        """A stream of what happens from now on; close it after use."""
        return self._feed.stream()

    def on_event(self, callback: Callable[[KubeletEvent], None]) -> Callable[[], None]:
        """Call ``callback`` with what happens from now on; returns what ends that."""
        return self._feed.subscribe(callback)

    async def wait_for(self, resource: str, *, healthy: int, within: float = 60.0) -> None:
        """Wait until ``resource`` has exactly ``healthy`` healthy devices; raises TimeoutError with what it has."""
        stream = self.events()
        try:
            async with asyncio.timeout(within):
                while self._healthy(resource) != healthy:
                    await anext(stream)
        except (TimeoutError, StopAsyncIteration):
            has = "unknown" if self._session is None else self._healthy(resource)
            raise TimeoutError(f"{resource} has {has} healthy devices, not {healthy}, after {within} s") from None
        finally:
            stream.close()

    def _healthy(self, resource: str) -> int | None:
        devices = self.manager.state.device_set(resource)
        return None if devices is None else len(devices.healthy)

    def _drop(self, pod_uid: str) -> None:
        self._active.end(pod_uid)
        if self._session is not None:
            self._session.admission.forget(pod_uid)

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @property
    def _running(self) -> KubeletSession:
        if self._session is None:
            raise KubeletError("the kubelet is not running; start it first")
        return self._session
