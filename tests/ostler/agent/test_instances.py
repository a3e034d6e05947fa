"""One active instance per node: standbys, hand-overs, and changing over from another plugin."""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from node.inventory.recordings.source import RecordedSource
from ostler.agent.agent import Agent
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod
from sandbox.node import SandboxNode
from sandbox.nodes import path
from sandbox.process import AgentProcess
from tests.ostler.agent.here import agent
from tests.waiting import background, eventually

GPU = "nvidia.com/gpu"


@asynccontextmanager
async def running(root: Path, name: str = "h100-sxm-8") -> AsyncIterator[Agent]:
    """An agent in this process."""
    made = agent(root, name)
    async with background(made.run()):
        yield made


async def test_active_and_standby_swap_fifty_times_and_the_kubelet_always_gets_its_devices(short_dir: Path) -> None:
    async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet, AsyncExitStack() as last:
        active = AsyncExitStack()
        first = await active.enter_async_context(running(short_dir))
        await eventually(lambda: first.readiness().ready and first.readiness().role == "active")
        for _ in range(50):
            standby = AsyncExitStack()
            second = await standby.enter_async_context(running(short_dir))
            await eventually(lambda: second.readiness().ready)  # noqa: B023
            assert second.readiness().role == "standby"
            assert second.readiness().reasons == ("standby: another instance is active",)
            assert list(second.status().resources) == [], "nothing is bound"
            await active.aclose()
            await eventually(lambda: second.readiness().role == "active" and second.readiness().ready)  # noqa: B023
            await kubelet.wait_for(GPU, healthy=8)
            assert len(list((short_dir / "plugins_registry").glob("ostler*"))) == 1
            active = standby
        last.push_async_exit(active)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_standby_process_takes_over_when_the_active_one_ends(number: signal.Signals, tmp_path: Path) -> None:
    async with SandboxNode(path("h100-sxm-8"), reconcile_interval=0.05) as box:
        await box.registered()
        held = await box.give(GPU, 2)
        port = 18000 + (number.value * 7 + hash(str(tmp_path)) % 900)
        flags = {**box.agent.flags, "--http": f"127.0.0.1:{port}"}
        standby = AgentProcess(flags, log=tmp_path / "standby.log")
        await standby.spawn()
        page = await eventually(lambda: _page(f"http://127.0.0.1:{port}/readyz"), "the standby is ready")
        assert page == "ready\nstandby: another instance is active\n"
        assert len(list((box.root / "kubelet" / "plugins_registry").glob("ostler*"))) == 1
        await box.agent.stop(number)
        await standby.answered()
        await eventually(lambda: _page(f"http://127.0.0.1:{port}/readyz") == "ready\n", "the standby is active")
        await box.kubelet.wait_for(GPU, healthy=8)
        more = await box.give(GPU, 6)
        assert more.admission.admitted
        assert not set(more.ids) & set(held.ids)
        assert await standby.stop() == 0


def _page(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


class NvidiaPlugin(api_pb2_grpc.DevicePluginServicer):
    """What NVIDIA's plugin shows and answers for a node."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: object) -> api_pb2.DevicePluginOptions:
        return api_pb2.DevicePluginOptions()

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        devices = [api_pb2.Device(ID=id_, health="Healthy") for id_ in self.ids]
        yield api_pb2.ListAndWatchResponse(devices=devices)
        await asyncio.get_running_loop().create_future()

    async def Allocate(self, request: api_pb2.AllocateRequest, context: object) -> api_pb2.AllocateResponse:
        response = api_pb2.AllocateResponse()
        for wanted in request.container_requests:
            response.container_responses.add(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(wanted.devices_ids)})
        return response


@asynccontextmanager
async def nvidia_plugin(root: Path, ids: list[str]) -> AsyncIterator[None]:
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(NvidiaPlugin(ids), server)
    server.add_insecure_port(f"unix:{root}/device-plugins/nvidia-gpu.sock")
    await server.start()
    async with grpc.aio.insecure_channel(
        f"unix:{root}/device-plugins/kubelet.sock", options=(("grpc.use_local_subchannel_pool", 1),)
    ) as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(
            api_pb2.RegisterRequest(version="v1beta1", endpoint="nvidia-gpu.sock", resource_name=GPU), timeout=10
        )
    yield
    await server.stop(None)


async def test_a_node_changes_over_from_nvidias_plugin_with_its_pods_running(short_dir: Path) -> None:
    source = RecordedSource(path("h100-sxm-8"))
    facts = source.read().nvml
    assert facts is not None
    ids = [str(gpu.uuid) for gpu in facts.gpus]
    pods = [Pod(f"uid-{number}", f"p{number}", containers=(Container("main", limits={GPU: 2}),)) for number in range(3)]
    async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet:
        async with nvidia_plugin(short_dir, ids):
            await kubelet.wait_for(GPU, healthy=8)
            for pod in pods:
                assert (await kubelet.admit(pod)).admitted
        held = {id_ for pod in pods for id_ in kubelet.allocated(pod.uid, "main")[GPU]}
        assert len(held) == 6
        async with running(short_dir):
            await kubelet.wait_for(GPU, healthy=8)
            shown = {device.id: device.healthy for device in kubelet.devices(GPU)}
            assert shown == dict.fromkeys(ids, True), "the same ids, none gone"
            verdicts = await kubelet.restart()
            await kubelet.wait_for(GPU, healthy=8)
            assert all(verdict.admitted for verdict in verdicts.values())
            new = Pod("uid-new", "new", containers=(Container("main", limits={GPU: 2}),))
            given = await kubelet.admit(new)
            assert given.admitted
            assert not held & set(given.devices["main"][GPU])
            none_left = Pod("uid-late", "late", containers=(Container("main", limits={GPU: 1}),))
            assert not (await kubelet.admit(none_left)).admitted
