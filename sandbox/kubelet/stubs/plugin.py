"""A device plugin whose devices and answers a test sets; it runs against any kubelet.

Answers are functions: what they return is the answer, and what they raise is the error that the kubelet gets. A
function that never returns is a plugin that hangs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from node.sockets import FileId, PlacedSocket, is_answered
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc
from sandbox.kubelet.devices import HEALTHY
from sandbox.kubelet.dialling import DIAL_SECONDS, answer, listen_at, plugin_channel, ready
from sandbox.kubelet.errors import KubeletError, PluginError, RegistrationError
from sandbox.kubelet.registration import DEPRECATION_MARKER, VERSION

log = logging.getLogger("ostler.sandbox.kubelet")

KEPT_CALLS: Final = 1_000
"""Calls that a stub remembers; the oldest go first."""

MAX_REQUEST: Final = 16 * 1024 * 1024
"""Bytes of one request that the stub takes."""

RETRY_SECONDS: Final = 10.0
"""Between two attempts to restart after a kubelet came back."""
RETRY_LIMIT_SECONDS: Final = 120.0
"""How long these attempts go on."""

Answer = TypeVar("Answer")
Context = grpc.aio.ServicerContext[Any, Any]
Devices = Mapping[str, api_pb2.Device]

AllocFunc = Callable[[api_pb2.AllocateRequest, Devices], api_pb2.AllocateResponse | Awaitable[api_pb2.AllocateResponse]]
"""Answers Allocate from the request and the devices by id."""

PreferredFunc = Callable[
    [api_pb2.PreferredAllocationRequest, Devices],
    api_pb2.PreferredAllocationResponse | Awaitable[api_pb2.PreferredAllocationResponse],
]
"""Answers GetPreferredAllocation likewise."""

PreStartFunc = Callable[[Sequence[str]], Awaitable[None] | None]
"""Is called with the ids of PreStartContainer."""


class StubRefusal(Exception):
    """Raise it in a function of a ``PluginStub`` to choose the gRPC code; other exceptions become UNKNOWN."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


@dataclass(frozen=True, slots=True)
class StubCall:
    """A call that a stub received: the method, and its request or arguments."""

    method: str
    request: object = None


def listed(device_id: str, health: str = HEALTHY, numa: Iterable[int] | None = None) -> api_pb2.Device:
    """A device for a list; ``numa`` None: no topology message, empty: a topology message without nodes."""
    topology = None if numa is None else api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=node) for node in numa])
    return api_pb2.Device(ID=device_id, health=health, topology=topology)


class PluginStub(api_pb2_grpc.DevicePluginServicer, registration_pb2_grpc.RegistrationServicer):
    """A device plugin for ``resource`` at ``socket``, which serves both registration paths.

    In the kubelet's ``plugins_registry`` it is found by the plugin watcher; elsewhere ``register`` calls the kubelet.
    ``pre_start`` and ``preferred`` are its two options. ``endpoint`` is what GetInfo names; empty, as by default,
    means this socket. ``calls`` has the calls received, ``notified`` the verdicts of the plugin watcher.

    Without functions it answers Allocate with one empty response per container and prefers nothing. ``streams``
    counts open ListAndWatch streams.
    """

    def __init__(
        self,
        devices: Iterable[api_pb2.Device],
        socket: Path,
        resource: str,
        *,
        pre_start: bool = False,
        preferred: bool = False,
        endpoint: str = "",
    ) -> None:
        self.socket = socket
        self.resource = resource
        self.options = api_pb2.DevicePluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=preferred
        )
        self.calls: deque[StubCall] = deque(maxlen=KEPT_CALLS)
        self.notified: deque[registration_pb2.RegistrationStatus] = deque(maxlen=KEPT_CALLS)
        self.streams = 0
        self._devices = list(devices)
        self._endpoint = endpoint
        self._version = 0
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None
        self._place: PlacedSocket | None = None
        self._allocate: AllocFunc = _empty_allocation
        self._prefer: PreferredFunc = _no_preference
        self._pre_start: PreStartFunc = _ready_to_start
        self._may_register: Callable[[], bool] = lambda: True

    async def __aenter__(self) -> PluginStub:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def devices(self) -> dict[str, api_pb2.Device]:
        """The devices of the last list by id."""
        return {device.ID: device for device in self._devices}

    def set_alloc_func(self, function: AllocFunc) -> None:
        """Answer Allocate by ``function``, which may be async."""
        self._allocate = function

    def set_preferred_func(self, function: PreferredFunc) -> None:
        """Answer GetPreferredAllocation by ``function``; the kubelet asks only with the option ``preferred``."""
        self._prefer = function

    def set_pre_start_func(self, function: PreStartFunc) -> None:
        """Call ``function`` in PreStartContainer; the kubelet calls it only with the option ``pre_start``."""
        self._pre_start = function

    def set_register_control(self, function: Callable[[], bool]) -> None:
        """Let ``function`` decide whether ``watch`` registers after a restart of the kubelet."""
        self._may_register = function

    async def start(self) -> None:
        """Serve; a stale socket at the path is replaced. Raises ``KubeletError`` if it serves already."""
        if self._server is not None:
            raise KubeletError(f"the plugin stub at {self.socket} serves already; stop it first")
        # The kubelet sends all free ids with GetPreferredAllocation, which may be more than gRPC's 4 MiB.
        server = self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_REQUEST)])
        place = self._place = PlacedSocket(self.socket.parent, self.socket.name)
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, server)
        registration_pb2_grpc.add_RegistrationServicer_to_server(self, server)
        listen_at(server, place.temporary)
        await server.start()
        place.publish()

    async def stop(self) -> None:
        """End at once, with all calls and streams, and remove the socket; safe without a start and more than once."""
        server, self._server = self._server, None
        place, self._place = self._place, None
        if place is not None:
            place.remove()
        if server is not None:
            await server.stop(None)

    async def restart(self) -> None:
        """Stop and serve again at the same path."""
        await self.stop()
        await self.start()

    async def register(
        self, kubelet_socket: Path, *, resource: str = "", marker_folder: Path | None = None, seconds: float = 60.0
    ) -> None:
        """Call Register of the kubelet at ``kubelet_socket`` for ``resource``, by default the stub's own.

        With a ``marker_folder`` that has the file ``DEPRECATION`` nothing is done, as by the plugins of 2018. Raises
        ``RegistrationError`` with the kubelet's text.
        """
        if marker_folder is not None and (marker_folder / DEPRECATION_MARKER).exists():
            return
        channel = plugin_channel(str(kubelet_socket))
        request = api_pb2.RegisterRequest(
            version=VERSION, endpoint=self.socket.name, resource_name=resource or self.resource, options=self.options
        )
        try:
            if not await ready(channel, min(DIAL_SECONDS, seconds)):
                raise RegistrationError(f"no kubelet accepts connections at {kubelet_socket}; start it first")
            await answer(api_pb2_grpc.RegistrationStub(channel).Register(request, timeout=seconds))
        except PluginError as error:
            raise RegistrationError(error.details) from error
        finally:
            await channel.close()

    async def watch(
        self,
        kubelet_socket: Path,
        *,
        interval: float = 1.0,
        retry_seconds: float = RETRY_SECONDS,
        limit_seconds: float = RETRY_LIMIT_SECONDS,
    ) -> None:
        """Restart and register whenever another kubelet socket appears; runs until cancelled.

        A failed attempt is repeated every ``retry_seconds`` for ``limit_seconds``; then the next socket is awaited.
        """
        known = FileId.of(kubelet_socket)
        while True:
            await asyncio.sleep(interval)
            seen = FileId.of(kubelet_socket)
            if seen is None or seen == known:
                continue
            known = seen
            deadline = asyncio.get_running_loop().time() + limit_seconds
            while not await self._come_back(kubelet_socket):
                if asyncio.get_running_loop().time() + retry_seconds > deadline:
                    break
                await asyncio.sleep(retry_seconds)

    async def update(self, devices: Iterable[api_pb2.Device]) -> None:
        """Send a new list to all open streams, and to those that open later."""
        async with self._changed:
            self._devices = list(devices)
            self._version += 1
            self._changed.notify_all()

    async def set_health(self, device_id: str, health: str) -> None:
        """Send the list with another health of one device; raises KeyError for an unknown id."""
        numa = {device.ID: device for device in self._devices}[device_id].topology
        has_topology = self.devices[device_id].HasField("topology")
        changed = api_pb2.Device(ID=device_id, health=health, topology=numa if has_topology else None)
        await self.update(changed if device_id == device.ID else device for device in self._devices)

    def is_serving(self) -> bool:
        """Whether somebody answers at the socket."""
        return is_answered(self.socket)

    async def GetInfo(  # noqa: N802 - the name is the protocol's
        self, request: registration_pb2.InfoRequest, context: Context
    ) -> registration_pb2.PluginInfo:
        """Name the plugin to the plugin watcher."""
        self.calls.append(StubCall("GetInfo"))
        return registration_pb2.PluginInfo(
            type="DevicePlugin", name=self.resource, endpoint=self._endpoint, supported_versions=[VERSION]
        )

    async def NotifyRegistrationStatus(  # noqa: N802 - the name is the protocol's
        self, request: registration_pb2.RegistrationStatus, context: Context
    ) -> registration_pb2.RegistrationStatusResponse:
        """Note the plugin watcher's verdict."""
        self.notified.append(request)
        if not request.plugin_registered:
            log.warning("the kubelet refused the plugin stub", extra={"error": request.error})
        return registration_pb2.RegistrationStatusResponse()

    async def GetDevicePluginOptions(  # noqa: N802 - the name is the protocol's
        self, request: api_pb2.Empty, context: Context
    ) -> api_pb2.DevicePluginOptions:
        """The two options."""
        self.calls.append(StubCall("GetDevicePluginOptions"))
        return self.options

    async def ListAndWatch(  # noqa: N802 - the name is the protocol's
        self, request: api_pb2.Empty, context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """The whole list at once, and again after every change."""
        self.calls.append(StubCall("ListAndWatch"))
        self.streams += 1
        sent = -1
        try:
            while True:
                async with self._changed:
                    while self._version == sent:
                        await self._changed.wait()
                    sent = self._version
                    message = api_pb2.ListAndWatchResponse(devices=self._devices)
                yield message
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(  # noqa: N802 - the name is the protocol's
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        """The preferred function's answer."""
        self.calls.append(StubCall("GetPreferredAllocation", request))
        return await _answered(context, lambda: self._prefer(request, self.devices))

    async def Allocate(  # noqa: N802 - the name is the protocol's
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        """The alloc function's answer."""
        self.calls.append(StubCall("Allocate", request))
        return await _answered(context, lambda: self._allocate(request, self.devices))

    async def PreStartContainer(  # noqa: N802 - the name is the protocol's
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        """Empty, after the pre-start function."""
        self.calls.append(StubCall("PreStartContainer", request))
        await _answered(context, lambda: self._pre_start(list(request.devices_ids)))
        return api_pb2.PreStartContainerResponse()

    async def _come_back(self, kubelet_socket: Path) -> bool:
        try:
            await self.restart()
            if self._may_register():
                await self.register(kubelet_socket)
        except (KubeletError, OSError, RuntimeError) as error:
            log.warning("the plugin stub cannot register again", extra={"error": str(error)})
            return False
        return True


async def _answered(context: Context, function: Callable[[], Answer | Awaitable[Answer]]) -> Answer:
    """The function's result; what it raises ends the call, as an error of a real plugin does."""
    try:
        result = function()
        return await result if inspect.isawaitable(result) else result
    except StubRefusal as refusal:
        await context.abort(refusal.code, str(refusal))
    except Exception as error:  # noqa: BLE001 - whatever a test raises is the plugin's error
        await context.abort(grpc.StatusCode.UNKNOWN, str(error))
    raise AssertionError("abort always raises")


def _empty_allocation(request: api_pb2.AllocateRequest, _devices: Devices) -> api_pb2.AllocateResponse:
    return api_pb2.AllocateResponse(
        container_responses=[api_pb2.ContainerAllocateResponse() for _ in request.container_requests]
    )


def _no_preference(_request: object, _devices: Devices) -> api_pb2.PreferredAllocationResponse:
    return api_pb2.PreferredAllocationResponse()


def _ready_to_start(_ids: Sequence[str]) -> None:
    return None
