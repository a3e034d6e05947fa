"""The driver's two sockets and the services on them: one socket for claims and health, one in the kubelet's registry.

The sockets are created and removed together. The claims socket comes first, because the kubelet dials it as soon as it
has read the other one. New sockets leave the earlier ones to the caller: the kubelet uses those until it has found the
new ones.

A version of a contract is a module of messages. The versions differ only in their fields, so one class serves all
versions of claims, and one all versions of health.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import grpc.aio
from google.protobuf.message import Message

from driver.claims.model import ClaimError
from driver.door.claim_calls import ClaimCalls, Context, Method, Operation, Outcome
from driver.door.health_stream import HealthReports
from driver.door.registration import PLUGIN_TYPE, DoorOptions, age, claim_socket, registration_socket, unique
from node.endpoint import Endpoint, SocketLimits
from node.kubelet import watcher_service
from node.sockets import make_private_directory
from protos.dra.v1 import api_pb2 as dra_v1
from protos.dra.v1 import api_pb2_grpc as dra_v1_grpc
from protos.dra.v1beta1 import api_pb2 as dra_v1beta1
from protos.dra.v1beta1 import api_pb2_grpc as dra_v1beta1_grpc
from protos.drahealth.v1 import api_pb2 as health_v1
from protos.drahealth.v1 import api_pb2_grpc as health_v1_grpc
from protos.drahealth.v1alpha1 import api_pb2 as health_v1alpha1
from protos.drahealth.v1alpha1 import api_pb2_grpc as health_v1alpha1_grpc
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc

LIMITS = SocketLimits(calls=1024)
"""The kubelet makes one call for the claims of each pod, for all pods of the node at once."""
_CLAIMS: Final[Mapping[str, Any]] = {"v1": dra_v1, "v1beta1": dra_v1beta1}
"""Messages by version. Kubelets from 1.34 on ask in v1; v1beta1 has no share ids."""
_HEALTH: Final[Mapping[str, Any]] = {"v1": health_v1, "v1alpha1": health_v1alpha1}
"""Kubelets from 1.37 on call v1, those from 1.34 to 1.36 v1alpha1, even if it is not announced."""


def _names(versions: Mapping[str, Any], service: str) -> tuple[str, ...]:
    """The full names of a service in these versions."""
    return tuple(messages.DESCRIPTOR.services_by_name[service].full_name for messages in versions.values())


_CLAIM_SERVICES = _names(_CLAIMS, "DRAPlugin")
_HEALTH_SERVICES = _names(_HEALTH, "DRAResourceHealth")


class DraPlugin:
    """The service DRAPlugin in one version, answered by ``calls``."""

    def __init__(self, calls: ClaimCalls, version: str) -> None:
        self._calls = calls
        messages = _CLAIMS[version]
        has_shares = "share_id" in messages.Device.DESCRIPTOR.fields_by_name
        (service,) = _names({version: messages}, "DRAPlugin")

        def prepared(outcomes: Mapping[str, Outcome]) -> Message:
            return _prepared(messages.NodePrepareResourcesResponse(), outcomes, has_shares=has_shares)

        def unprepared(outcomes: Mapping[str, Outcome]) -> Message:
            return _unprepared(messages.NodeUnprepareResourcesResponse(), outcomes)

        self._prepare: Method[Message] = Method(
            version, service, Operation.PREPARE, messages.NodePrepareResourcesResponse, prepared
        )
        self._unprepare: Method[Message] = Method(
            version, service, Operation.UNPREPARE, messages.NodeUnprepareResourcesResponse, unprepared
        )

    async def NodePrepareResources(self, request: Any, context: Context) -> Message:  # noqa: N802 - gRPC's name
        """Prepare the devices of these claims."""
        return await self._calls.answer(self._prepare, request, request.claims, context)

    async def NodeUnprepareResources(self, request: Any, context: Context) -> Message:  # noqa: N802 - gRPC's name
        """Release these claims."""
        return await self._calls.answer(self._unprepare, request, request.claims, context)


class DraResourceHealth:
    """The service DRAResourceHealth in one version: streams ``reports``, whose bytes are the same in all versions."""

    def __init__(self, reports: HealthReports, version: str) -> None:
        self._reports = reports
        self._answer: type[Message] = _HEALTH[version].NodeWatchResourcesResponse

    async def NodeWatchResources(self, request: object, context: Context) -> AsyncIterator[Message]:  # noqa: N802
        """Send the complete list now, after every change, and before it goes stale."""
        async with contextlib.aclosing(self._reports.follow()) as reports:
            async for report in reports:
                yield self._answer.FromString(report.SerializeToString())


def _prepared(response: Any, outcomes: Mapping[str, Outcome], *, has_shares: bool) -> Message:
    for uid, outcome in outcomes.items():
        entry = response.claims[uid]
        if isinstance(outcome, ClaimError):
            entry.error = str(outcome)
            continue
        for device in outcome:
            entry.devices.add(
                request_names=device.requests,
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=device.cdi_devices,
                **({"share_id": device.share_id} if has_shares else {}),
            )
    made: Message = response
    return made


def _unprepared(response: Any, outcomes: Mapping[str, Outcome]) -> Message:
    for uid, outcome in outcomes.items():
        response.claims[uid].error = str(outcome) if isinstance(outcome, ClaimError) else ""
    made: Message = response
    return made


class RegisteredDoor(Protocol):
    """The door that serves one pair of sockets after the other: it learns which of them the kubelet calls."""

    def kubelet_asked(self, sockets: DoorSockets) -> None:
        """See ``node.kubelet.watcher_service.Registrant``."""

    def kubelet_decided(self, sockets: DoorSockets, refusal: str) -> None:
        """See ``node.kubelet.watcher_service.Registrant``."""


class DoorSockets:
    """Both sockets of ``door`` from ``start`` to ``stop``; create a new object to serve again."""

    def __init__(
        self,
        options: DoorOptions,
        calls: ClaimCalls,
        reports: HealthReports,
        door: RegisteredDoor,
    ) -> None:
        self.made = (0, 0)
        """When its socket was made, as an ``age``."""
        self._options = options
        self._calls = calls
        self._reports = reports
        self._door = door
        self._claims: Endpoint | None = None
        self._registration: Endpoint | None = None

    @property
    def socket(self) -> Path | None:
        """The claims socket."""
        return None if self._claims is None else self._claims.path

    @property
    def registration_socket(self) -> Path | None:
        """The socket in the kubelet's registry."""
        return None if self._registration is None else self._registration.path

    @property
    def named(self) -> bool:
        """Whether the claims socket still has its name; a registered successor removes it."""
        return self._claims is not None and self._claims.intact

    @property
    def intact(self) -> bool:
        """Whether both sockets exist and are ours."""
        return self.named and self._registration is not None and self._registration.intact

    async def start(self) -> None:
        """Serve. Raises ``node.sockets.SocketError`` and then leaves nothing behind."""
        options, serving = self._options, unique()
        make_private_directory(options.folder)
        services = (*_CLAIM_SERVICES, *_HEALTH_SERVICES) if options.health else _CLAIM_SERVICES
        claims = Endpoint(options.folder, claim_socket(serving), services, self._add_services, LIMITS)
        self._claims = claims
        info = api_pb2.PluginInfo(
            type=PLUGIN_TYPE,
            name=options.driver_name,
            endpoint=options.seen_by_kubelet(claims.path),
            supported_versions=options.services,
        )
        watcher = watcher_service.RegistrationServicer(info, self)
        try:
            self._registration = Endpoint(
                options.registry_dir,
                registration_socket(options, serving),
                (watcher_service.SERVICE,),
                lambda server: api_pb2_grpc.add_RegistrationServicer_to_server(watcher, server),
            )
            await claims.start()
            await self._registration.start()
        except BaseException:
            await self.stop()
            raise
        self.made = age(claims.path)

    def kubelet_asked(self) -> None:
        """See ``node.kubelet.watcher_service.Registrant``."""
        self._door.kubelet_asked(self)

    def kubelet_decided(self, refusal: str) -> None:
        """See ``node.kubelet.watcher_service.Registrant``."""
        self._door.kubelet_decided(self, refusal)

    async def stop(self, grace: float | None = None) -> None:
        """End pending calls, after ``grace`` seconds by force, and only then remove the name from the kubelet's
        registry.

        A kubelet that sees the name disappear hangs up at once, even if an answer is on its way.
        """
        registration, self._registration = self._registration, None
        claims, self._claims = self._claims, None
        for endpoint in (claims, registration):
            if endpoint is not None:
                await endpoint.stop(grace)

    def _add_services(self, server: grpc.aio.Server) -> None:
        dra_v1_grpc.add_DRAPluginServicer_to_server(DraPlugin(self._calls, "v1"), server)
        dra_v1beta1_grpc.add_DRAPluginServicer_to_server(DraPlugin(self._calls, "v1beta1"), server)
        # An unimplemented method would make kubelets ask again every 5 s for ever.
        if self._options.health:
            health_v1_grpc.add_DRAResourceHealthServicer_to_server(DraResourceHealth(self._reports, "v1"), server)
            health_v1alpha1_grpc.add_DRAResourceHealthServicer_to_server(
                DraResourceHealth(self._reports, "v1alpha1"), server
            )
