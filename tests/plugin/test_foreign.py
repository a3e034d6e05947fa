"""Another plugin for the same resource: named and not fought."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from ostler.counters import Counters
from plugin.kubelet import RegistrationPath
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.kubelet import Kubelet
from tests.plugin.making import Told, door, offer_of, offered, running, state
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
REGISTRY = (RegistrationPath.REGISTRY,)
REGISTER = (RegistrationPath.REGISTER,)
EITHER = pytest.mark.parametrize("paths", [REGISTRY, REGISTER], ids=["registry", "register"])
DEVICES = tuple(offered(f"g{index}", index // 2) for index in range(4))


@pytest.fixture
async def kubelet(short_dir: Path) -> AsyncIterator[Kubelet]:
    async with Kubelet(short_dir, reconcile_interval=0.05) as started:
        yield started


class Foreign(api_pb2_grpc.DevicePluginServicer):
    """Another plugin that serves the same devices."""

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: object) -> api_pb2.DevicePluginOptions:
        return api_pb2.DevicePluginOptions()

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        yield api_pb2.ListAndWatchResponse(devices=[api_pb2.Device(ID="g0", health="Healthy")])
        await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def foreign_plugin(root: Path) -> AsyncIterator[None]:
    """Serves, registers, and dies with its context."""
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(Foreign(), server)
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


@EITHER
async def test_a_foreign_plugin_that_takes_the_resource_twice_is_named_and_not_fought(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...]
) -> None:
    told = Told()
    counters = Counters()
    served = door(short_dir, told, paths=paths, observer=counters)
    served.apply(offer_of(GPU, *DEVICES))
    async with foreign_plugin(short_dir), running(served):
        await kubelet.wait_for(GPU, healthy=4)
        for losses in (1, 2):
            await eventually(lambda: state(served) == "registered")
            kubelet.disconnect(GPU)
            await eventually(lambda: state(served) != "registered", f"loss {losses}")
        await eventually(lambda: state(served) == "contested")
        path = f"{short_dir}/device-plugins/nvidia-gpu.sock"
        assert told.messages("ForeignPlugin") == [
            f"{GPU}: another plugin serves it at {path}; remove that plugin, ostler waits meanwhile"
        ]
        assert counters.conflicts == {GPU: 1}
        assert path in served.waiting_for()[0]
        before = kubelet.registrations[GPU]
        kubelet.disconnect(GPU)
        served.apply(offer_of(GPU, *DEVICES[1:]))
        await asyncio.sleep(0)
        assert kubelet.registrations[GPU] == before
    assert state(served) == "contested"


async def test_the_fight_ends_when_the_foreign_socket_is_gone(short_dir: Path) -> None:
    served = door(short_dir, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    # From 1.37 on several plugins of one resource may be connected at once, and a loss ends them all.
    async with Kubelet(short_dir, generation="1.37") as kubelet, running(served):
        async with foreign_plugin(short_dir):
            for _ in range(2):
                await eventually(lambda: state(served) == "registered")
                kubelet.disconnect(GPU)
                await eventually(lambda: state(served) != "registered")
            await eventually(lambda: state(served) == "contested")
        await eventually(lambda: state(served) == "registered")
        await kubelet.wait_for(GPU, healthy=4)


async def test_two_losses_without_anybody_else_are_no_fight(short_dir: Path, kubelet: Kubelet) -> None:
    told = Told()
    served = door(short_dir, told, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        for _ in range(3):
            await eventually(lambda: state(served) == "registered")
            kubelet.disconnect(GPU)
            await eventually(lambda: state(served) != "registered")
        await eventually(lambda: state(served) == "registered")
    assert told.messages("ForeignPlugin") == []
