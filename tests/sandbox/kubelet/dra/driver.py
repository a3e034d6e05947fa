"""A DRA driver that does what a test tells it: any answer, any misbehaviour, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from protos.dra.v1 import api_pb2, api_pb2_grpc
from protos.dra.v1beta1 import api_pb2 as beta
from protos.dra.v1beta1 import api_pb2_grpc as beta_grpc
from protos.drahealth.v1 import api_pb2 as health_v1
from protos.drahealth.v1 import api_pb2_grpc as health_v1_grpc
from protos.drahealth.v1alpha1 import api_pb2 as health_v1alpha1
from protos.drahealth.v1alpha1 import api_pb2_grpc as health_v1alpha1_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]
Answer = Callable[[api_pb2.Claim], Sequence[api_pb2.Device]]
SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
NAME = "fake.example.com"


@dataclass
class DriverScript:
    """How the driver answers; ``devices`` are those of a claim, by default none."""

    services: Sequence[str] = SERVICES
    devices: Answer = lambda _claim: ()
    errors: Mapping[str, str] = field(default_factory=dict)
    """Claim name -> error of Prepare and Unprepare."""
    fail: str = ""
    """An error of the whole call."""
    skip: Iterable[str] = ()
    """Names of claims that are missing from answers."""
    unknown: str = ""
    """A UID that answers have besides."""
    hang: bool = False


@dataclass
class FakeDriver:
    """One instance; its sockets are ``<folder>/plugins/<name>/<instance>.sock`` and one in the registry."""

    folder: Path
    instance: str = "dra"
    name: str = NAME
    script: DriverScript = field(default_factory=DriverScript)
    calls: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    """Service, call, claim names."""
    notified: list[registration_pb2.RegistrationStatus] = field(default_factory=list)
    streams: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.endpoint = self.folder / "plugins" / self.name / f"{self.instance}.sock"
        self.registration = self.folder / "plugins_registry" / f"{self.name}-{self.instance}-reg.sock"
        self.report: list[tuple[str, str, int, str, int]] = []
        """Pool, device, health, message, timeout in seconds."""
        self._changed = asyncio.Condition()
        self._version = 0
        self._servers: list[grpc.aio.Server] = []

    async def start(self) -> FakeDriver:
        """Serve the endpoint, then the registration."""
        await self.serve()
        await self.register()
        return self

    async def serve(self) -> None:
        """Serve the endpoint."""
        server = grpc.aio.server()
        api_pb2_grpc.add_DRAPluginServicer_to_server(_V1(self), server)
        beta_grpc.add_DRAPluginServicer_to_server(_V1Beta1(self), server)
        if any("Health" in service for service in self.script.services):
            health_v1_grpc.add_DRAResourceHealthServicer_to_server(_Health(self, health_v1, "v1"), server)
            health_v1alpha1_grpc.add_DRAResourceHealthServicer_to_server(
                _Health(self, health_v1alpha1, "v1alpha1"), server
            )
        await self._listen(server, self.endpoint)

    async def register(self) -> None:
        """Serve the registration socket."""
        server = grpc.aio.server()
        registration_pb2_grpc.add_RegistrationServicer_to_server(_Registration(self), server)
        await self._listen(server, self.registration)

    async def stop(self) -> None:
        """End at once; the sockets go."""
        servers, self._servers = self._servers[::-1], []
        for server in servers:
            await server.stop(None)

    async def tell(self, *report: tuple[str, str, int, str, int]) -> None:
        """Report health: pool, device, health, message, timeout in seconds."""
        async with self._changed:
            self.report = list(report)
            self._version += 1
            self._changed.notify_all()

    async def reports(self) -> AsyncIterator[list[tuple[str, str, int, str, int]]]:
        """What is reported from now on."""
        sent = -1
        while True:
            async with self._changed:
                while self._version == sent:
                    await self._changed.wait()
                sent, report = self._version, self.report
            yield report

    async def _listen(self, server: grpc.aio.Server, socket: Path) -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._servers.append(server)

    async def called(self, service: str, call: str, claims: Iterable[Any], context: Context) -> list[Any]:
        """Note a call; the claims to answer."""
        claims = list(claims)
        self.calls.append((service, call, tuple(claim.name for claim in claims)))
        if self.script.hang:
            await asyncio.Event().wait()
        if self.script.fail:
            await context.abort(grpc.StatusCode.INTERNAL, self.script.fail)
        return [claim for claim in claims if claim.name not in self.script.skip]

    def prepared(self, claim: api_pb2.Claim) -> api_pb2.NodePrepareResourceResponse:
        """The answer for one claim."""
        error = self.script.errors.get(claim.name, "")
        return api_pb2.NodePrepareResourceResponse(error=error, devices=() if error else self.script.devices(claim))


class _V1(api_pb2_grpc.DRAPluginServicer):
    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver

    async def NodePrepareResources(self, request: Any, context: Context) -> api_pb2.NodePrepareResourcesResponse:
        claims = await self._driver.called("v1", "prepare", request.claims, context)
        answers = {claim.uid: self._driver.prepared(claim) for claim in claims}
        if self._driver.script.unknown:
            answers[self._driver.script.unknown] = api_pb2.NodePrepareResourceResponse()
        return api_pb2.NodePrepareResourcesResponse(claims=answers)

    async def NodeUnprepareResources(self, request: Any, context: Context) -> api_pb2.NodeUnprepareResourcesResponse:
        claims = await self._driver.called("v1", "unprepare", request.claims, context)
        errors = self._driver.script.errors
        answers = {
            claim.uid: api_pb2.NodeUnprepareResourceResponse(error=errors.get(claim.name, "")) for claim in claims
        }
        if self._driver.script.unknown:
            answers[self._driver.script.unknown] = api_pb2.NodeUnprepareResourceResponse()
        return api_pb2.NodeUnprepareResourcesResponse(claims=answers)


class _V1Beta1(beta_grpc.DRAPluginServicer):
    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver

    async def NodePrepareResources(self, request: Any, context: Context) -> beta.NodePrepareResourcesResponse:
        claims = await self._driver.called("v1beta1", "prepare", request.claims, context)
        answers = {claim.uid: self._driver.prepared(claim) for claim in claims}
        message = api_pb2.NodePrepareResourcesResponse(claims=answers)
        return beta.NodePrepareResourcesResponse.FromString(message.SerializeToString())

    async def NodeUnprepareResources(self, request: Any, context: Context) -> beta.NodeUnprepareResourcesResponse:
        claims = await self._driver.called("v1beta1", "unprepare", request.claims, context)
        return beta.NodeUnprepareResourcesResponse(
            claims={claim.uid: beta.NodeUnprepareResourceResponse() for claim in claims}
        )


class _Health(health_v1_grpc.DRAResourceHealthServicer):
    def __init__(self, driver: FakeDriver, messages: Any, version: str) -> None:
        self._driver = driver
        self._messages = messages
        self._version = version

    async def NodeWatchResources(self, request: Any, context: Context) -> AsyncIterator[Any]:
        streams = self._driver.streams
        streams[self._version] = streams.get(self._version, 0) + 1
        try:
            async for report in self._driver.reports():
                yield self._messages.NodeWatchResourcesResponse(
                    devices=[
                        self._messages.DeviceHealth(
                            device=self._messages.DeviceIdentifier(pool_name=pool, device_name=device),
                            health=health,
                            last_updated_time=1,
                            health_check_timeout_seconds=timeout,
                            message=message,
                        )
                        for pool, device, health, message, timeout in report
                    ]
                )
        finally:
            streams[self._version] -= 1


class _Registration(registration_pb2_grpc.RegistrationServicer):
    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver

    async def GetInfo(self, request: Any, context: Context) -> registration_pb2.PluginInfo:
        return registration_pb2.PluginInfo(
            type="DRAPlugin",
            name=self._driver.name,
            endpoint=str(self._driver.endpoint),
            supported_versions=self._driver.script.services,
        )

    async def NotifyRegistrationStatus(
        self, request: registration_pb2.RegistrationStatus, context: Context
    ) -> registration_pb2.RegistrationStatusResponse:
        self._driver.notified.append(request)
        return registration_pb2.RegistrationStatusResponse()
