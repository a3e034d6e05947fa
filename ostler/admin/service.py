"""The agent's own service on its root-only Unix socket (``ostler.admin.serving``), for the command line and grpcurl.

Everything that changes something is here. The service holds no state: it calls the agent through the Protocol
``AgentView``. Refusals have the text of the error and a gRPC status: NOT_FOUND for a device that this node does not
have, INVALID_ARGUMENT for an invalid request, ABORTED for one that the present state does not allow, or while this
process does not serve the kubelet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar, cast

import grpc
import grpc.aio

from node.endpoint import Context, Handler
from node.health.keeper import InvalidRequest, NothingToClear
from node.inventory.model import Snapshot, UnknownDevice
from node.ledger.offer_context import NOTHING_HELD
from node.offer import Offer
from ostler.admin.health import HealthView
from ostler.admin.holds import HoldsView, NotReleasable
from ostler.admin.messages import devices_message, topology_message
from ostler.agent.quiescence import DriverNotFree, ResumeFailed
from ostler.config.errors import ReloadFailed
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc

if TYPE_CHECKING:
    # At run time only a node with a DRA door loads it.
    from ostler.admin.dra import DraView

Answer = TypeVar("Answer")
NO_DRA = "no resource is offered through DRA; give one 'door: dra' in the configuration, then 'ostler reload'"
NOT_SERVING = "this agent does not serve the kubelet yet; 'ostler status' says what it waits for"
CODES: dict[type[Exception], grpc.StatusCode] = {
    UnknownDevice: grpc.StatusCode.NOT_FOUND,
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    NotReleasable: grpc.StatusCode.ABORTED,
    NothingToClear: grpc.StatusCode.ABORTED,
    ReloadFailed: grpc.StatusCode.FAILED_PRECONDITION,
    DriverNotFree: grpc.StatusCode.INTERNAL,
    ResumeFailed: grpc.StatusCode.INTERNAL,
}


class AgentView(Protocol):
    """The part of the agent that the service needs."""

    def status(self) -> agent_pb2.GetStatusResponse:
        """The agent's status."""

    def devices(self) -> tuple[Snapshot, Offer]:
        """The newest snapshot and the plugin door's offer for it."""

    async def rescan(self) -> tuple[int, tuple[str, ...]]:
        """Scan now; returns the generation afterwards and the changes, one line a device."""

    async def reload(self) -> tuple[str, ...]:
        """Read the configuration again; returns the changes. Raises ``ReloadFailed``."""

    async def quiesce(self, reason: str) -> tuple[int, tuple[str, ...]]:
        """Release the driver; returns the generation afterwards and the changes. Raises ``DriverNotFree``."""

    async def resume(self) -> tuple[int, tuple[str, ...]]:
        """Use the driver again; returns the generation afterwards and the changes. Raises ``ResumeFailed``."""

    def dra(self) -> DraView | None:
        """The DRA door; None if no resource is offered through it."""

    def holds_view(self) -> HoldsView | None:
        """Holds for people; None while this process does not serve the kubelet."""

    def health_view(self) -> HealthView | None:
        """Health for people; None while this process does not serve the kubelet."""


class AgentServicer(agent_pb2_grpc.AgentServicer):
    """Answers for ``view``. The methods' names are gRPC's."""

    def __init__(self, view: AgentView) -> None:
        self._view = view

    async def GetStatus(self, request: agent_pb2.GetStatusRequest, context: Context) -> agent_pb2.GetStatusResponse:
        """The status of the agent and of what it serves."""
        return self._view.status()

    async def ListDevices(
        self, request: agent_pb2.ListDevicesRequest, context: Context
    ) -> agent_pb2.ListDevicesResponse:
        """Every device and where it is offered."""
        dra, holds = self._view.dra(), self._view.holds_view()
        held = NOTHING_HELD if holds is None else holds.context
        if dra is None:
            return devices_message(*self._view.devices(), context=held)
        return devices_message(*self._view.devices(), dra.offer, held, dra.interfaces())

    async def GetTopology(
        self, request: agent_pb2.GetTopologyRequest, context: Context
    ) -> agent_pb2.GetTopologyResponse:
        """The topology of the devices."""
        snapshot, _ = self._view.devices()
        return topology_message(snapshot)

    async def Rescan(self, request: agent_pb2.RescanRequest, context: Context) -> agent_pb2.RescanResponse:
        """Scan now and answer when the result is published."""
        generation, changes = await self._view.rescan()
        return agent_pb2.RescanResponse(generation=generation, changes=changes)

    async def Reload(self, request: agent_pb2.ReloadRequest, context: Context) -> agent_pb2.ReloadResponse:
        """Read the configuration again; the error names every problem if it is not usable."""
        return agent_pb2.ReloadResponse(changes=await _answer(context, self._view.reload()))

    async def Quiesce(self, request: agent_pb2.QuiesceRequest, context: Context) -> agent_pb2.QuiesceResponse:
        """Release the driver and answer when that is done; INTERNAL if it could not be released."""
        quiesced = self._view.quiesce(request.reason or "no reason was given")
        generation, changes = await _answer(context, quiesced)
        return agent_pb2.QuiesceResponse(generation=generation, changes=changes)

    async def Resume(self, request: agent_pb2.ResumeRequest, context: Context) -> agent_pb2.ResumeResponse:
        """Use the driver again and answer when the next scan is published."""
        generation, changes = await _answer(context, self._view.resume())
        return agent_pb2.ResumeResponse(generation=generation, changes=changes)

    async def ListHolds(self, request: agent_pb2.ListHoldsRequest, context: Context) -> agent_pb2.ListHoldsResponse:
        """Who holds which device, and what is withheld because of that."""
        return (await self._holds(context)).report()

    async def ReleaseHold(
        self, request: agent_pb2.ReleaseHoldRequest, context: Context
    ) -> agent_pb2.ReleaseHoldResponse:
        """Release a device that is pending release."""
        changes = await _answer(context, (await self._holds(context)).release(request.device))
        return agent_pb2.ReleaseHoldResponse(changes=changes)

    async def ListHealth(self, request: agent_pb2.ListHealthRequest, context: Context) -> agent_pb2.ListHealthResponse:
        """The health of every device."""
        return (await self._health(context)).report()

    async def SetHealth(self, request: agent_pb2.SetHealthRequest, context: Context) -> agent_pb2.SetHealthResponse:
        """Override a device's health."""
        changes = await _answer(context, (await self._health(context)).set_health(request))
        return agent_pb2.SetHealthResponse(changes=changes)

    async def ClearHealth(
        self, request: agent_pb2.ClearHealthRequest, context: Context
    ) -> agent_pb2.ClearHealthResponse:
        """Remove a device's override."""
        changes = await _answer(context, (await self._health(context)).clear_health(request))
        return agent_pb2.ClearHealthResponse(changes=changes)

    async def ReleaseBrake(
        self, request: agent_pb2.ReleaseBrakeRequest, context: Context
    ) -> agent_pb2.ReleaseBrakeResponse:
        """Release the eviction limit of a kind."""
        changes = await _answer(context, (await self._health(context)).release_eviction_limit(request))
        return agent_pb2.ReleaseBrakeResponse(changes=changes)

    async def ListSlices(self, request: agent_pb2.ListSlicesRequest, context: Context) -> agent_pb2.ListSlicesResponse:
        """The published devices; FAILED_PRECONDITION without DRA."""
        return (await self._dra(context)).slices()

    async def ListClaims(self, request: agent_pb2.ListClaimsRequest, context: Context) -> agent_pb2.ListClaimsResponse:
        """The prepared claims; FAILED_PRECONDITION without DRA."""
        return (await self._dra(context)).claims()

    async def _dra(self, context: Context) -> DraView:
        return self._view.dra() or await _refuse(context, grpc.StatusCode.FAILED_PRECONDITION, NO_DRA)

    async def _holds(self, context: Context) -> HoldsView:
        return self._view.holds_view() or await _refuse(context, grpc.StatusCode.ABORTED, NOT_SERVING)

    async def _health(self, context: Context) -> HealthView:
        return self._view.health_view() or await _refuse(context, grpc.StatusCode.ABORTED, NOT_SERVING)


async def _answer(context: Context, answer: Awaitable[Answer]) -> Answer:
    """The answer; an error that a person can resolve ends the call with its status."""
    try:
        return await answer
    except tuple(CODES) as error:
        return await _refuse(context, CODES[type(error)], str(error))


async def _refuse(context: Context, code: grpc.StatusCode, reason: str) -> NoReturn:
    await context.abort(code, reason)
    raise AssertionError("abort returned")  # It always raises; this is for the type checker.


def handlers(view: AgentView) -> Mapping[str, Handler]:
    """What answers each method for ``view``."""
    found = _Handlers()
    # Generated code adds a service to whatever has a server's methods for that.
    agent_pb2_grpc.add_AgentServicer_to_server(AgentServicer(view), cast("grpc.aio.Server", found))
    return found.by_method


class _Handlers:
    def __init__(self) -> None:
        self.by_method: Mapping[str, Handler] = {}

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Nothing: the next call has the same ones by name."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        self.by_method = method_handlers
