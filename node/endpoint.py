"""A gRPC server on one Unix socket, with what all sockets of the agent have: health, reflection, bounds for callers.

Reflection lets grpcurl work without .proto files. It and the health service are loaded at their first call, because
every node would pay their memory (0.9 MB) and start-up time, and only people and probes call them.

Bounds: gRPC takes in a message of many MiB for every call that waits for one, before it compares the length with any
limit, so a hundred calls that never finish their request are more than a node can spare. ``Intake`` therefore reads a
call only while it has one of few places, and for no longer than it takes to send a request over a Unix socket. Until
then its sender has 64 KiB of flow control, which gRPC must not raise by measuring the connection. A client that sends
its request at once, as the kubelet does, has its place for some microseconds. ``SocketLimits`` bounds
connections, calls on all of them, and the bytes of a whole message.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import grpc
import grpc.aio

from node.sockets import PlacedSocket, SocketError
from node.values import Value, value

READ_AT_ONCE = 2
"""Calls of one socket whose request is read at the same time."""
DIRECT = 2
"""Calls at once that gRPC reads by itself, 0.1 ms sooner: an Allocate without an attack. Each may stay for ever."""
READ_WITHIN = 2.0
"""Seconds for which a call may keep the place; it is cancelled then."""
STREAMS = 2
"""Calls at once that send any number of messages: only reflection does, for people."""
HANDSHAKE = 5_000
"""Milliseconds until a connection must have begun to speak HTTP/2."""
METADATA = 16 << 10
"""Bytes of a call's metadata; the kubelet sends some hundred."""

Handler: TypeAlias = Any
"""gRPC's description of a method, whose attributes its types do not know."""
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@value
class SocketLimits(Value):
    """Limits of one socket: bytes of a request, calls at once, and connections at once."""

    message: int = 1 << 20
    calls: int = 32
    connections: int = 32

    def options(self) -> tuple[tuple[str, int], ...]:
        """Channel arguments of a server; one that an older gRPC does not know is without effect there."""
        return (
            ("grpc.max_receive_message_length", self.message),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.max_concurrent_streams", self.calls),
            ("grpc.max_allowed_incoming_connections", self.connections),
            ("grpc.max_metadata_size", METADATA),
            ("grpc.absolute_max_metadata_size", METADATA),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE),
        )


ORDINARY = SocketLimits()


class Intake(grpc.GenericRpcHandler):
    """Stands between a server and its handlers: lets few calls at a time send, and refuses those beyond ``calls``.

    Servicers are added to it as to a server. It is no interceptor, which costs every call 50 us.
    """

    def __init__(self, calls: int) -> None:
        self._most = calls
        self._calls: list[asyncio.Task[Any]] = []
        self._direct: list[asyncio.Task[Any]] = []
        """Those of the calls that gRPC reads by itself."""
        self._places = asyncio.Semaphore(READ_AT_ONCE)
        self._streams = asyncio.Semaphore(STREAMS)
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._by_method: dict[str, Handler] = {}
        """Handlers of the methods that were called; a servicer has the same ones for every call."""

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add a servicer; generated code calls this of a server."""
        self._handlers += handlers

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        """Nothing: generated code of newer versions adds a service in both ways."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The call's handler, which reads its request within the bounds; None if no service has the method."""
        handler = self._by_method.get(handler_call_details.method) or self._find(handler_call_details)
        task = asyncio.current_task()
        if handler is None or task is None:
            return handler
        # Looked at here: a callback for the end of each call would cost a step of the event loop.
        self._calls = _running(self._calls)
        if len(self._calls) >= self._most:
            return _REFUSED
        self._calls.append(task)
        if handler.unary_unary is not None:
            self._direct = _running(self._direct)
            if len(self._direct) < DIRECT:
                self._direct.append(task)
                return handler
        return self._bounded(handler)

    def _find(self, details: grpc.HandlerCallDetails) -> Handler | None:
        found: Iterator[Handler | None] = (each.service(details) for each in self._handlers)
        handler = next((each for each in found if each is not None), None)
        if handler is not None:
            self._by_method[details.method] = handler
        return handler

    def _bounded(self, handler: Handler) -> Handler:
        """The same handler for gRPC as one of streams, whose messages are read only when they are asked for."""
        codecs = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        made: Handler
        if handler.request_streaming:
            inner = handler.stream_stream or handler.stream_unary

            async def stream(requests: object, context: Context) -> None:
                async with self._streams:
                    await _answer(inner(requests, context), context)

            made = grpc.stream_stream_rpc_method_handler(stream, **codecs)
        elif handler.response_streaming:

            async def answers(_: object, context: Context) -> None:
                await _answer(handler.unary_stream(await self._request(context), context), context)

            made = grpc.stream_stream_rpc_method_handler(answers, **codecs)
        else:

            async def answer(_: object, context: Context) -> object:
                return await handler.unary_unary(await self._request(context), context)

            made = grpc.stream_unary_rpc_method_handler(answer, **codecs)
        return made

    async def _request(self, context: Context) -> object:
        """The one request of a call; ends the call where it does not come in time."""
        async with self._places:
            try:
                async with asyncio.timeout(READ_WITHIN):
                    request = await context.read()
            except TimeoutError:
                problem = f"no whole request within {READ_WITHIN:g} s"
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, problem)
        if request is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
        return request


def _running(calls: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    return [each for each in calls if not each.done()]


async def _answer(answers: Any, context: Context) -> None:
    """Send what a handler of streams says, which yields its messages or writes them itself."""
    if hasattr(answers, "__aiter__"):
        async for message in answers:
            await context.write(message)
    else:
        await answers


async def _refuse(_: object, context: Context) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls at once on this socket; try again later")


# As if any number of requests came: then none is read before the answer.
_REFUSED: Handler = grpc.stream_unary_rpc_method_handler(_refuse)

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    # A socket is bound once; nothing else may share it.
    ("grpc.so_reuseport", 0),
)
_HEALTH = "grpc.health.v1.Health"
_REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


class _LazyService(grpc.GenericRpcHandler):
    """A service whose handlers, by the name of their method, are made when it is first called."""

    def __init__(self, name: str, make: Callable[[], Mapping[str, Handler]]) -> None:
        self._prefix = f"/{name}/"
        self._make = make
        self._handlers: Mapping[str, Handler] | None = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The handler of a call of this service, None for every other call."""
        method = handler_call_details.method
        if not method.startswith(self._prefix):
            return None
        if self._handlers is None:
            self._handlers = self._make()
        return self._handlers.get(method.removeprefix(self._prefix))


def _health_handlers(services: Sequence[str]) -> dict[str, Handler]:
    """The health service of a socket: a client that gets an answer is served."""
    from grpc_health.v1 import health, health_pb2

    servicer = health.aio.HealthServicer()

    async def prepare() -> None:
        for service in ("", *services):
            await servicer.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def check(request: object, context: Context) -> object:
        await prepare()
        return await servicer.Check(request, context)

    async def watch(request: object, context: Context) -> None:
        await prepare()
        await servicer.Watch(request, context)

    codecs = {
        "request_deserializer": health_pb2.HealthCheckRequest.FromString,
        "response_serializer": health_pb2.HealthCheckResponse.SerializeToString,
    }
    return {
        "Check": grpc.unary_unary_rpc_method_handler(check, **codecs),
        "Watch": grpc.unary_stream_rpc_method_handler(watch, **codecs),
    }


def _reflection_handlers(services: Sequence[str], messages: str) -> dict[str, Handler]:
    # Reflection describes what has been loaded, and the health service has been if somebody asked for it.
    from grpc_health.v1 import health_pb2  # noqa: F401 - registers the descriptor of the health service

    if messages:
        importlib.import_module(messages)
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    handler = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(services).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return {"ServerReflectionInfo": handler}


class Endpoint:
    """One server on one socket; make a new one to serve again.

    ``register`` adds servicers to the server; ``services`` are their full names; ``limits`` bound what callers can make
    it keep; ``messages`` is the module that describes them, unless ``register`` has loaded it. Raises ``SocketError``
    from ``start`` when the socket cannot be where it should be.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        services: Sequence[str],
        register: Callable[[grpc.aio.Server], None],
        limits: SocketLimits = ORDINARY,
        *,
        messages: str = "",
    ) -> None:
        self._socket = PlacedSocket(directory, name)
        options = (*_OPTIONS, *limits.options())
        self._server = grpc.aio.server(options=options)
        intake = Intake(limits.calls)
        # Generated code adds a service to whatever has a server's methods for that.
        behind = cast("grpc.aio.Server", intake)
        register(behind)
        served = (*services, _HEALTH)
        intake.add_generic_rpc_handlers(
            (
                _LazyService(_HEALTH, lambda: _health_handlers(served)),
                _LazyService(_REFLECTION, lambda: _reflection_handlers((*served, _REFLECTION), messages)),
            )
        )
        self._server.add_generic_rpc_handlers((intake,))

    @property
    def path(self) -> Path:
        """The path at which clients connect."""
        return self._socket.path

    @property
    def intact(self) -> bool:
        """Whether the socket file is still there and still ours."""
        return self._socket.intact

    async def start(self, replacing: Sequence[Path] = ()) -> None:
        """Bind, serve, and put the socket in place; names of sockets that it replaces go in the same moment."""
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
