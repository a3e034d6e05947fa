"""Every socket of the agent: health, reflection, permissions, and peers that talk nonsense."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from node.endpoint import Endpoint
from node.sockets import SocketError
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc


class Registration(api_pb2_grpc.RegistrationServicer):
    async def GetInfo(self, request: api_pb2.InfoRequest, context: object) -> api_pb2.PluginInfo:
        return api_pb2.PluginInfo(name="here")


def endpoint(directory: Path, name: str = "a.sock") -> Endpoint:
    return Endpoint(
        directory,
        name,
        ["pluginregistration.Registration"],
        lambda server: api_pb2_grpc.add_RegistrationServicer_to_server(Registration(), server),
    )


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[Endpoint, grpc.aio.Channel]]:
    served = endpoint(directory)
    await served.start()
    options = (("grpc.use_local_subchannel_pool", 1),)
    try:
        async with grpc.aio.insecure_channel(f"unix:{served.path}", options=options) as channel:
            yield served, channel
    finally:
        await served.stop()


async def name(channel: grpc.aio.Channel) -> str:
    info = await api_pb2_grpc.RegistrationStub(channel).GetInfo(api_pb2.InfoRequest(), timeout=60)
    return str(info.name)


async def test_health_and_reflection_are_on_every_socket(short_dir: Path) -> None:
    async with serving(short_dir) as (_, channel):
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "pluginregistration.Registration"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watched = health.Watch(health_pb2.HealthCheckRequest(service="pluginregistration.Registration"), timeout=60)
        assert (await watched.read()).status == health_pb2.HealthCheckResponse.SERVING
        watched.cancel()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health.Check(health_pb2.HealthCheckRequest(service="other"), timeout=60)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answers = [answer async for answer in call]
        assert [service.name for service in answers[0].list_services_response.service] == [
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "pluginregistration.Registration",
        ]


async def test_the_socket_is_closed_to_others(short_dir: Path) -> None:
    async with serving(short_dir) as (served, _):
        assert served.path.stat().st_mode & 0o777 == 0o600
        assert sorted(path.name for path in short_dir.iterdir()) == ["a.sock"]


async def test_garbage_and_half_open_clients_harm_nobody(short_dir: Path) -> None:
    async with serving(short_dir) as (served, channel):
        clients = []
        for data in (
            b"",
            b"\x00" * 64,
            os.urandom(4096),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 512,
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(str(served.path))
            client.sendall(data)
            clients.append(client)
        assert await name(channel) == "here"
        for client in clients:
            client.close()
        assert await name(channel) == "here"


async def test_a_bad_message_is_refused_and_the_next_one_served(short_dir: Path) -> None:
    async with serving(short_dir) as (_, channel):
        raw: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/pluginregistration.Registration/NotifyRegistrationStatus"
        )
        with pytest.raises(grpc.aio.AioRpcError):
            await raw(b"\xff\xff\xff", timeout=60)
        unknown: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/no.such.Service/Call")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unknown(b"", timeout=60)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await name(channel) == "here"


async def test_a_successor_on_the_same_path_survives_the_end_of_the_first(short_dir: Path) -> None:
    first, second = endpoint(short_dir), endpoint(short_dir)
    await first.start()
    await second.start()
    assert not first.intact
    await first.stop()
    assert second.intact
    async with grpc.aio.insecure_channel(
        f"unix:{second.path}", options=(("grpc.use_local_subchannel_pool", 1),)
    ) as channel:
        assert await name(channel) == "here"
    await second.stop()
    assert list(short_dir.iterdir()) == []


async def test_a_deleted_socket_is_noticed(short_dir: Path) -> None:
    async with serving(short_dir) as (served, _):
        assert served.intact
        served.path.unlink()
        assert not served.intact


async def test_a_regular_file_in_the_way_is_an_error_that_says_so(short_dir: Path) -> None:
    (short_dir / "a.sock").write_text("")
    with pytest.raises(SocketError, match="something that is not a socket is in the way"):
        endpoint(short_dir)


async def test_swapping_fifty_times_always_leaves_one_live_socket(short_dir: Path) -> None:
    current = endpoint(short_dir)
    await current.start()
    for _ in range(50):
        successor = endpoint(short_dir)
        await successor.start()
        await current.stop()
        current = successor
        assert current.intact
        async with grpc.aio.insecure_channel(
            f"unix:{current.path}", options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel:
            assert await name(channel) == "here"
    await current.stop()
    await asyncio.sleep(0)
    assert list(short_dir.iterdir()) == []
