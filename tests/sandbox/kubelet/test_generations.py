"""Two instances of one plugin: what goes wrong up to kubelet 1.36 and right from 1.37 on."""

from __future__ import annotations

import pytest

from protos.pluginregistration.v1 import api_pb2
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.generations import GENERATIONS, Generation, behaviour_of
from tests.sandbox.kubelet.conftest import GPU, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, devices, register
from tests.waiting import eventually


@pytest.mark.parametrize("generation", ["1.35", "1.36"])
async def test_until_1_36_the_end_of_the_old_instance_disconnects_the_new_one(
    node: KubeletNode, generation: Generation
) -> None:
    kubelet = await node.kubelet(generation=generation)
    old = await node.plugin(devices("d", 2), name="old.sock")
    await kubelet.wait_for(GPU, healthy=2)
    new = await node.plugin(devices("d", 3), name="new.sock")
    await kubelet.wait_for(GPU, healthy=3)
    assert (old.streams, new.streams) == (1, 1)
    await old.stop()
    await kubelet.wait_for(GPU, healthy=0)
    await eventually(lambda: new.streams == 0, "the end of the new instance's stream")
    assert kubelet.open_streams(GPU) == 0


async def test_until_1_36_a_failed_second_registration_hides_the_end_of_the_first(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    first = await node.plugin(devices("d", 2), name="first.sock")
    await kubelet.wait_for(GPU, healthy=2)
    await node.plugin([], name="second.sock", door=None, script=PluginScript(options_error="no options today"))
    message = await register(kubelet.settings.device_plugin_dir, GPU, "second.sock")
    assert message == "failed to get device plugin options: rpc error: code = Unknown desc = no options today"
    await first.stop()
    await eventually(lambda: kubelet.open_streams(GPU) == 0, "the end of the first stream")
    assert kubelet.allocatable() == {GPU: 2}


def test_unknown_generation_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        KubeletError, match=r"kubelet generation must be one of 1\.24, 1\.35, 1\.36, 1\.37, not '1\.30'"
    ):
        behaviour_of("1.30")


def test_every_generation_has_its_behaviour() -> None:
    assert [behaviour_of(generation).generation for generation in GENERATIONS] == list(GENERATIONS)


async def test_kubelets_of_1_24_know_no_drivers(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.24")
    info = api_pb2.PluginInfo(type="DRAPlugin", name="gpu.example.com", supported_versions=["v1.DRAPlugin"])
    plugin = await node.plugin(devices("d", 1), door="watcher", script=PluginScript(info=info))
    await eventually(lambda: plugin.notified, "the refusal")
    assert "no handler registered for plugin type: DRAPlugin" in plugin.notified[0].error
    assert kubelet.dra.drivers.names() == ()


async def test_from_1_37_a_surviving_instance_takes_over(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.37")
    old = await node.plugin(devices("d", 2), name="old.sock")
    await kubelet.wait_for(GPU, healthy=2)
    new = await node.plugin(devices("d", 3), name="new.sock")
    await kubelet.wait_for(GPU, healthy=3)
    await new.stop()
    await eventually(lambda: kubelet.open_streams(GPU) == 1, "the end of the new instance")
    assert kubelet.allocatable() == {GPU: 3}
    assert (await kubelet.admit(pod("p1"))).admitted
    assert [call["rpc"] for call in old.calls] == ["Allocate"]
    await old.stop()
    await kubelet.wait_for(GPU, healthy=0)


async def test_from_1_37_the_end_of_the_old_instance_harms_nobody(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.37")
    old = await node.plugin(devices("d", 2), name="old.sock")
    await kubelet.wait_for(GPU, healthy=2)
    new = await node.plugin(devices("d", 2), name="new.sock")
    await eventually(lambda: kubelet.list_messages[GPU] == 2, "the new instance's list")
    await old.stop()
    await eventually(lambda: kubelet.open_streams(GPU) == 1, "the end of the old instance")
    assert (await kubelet.admit(pod("p1"))).admitted
    assert [call["rpc"] for call in new.calls] == ["Allocate"]


async def test_from_1_37_the_last_list_of_any_instance_counts(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.37")
    old = await node.plugin(devices("d", 2), name="old.sock")
    await node.plugin(devices("d", 3), name="new.sock")
    await kubelet.wait_for(GPU, healthy=3)
    await old.update(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)


async def test_from_1_37_one_socket_is_not_connected_twice(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.37")
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    message = await register(kubelet.settings.device_plugin_dir, GPU, plugin.path.name)
    assert message == f"device plugin already connected: {plugin.path}"
    assert kubelet.allocatable() == {GPU: 1}


async def test_until_1_36_a_registration_again_opens_a_second_stream(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1))
    assert await register(kubelet.settings.device_plugin_dir, GPU, plugin.path.name) == ""
    await eventually(lambda: plugin.streams == 2, "the second stream")
    assert kubelet.open_streams(GPU) == 2
