"""Another plugin for the same resource: named and not fought."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ostler.metrics.counters import PluginMetrics
from plugin.kubelet import RegistrationPath
from plugin.slot_ownership import foreign_sockets, newcomers_with, sockets_of_others
from protos.deviceplugin.v1beta1 import api_pb2
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from sandbox.kubelet.kubelet import Kubelet
from tests.making.events import RecordedEvents
from tests.making.plugin_door import door, offer_of, offered, running, state
from tests.plugin.foreigners import GPU, Foreign, in_registry, registering
from tests.waiting import eventually

REGISTRY = (RegistrationPath.REGISTRY,)
REGISTER = (RegistrationPath.REGISTER,)
EITHER = pytest.mark.parametrize("paths", [REGISTRY, REGISTER], ids=["registry", "register"])
DEVICES = tuple(offered(f"g{index}", index // 2) for index in range(4))


@pytest.fixture
async def kubelet(short_dir: Path) -> AsyncIterator[Kubelet]:
    async with Kubelet(short_dir, reconcile_interval=0.05) as started:
        yield started


@asynccontextmanager
async def foreign_plugin(root: Path) -> AsyncIterator[None]:
    """A plugin with one of our devices."""
    async with registering(root, Foreign("g0")):
        yield


@EITHER
async def test_a_foreign_plugin_that_takes_the_resource_twice_is_named_and_not_fought(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...]
) -> None:
    told = RecordedEvents()
    counters = PluginMetrics()
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
        assert told.of("ForeignPlugin") == [
            f"{GPU}: another plugin serves it at {path}; remove that plugin, ostler waits meanwhile"
        ]
        assert counters.conflicts.counts == {(GPU,): 1}
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
    told = RecordedEvents()
    served = door(short_dir, told, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        for _ in range(3):
            await eventually(lambda: state(served) == "registered")
            kubelet.disconnect(GPU)
            await eventually(lambda: state(served) != "registered")
        await eventually(lambda: state(served) == "registered")
    assert told.of("ForeignPlugin") == []


async def test_sockets_are_found_below_the_registry_as_well_and_hidden_ones_nowhere(short_dir: Path) -> None:
    (short_dir / "plugins_registry" / "vendor").mkdir(parents=True)
    names = [
        "plugins_registry/vendor/deep.sock",
        "plugins_registry/top.sock",
        "plugins_registry/.hidden",
        "kubelet.sock",
    ]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(short_dir / name))
        (short_dir / "plugins_registry" / "file").touch()
        found = sockets_of_others((short_dir, short_dir / "missing"), [short_dir / "plugins_registry/top.sock"])
    assert found == [short_dir / "plugins_registry/vendor/deep.sock"]


async def test_a_newcomer_that_names_our_resource_counts_only_with_our_devices(short_dir: Path) -> None:
    (short_dir / "plugins_registry").mkdir()
    ours, strange = Foreign("g0"), Foreign("strange-1")
    async with in_registry(short_dir, ours, "a.sock") as same, in_registry(short_dir, strange, "b.sock") as other:
        assert await newcomers_with([same, other], GPU, ["g0", "g1"]) == [same]
        assert await foreign_sockets([same, other], GPU, ["g0", "g1"]) == [same, other]
        assert await foreign_sockets([same, other], "a.b/c", ["x"], frozenset(["strange-1"])) == [other]


async def test_who_prefers_whatever_it_is_asked_for_is_no_proof(short_dir: Path) -> None:
    class Echo(Foreign):
        async def GetPreferredAllocation(
            self, request: api_pb2.PreferredAllocationRequest, context: object
        ) -> api_pb2.PreferredAllocationResponse:
            asked = request.container_requests[0].available_deviceIDs
            return api_pb2.PreferredAllocationResponse(container_responses=[{"deviceIDs": asked}])

        async def GetInfo(self, request: object, context: object) -> registration_pb2.PluginInfo:
            return registration_pb2.PluginInfo(type="CSIPlugin", name="x")

    (short_dir / "plugins_registry").mkdir()
    async with in_registry(short_dir, Echo("g0")) as path:
        assert await newcomers_with([path], GPU, ["g0"]) == []
