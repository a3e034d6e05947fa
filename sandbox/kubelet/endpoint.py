"""One connected plugin: dial, options, the ListAndWatch stream and the calls of allocation.

Invariants: calls after the stop fail locally and never reach the plugin; the channel is closed whichever way the
plugin goes. ListAndWatch never has a deadline; ``call_seconds`` bounds the other calls (None as in real kubelets,
where a hanging Allocate blocks every admission of the node), PreStartContainer has 30 s.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence

import grpc
import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.dialling import answer, plugin_channel, ready
from sandbox.kubelet.errors import EndpointStoppedError, PluginError, RegistrationError

log = logging.getLogger("ostler.sandbox.kubelet")

PRE_START_SECONDS = 30.0

GRACE_SECONDS = 300.0
"""How long a resource stays known after its last plugin has gone."""


class PluginEndpoint:
    """A plugin's service for one resource, at ``socket``."""

    def __init__(self, resource: str, socket: str, call_seconds: float | None = None) -> None:
        self.resource = resource
        self.socket = socket
        self.options: api_pb2.DevicePluginOptions | None = None
        self.stopped_at: float | None = None
        self._call_seconds = call_seconds
        self._channel: grpc.aio.Channel | None = None
        self._plugin: api_pb2_grpc.DevicePluginStub | None = None

    @classmethod
    def remembered(cls, resource: str, now: float) -> PluginEndpoint:
        """The stopped endpoint of a resource that only a checkpoint knows."""
        endpoint = cls(resource, "")
        endpoint.stopped_at = now
        return endpoint

    async def connect(self, dial_seconds: float) -> None:
        """Dial and ask for the options; raises ``RegistrationError`` and leaves nothing open then."""
        self._channel = plugin_channel(self.socket)
        try:
            if not await ready(self._channel, dial_seconds):
                raise RegistrationError("failed to dial device plugin: context deadline exceeded")
            self._plugin = api_pb2_grpc.DevicePluginStub(self._channel)
            call = self._plugin.GetDevicePluginOptions(api_pb2.Empty(), timeout=self._call_seconds)
            self.options = await answer(call)
        except PluginError as error:
            await self.close()
            raise RegistrationError(f"failed to get device plugin options: {error}") from error
        except BaseException:  # Whoever awaits learns of it; this only closes the channel first.
            await self.close()
            raise

    async def lists(self) -> AsyncGenerator[api_pb2.ListAndWatchResponse]:
        """The messages of ListAndWatch until the stream ends, for whatever reason."""
        if self._plugin is None:
            return
        try:
            async for message in self._plugin.ListAndWatch(api_pb2.Empty()):
                if message is None:  # What gRPC gives for bytes that are no such message.
                    log.warning("ListAndWatch sent bytes that are no message", extra={"resource": self.resource})
                    return
                yield message
        except grpc.aio.AioRpcError as error:
            log.info("ListAndWatch ended", extra={"resource": self.resource, "error": str(PluginError.of(error))})

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
        response = await answer(self._client().GetPreferredAllocation(request, timeout=self._call_seconds))
        return tuple(response.container_responses[0].deviceIDs) if response.container_responses else ()

    async def allocate(self, ids: Sequence[str]) -> api_pb2.AllocateResponse:
        """Ask for ``ids`` in one container request; raises ``PluginError`` or ``EndpointStoppedError``."""
        request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
        return await answer(self._client().Allocate(request, timeout=self._call_seconds))

    async def pre_start(self, ids: Sequence[str]) -> None:
        """Tell that a container with ``ids`` is about to start; raises ``PluginError`` or ``EndpointStoppedError``."""
        request = api_pb2.PreStartContainerRequest(devices_ids=ids)
        seconds = PRE_START_SECONDS if self._call_seconds is None else min(PRE_START_SECONDS, self._call_seconds)
        await answer(self._client().PreStartContainer(request, timeout=seconds))

    def _client(self) -> api_pb2_grpc.DevicePluginStub:
        if self.stopped_at is not None or self._plugin is None:
            raise EndpointStoppedError(self.resource, self.socket)
        return self._plugin
