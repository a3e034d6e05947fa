"""ttRPC calls over one NRI socket: both sides call each other, each over a multiplexed connection of its own.

The connection's number says who is the server: the plugin serves number 1, the runtime number 2. One object is either
side, so that the sandbox's runtime speaks through the same code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import IntEnum
from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from driver.nri.framing import Message, MessageReader, MessageType, ProtocolError, frames, send
from protos.ttrpc.v1.ttrpc_pb2 import Request, Response

log = logging.getLogger("ostler.nri")

PLUGIN, RUNTIME = 1, 2
"""Connections: the one that the plugin serves, and the one that the runtime serves."""
MAX_CALLS = 64
"""Calls of the peer that are worked on at a time; further ones are refused."""

P = TypeVar("P", bound=Protobuf)


class Code(IntEnum):
    """gRPC's status codes, as far as they are used."""

    INVALID_ARGUMENT = 3
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class RpcFailed(Exception):
    """A call was answered with an error; ``code`` is gRPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConnectionEnded(Exception):
    """The connection ended before the call was answered."""


Serve = Callable[[Request], Awaitable[Protobuf]]
"""Answers a call; raises ``RpcFailed``."""


def decoded(kind: type[P], payload: bytes) -> P:
    """A method's own message; raises ``RpcFailed``."""
    try:
        return kind.FromString(payload)
    except DecodeError:
        raise RpcFailed(Code.INVALID_ARGUMENT, f"the payload is not a {kind.DESCRIPTOR.name}") from None


class CallConnection:
    """One socket: answers calls on the connection ``served`` by ``serve``, and makes them on ``called``."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, serve: Serve, *, served: int, called: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._serve = serve
        self._served = served
        self._called = called
        self._answering: set[asyncio.Task[None]] = set()
        self._last_served = 0
        self._next_stream = 1
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._ended = False

    async def run(self) -> None:
        """Read until the peer ends the connection; raises ``ProtocolError`` or OSError. Open calls fail afterwards."""
        streams = {self._served: MessageReader(), self._called: MessageReader()}
        try:
            async for connection, payload in frames(self._reader):
                # Other connections belong to newer versions of the protocol.
                for message in streams[connection].feed(payload) if connection in streams else ():
                    if connection == self._served:
                        self._begin(message)
                    else:
                        self._take_answer(message)
        finally:
            self.close()

    def close(self) -> None:
        """End the connection: calls of both sides fail, and what answers the peer's is cancelled."""
        self._ended = True
        self._writer.close()
        for future in self._waiting.values():
            future.cancel()
        for task in self._answering:
            task.cancel()

    async def call(self, service: str, method: str, message: Protobuf, within: float) -> bytes:
        """The answer's payload; raises ``RpcFailed``, ``ConnectionEnded`` or, after ``within``, TimeoutError."""
        stream = self._next_stream
        self._next_stream += 2
        answer = self._waiting[stream] = asyncio.get_running_loop().create_future()
        request = Request(
            service=service, method=method, payload=message.SerializeToString(), timeout_nano=int(within * 1e9)
        )
        try:
            if self._ended:
                raise ConnectionEnded
            try:
                await self._send(self._called, stream, MessageType.REQUEST, request)
            except OSError:
                raise ConnectionEnded from None
            # asyncio.wait, because a cancelled answer must not look like a cancellation of the caller.
            done, _ = await asyncio.wait((answer,), timeout=within)
            if not done:
                raise TimeoutError
            if answer.cancelled():
                raise ConnectionEnded
            response = answer.result()
        finally:
            del self._waiting[stream]
        if response.status.code:
            raise RpcFailed(response.status.code, response.status.message)
        return bytes(response.payload)

    def _take_answer(self, message: Message) -> None:
        """An answer to one of our calls; dropped if nobody waits for it any more."""
        if message.type != MessageType.RESPONSE:
            raise ProtocolError("it sent a request where only responses are allowed")
        future = self._waiting.get(message.stream)
        if future is None or future.done():
            return
        try:
            future.set_result(Response.FromString(message.payload))
        except DecodeError:
            raise ProtocolError("it sent a response that is not a ttRPC response") from None

    def _begin(self, message: Message) -> None:
        """A call of the peer; a fault of this call alone is answered with an error, any other ends the connection."""
        if message.type != MessageType.REQUEST:
            raise ProtocolError("it sent something else where only requests are allowed")
        try:
            request = Request.FromString(message.payload)
        except DecodeError:
            raise ProtocolError("it sent a request that is not a ttRPC request") from None
        refusal = None
        if message.stream % 2 != 1 or message.stream <= self._last_served:
            refusal = RpcFailed(Code.INVALID_ARGUMENT, "numbers of streams must be odd and grow")
        else:
            self._last_served = message.stream
        if len(self._answering) >= 2 * MAX_CALLS:
            raise ProtocolError(f"it made {2 * MAX_CALLS} calls without reading the answers")
        if len(self._answering) >= MAX_CALLS:
            refusal = RpcFailed(Code.RESOURCE_EXHAUSTED, f"{MAX_CALLS} calls are being answered; try again later")
        task = asyncio.create_task(self._answer(message.stream, request, refusal))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, stream: int, request: Request, refusal: RpcFailed | None) -> None:
        try:
            if refusal:
                raise refusal
            response = Response(payload=(await self._serve(request)).SerializeToString())
        except RpcFailed as error:
            response = _failure(error.code, str(error))
        except Exception as error:  # A bug: the log has it, the peer gets an answer.
            log.exception("a call of the container runtime failed", extra={"method": request.method})
            response = _failure(Code.INTERNAL, f"ostler failed: {type(error).__name__}: {error}")
        # A connection that has ended is found by run().
        with suppress(OSError, ProtocolError):
            await self._send(self._served, stream, MessageType.RESPONSE, response)
            return
        self.close()

    async def _send(self, connection: int, stream: int, kind: MessageType, content: Protobuf) -> None:
        await send(self._writer, connection, Message(stream, kind, content.SerializeToString()))


def _failure(code: int, message: str) -> Response:
    response = Response()
    response.status.code = code
    response.status.message = message
    return response
