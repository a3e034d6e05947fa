"""One registered instance of a DRA driver: the services it offers, its connection, its calls and its health stream.

The connection is made at once and kept up, because "connected" decides which instance is asked and whether the driver's
slices may stay; an endpoint that does not answer is registered anyway, as in kubelets. v1beta1 and v1 have the same
messages but for the share id, so requests to the older service are built from those of the newer one. The texts of
refusals are a kubelet's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from protos.dra.v1 import api_pb2, api_pb2_grpc
from protos.dra.v1beta1 import api_pb2 as beta
from protos.dra.v1beta1 import api_pb2_grpc as beta_grpc
from protos.drahealth.v1 import api_pb2 as health_v1
from protos.drahealth.v1 import api_pb2_grpc as health_v1_grpc
from protos.drahealth.v1alpha1 import api_pb2 as health_v1alpha1
from protos.drahealth.v1alpha1 import api_pb2_grpc as health_v1alpha1_grpc
from sandbox.kubelet.dialling import plugin_channel
from sandbox.kubelet.errors import PluginError, RegistrationError
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_calls import PluginCalls

log = logging.getLogger("ostler.sandbox.kubelet")

Message = TypeVar("Message")
HealthReport = health_v1.NodeWatchResourcesResponse | health_v1alpha1.NodeWatchResourcesResponse
V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
KNOWN = (V1, V1BETA1)
HEALTH_V1 = "v1.DRAResourceHealth"
HEALTH_V1ALPHA1 = "v1alpha1.DRAResourceHealth"


class HealthListener(Protocol):
    """Receives the health that drivers report."""

    def reported(self, driver: str, report: HealthReport) -> None:
        """A report arrived, which is the complete list of the driver's devices."""

    def ended(self, driver: str) -> None:
        """A stream ended: what the driver reported no longer counts."""


class ConnectionListener(Protocol):
    """Called when connections to drivers begin and end."""

    def connection_changed(self, instance: Instance) -> None:
        """It is connected, or is no longer."""


class Instance:
    """A driver at ``endpoint``: ``service`` is the chosen DRAPlugin service, ``health`` its health service, if any."""

    def __init__(
        self,
        driver: str,
        endpoint: str,
        service: str,
        health: str | None,
        *,
        call_seconds: float,
        calls: PluginCalls,
        connections: ConnectionListener,
    ) -> None:
        self.driver = driver
        self.endpoint = endpoint
        self.service = service
        self.health = health
        self.connected = False
        self._call_seconds = call_seconds
        self._calls = calls
        self._connections = connections
        self._channel = plugin_channel(endpoint)
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, listener: HealthListener, retry_seconds: float) -> None:
        """Connect, and follow the connection and the driver's health until ``close``."""
        self._tasks.append(asyncio.create_task(self._follow(), name=f"connection {self.endpoint}"))
        if self.health is not None:
            watching = self._watch_health(listener, retry_seconds)
            self._tasks.append(asyncio.create_task(watching, name=f"health {self.endpoint}"))

    async def close(self) -> None:
        """End everything; calls in flight fail."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._channel.close()

    async def prepare(self, claims: Sequence[api_pb2.Claim]) -> api_pb2.NodePrepareResourcesResponse:
        """NodePrepareResources; raises ``PluginError``."""
        if self.service == V1BETA1:
            old = beta.NodePrepareResourcesRequest(claims=[beta_claim(claim) for claim in claims])
            call = beta_grpc.DRAPluginStub(self._channel).NodePrepareResources(old, timeout=self._call_seconds)
            response = await self._run("NodePrepareResources", call)
            return api_pb2.NodePrepareResourcesResponse.FromString(response.SerializeToString())
        request = api_pb2.NodePrepareResourcesRequest(claims=claims)
        newer = api_pb2_grpc.DRAPluginStub(self._channel).NodePrepareResources(request, timeout=self._call_seconds)
        return await self._run("NodePrepareResources", newer)

    async def unprepare(self, claims: Sequence[api_pb2.Claim]) -> api_pb2.NodeUnprepareResourcesResponse:
        """NodeUnprepareResources; raises ``PluginError``."""
        if self.service == V1BETA1:
            old = beta.NodeUnprepareResourcesRequest(claims=[beta_claim(claim) for claim in claims])
            call = beta_grpc.DRAPluginStub(self._channel).NodeUnprepareResources(old, timeout=self._call_seconds)
            response = await self._run("NodeUnprepareResources", call)
            return api_pb2.NodeUnprepareResourcesResponse.FromString(response.SerializeToString())
        request = api_pb2.NodeUnprepareResourcesRequest(claims=claims)
        newer = api_pb2_grpc.DRAPluginStub(self._channel).NodeUnprepareResources(request, timeout=self._call_seconds)
        return await self._run("NodeUnprepareResources", newer)

    async def _run(self, name: str, call: Awaitable[Message]) -> Message:
        return await self._calls.run_reported(self.driver, self.endpoint, name, call)

    async def _follow(self) -> None:
        """Keep ``connected`` true to the connection, and have gRPC connect again whenever it is lost."""
        while True:
            state = self._channel.get_state(try_to_connect=True)
            connected = state is grpc.ChannelConnectivity.READY
            if connected != self.connected:
                self.connected = connected
                self._connections.connection_changed(self)
            await self._channel.wait_for_state_change(state)

    async def _watch_health(self, listener: HealthListener, retry_seconds: float) -> None:
        while True:
            reached = False
            try:
                async for report in self._reports():
                    reached = True
                    listener.reported(self.driver, report)
            except grpc.aio.AioRpcError as error:
                reached = reached or error.code() is not grpc.StatusCode.UNAVAILABLE
                details = {"driver": self.driver, "error": str(PluginError.of(error))}
                log.info("the health stream ended", extra=details)
            finally:
                # As in kubelets the end of any stream counts for the driver, even beside a newer instance's stream.
                if reached:
                    listener.ended(self.driver)
            await asyncio.sleep(retry_seconds)

    async def _reports(self) -> AsyncIterator[HealthReport]:
        assert self.health is not None
        call = watch_health(self._channel, self.health)
        try:
            async for report in call:
                if report is None:  # gRPC's result for bytes that are not such a message.
                    log.warning("the health stream sent bytes that are not a message", extra={"driver": self.driver})
                    return
                yield report
        finally:
            call.cancel()


def watch_health(channel: grpc.aio.Channel, service: str) -> grpc.aio.UnaryStreamCall[Any, HealthReport | None]:
    """A new health stream of this version of the service; the caller cancels it after use."""
    call: grpc.aio.UnaryStreamCall[Any, HealthReport | None]
    if service == HEALTH_V1:
        newer = health_v1_grpc.DRAResourceHealthStub(channel)
        call = newer.NodeWatchResources(health_v1.NodeWatchResourcesRequest())
    else:
        older = health_v1alpha1_grpc.DRAResourceHealthStub(channel)
        call = older.NodeWatchResources(health_v1alpha1.NodeWatchResourcesRequest())
    return call


def beta_claim(claim: api_pb2.Claim) -> beta.Claim:
    """The claim as v1beta1 writes it."""
    return beta.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name)


def chosen(driver: str, endpoint: str, services: Sequence[str]) -> str:
    """The first service of the driver's list that the kubelet knows; raises ``RegistrationError``."""
    where = f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}"
    if not services:
        raise RegistrationError(f"{where}: empty list of supported gRPC services (aka supported versions)")
    for service in services:
        if service in KNOWN:
            return service
    raise RegistrationError(
        f"{where}: none of services supported by the plugin ({_quoted(services)}) "
        f"are supported by the kubelet ({_quoted(KNOWN)})"
    )


def health_service(generation: Generation, services: Sequence[str]) -> str | None:
    """The health service to watch, None for none.

    1.36 has only v1alpha1 and tries it whatever the driver lists; 1.37 chooses from the list; in 1.35 it is switched
    off by default.
    """
    if generation == "1.35":
        return None
    if generation == "1.36":
        return HEALTH_V1ALPHA1
    return next((service for service in (HEALTH_V1, HEALTH_V1ALPHA1) if service in services), None)


def _quoted(words: Iterable[str]) -> str:
    return "[" + " ".join(f'"{word}"' for word in words) + "]"
