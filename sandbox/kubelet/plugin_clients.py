"""The kubelet's clients of device plugins: one endpoint per connected plugin, and the slots that endpoints sit in.

Calls after an endpoint's stop fail locally and never reach the plugin; its channel is closed whichever way the plugin
goes. ListAndWatch has no deadline; ``call_seconds`` bounds the other calls (None as in real kubelets, where a hanging
Allocate blocks every admission of the node), and PreStartContainer has 30 s.

From kubelet 1.25 to 1.36 there is one slot per resource name, and a second instance overwrites the slot of the first
without closing it. When the first one's stream ends, the clean-up disconnects whatever is in the slot by then: the
second. A failed second registration empties the slot, so the kubelet never notices the end of the first and keeps
asking it. Both are reproduced, because plugins have to live with them. Up to 1.24 an instance that was replaced ends
unnoticed. From 1.37 on there is one slot per socket: instances coexist, each message of any of them replaces the list,
the one that connected last is asked to allocate, and only the end of the last one makes the devices unhealthy.

Real kubelets keep the streams of replaced instances for as long as those live. Here a resource has at most
``MAX_STREAMS``, so a plugin that registers again and again costs a bounded number of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Sequence
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.dialling import plugin_channel, ready
from sandbox.kubelet.errors import CallFault, EndpointStoppedError, PluginError, RegistrationError
from sandbox.kubelet.generations import KubeletBehaviour
from sandbox.kubelet.plugin_calls import PluginCalls, advice

log = logging.getLogger("ostler.sandbox.kubelet")

PRE_START_SECONDS = 30.0

GRACE_SECONDS = 300.0
"""How long a resource stays known after its last plugin has gone."""

MAX_STREAMS = 100
"""ListAndWatch streams of one resource; the oldest ones are closed beyond that."""

Key = tuple[str, str]
Message = TypeVar("Message")


class PluginEndpoint:
    """A plugin's service for one resource, at ``socket``; ``end_reason`` says how its list ended."""

    def __init__(
        self,
        resource: str,
        socket: str,
        calls: PluginCalls | None = None,
        call_seconds: float | None = None,
        stopped_at: float | None = None,
        *,
        user_agent: str = "",
    ) -> None:
        self.resource = resource
        self.socket = socket
        self.options: api_pb2.DevicePluginOptions | None = None
        self.stopped_at = stopped_at
        self.end_reason = "the kubelet closed the connection"
        self._calls = calls
        self._call_seconds = call_seconds
        self._user_agent = user_agent
        self._channel: grpc.aio.Channel | None = None
        self._plugin: api_pb2_grpc.DevicePluginStub | None = None

    @classmethod
    def remembered(cls, resource: str, now: float) -> PluginEndpoint:
        """The stopped endpoint of a resource that only a checkpoint knows."""
        return cls(resource, "", stopped_at=now)

    async def connect(self, dial_seconds: float, options: api_pb2.DevicePluginOptions | None = None) -> None:
        """Dial and ask for the options unless they are given.

        Raises ``RegistrationError`` and leaves nothing open then.
        """
        assert self._calls is not None
        self._channel = plugin_channel(self.socket, self._user_agent)
        try:
            if not await ready(self._channel, dial_seconds):
                raise RegistrationError(
                    "failed to dial device plugin: context deadline exceeded",
                    CallFault(self.resource, self.socket, "dial", dial_seconds, advice("dial", self.socket, None)),
                )
            self._plugin = api_pb2_grpc.DevicePluginStub(self._channel)
            if options is None:
                call = self._plugin.GetDevicePluginOptions(api_pb2.Empty(), timeout=self._call_seconds)
                options = await self._calls.run(self.resource, self.socket, "GetDevicePluginOptions", call)
            self.options = options
        except PluginError as error:
            await self.close()
            raise RegistrationError(f"failed to get device plugin options: {error}", error.fault) from error
        except BaseException:  # The caller gets it; the channel is closed first.
            await self.close()
            raise

    async def lists(self) -> AsyncGenerator[api_pb2.ListAndWatchResponse]:
        """The messages of ListAndWatch until the stream ends, for whatever reason."""
        if self._plugin is None:
            return
        reason = "the plugin ended ListAndWatch without an error"
        try:
            async for message in self._plugin.ListAndWatch(api_pb2.Empty()):
                if message is None:  # gRPC's result for bytes that are not such a message.
                    reason = "ListAndWatch sent bytes that are not a message; see which .proto file it is built from"
                    break
                yield message
        except grpc.aio.AioRpcError as error:
            look = advice("ListAndWatch", self.socket, error.code())
            reason = f"ListAndWatch ended: {PluginError.of(error)}; {look}"
        self.end_reason = reason
        log.info("ListAndWatch ended", extra={"resource": self.resource, "socket": self.socket, "error": reason})

    async def close(self) -> None:
        """Close the connection; calls in flight fail."""
        channel, self._channel, self._plugin = self._channel, None, None
        if channel is not None:
            await channel.close()

    def stop(self, now: float) -> None:
        """Note the time of the plugin's end; from now on every call fails."""
        self.stopped_at = now

    def expired(self, now: float) -> bool:
        """Whether the plugin has been gone for longer than the grace period."""
        return self.stopped_at is not None and now - self.stopped_at > GRACE_SECONDS

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> tuple[str, ...]:
        """The plugin's preference, empty if it has none; raises ``PluginError`` or ``EndpointStoppedError``."""
        request = api_pb2.PreferredAllocationRequest(
            container_requests=[
                api_pb2.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
                )
            ]
        )
        call = self._client().GetPreferredAllocation(request, timeout=self._call_seconds)
        response = await self._run("GetPreferredAllocation", call)
        return tuple(response.container_responses[0].deviceIDs) if response.container_responses else ()

    async def allocate(self, ids: Sequence[str]) -> api_pb2.AllocateResponse:
        """Ask for ``ids`` in one container request; raises ``PluginError`` or ``EndpointStoppedError``."""
        request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
        return await self._run("Allocate", self._client().Allocate(request, timeout=self._call_seconds))

    async def pre_start(self, ids: Sequence[str]) -> None:
        """Tell that a container with ``ids`` is about to start; raises ``PluginError`` or ``EndpointStoppedError``."""
        request = api_pb2.PreStartContainerRequest(devices_ids=ids)
        seconds = PRE_START_SECONDS if self._call_seconds is None else min(PRE_START_SECONDS, self._call_seconds)
        await self._run("PreStartContainer", self._client().PreStartContainer(request, timeout=seconds))

    async def _run(self, name: str, call: Awaitable[Message]) -> Message:
        assert self._calls is not None
        return await self._calls.run_reported(self.resource, self.socket, name, call)

    def _client(self) -> api_pb2_grpc.DevicePluginStub:
        if self.stopped_at is not None or self._plugin is None:
            raise EndpointStoppedError(self.resource, self.socket)
        return self._plugin


class PluginListener(Protocol):
    """Receives the plugins that connect, their lists and their ends."""

    def connected(self, endpoint: PluginEndpoint) -> None:
        """The plugin answered and is the one to ask from now on."""

    def received(self, resource: str, message: api_pb2.ListAndWatchResponse) -> None:
        """A ListAndWatch message arrived."""

    def disconnected(self, endpoint: PluginEndpoint, survivor: PluginEndpoint | None) -> None:
        """The plugin is gone; ``survivor`` is another instance that takes its place."""


class Connections:
    """Client slots and the tasks that read the plugins' streams."""

    def __init__(
        self,
        listener: PluginListener,
        behaviour: KubeletBehaviour,
        calls: PluginCalls,
        call_seconds: float | None = None,
    ) -> None:
        self._listener = listener
        self._slot = behaviour.slot
        self._user_agent = behaviour.user_agent
        self._calls = calls
        self._call_seconds = call_seconds
        self._slots: dict[Key, PluginEndpoint] = {}
        self._forgotten: set[PluginEndpoint] = set()
        """Endpoints with a slot whose end is noticed by nobody (1.37)."""
        self._streams: dict[PluginEndpoint, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._abandoned: list[PluginEndpoint] = []

    async def connect(
        self,
        resource: str,
        socket: str,
        dial_seconds: float,
        options: api_pb2.DevicePluginOptions | None = None,
    ) -> None:
        """Connect a plugin and start to read its list; ``options`` that are given are not asked for.

        Raises ``RegistrationError``.
        """
        key = self._key(resource, socket)
        endpoint = PluginEndpoint(resource, socket, self._calls, self._call_seconds, user_agent=self._user_agent)
        if self._slot == "socket" and key in self._slots:
            # It fails in any case, and with it the kubelet forgets the client whose stream it has of this socket.
            self._forgotten.add(self._slots[key])
            await endpoint.connect(dial_seconds, options)
            await endpoint.close()
            raise RegistrationError(f"device plugin already connected: {socket}")
        if self._slot == "instance":
            await endpoint.connect(dial_seconds, options)
            self._slots[key] = endpoint
        else:
            self._slots[key] = endpoint
            try:
                await endpoint.connect(dial_seconds, options)
            except BaseException:  # The caller gets it; the slot is emptied first, whichever plugin sits there by now.
                self._slots.pop(key, None)
                raise
        self._listener.connected(endpoint)
        self._streams[endpoint] = asyncio.create_task(self._read(endpoint), name=f"list {resource} {socket}")
        self._bound(endpoint)

    def _bound(self, newest: PluginEndpoint) -> None:
        """Close what nobody asks any more: ended instances of the resource, and the oldest beyond ``MAX_STREAMS``."""
        resource = newest.resource
        ended = [endpoint for endpoint in self._abandoned if endpoint.resource == resource]
        self._abandoned = [endpoint for endpoint in self._abandoned if endpoint.resource != resource]
        for endpoint in ended:
            self._leave(endpoint.close())
        in_slots = set(self._slots.values())
        replaced = [one for one in self._streams if one.resource == resource and one not in in_slots]
        for endpoint in replaced[: max(0, self.streams(resource) - MAX_STREAMS)]:
            log.warning("plugin keeps too many streams open", extra={"resource": resource, "socket": endpoint.socket})
            self._leave(self._end(endpoint, self._streams.pop(endpoint)))

    def connected(self, resource: str) -> tuple[PluginEndpoint, ...]:
        """Endpoints in the slots of a resource, in the order of connection."""
        return tuple(endpoint for endpoint in self._slots.values() if endpoint.resource == resource)

    def streams(self, resource: str) -> int:
        """Open ListAndWatch streams of a resource, those without a slot included."""
        return sum(endpoint.resource == resource for endpoint in self._streams)

    def disconnect(self, resource: str, socket: str) -> None:
        """Disconnect what is in the slot; up to 1.36 only the resource counts. An empty slot: nothing to do."""
        endpoint = self._slots.get(self._key(resource, socket))
        if endpoint is not None and endpoint not in self._forgotten:
            self._drop(endpoint)

    async def close(self) -> None:
        """Disconnect every plugin, those without a slot included, and wait until all connections are closed."""
        for endpoint in tuple(self._slots.values()):
            self._drop(endpoint)
        for endpoint, task in tuple(self._streams.items()):
            del self._streams[endpoint]
            self._leave(self._end(endpoint, task))
        while self._abandoned:
            self._leave(self._abandoned.pop().close())
        while self._leaving:
            await asyncio.gather(*self._leaving)

    async def _read(self, endpoint: PluginEndpoint) -> None:
        async with contextlib.aclosing(endpoint.lists()) as lists:
            async for message in lists:
                if endpoint not in self._streams:
                    return  # Disconnected meanwhile; what was still on its way no longer counts.
                try:
                    self._listener.received(endpoint.resource, message)
                except Exception as error:  # A list that the kubelet fails on ends its plugin and nothing else.
                    log.exception("the kubelet failed on a list", extra={"resource": endpoint.resource})
                    endpoint.end_reason = f"the kubelet failed on the plugin's list: {error!r}"
                    break
        if self._streams.pop(endpoint, None) is None:
            return
        # By slot and not by instance: this is where kubelets from 1.25 to 1.36 hit the wrong one.
        occupant = self._slots.get(self._key(endpoint.resource, endpoint.socket))
        if endpoint in self._forgotten:
            return  # Its slot stays taken, so that the resource never is without a plugin.
        if occupant is not None and (occupant is endpoint or self._slot != "instance"):
            occupant.end_reason = endpoint.end_reason
            self._drop(occupant)
        if occupant is None:
            # Its connection stays open: calls go on until another plugin takes the resource.
            self._abandoned.append(endpoint)
        elif occupant is not endpoint:
            self._leave(endpoint.close())

    def _drop(self, endpoint: PluginEndpoint) -> None:
        """Empty the endpoint's slot, report its end and let its connection close."""
        self._slots.pop(self._key(endpoint.resource, endpoint.socket), None)
        self._forgotten.discard(endpoint)
        others = [
            other for other in self.connected(endpoint.resource) if other in self._streams or other in self._forgotten
        ]
        self._listener.disconnected(endpoint, others[-1] if others else None)
        task = self._streams.pop(endpoint, None)
        self._leave(self._end(endpoint, task))

    async def _end(self, endpoint: PluginEndpoint, task: asyncio.Task[None] | None) -> None:
        await endpoint.close()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _leave(self, closing: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(closing)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _key(self, resource: str, socket: str) -> Key:
        return (resource, socket if self._slot == "socket" else "")
