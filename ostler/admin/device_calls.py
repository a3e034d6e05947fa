"""The part of the agent's own service that is about single devices: who has them, how they are, what people say.

Refusals are the values' own sentences under a gRPC status: NOT_FOUND for a device that is not here, INVALID_ARGUMENT
for what cannot be meant, ABORTED for what is not so and while this process serves nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol, TypeVar

import grpc
import grpc.aio

from ostler.admin.health import HealthView, NothingToClear, UnusableWord
from ostler.admin.holds import HoldsView, NotReleasable, UnknownDevice
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]
Answer = TypeVar("Answer")
NOT_SERVING = "this agent does not serve the kubelet yet; 'ostler status' says what it waits for"
CODES: dict[type[Exception], grpc.StatusCode] = {
    UnknownDevice: grpc.StatusCode.NOT_FOUND,
    UnusableWord: grpc.StatusCode.INVALID_ARGUMENT,
    NotReleasable: grpc.StatusCode.ABORTED,
    NothingToClear: grpc.StatusCode.ABORTED,
}


class DeviceViews(Protocol):
    """What these calls need of the agent."""

    def holds_view(self) -> HoldsView | None:
        """Who has what; None while this process does not serve the kubelet."""
        ...

    def health_view(self) -> HealthView | None:
        """How devices are; None while this process does not serve the kubelet."""
        ...


class DeviceCalls(agent_pb2_grpc.AgentServicer):
    """Answers for ``views``; to be mixed into the service."""

    def __init__(self, views: DeviceViews) -> None:
        self._views = views

    async def ListHolds(  # noqa: N802  # the method names are gRPC's
        self, request: agent_pb2.ListHoldsRequest, context: Context
    ) -> agent_pb2.ListHoldsResponse:
        """Who has which device, and what is withheld because of it."""
        from ostler.admin.holds_messages import holds_message

        return holds_message((await self._holds(context)).holds())

    async def ReleaseHold(  # noqa: N802
        self, request: agent_pb2.ReleaseHoldRequest, context: Context
    ) -> agent_pb2.ReleaseHoldResponse:
        """Give a draining device back."""
        view = await self._holds(context)
        changes = await _answer(context, lambda: view.release(request.device))
        return agent_pb2.ReleaseHoldResponse(changes=changes)

    async def ListHealth(  # noqa: N802
        self, request: agent_pb2.ListHealthRequest, context: Context
    ) -> agent_pb2.ListHealthResponse:
        """How every device is."""
        from ostler.admin.health_messages import health_message

        return health_message((await self._health(context)).health())

    async def SetHealth(  # noqa: N802
        self, request: agent_pb2.SetHealthRequest, context: Context
    ) -> agent_pb2.SetHealthResponse:
        """Take a person's word on a device."""
        view = await self._health(context)
        changes = await _answer(
            context,
            lambda: view.set_health(
                request.device, request.state, request.reason, request.seconds, dry_run=request.dry_run
            ),
        )
        return agent_pb2.SetHealthResponse(changes=await _kept(view, changes, dry_run=request.dry_run))

    async def ClearHealth(  # noqa: N802
        self, request: agent_pb2.ClearHealthRequest, context: Context
    ) -> agent_pb2.ClearHealthResponse:
        """Take a person's word back."""
        view = await self._health(context)
        changes = await _answer(context, lambda: view.clear_health(request.device, dry_run=request.dry_run))
        return agent_pb2.ClearHealthResponse(changes=await _kept(view, changes, dry_run=request.dry_run))

    async def ReleaseBrake(  # noqa: N802
        self, request: agent_pb2.ReleaseBrakeRequest, context: Context
    ) -> agent_pb2.ReleaseBrakeResponse:
        """Release the eviction limit of a kind."""
        view = await self._health(context)
        changes = await _answer(context, lambda: view.release_eviction_limit(request.kind, dry_run=request.dry_run))
        return agent_pb2.ReleaseBrakeResponse(changes=await _kept(view, changes, dry_run=request.dry_run))

    async def _holds(self, context: Context) -> HoldsView:
        return self._views.holds_view() or await refuse(context, grpc.StatusCode.ABORTED, NOT_SERVING)

    async def _health(self, context: Context) -> HealthView:
        return self._views.health_view() or await refuse(context, grpc.StatusCode.ABORTED, NOT_SERVING)


async def _answer(context: Context, call: Callable[[], Answer]) -> Answer:
    try:
        return call()
    except tuple(CODES) as error:
        return await refuse(context, CODES[type(error)], str(error))


async def _kept(view: HealthView, changes: tuple[str, ...], *, dry_run: bool) -> tuple[str, ...]:
    """What is answered when a restart remembers it, or with a line that says that it would not."""
    problem = "" if dry_run else await view.kept()
    return (*changes, f"a restart would forget this: {problem}") if problem else changes


async def refuse(context: Context, code: grpc.StatusCode, reason: str) -> NoReturn:
    """End the call with this status."""
    await context.abort(code, reason)
    raise AssertionError("abort returned")  # It always raises; this is for the type checker.
