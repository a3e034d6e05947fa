"""The socket of the agent's own service, whose modules are loaded at the first call: an agent has 0.5 MB less without.

Only people call it, and on most nodes nobody ever does. A thread loads them, so that no call of the kubelet waits.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from node.clocks import SELDOM, until_tick
from node.endpoint import Context, Endpoint, Handler
from node.events import EventType
from node.sockets import SocketError, make_private_directory
from ostler.agent.event_log import EventLog
from ostler.agent.loading import load

if TYPE_CHECKING:
    from ostler.admin.service import AgentView

log = logging.getLogger("ostler.agent")

SERVICE = "ostler.agent.v1alpha1.Agent"
METHODS = (
    "ClearHealth",
    "GetStatus",
    "GetTopology",
    "ListClaims",
    "ListDevices",
    "ListHealth",
    "ListHolds",
    "ListSlices",
    "Quiesce",
    "ReleaseBrake",
    "ReleaseHold",
    "Reload",
    "Rescan",
    "Resume",
    "SetHealth",
)
"""Its methods, all of one request and one answer."""
_MESSAGES = "protos.agent.v1alpha1.agent_pb2"


class LateService(grpc.GenericRpcHandler):
    """Answers for ``view`` by ``AgentServicer``, once that is loaded."""

    def __init__(self, view: AgentView) -> None:
        self._view = view
        self._loaded: Mapping[str, Handler] | None = None
        self._handlers: dict[str, Handler] = {f"/{SERVICE}/{method}": self._handler(method) for method in METHODS}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The handler of a call, which takes and returns bytes; None for a call of another service."""
        return self._handlers.get(handler_call_details.method)

    def _handler(self, method: str) -> Handler:
        # A plain function: gRPC would load ``inspect`` to find out whether another callable is a coroutine's.
        async def answer(request: bytes, context: Context) -> bytes:
            handler = (await self._handlers_of_service())[method]
            answered: bytes = handler.response_serializer(
                await handler.unary_unary(handler.request_deserializer(request), context)
            )
            return answered

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _handlers_of_service(self) -> Mapping[str, Handler]:
        # The door's modules are not loaded where there is no DRA door, and its messages would load them.
        wanted = ("ostler.admin.service", *(() if self._view.dra() is None else ("ostler.admin.dra",)))
        if any(name not in sys.modules for name in wanted):
            await load(*wanted)
        if self._loaded is None:
            from ostler.admin.service import handlers

            self._loaded = handlers(self._view)
        return self._loaded


def admin_endpoint(path: Path, view: AgentView) -> Endpoint:
    """The service at ``path``, whose folder is created; raises ``SocketError``."""
    make_private_directory(path.parent)
    return Endpoint(
        path.parent,
        path.name,
        [SERVICE],
        lambda server: server.add_generic_rpc_handlers((LateService(view),)),
        messages=_MESSAGES,
    )


async def serve_admin(path: Path, view: AgentView, events: EventLog) -> None:
    """Keep the agent's own socket served at ``path`` until cancelled; a failure is an event."""
    endpoint: Endpoint | None = None
    try:
        while True:
            if endpoint is None or not endpoint.intact:
                endpoint = await _replaced(endpoint, path, view, events)
            await asyncio.sleep(until_tick(SELDOM, asyncio.get_running_loop().time()))
    finally:
        if endpoint is not None:
            await endpoint.stop()


async def _replaced(old: Endpoint | None, path: Path, view: AgentView, events: EventLog) -> Endpoint | None:
    """A new socket for the service; None after a failure, which becomes an event."""
    if old is not None:
        log.warning("the agent's socket is gone or replaced; serving a new one", extra={"path": str(old.path)})
        await old.stop()
    try:
        endpoint = admin_endpoint(path, view)
        await endpoint.start()
    except SocketError as error:
        events.emit_once(EventType.WARNING, "SocketFailed", f"the agent's own socket: {error}")
        return None
    return endpoint
