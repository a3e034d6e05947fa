"""Who takes over is the newest instance that answers, and never one that is older than who leaves."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import grpc.aio
import pytest

from driver.door.registration import age
from driver.door.successor import NoSuccessor, Successor
from protos.dra.v1 import api_pb2
from tests.driver.door.kubelet import named

PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
REQUEST = api_pb2.NodePrepareResourcesRequest(claims=[named("a")])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def instance(folder: Path, unique: str, made: float, stack: ExitStack, *, answers: bool = True) -> Path:
    """A socket that was made at that time."""
    path = folder / f"dra-{unique * 8}.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    if answers:
        server.listen()
        stack.enter_context(server)
    else:
        server.close()
    os.utime(path, (made, made))
    return path


def test_an_older_instance_and_oneself_are_nobody_s_successor(short_dir: Path, stack: ExitStack) -> None:
    instance(short_dir, "a", 1000, stack)
    own = instance(short_dir, "b", 2000, stack)
    assert Successor(short_dir, age(own)).socket() is None


def test_one_that_does_not_answer_is_passed_over(short_dir: Path, stack: ExitStack) -> None:
    own = instance(short_dir, "b", 2000, stack)
    new = instance(short_dir, "c", 3000, stack)
    instance(short_dir, "d", 4000, stack, answers=False)
    assert Successor(short_dir, age(own)).socket() == new


def test_the_newest_is_asked_whatever_its_name(short_dir: Path, stack: ExitStack) -> None:
    own = instance(short_dir, "b", 2000, stack)
    newest = instance(short_dir, "c", 4000, stack)
    instance(short_dir, "d", 3000, stack)
    assert Successor(short_dir, age(own)).socket() == newest


async def test_a_successor_s_refusal_is_the_answer_and_is_not_asked_for_twice(short_dir: Path) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{short_dir / 'dra-cccccccc.sock'}")
    await server.start()
    try:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await Successor(short_dir, (0, 0)).call(PREPARE, REQUEST, api_pb2.NodePrepareResourcesResponse, 30.0)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        await server.stop(None)


async def test_nobody_within_the_time_is_said(short_dir: Path) -> None:
    with pytest.raises(NoSuccessor, match="no other instance has taken over in time"):
        await Successor(short_dir, (0, 0)).call(PREPARE, REQUEST, api_pb2.NodePrepareResourcesResponse, 0.1)
