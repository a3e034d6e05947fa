"""Whatever comes over the DRA door's sockets, and whatever the Node turns out to be, claims are served on."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from protos.dra.v1 import api_pb2, api_pb2_grpc
from sandbox.node import SandboxNode
from tests.ostler.agent.claimed_node import CLAIMED, DRIVER, NODE_NAME, ClaimedNode, configured
from tests.waiting import eventually

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MANY = 300


@pytest.fixture
async def box() -> AsyncIterator[ClaimedNode]:
    async with ClaimedNode() as made:
        yield made


def sockets(box: ClaimedNode) -> tuple[Path, Path]:
    """That for claims, and that in the registry."""
    (claims,) = box.driver_folder.glob("dra-*.sock")
    (registration,) = box.registry.glob("*-reg.sock")
    return claims, registration


def throw(path: Path, content: bytes) -> None:
    """Send it and hang up in the middle of whatever comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(str(path))
        try:
            connection.sendall(content)
            connection.recv(64)
        except OSError:
            return


async def test_garbage_on_both_sockets_costs_nobody_anything(box: ClaimedNode) -> None:
    noise = random.Random(7)  # the same noise every time
    garbage = [b"", b"\x00" * 4096, b"GET / HTTP/1.1\r\n\r\n", HTTP2, HTTP2 + noise.randbytes(4096)]
    garbage += [noise.randbytes(noise.randrange(1, 2000)) for _ in range(20)]
    for path in sockets(box):
        for content in garbage:
            await asyncio.to_thread(throw, path, content)
    await box.running("p")
    await box.control.end("p")
    assert (await box.door()).registration == "registered"


async def test_hundreds_of_idle_connections_do_not_keep_the_kubelet_out(box: ClaimedNode) -> None:
    claims, registration = sockets(box)
    held = []
    try:
        for number in range(MANY):
            connection = socket.socket(socket.AF_UNIX)
            held.append(connection)
            connection.setblocking(False)
            connection.connect_ex(str(claims if number % 2 else registration))
        await asyncio.wait_for(box.running("p"), 120)
    finally:
        for connection in held:
            connection.close()
    await box.control.end("p")


async def test_messages_that_are_none_are_refused_and_claims_served(box: ClaimedNode) -> None:
    claims, _ = sockets(box)
    async with grpc.aio.insecure_channel(f"unix:{claims}", options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
        raw: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
            request_serializer=None,
            response_deserializer=None,
        )
        for content in (b"\xff" * 100, b"\x0a\xff\xff\xff\x7f", b"\x0a\x03abc"):
            with pytest.raises(grpc.aio.AioRpcError):
                await raw(content, timeout=60)
        stub = api_pb2_grpc.DRAPluginStub(channel)
        named = [api_pb2.Claim(uid=uid, name="n", namespace="d") for uid in ("../x", "a" * 5000, "\n", "ü", "x/../y")]
        answer = await stub.NodePrepareResources(api_pb2.NodePrepareResourcesRequest(claims=named), timeout=60)
        assert all(entry.error.endswith("is not a claim's UID") for entry in answer.claims.values())
        many = [api_pb2.Claim(uid=f"u-{number}", name="n", namespace="default") for number in range(1000)]
        released = await stub.NodeUnprepareResources(api_pb2.NodeUnprepareResourcesRequest(claims=many), timeout=60)
        assert {entry.error for entry in released.claims.values()} == {""}
        assert len(released.claims) == 1000
    await box.running("p")


async def test_files_that_are_not_sockets_are_left_where_they_are(box: ClaimedNode) -> None:
    await box.agent.stop(signal.SIGKILL)
    file = box.driver_folder / "dra-01234567.sock"
    file.write_text("somebody's")
    folder = box.registry / f"{DRIVER}-01234567-reg.sock"
    folder.mkdir()
    await box.agent.start()
    await box.registered()
    assert file.read_text() == "somebody's"
    assert folder.is_dir()
    await box.running("p")


async def test_sockets_of_a_killed_agent_are_gone_when_the_next_one_needs_none(box: ClaimedNode) -> None:
    dead = sockets(box)
    await box.agent.stop(signal.SIGKILL)
    box.reconfigure({**CLAIMED, "door": "plugin"})
    await box.agent.start()
    await box.registered()
    assert not [path for path in dead if path.exists()]
    assert box.said().count("dead socket of a predecessor removed") >= 2


async def test_nothing_is_published_on_the_node_of_another_machine(tmp_path: Path) -> None:
    ids = tmp_path / "sys/class/dmi/id"
    ids.mkdir(parents=True)
    (ids / "product_uuid").write_text("11111111-2222-3333-4444-555555555555\n")
    text = configured(CLAIMED).replace("{", f'{{"roots": {{"sys": "{tmp_path / "sys"}"}}, ', 1)
    async with SandboxNode(None, configuration=text, reconcile_interval=0.05, cluster=True) as box:
        assert box.server is not None
        info = {"systemUUID": "99999999-2222-3333-4444-555555555555"}
        await box.agent.stop()
        for each in box.server.store.list("resourceslices"):
            box.server.store.delete("resourceslices", each["metadata"]["name"])
        box.server.store.patch("nodes", NODE_NAME, {"status": {"nodeInfo": info}}, part="status")
        await box.agent.start()

        words = f"Node {NODE_NAME} is not this machine: its status.nodeInfo.systemUUID is 99999999"

        async def told() -> bool:
            return words in (await box.agent.status()).dra.problem

        await eventually(told)
        status = await box.agent.status()
        assert [event.reason for event in status.events if "is not this machine" in event.message]
        assert not box.server.store.list("resourceslices")
        info["systemUUID"] = "11111111-2222-3333-4444-555555555555"
        box.server.store.patch("nodes", NODE_NAME, {"status": {"nodeInfo": info}}, part="status")
        server = box.server
        await eventually(lambda: server.store.list("resourceslices"), "published", within=120)
