"""DRAPlugin v1beta1, for kubelets that do not take v1; it knows no share ids."""

from __future__ import annotations

from collections.abc import Mapping

import grpc.aio

from driver.claims.errors import ClaimError
from driver.door.claim_calls import ClaimCalls, Method, Operation, Outcome
from protos.dra.v1beta1 import api_pb2, api_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]
SERVICE: str = api_pb2.DESCRIPTOR.services_by_name["DRAPlugin"].full_name


def encode_prepared(outcomes: Mapping[str, Outcome]) -> api_pb2.NodePrepareResourcesResponse:
    """The answer to NodePrepareResources."""
    response = api_pb2.NodePrepareResourcesResponse()
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
            )
    return response


def encode_unprepared(outcomes: Mapping[str, Outcome]) -> api_pb2.NodeUnprepareResourcesResponse:
    """The answer to NodeUnprepareResources."""
    response = api_pb2.NodeUnprepareResourcesResponse()
    for uid, outcome in outcomes.items():
        response.claims[uid].error = str(outcome) if isinstance(outcome, ClaimError) else ""
    return response


_PREPARE = Method("v1beta1", SERVICE, Operation.PREPARE, api_pb2.NodePrepareResourcesResponse, encode_prepared)
_UNPREPARE = Method("v1beta1", SERVICE, Operation.UNPREPARE, api_pb2.NodeUnprepareResourcesResponse, encode_unprepared)


class DraV1Beta1(api_pb2_grpc.DRAPluginServicer):
    """Answers by ``calls``."""

    def __init__(self, calls: ClaimCalls) -> None:
        self._calls = calls

    async def NodePrepareResources(  # noqa: N802  # the method names are gRPC's
        self, request: api_pb2.NodePrepareResourcesRequest, context: Context
    ) -> api_pb2.NodePrepareResourcesResponse:
        """Have the devices of these claims ready."""
        return await self._calls.answer(_PREPARE, request, request.claims, context)

    async def NodeUnprepareResources(  # noqa: N802
        self, request: api_pb2.NodeUnprepareResourcesRequest, context: Context
    ) -> api_pb2.NodeUnprepareResourcesResponse:
        """Release these claims."""
        return await self._calls.answer(_UNPREPARE, request, request.claims, context)
