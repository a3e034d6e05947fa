"""DRAResourceHealth v1alpha1 (kubelets 1.34 to 1.36, which ask for it even where it is not announced)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import grpc.aio

from driver.door.health_stream import TIMEOUT, HealthReports, Report
from protos.drahealth.v1alpha1 import api_pb2, api_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]
SERVICE: str = api_pb2.DESCRIPTOR.services_by_name["DRAResourceHealth"].full_name


class HealthV1Alpha1(api_pb2_grpc.DRAResourceHealthServicer):
    """Streams ``reports``."""

    def __init__(self, reports: HealthReports) -> None:
        self._reports = reports

    async def NodeWatchResources(  # noqa: N802  # the method names are gRPC's
        self, request: api_pb2.NodeWatchResourcesRequest, context: Context
    ) -> AsyncIterator[api_pb2.NodeWatchResourcesResponse]:
        """The complete list now, after every change, and before it goes stale."""
        async with contextlib.aclosing(self._reports.follow()) as reports:
            async for report in reports:
                yield encode(report)


def encode(report: Report) -> api_pb2.NodeWatchResourcesResponse:
    """The message of a report."""
    response = api_pb2.NodeWatchResourcesResponse()
    for each in report.devices:
        response.devices.add(
            device=api_pb2.DeviceIdentifier(pool_name=each.pool, device_name=each.device),
            health=api_pb2.HealthStatus.Value(each.verdict.value),
            last_updated_time=report.time,
            health_check_timeout_seconds=TIMEOUT,
            message=each.message,
        )
    return response
