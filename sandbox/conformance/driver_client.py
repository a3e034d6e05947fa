"""The calls of a DRA driver's services, made as a kubelet makes them, in the version that the driver lists first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import grpc
import grpc.aio

from protos.dra.v1 import api_pb2, api_pb2_grpc
from protos.dra.v1beta1 import api_pb2 as beta
from protos.dra.v1beta1 import api_pb2_grpc as beta_grpc
from sandbox.conformance.plugin_client import JudgedCallFailed, answered
from sandbox.kubelet.dialling import UNLIMITED, plugin_channel, ready
from sandbox.kubelet.dra.instance import (
    HEALTH_V1,
    HEALTH_V1ALPHA1,
    KNOWN,
    V1,
    V1BETA1,
    HealthReport,
    beta_claim,
    watch_health,
)

HEALTH_SERVICES: Final = (HEALTH_V1, HEALTH_V1ALPHA1)

_LATE: Final = 1.0
"""Seconds after a call's deadline at which it is given up."""

Prepared = Mapping[str, api_pb2.NodePrepareResourceResponse]
Unprepared = Mapping[str, api_pb2.NodeUnprepareResourceResponse]


class DriverClient:
    """A client of the driver at ``socket`` that lists ``services``; a call has ``seconds``.

    Every method raises ``JudgedCallFailed``.
    """

    def __init__(self, socket: str, services: Sequence[str], seconds: float) -> None:
        self.socket = socket
        self.service = next((service for service in services if service in KNOWN), V1)
        self.health_service = next((service for service in HEALTH_SERVICES if service in services), None)
        self._seconds = seconds
        self._channel = plugin_channel(socket, limit=UNLIMITED)

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()

    async def ready(self, seconds: float) -> bool:
        """Whether the connection is there within ``seconds``."""
        return await ready(self._channel, seconds)

    async def prepare(
        self, claims: Sequence[api_pb2.Claim], service: str | None = None, seconds: float | None = None
    ) -> Prepared:
        """NodePrepareResources: claim UID -> answer. As with a kubelet the driver knows the call's deadline."""
        response = api_pb2.NodePrepareResourcesResponse()
        deadline = self._seconds if seconds is None else seconds
        if (service or self.service) == V1BETA1:
            old = beta.NodePrepareResourcesRequest(claims=[beta_claim(claim) for claim in claims])
            call = beta_grpc.DRAPluginStub(self._channel).NodePrepareResources(old, timeout=deadline)
        else:
            request = api_pb2.NodePrepareResourcesRequest(claims=claims)
            call = api_pb2_grpc.DRAPluginStub(self._channel).NodePrepareResources(request, timeout=deadline)
        # The messages of both versions differ in the share id alone.
        response.ParseFromString((await answered("NodePrepareResources", call, deadline + _LATE)).SerializeToString())
        return dict(response.claims)

    async def unprepare(self, claims: Sequence[api_pb2.Claim], service: str | None = None) -> Unprepared:
        """NodeUnprepareResources: claim UID -> answer."""
        response = api_pb2.NodeUnprepareResourcesResponse()
        if (service or self.service) == V1BETA1:
            old = beta.NodeUnprepareResourcesRequest(claims=[beta_claim(claim) for claim in claims])
            call = beta_grpc.DRAPluginStub(self._channel).NodeUnprepareResources(old, timeout=self._seconds)
        else:
            request = api_pb2.NodeUnprepareResourcesRequest(claims=claims)
            call = api_pb2_grpc.DRAPluginStub(self._channel).NodeUnprepareResources(request, timeout=self._seconds)
        found = await answered("NodeUnprepareResources", call, self._seconds + _LATE)
        response.ParseFromString(found.SerializeToString())
        return dict(response.claims)

    async def reports(self, service: str) -> AsyncGenerator[HealthReport]:
        """The reports of a new health stream until the driver ends it; the stream ends with the iteration."""
        call = watch_health(self._channel, service)
        try:
            async for report in call:
                if report is None:
                    raise JudgedCallFailed("NodeWatchResources", grpc.StatusCode.INTERNAL, "no message was sent")
                yield report
        except grpc.aio.AioRpcError as error:
            raise JudgedCallFailed("NodeWatchResources", error.code(), error.details() or "") from error
        finally:
            call.cancel()

    async def first_report(self, service: str, seconds: float) -> HealthReport:
        """The first report of a new stream, which ends then."""
        method, reports = "NodeWatchResources", self.reports(service)
        try:
            async with asyncio.timeout(seconds):
                return await anext(reports)
        except TimeoutError:
            late = f"no report within {seconds:g} s"
            raise JudgedCallFailed(method, grpc.StatusCode.DEADLINE_EXCEEDED, late) from None
        except StopAsyncIteration:
            ended = "the driver ended the stream before a report"
            raise JudgedCallFailed(method, grpc.StatusCode.OK, ended) from None
        finally:
            await reports.aclose()
