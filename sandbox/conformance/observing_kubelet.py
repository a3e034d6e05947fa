"""A kubelet that accepts whatever a plugin does and writes it down, so that every rule can be judged in one run.

It has the kubelet's doors: Register on ``kubelet.sock``, the plugin watcher on ``plugins_registry`` and podresources.
As a kubelet it dials back inside Register, asks for the options, then opens ListAndWatch and keeps it open; at a start
it removes every socket from ``device-plugins``. Unlike a kubelet it refuses nothing that it sees for the first time: a
wrong version, name or options are facts for the rules, and so is a plugin that does not serve while it registers. It
decides nothing about devices and pods; that is what the embedded kubelet is for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal

import grpc
import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from protos.podresources.v1 import api_pb2 as resources_pb2
from protos.podresources.v1 import api_pb2_grpc as resources_grpc
from sandbox.conformance.observed import ObservedDoor, ObservedRegistration, RegistrySocket
from sandbox.conformance.plugin_client import JudgedCallFailed, PluginClient, answered
from sandbox.kubelet.dialling import listen_at, registry_channel
from sandbox.kubelet.errors import RegistrationError
from sandbox.kubelet.plugin_process import BUILT_IN
from sandbox.kubelet.plugin_watcher import GET_INFO_SECONDS, NOTIFY_SECONDS, RegistryFolder
from sandbox.kubelet.registration import SOCKET_NAME, joined, remove_sockets

LOOK: float = 0.02
"""Seconds between two looks at the registry; a kubelet gets inotify events and reconciles every second."""
RETRY: float = 0.5
"""Seconds after which a registration socket that did not answer is asked again."""
TYPES = ("DevicePlugin", "DRAPlugin", "CSIPlugin")
"""Types of plugins that kubelets know; one of another type is taken for what is expected."""
_UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

PluginType = Literal["DevicePlugin", "DRAPlugin"]
Context = grpc.aio.ServicerContext[Any, Any]


class ObservingKubelet:
    """The kubelet whose folder is ``root``, for plugins of the type that it ``expects``.

    ``call_seconds`` bounds every call to a plugin; a restart takes ``away_seconds``. ``watches``: whether it has a
    plugin watcher.
    """

    def __init__(self, root: Path, expects: PluginType, *, call_seconds: float, away_seconds: float) -> None:
        self.root = root
        self._expects = expects
        self.device_plugins = root / "device-plugins"
        self.registry = root / "plugins_registry"
        self.registrations: list[ObservedRegistration] = []
        self.sockets: dict[str, RegistrySocket] = {}
        self.watches = True
        self._call_seconds = call_seconds
        self._away_seconds = away_seconds
        self._servers: list[grpc.aio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._blocks = ""
        """Why the plugin could not be reached while its Register call was pending, once that was seen."""
        self._answering: set[str] = set()
        """Resources whose plugin was reached while its Register call was pending."""
        self.first_problems: dict[str, str] = {}
        """Resource -> why the plugin could not be reached during its very first Register call; empty if it could."""
        self.refused = 0
        """Register calls that were refused because the plugin could not be reached."""
        self._changed = asyncio.Event()
        self._numbers = 0

    def make_folders(self) -> None:
        """Make the folders that a node has, whether its kubelet runs or not."""
        for folder in (self.device_plugins, self.registry, self.root / "plugins", self.root / "pod-resources"):
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)

    async def start(self, *, watches: bool = True) -> None:
        """Start as a kubelet does: remove the sockets of plugins, then listen; ``watches``: also the registry."""
        self.watches = watches
        self.make_folders()
        remove_sockets(self.device_plugins)
        pod_resources = self.root / "pod-resources" / SOCKET_NAME
        pod_resources.unlink(missing_ok=True)
        registration, lister = grpc.aio.server(options=_UNLIMITED), grpc.aio.server(options=_UNLIMITED)
        api_pb2_grpc.add_RegistrationServicer_to_server(_Registration(self), registration)
        resources_grpc.add_PodResourcesListerServicer_to_server(_PodResources(self), lister)
        # Bound under another name: gRPC would remove kubelet.sock at its end, which a kubelet that is killed does not.
        bound = self.device_plugins / ".kubelet"
        for server, path in ((lister, pod_resources), (registration, bound)):
            listen_at(server, path)
            self._servers.append(server)
            await server.start()
        bound.rename(self.device_plugins / SOCKET_NAME)
        if self.watches:
            self._begin(self._watch())

    async def stop(self, *, killed: bool = False) -> None:
        """End: connections break, and ``kubelet.sock`` is gone, or dead if ``killed``. What was observed stays."""
        if not killed:
            (self.device_plugins / SOCKET_NAME).unlink(missing_ok=True)
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(None)
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for registration in self.registrations:
            registration.lost = True
            if registration.client is not None:
                await registration.client.close()
        self.sockets.clear()
        self._notify()

    async def restart(self, *, watches: bool = True, killed: bool = True) -> int:
        """Stop, or be ``killed``, and start; the number of the last registration before."""
        await self.stop(killed=killed)
        await asyncio.sleep(self._away_seconds)
        last = self._numbers
        await self.start(watches=watches)
        return last

    @property
    def last_number(self) -> int:
        """The number of the last registration, 0 before the first."""
        return self._numbers

    async def forget(self) -> None:
        """Stop, and forget everything that was observed."""
        await self.stop()
        self.registrations.clear()

    def current(self, *, after: int = 0) -> dict[str, ObservedRegistration]:
        """The newest usable registration of each resource; ``after``: only those with a higher number."""
        return {each.resource: each for each in self.registrations if each.usable and each.number > after}

    async def until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Whether a condition becomes true within ``seconds``; it is checked after every change.

        And ten times a second, because the end of the plugin's process comes without a change here.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not condition() and loop.time() < end:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(0.1, max(0.0, end - loop.time()))):
                    await self._changed.wait()
        return bool(condition())

    async def drop(self, registration: ObservedRegistration) -> None:
        """Break the connection to a plugin, as a kubelet that loses it."""
        registration.lost = True
        if registration.client is not None:
            await registration.client.close()
        self._notify()

    async def registered(self, request: api_pb2.RegisterRequest) -> None:
        """Handle a Register call before it is answered.

        Raises ``RegistrationError``, as a kubelet refuses it, if the plugin of this resource cannot be reached and has
        been reached before: it may try again, or end itself to be started again.
        """
        socket = _found(joined(self.device_plugins, request.endpoint), self._seen(request.endpoint))
        registration = self._add(request.resource_name, "register", (request.version,), request.endpoint, socket)
        registration.announced = request.options if request.HasField("options") else None
        # A plugin that was found to block is not waited for again at each of its registrations.
        blocks = self._blocks
        try:
            problem = blocks or await self._connect(registration)
        except asyncio.CancelledError:
            registration.pending_problem = "the plugin gave its Register call up before it answered"
            self.first_problems.setdefault(registration.resource, registration.pending_problem)
            raise
        self.first_problems.setdefault(registration.resource, problem)
        if not problem:
            self._answering.add(registration.resource)
        elif registration.resource in self._answering:
            registration.problem = f"its Register call was refused: {problem}"
            self.refused += 1
            self._notify()
            raise RegistrationError(f"failed to dial device plugin: context deadline exceeded ({problem})")
        else:
            registration.pending_problem = problem
            self._blocks = blocks or (problem if registration.hangs else "")
        # Once it is answered, in case the plugin does not serve before.
        self._begin(self._read(registration))

    def _add(
        self, resource: str, door: ObservedDoor, versions: tuple[str, ...], endpoint: str, socket: str
    ) -> ObservedRegistration:
        self._numbers += 1
        registration = ObservedRegistration(
            self._numbers, resource, door, "DevicePlugin", True, versions, endpoint, socket
        )
        self.registrations.append(registration)
        self._notify()
        return registration

    async def _connect(self, registration: ObservedRegistration) -> str:
        """Dial the plugin and ask for its options; returns what went wrong, empty for nothing."""
        client = PluginClient(registration.socket, self._call_seconds)
        try:
            if not await client.ready(self._call_seconds):
                raise JudgedCallFailed(
                    "dialling", grpc.StatusCode.UNAVAILABLE, f"nobody answers at {self.as_known(registration.socket)}"
                )
            registration.options = await client.options()
        except JudgedCallFailed as error:
            await client.close()
            registration.hangs = error.late
            return str(error)
        except BaseException:  # The caller gets it; the connection is closed first.
            await client.close()
            raise
        registration.client = client
        return ""

    async def _read(self, registration: ObservedRegistration) -> None:
        """Read the plugin's list until it ends the stream."""
        if registration.client is None:
            registration.problem = await self._connect(registration)
        if registration.client is None:
            self._notify()
            return
        lists = registration.client.lists()
        try:
            async for message in lists:
                if not registration.messages:
                    registration.first_message = message
                registration.last_message = message
                registration.messages += 1
                self._notify()
            registration.stream_problem = "the plugin ended the stream"
        except JudgedCallFailed as error:
            registration.stream_problem, registration.lost = str(error), True
        finally:
            await lists.aclose()
            self._notify()

    async def _watch(self) -> None:
        """Register what is in the registry, and forget what is gone."""
        folder = RegistryFolder(self.registry)
        while True:
            found = folder.sockets()
            for path, known in tuple(self.sockets.items()):
                if found.get(path) != known.stamp:
                    await self._remove(path)
            for path, stamp in found.items():
                if path not in self.sockets:
                    task = self._begin(self._ask(path))
                    self.sockets[path] = RegistrySocket(stamp, task)
            await asyncio.sleep(LOOK)

    async def _remove(self, path: str) -> None:
        known = self.sockets.pop(path)
        known.task.cancel()
        if known.registration is not None:
            await self.drop(known.registration)
        self._notify()

    async def _ask(self, path: str) -> None:
        while True:
            channel = registry_channel(path)
            try:
                registration = await self._register(path, registration_grpc.RegistrationStub(channel))
            except JudgedCallFailed as error:
                self.sockets[path].problem = str(error)
                self._notify()
                await asyncio.sleep(RETRY)
                continue
            finally:
                await channel.close()
            if registration.is_device_plugin:
                await self._read(registration)
            return

    async def _register(self, path: str, stub: registration_grpc.RegistrationStub) -> ObservedRegistration:
        info = await answered("GetInfo", stub.GetInfo(registration_pb2.InfoRequest()), GET_INFO_SECONDS)
        registration = self._add(
            info.name, "watcher", tuple(info.supported_versions), info.endpoint, self._endpoint(info.endpoint, path)
        )
        registration.type, registration.path = info.type, path
        taken = info.type if info.type in TYPES else self._expects
        registration.is_device_plugin = taken == "DevicePlugin"
        self.sockets[path].registration = registration
        if registration.is_device_plugin:
            registration.problem = await self._connect(registration)
        status = registration_pb2.RegistrationStatus(plugin_registered=True)
        try:
            notified = stub.NotifyRegistrationStatus(status)
            await answered("NotifyRegistrationStatus", notified, NOTIFY_SECONDS)
        except JudgedCallFailed as error:
            registration.notify_problem = str(error)
        registration.notified = True
        self._notify()
        return registration

    def _endpoint(self, endpoint: str, path: str) -> str:
        """Where a plugin of the registry serves: at its registration socket if it names no other."""
        if not endpoint:
            return path
        endpoint = endpoint.removeprefix("unix://")
        return _found(self._seen(endpoint), joined(self.registry, endpoint))

    def _seen(self, path: str) -> str:
        """The path here of what the plugin sees at ``path``."""
        return str(self.root / Path(path).relative_to(BUILT_IN)) if Path(path).is_relative_to(BUILT_IN) else path

    def as_known(self, path: str | Path) -> str:
        """The path at which the plugin sees what is at ``path`` here: it has the folder at ``/var/lib/kubelet``."""
        here = Path(path)
        return str(BUILT_IN / here.relative_to(self.root) if here.is_relative_to(self.root) else here)

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _found(right: str, wrong: str) -> str:
    """The path that a kubelet dials, or, if only the other one is a socket, the one that the plugin must mean."""
    return wrong if not Path(right).is_socket() and Path(wrong).is_socket() else right


class _Registration(api_pb2_grpc.RegistrationServicer):
    def __init__(self, kubelet: ObservingKubelet) -> None:
        self._kubelet = kubelet

    async def Register(self, request: api_pb2.RegisterRequest, context: Context) -> api_pb2.Empty:  # noqa: N802
        try:
            await self._kubelet.registered(request)
        except RegistrationError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api_pb2.Empty()


class _PodResources(resources_grpc.PodResourcesListerServicer):
    """Answers that no pod has a device and that every listed device can be allocated."""

    def __init__(self, kubelet: ObservingKubelet) -> None:
        self._kubelet = kubelet

    async def List(self, request: object, context: Context) -> resources_pb2.ListPodResourcesResponse:  # noqa: N802
        return resources_pb2.ListPodResourcesResponse()

    async def GetAllocatableResources(  # noqa: N802
        self, request: object, context: Context
    ) -> resources_pb2.AllocatableResourcesResponse:
        return resources_pb2.AllocatableResourcesResponse(devices=self._devices())

    async def Get(  # noqa: N802
        self, request: resources_pb2.GetPodResourcesRequest, context: Context
    ) -> resources_pb2.GetPodResourcesResponse:
        pod = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, pod)
        raise AssertionError("abort returned")  # It always raises; this line is for the type checker.

    def _devices(self) -> Iterator[resources_pb2.ContainerDevices]:
        for resource, registration in self._kubelet.current().items():
            for device in registration.last_message.devices:
                if device.health == "Healthy":
                    yield resources_pb2.ContainerDevices(resource_name=resource, device_ids=[device.ID])
