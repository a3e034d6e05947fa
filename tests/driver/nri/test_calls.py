"""Calls over a socket: what is answered, what is refused, and what an end does to open calls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack

import pytest
from google.protobuf.message import Message

from driver.nri import calls
from driver.nri.calls import PLUGIN, RUNTIME, CallConnection, Code, ConnectionEnded, RpcFailed
from driver.nri.framing import Message as Framed
from driver.nri.framing import MessageReader, MessageType, ProtocolError, frames, send
from driver.nri.sequence import SandboxSequence
from driver.nri.service import PLUGIN_SERVICE, PluginService
from protos.nri.v1alpha1.nri_pb2 import (
    ConfigureRequest,
    Empty,
    PodSandboxRequest,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
)
from protos.ttrpc.v1.ttrpc_pb2 import Request, Response
from tests.making.nri import ScriptedSandboxes, pod
from tests.waiting import eventually

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def pair() -> tuple[Streams, Streams]:
    one, other = socket.socketpair()
    return await asyncio.open_connection(sock=one), await asyncio.open_connection(sock=other)


@asynccontextmanager
async def plugin_and_peer(
    serve: calls.Serve | None = None,
) -> AsyncIterator[tuple[ScriptedSandboxes, CallConnection, asyncio.Task[None]]]:
    """What a plugin serves, and the runtime that calls it; the task reads for the plugin."""
    sandboxes = ScriptedSandboxes()
    sequence = SandboxSequence(sandboxes)
    mine, theirs = await pair()
    served = serve or PluginService(sequence, lambda _: None).serve
    plugin = CallConnection(*mine, served, served=PLUGIN, called=RUNTIME)
    runtime = CallConnection(*theirs, nothing, served=RUNTIME, called=PLUGIN)
    tasks = [asyncio.create_task(each.run()) for each in (plugin, runtime)]
    try:
        yield sandboxes, runtime, tasks[0]
    finally:
        for connection in (plugin, runtime):
            connection.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await sequence.close()


async def nothing(request: Request) -> Message:
    raise RpcFailed(Code.UNIMPLEMENTED, request.method)


async def called(runtime: CallConnection, method: str, message: Message, service: str = PLUGIN_SERVICE) -> bytes:
    return await runtime.call(service, method, message, 60.0)


@pytest.mark.parametrize(
    ("service", "method"), [(PLUGIN_SERVICE, "UpdatePodSandbox"), ("nri.pkg.api.v2.Plugin", "RunPodSandbox")]
)
async def test_unknown_methods_are_refused_and_the_connection_stays(service: str, method: str) -> None:
    async with plugin_and_peer() as (sandboxes, runtime, _):
        with pytest.raises(RpcFailed, match=f"ostler does not serve {service}/{method}") as failed:
            await called(runtime, method, Empty(), service)
        assert failed.value.code == Code.UNIMPLEMENTED
        await called(runtime, "RunPodSandbox", PodSandboxRequest(pod=pod()))
        assert sandboxes.ended == ["run s1"]


@pytest.mark.parametrize("event", [0, 4, 12, 99])
async def test_events_that_were_not_asked_for_are_answered_and_ignored(event: int) -> None:
    async with plugin_and_peer() as (sandboxes, runtime, _):
        message = StateChangeEvent(pod=pod(), event=event)  # type: ignore[arg-type]  # a later version's
        assert await called(runtime, "StateChange", message) == b""
        assert not sandboxes.calls


async def test_a_shutdown_is_answered() -> None:
    async with plugin_and_peer() as (_, runtime, _):
        assert await called(runtime, "Shutdown", Empty()) == b""


async def test_a_payload_that_is_not_the_methods_message_is_refused() -> None:
    async with plugin_and_peer() as (_, runtime, _):
        # Field 1 is a text here and a message there.
        with pytest.raises(RpcFailed, match="the payload is not a PodSandboxRequest") as failed:
            await called(runtime, "RunPodSandbox", ConfigureRequest(config="\x7f"))
        assert failed.value.code == Code.INVALID_ARGUMENT


async def test_a_synchronization_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driver.nri.service.MAX_LISTED", 3)
    async with plugin_and_peer() as (sandboxes, runtime, _):
        two = SynchronizeRequest(pods=[pod(1), pod(2)], more=True)
        answer = await called(runtime, "Synchronize", two)
        assert SynchronizeResponse.FromString(answer).more
        with pytest.raises(RpcFailed, match="ostler takes at most 3 sandboxes and containers"):
            await called(runtime, "Synchronize", two)
        assert not sandboxes.listed


async def test_more_calls_than_may_be_open_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_CALLS", 3)
    gate = asyncio.Event()
    begun: list[str] = []

    async def slow(request: Request) -> Message:
        begun.append(request.method)
        await gate.wait()
        return Empty()

    async with plugin_and_peer(slow) as (_, runtime, _):
        open_calls = [asyncio.create_task(called(runtime, f"M{number}", Empty())) for number in range(3)]
        await eventually(lambda: len(begun) == 3)
        with pytest.raises(RpcFailed, match="3 calls are being answered; try again later"):
            await called(runtime, "M3", Empty())
        gate.set()
        await asyncio.gather(*open_calls)
        await called(runtime, "M4", Empty())
    assert begun == ["M0", "M1", "M2", "M4"]


async def test_a_bug_is_answered_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: Request) -> Message:
        raise ZeroDivisionError("oh")

    async with plugin_and_peer(broken) as (_, runtime, _):
        with pytest.raises(RpcFailed, match="ostler failed: ZeroDivisionError: oh") as failed:
            await called(runtime, "Configure", Empty())
        assert failed.value.code == Code.INTERNAL
    assert "a call of the container runtime failed" in caplog.text


async def test_numbers_of_streams_must_be_odd_and_grow() -> None:
    (reader, writer), theirs = await pair()
    plugin = CallConnection(*theirs, nothing, served=PLUGIN, called=RUNTIME)
    task = asyncio.create_task(plugin.run())
    request = Request(service="s", method="m").SerializeToString()
    codes = []
    parser, received = MessageReader(), frames(reader)
    for stream in (2, 3, 3, 1, 5):
        await send(writer, PLUGIN, Framed(stream, MessageType.REQUEST, request))
        _, payload = await anext(received)
        (answer,) = parser.feed(payload)
        assert answer.stream == stream
        codes.append(Response.FromString(answer.payload).status.code)
    invalid, known = Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED
    assert codes == [invalid, known, invalid, invalid, known]
    writer.close()
    await task


async def test_a_peer_that_calls_and_never_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_CALLS", 2)
    gate = asyncio.Event()

    async def slow(request: Request) -> Message:
        await gate.wait()
        return Empty()

    (_, writer), theirs = await pair()
    plugin = CallConnection(*theirs, slow, served=PLUGIN, called=RUNTIME)
    task = asyncio.create_task(plugin.run())
    content = b"".join(Framed(stream, MessageType.REQUEST, b"").packed() for stream in range(1, 21, 2))
    writer.write(pack(">II", PLUGIN, len(content)) + content)
    with pytest.raises(ProtocolError, match="it made 4 calls without reading the answers"):
        await task
    writer.close()


async def test_the_end_of_the_connection_fails_open_calls() -> None:
    gate = asyncio.Event()

    async def slow(request: Request) -> Message:
        gate.set()
        return await asyncio.Future[Message]()

    async with plugin_and_peer(slow) as (_, runtime, reading):
        call = asyncio.create_task(called(runtime, "Configure", Empty()))
        await gate.wait()
        reading.cancel()
        with pytest.raises(ConnectionEnded):
            await call
        with pytest.raises(ConnectionEnded):
            await called(runtime, "Configure", Empty())


async def test_a_call_that_is_not_answered_ends_in_time_and_a_late_answer_harms_nothing() -> None:
    gate = asyncio.Event()

    async def slow(request: Request) -> Message:
        if request.method == "Slow":
            await gate.wait()
        return Empty()

    async with plugin_and_peer(slow) as (_, runtime, _):
        with pytest.raises(TimeoutError):
            await runtime.call(PLUGIN_SERVICE, "Slow", Empty(), 0.02)
        gate.set()
        await called(runtime, "Quick", Empty())


async def test_frames_of_other_connections_are_skipped() -> None:
    async with plugin_and_peer() as (_, runtime, _):
        await send(runtime._writer, 7, Framed(1, MessageType.REQUEST, b"later"))
        assert await called(runtime, "Shutdown", Empty()) == b""
