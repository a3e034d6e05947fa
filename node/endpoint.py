"""A gRPC server on one Unix socket, with what every socket of the agent has: health, reflection, safe permissions.

The services themselves belong to the doors and the process; this is only their common ground. Reflection lets grpcurl
work without .proto files; it is loaded at the first reflection call, because its memory (0.8 MB) and start-up time are
paid by every node and it is used by people only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from node.intake import ORDINARY, Intake, Limits
from node.sockets import PlacedSocket, SocketError

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    # A socket is bound once; nothing else may share it.
    ("grpc.so_reuseport", 0),
)
_REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


class _LazyReflection(grpc.GenericRpcHandler):
    """Loads the reflection service when it is first called."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = tuple(services)
        self._handler: grpc.RpcMethodHandler[Any, Any] | None = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of a reflection call, None for every other call."""
        if handler_call_details.method != f"/{_REFLECTION}/ServerReflectionInfo":
            return None
        if self._handler is None:
            self._handler = _reflection_handler((*self._services, _REFLECTION))
        return self._handler


def _reflection_handler(services: Sequence[str]) -> grpc.RpcMethodHandler[Any, Any]:
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(services).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return handler


class Endpoint:
    """One server on one socket; make a new one to serve again.

    ``register`` adds servicers to the server; ``services`` are their full names; ``limits`` bound what callers can make
    it keep. Raises ``SocketError`` from ``start`` when the socket cannot be where it should be.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        services: Sequence[str],
        register: Callable[[grpc.aio.Server], None],
        limits: Limits = ORDINARY,
    ) -> None:
        self._socket = PlacedSocket(directory, name)
        options = (*_OPTIONS, *limits.options())
        self._server = grpc.aio.server(options=options)
        self._services = (*services, health.SERVICE_NAME)
        self._health = health.aio.HealthServicer()
        intake = Intake(limits.calls)
        # Generated code adds a service to whatever has a server's methods for that.
        behind = cast("grpc.aio.Server", intake)
        register(behind)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, behind)
        intake.add_generic_rpc_handlers((_LazyReflection(self._services),))
        self._server.add_generic_rpc_handlers((intake,))

    @property
    def path(self) -> Path:
        """Where clients connect."""
        return self._socket.path

    @property
    def intact(self) -> bool:
        """Whether the socket file is still there and still ours."""
        return self._socket.intact

    async def start(self, replacing: Sequence[Path] = ()) -> None:
        """Bind, serve, and put the socket in place; names of sockets that it replaces go in the same moment."""
        for service in ("", *self._services):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        try:
            self._server.add_insecure_port(f"unix:{self._socket.temporary}")
        except RuntimeError as error:
            raise SocketError(self.path, "gRPC cannot listen there", "see the log above for its reason") from error
        await self._server.start()
        try:
            self._socket.publish(replacing=replacing)
        except SocketError:
            await self._server.stop(None)
            raise

    def withdraw(self) -> None:
        """Remove the socket's name; calls that run go on, ``intact`` becomes false."""
        self._socket.remove()

    async def stop(self, grace: float | None = None) -> None:
        """Remove the socket, then end all calls, those still running after ``grace`` seconds by force."""
        self._socket.remove()
        await self._server.stop(grace)
