"""A door that leaves the kubelet to a successor: what the kubelet has meanwhile, and what it has when nobody comes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from node.offer import Offer, ResourceOffer
from node.rules import Rule
from plugin import serving
from plugin.door import PluginDoor
from plugin.kubelet import RegisterRefused, RegistrationPath, grpc_go, register
from plugin.servicer import OPTIONS
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod
from tests.making.plugin_door import door, offer_of, offered, running, socket_of
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
REGISTRY = (RegistrationPath.REGISTRY,)
DEVICES = tuple(offered(f"g{index}") for index in range(4))
TICK = 0.2


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubelets answer a Register call whenever this machine comes to it."""
    monkeypatch.setattr(serving, "PATIENCE", 30.0)


def pod(name: str) -> Pod:
    return Pod(f"uid-{name}", name, containers=(Container("app", limits={GPU: 1}),))


def healthy(kubelet: Kubelet) -> int:
    return sum(device.healthy for device in kubelet.devices(GPU))


@asynccontextmanager
async def left(root: Path, generation: Generation = "1.36") -> AsyncIterator[tuple[Kubelet, PluginDoor, Path]]:
    """A kubelet, and a door whose parts have ended; its socket is still there."""
    async with Kubelet(root, generation=generation, reconcile_interval=TICK) as kubelet:
        served = door(root, paths=REGISTRY)
        served.apply(offer_of(GPU, *DEVICES))
        async with running(served):
            await kubelet.wait_for(GPU, healthy=4)
            await eventually(lambda: served.status()[0].registration.state == "registered")
            served.hand_over()
        yield kubelet, served, socket_of(served)


@pytest.mark.parametrize("generation", ["1.35", "1.36"])
async def test_a_kubelet_with_one_slot_keeps_the_devices_of_a_door_that_left_it_and_asks_it_on(
    generation: Generation, short_dir: Path
) -> None:
    async with left(short_dir, generation) as (kubelet, served, socket):
        assert served.status()[0].streams == 0
        await eventually(lambda: kubelet.open_streams(GPU) == 0, "the kubelet has seen the end of its stream")
        socket.unlink()
        await asyncio.sleep(2 * TICK)  # What must not happen would: the kubelet looks, and deregisters the socket.
        assert healthy(kubelet) == 4
        given = await kubelet.admit(pod("a"))
        assert given.admitted
        await served.leave(0.0)


async def test_a_kubelet_with_a_slot_for_each_socket_keeps_its_stream(short_dir: Path) -> None:
    async with left(short_dir, "1.37") as (kubelet, served, _):
        assert kubelet.open_streams(GPU) == 1
        assert (await kubelet.admit(pod("a"))).admitted
        await served.leave(0.0)
        await kubelet.wait_for(GPU, healthy=0)


async def test_kubelets_that_would_forget_whose_stream_they_have_are_not_asked_to(short_dir: Path) -> None:
    """From 1.37 on a second registration of a socket fails, and the end of its stream is nobody's from then on."""
    async with Kubelet(short_dir, generation="1.37", reconcile_interval=TICK) as kubelet:
        served = door(short_dir, paths=REGISTRY)
        served.apply(offer_of(GPU, *DEVICES))
        async with running(served):
            await kubelet.wait_for(GPU, healthy=4)
            name = os.path.relpath(socket_of(served), short_dir / "device-plugins")
            with pytest.raises(RegisterRefused, match="device plugin already connected"):
                await register(short_dir / "device-plugins" / "kubelet.sock", GPU, name, OPTIONS)
        await asyncio.sleep(2 * TICK)
        assert healthy(kubelet) == 4, "as in the real one: it shows the devices of a plugin that is gone"
    async with left(short_dir, "1.37") as (kubelet, served, _):
        await served.leave(0.0)
        await kubelet.wait_for(GPU, healthy=0)


@pytest.mark.parametrize(
    ("agent", "version"),
    [
        ("grpc-go/1.79.3", (1, 79)),
        ("grpc-go/1.82.1 grpc-python-asyncio/1.85.1", (1, 82)),
        ("grpcurl/v1.9.3 grpc-go/1.61.0", None),
        ("grpc-python/1.85.1 grpc-c/52.0.0", None),
        ("", None),
    ],
)
def test_a_kubelet_is_known_by_its_library(agent: str, version: tuple[int, int] | None) -> None:
    assert grpc_go(agent) == version


@pytest.mark.parametrize("generation", ["1.35", "1.36", "1.37"])
async def test_a_successor_gets_the_kubelet_and_the_predecessors_end_is_nobodys(
    generation: Generation, short_dir: Path
) -> None:
    async with left(short_dir, generation) as (kubelet, served, socket):
        successor = door(short_dir, paths=REGISTRY)
        successor.apply(offer_of(GPU, *DEVICES))
        async with running(successor):
            await eventually(lambda: successor.status()[0].streams == 1, "the kubelet has found it")
            # On 1.37 the successor removes it, as soon as it has noticed the kubelet's stream.
            await eventually(lambda: not socket.exists())
            assert await served.leave(120.0), "in time"
            await kubelet.wait_for(GPU, healthy=4)
            assert successor.status()[0].streams == kubelet.open_streams(GPU) == 1
            assert (await kubelet.admit(pod("a"))).admitted
        await kubelet.wait_for(GPU, healthy=0)


async def test_many_resources_are_handed_over_in_the_time_of_one(short_dir: Path) -> None:
    names = [f"nvidia.com/mig-{number}g.5gb" for number in range(1, 8)]
    offer = Offer(tuple(ResourceOffer(name, Rule(name), (offered(f"m{number}"),)) for number, name in enumerate(names)))
    async with Kubelet(short_dir, reconcile_interval=TICK) as kubelet:
        served, successor = door(short_dir, paths=REGISTRY), door(short_dir, paths=REGISTRY)
        for each in (served, successor):
            each.apply(offer)
        async with running(served):
            await eventually(lambda: all(kubelet.allocatable().get(name) == 1 for name in names))
            await eventually(lambda: {one.registration.state for one in served.status()} == {"registered"})
            served.hand_over()
        async with running(successor):
            assert await served.leave(120.0)
            await eventually(lambda: [one.streams for one in successor.status()] == [1] * len(names))
            assert all(kubelet.allocatable()[name] == 1 for name in names)


@pytest.mark.parametrize("generation", ["1.35", "1.36", "1.37"])
async def test_when_no_successor_comes_the_kubelet_learns_of_the_end(generation: Generation, short_dir: Path) -> None:
    async with left(short_dir, generation) as (kubelet, served, socket):
        assert not await served.leave(0.1)
        await kubelet.wait_for(GPU, healthy=0)
        assert not socket.exists()


async def test_no_kubelet_begins_with_a_door_that_has_left(short_dir: Path) -> None:
    async with left(short_dir) as (_, served, socket):
        local = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=local) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await api_pb2_grpc.DevicePluginStub(channel).GetDevicePluginOptions(api_pb2.Empty())
        assert refused.value.details() == "ostler is handing over to another instance: this is not an error"
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        await served.leave(0.0)


async def test_a_door_that_no_kubelet_has_found_ends_at_once(short_dir: Path) -> None:
    (short_dir / "device-plugins").mkdir()
    (short_dir / "plugins_registry").mkdir()
    served = door(short_dir, paths=REGISTRY)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await eventually(lambda: list((short_dir / "plugins_registry").glob("ostler*")))
        served.hand_over()
    assert not list((short_dir / "plugins_registry").glob("ostler*"))
    assert await served.leave(120.0)
