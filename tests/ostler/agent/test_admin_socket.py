"""The agent's own socket is served without the service's modules, and the first call has them loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ostler.admin.serving import METHODS, SERVICE
from protos.agent.v1alpha1 import agent_pb2

SERVED = """
import asyncio, pathlib, sys
import grpc.aio
from ostler.admin.serving import admin_endpoint

HEAVY = {"ostler.admin.service", "ostler.admin.holds", "ostler.metrics.gauges", "protos.agent.v1alpha1.agent_pb2"}


class View:
    def dra(self):
        return None

    def holds_view(self):
        return None

    async def rescan(self):
        return 7, ("one", "another")


async def main():
    endpoint = admin_endpoint(pathlib.Path(sys.argv[1]), View())
    await endpoint.start()
    async with grpc.aio.insecure_channel(f"unix:{sys.argv[1]}") as channel:
        assert not HEAVY & sys.modules.keys(), HEAVY & sys.modules.keys()
        await CALLS[sys.argv[2]](channel)
        assert "ostler.admin.dra" not in sys.modules, "this node has no DRA door"
    await endpoint.stop()


async def first_calls(channel):
    call = channel.unary_unary("/ostler.agent.v1alpha1.Agent/Rescan")
    first, second = await asyncio.gather(call(b"", timeout=60), call(b"", timeout=60))
    from protos.agent.v1alpha1 import agent_pb2
    expected = agent_pb2.RescanResponse(generation=7, changes=["one", "another"])
    assert agent_pb2.RescanResponse.FromString(first) == agent_pb2.RescanResponse.FromString(second) == expected
    await refused(channel, "ListHolds", grpc.StatusCode.ABORTED)


async def unknown(channel):
    await refused(channel, "NoSuchMethod", grpc.StatusCode.UNIMPLEMENTED)
    assert not HEAVY & sys.modules.keys()


async def described(channel):
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol="ostler.agent.v1alpha1.Agent")
    async for answer in reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo([request], timeout=60):
        assert answer.file_descriptor_response.file_descriptor_proto, answer
        break


async def refused(channel, method, code):
    try:
        await channel.unary_unary(f"/ostler.agent.v1alpha1.Agent/{method}")(b"", timeout=60)
    except grpc.aio.AioRpcError as error:
        assert error.code() == code, error
    else:
        raise AssertionError(method)


CALLS = {"first": first_calls, "unknown": unknown, "described": described}
asyncio.run(main())
"""


def test_every_method_of_the_service_is_served() -> None:
    service = agent_pb2.DESCRIPTOR.services_by_name["Agent"]
    assert service.full_name == SERVICE
    assert tuple(sorted(method.name for method in service.methods)) == METHODS


@pytest.mark.parametrize("calls", ["first", "unknown", "described"])
def test_the_service_is_loaded_at_the_first_call_of_it(short_dir: Path, calls: str) -> None:
    command = [sys.executable, "-c", SERVED, str(short_dir / "agent.sock"), calls]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
