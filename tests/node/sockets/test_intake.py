"""What callers of a socket can make its server keep: few connections and calls, and no request that never ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from node import endpoint as endpoint_module
from node.endpoint import Endpoint, SocketLimits
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from tests.waiting import eventually

SERVICE = "v1beta1.DevicePlugin"
ALLOCATE = b"/v1beta1.DevicePlugin/Allocate"
ATTACK = 10 << 20
"""Bytes that an attack sends at least."""
LIMITS = SocketLimits(message=1 << 20, calls=6, connections=4)


class _Plugin(api_pb2_grpc.DevicePluginServicer):
    """Answers every call; ListAndWatch goes on until it is cancelled."""

    async def Allocate(self, request: api_pb2.AllocateRequest, context: object) -> api_pb2.AllocateResponse:
        return api_pb2.AllocateResponse()

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        yield api_pb2.ListAndWatchResponse()
        await asyncio.Event().wait()


def _endpoint(folder: Path, limits: SocketLimits = LIMITS) -> Endpoint:
    return Endpoint(
        folder,
        "a.sock",
        [SERVICE],
        lambda server: api_pb2_grpc.add_DevicePluginServicer_to_server(_Plugin(), server),
        limits,
    )


@contextlib.asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[tuple[Path, grpc.aio.Channel]]:
    endpoint = _endpoint(folder)
    await endpoint.start()
    options = (("grpc.use_local_subchannel_pool", 1),)
    try:
        async with grpc.aio.insecure_channel(f"unix:{endpoint.path}", options=options) as channel:
            yield endpoint.path, channel
    finally:
        await endpoint.stop()


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def _headers(path: bytes) -> bytes:
    pairs = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x")]
    pairs += [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
    return b"".join(b"\0" + bytes([len(key)]) + key + bytes([len(value)]) + value for key, value in pairs)


class Hostile:
    """A connection with calls that announce ``size`` bytes and send all but the last, as far as they are let."""

    def __init__(self, path: Path, calls: int, size: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(5)
        self._socket.connect(str(path))
        self._size = size
        self._sent = {2 * number + 1: 0 for number in range(calls)}
        self._windows = dict.fromkeys(self._sent, 65_535 - 5)
        self._window = 65_535 - 5 * calls
        self._buffer = b""
        begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"")
        for stream in self._sent:
            begin += _frame(1, 4, stream, _headers(ALLOCATE)) + _frame(0, 0, stream, b"\0" + struct.pack(">I", size))
        self._socket.sendall(begin)

    @property
    def sent(self) -> int:
        return sum(self._sent.values())

    def attack(self, goes_on: Callable[[], bool]) -> None:
        # A connection that the server ends is what is hoped for.
        with contextlib.suppress(OSError):
            while goes_on():
                for stream in self._sent:
                    self._send(stream)
                self._socket.settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    self._take(self._socket.recv(1 << 16))

    def close(self) -> None:
        self._socket.close()

    def _send(self, stream: int) -> None:
        count = min(self._windows[stream], self._window, 16_384, self._size - 1 - self._sent[stream])
        while count > 0:
            self._socket.settimeout(5)
            self._socket.sendall(_frame(0, 0, stream, bytes(count)))
            self._windows[stream] -= count
            self._window -= count
            self._sent[stream] += count
            count = min(self._windows[stream], self._window, 16_384, self._size - 1 - self._sent[stream])

    def _take(self, data: bytes) -> None:
        if not data:
            raise ConnectionResetError
        self._buffer += data
        while len(self._buffer) >= 9 and len(self._buffer) >= 9 + int.from_bytes(self._buffer[:3], "big"):
            length, kind, flags = int.from_bytes(self._buffer[:3], "big"), self._buffer[3], self._buffer[4]
            stream = int.from_bytes(self._buffer[5:9], "big") & 0x7FFF_FFFF
            body, self._buffer = self._buffer[9 : 9 + length], self._buffer[9 + length :]
            if kind == 8 and stream == 0:
                self._window += int.from_bytes(body, "big")
            elif kind == 8 and stream in self._windows:
                self._windows[stream] += int.from_bytes(body, "big")
            elif kind in (4, 6) and not flags & 1:  # Settings and pings want an answer.
                self._socket.settimeout(5)
                self._socket.sendall(_frame(kind, 1, 0, body if kind == 6 else b""))
            elif kind == 3 or (kind == 1 and flags & 1):
                self._windows[stream] = 0  # Refused or ended.


SERVER = """
import asyncio, sys
from pathlib import Path
from tests.node.sockets.test_intake import _endpoint
from node.endpoint import SocketLimits

async def main():
    endpoint = _endpoint(Path(sys.argv[1]), SocketLimits())
    await endpoint.start()
    print("serving", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def server(short_dir: Path) -> Iterator[tuple[Path, int]]:
    """Socket and process id of a server with the ordinary limits."""
    with subprocess.Popen([sys.executable, "-c", SERVER, str(short_dir)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"serving\n"
        yield short_dir / "a.sock", process.pid
        process.kill()


def _peak(pid: int) -> int:
    """The most memory that a process had, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:"))


async def test_many_connections_with_many_calls_and_huge_requests_cost_bounded_memory(server: tuple[Path, int]) -> None:
    """Without bounds these 240 calls cost more than a gigabyte."""
    path, pid = server
    before = _peak(pid)
    hostile = []
    with contextlib.suppress(OSError):  # Beyond the limit of connections some are not let in.
        hostile += [Hostile(path, 20, 15_000_000) for _ in range(12)]
    began = time.monotonic()

    def goes_on() -> bool:
        """For three seconds, and for as long as it takes on a slow machine to be an attack."""
        reached = sum(each.sent for each in hostile) > ATTACK
        return time.monotonic() < began + (3.0 if reached else 120.0)

    threads = [threading.Thread(target=each.attack, args=(goes_on,)) for each in hostile]
    for thread in threads:
        thread.start()
    # The kubelet, which has its connection and is served all the while.
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        stub = api_pb2_grpc.DevicePluginStub(channel)
        for thread in threads:
            await asyncio.to_thread(thread.join)
        answer = await stub.Allocate(api_pb2.AllocateRequest(), timeout=120, wait_for_ready=True)
    assert answer == api_pb2.AllocateResponse()
    assert sum(each.sent for each in hostile) > ATTACK, "the attack did not reach the server"
    for each in hostile:
        each.close()
    assert _peak(pid) - before < 150


async def test_a_request_that_never_ends_is_ended_and_the_next_is_served(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "READ_WITHIN", 0.2)
    async with _served(short_dir) as (path, channel):
        hostile = Hostile(path, 3, 100_000)
        end = time.monotonic() + 0.1
        await asyncio.to_thread(hostile.attack, lambda: time.monotonic() < end)
        stub = api_pb2_grpc.DevicePluginStub(channel)

        async def served() -> bool:
            try:
                answer = await stub.Allocate(api_pb2.AllocateRequest(), timeout=120)
            except grpc.aio.AioRpcError as refused:
                # So short a time may be over before this machine has read even this request.
                if refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    return False
                raise
            return bool(answer == api_pb2.AllocateResponse())

        await eventually(served)
        hostile.close()


async def test_calls_beyond_the_limit_are_refused_with_what_to_do_and_streams_go_on(short_dir: Path) -> None:
    async with _served(short_dir) as (path, channel):
        stub = api_pb2_grpc.DevicePluginStub(channel)
        # On two connections: a connection has a limit of its own, beyond which calls wait at the client.
        async with grpc.aio.insecure_channel(
            f"unix:{path}", options=(("grpc.use_local_subchannel_pool", 1),)
        ) as second:
            other = api_pb2_grpc.DevicePluginStub(second)
            streams = [each.ListAndWatch(api_pb2.Empty()) for each in (stub, other) for _ in range(3)]
            for stream in streams:
                assert await stream.read() == api_pb2.ListAndWatchResponse()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Allocate(api_pb2.AllocateRequest(), timeout=120)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert refused.value.details() == "too many calls at once on this socket; try again later"
            for stream in streams:
                assert not stream.done()
                stream.cancel()
            for stream in streams:
                with pytest.raises(asyncio.CancelledError):
                    await stream.read()
        answer = None
        while answer is None:  # The server learns of the ends a moment later.
            with contextlib.suppress(grpc.aio.AioRpcError):
                answer = await stub.Allocate(api_pb2.AllocateRequest(), timeout=120)


async def test_a_whole_request_beyond_the_limit_is_refused(short_dir: Path) -> None:
    async with _served(short_dir) as (_, channel):
        stub = api_pb2_grpc.DevicePluginStub(channel)
        large = api_pb2.AllocateRequest(container_requests=[{"devices_ids": ["x" * (2 << 20)]}])
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Allocate(large, timeout=120)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await stub.Allocate(api_pb2.AllocateRequest(), timeout=120) == api_pb2.AllocateResponse()


async def test_connections_beyond_the_limit_are_not_let_in_and_those_that_are_go_on(short_dir: Path) -> None:
    async with _served(short_dir) as (path, channel):
        stub = api_pb2_grpc.DevicePluginStub(channel)
        await stub.Allocate(api_pb2.AllocateRequest(), timeout=120)
        clients = [socket.socket(socket.AF_UNIX) for _ in range(20)]
        ended = 0
        for client in clients:
            client.settimeout(120)
            with contextlib.suppress(OSError):
                client.connect(str(path))
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
        for client in clients:
            try:
                ended += not await asyncio.to_thread(client.recv, 1)
            except OSError:
                ended += 1
        assert ended >= len(clients) - LIMITS.connections
        await stub.Allocate(api_pb2.AllocateRequest(), timeout=120)
        for client in clients:
            client.close()
