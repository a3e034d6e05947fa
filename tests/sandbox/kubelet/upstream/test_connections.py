"""Themes of the tests of several instances for one resource, as kubelets from 1.37 on connect them."""

from __future__ import annotations

from sandbox.kubelet.events import PluginRegistered, RegistrationFailed
from sandbox.kubelet.kubelet import Kubelet
from tests.sandbox.kubelet.conftest import GPU, KubeletNode
from tests.sandbox.kubelet.scripted_plugin import devices, register
from tests.waiting import eventually


async def _newest(node: KubeletNode) -> Kubelet:
    return await node.kubelet(generation="1.37")


async def test_plugin_connected_same_resource_same_socket_rejected(node: KubeletNode) -> None:
    kubelet = await _newest(node)
    plugin = await node.plugin(devices("d", 1))
    message = await register(kubelet.settings.device_plugin_dir, GPU, plugin.path.name)
    assert message == f"device plugin already connected: {plugin.path}"


async def test_plugin_connected_different_sockets_coexist(node: KubeletNode) -> None:
    kubelet = await _newest(node)
    first = await node.plugin(devices("d", 1), name="1.sock")
    second = await node.plugin(devices("d", 2), name="2.sock")
    await kubelet.wait_for(GPU, healthy=2)
    assert [one.socket for one in kubelet.manager.connections.connected(GPU)] == [str(first.path), str(second.path)]
    endpoint = kubelet.manager.state.endpoint(GPU)
    assert endpoint is not None
    assert endpoint.socket == str(second.path), "the last one is asked"


async def test_plugin_disconnected_wrong_socket_is_noop(node: KubeletNode) -> None:
    kubelet = await _newest(node)
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    kubelet.manager.disconnect(GPU, "/somewhere/else.sock")
    assert kubelet.allocatable() == {GPU: 1}
    assert kubelet.open_streams(GPU) == 1


async def test_plugin_disconnected_promotes_survivor(node: KubeletNode) -> None:
    kubelet = await _newest(node)
    first = await node.plugin(devices("d", 1), name="1.sock")
    await kubelet.wait_for(GPU, healthy=1)
    second = await node.plugin(devices("d", 2), name="2.sock")
    await kubelet.wait_for(GPU, healthy=2)
    await second.stop()
    await eventually(lambda: kubelet.open_streams(GPU) == 1, "the end of the second")
    endpoint = kubelet.manager.state.endpoint(GPU)
    assert endpoint is not None
    assert endpoint.socket == str(first.path)
    assert kubelet.allocatable() == {GPU: 2}, "devices stay healthy"


async def test_plugin_disconnected_last_endpoint_marks_unhealthy(node: KubeletNode) -> None:
    kubelet = await _newest(node)
    plugins = [await node.plugin(devices("d", 1), name=f"{number}.sock") for number in range(2)]
    await kubelet.wait_for(GPU, healthy=1)
    for plugin in plugins:
        await plugin.stop()
    await kubelet.wait_for(GPU, healthy=0)
    assert kubelet.capacity().capacity == {GPU: 1}


async def test_same_socket_race_late_disconnect(node: KubeletNode) -> None:
    kubelet = await _newest(node)
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    old = kubelet.manager.connections.connected(GPU)[0]
    kubelet.disconnect(GPU)
    assert await register(kubelet.settings.device_plugin_dir, GPU, plugin.path.name) == ""
    await kubelet.wait_for(GPU, healthy=1)
    await old.close()
    await eventually(lambda: plugin.streams == 1, "the end of the old stream")
    assert kubelet.allocatable() == {GPU: 1}, "the end of the previous owner does not reach the new one"


async def test_same_socket_race_disconnect_before_reconnect(node: KubeletNode) -> None:
    kubelet = await _newest(node)
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await plugin.stop()
    await kubelet.wait_for(GPU, healthy=0)
    await node.plugin(devices("d", 3))
    await kubelet.wait_for(GPU, healthy=3)


async def test_same_socket_race_fast_takeover_infinite_retries(node: KubeletNode) -> None:
    kubelet = await _newest(node)
    stream = kubelet.events()
    folder = kubelet.settings.device_plugin_dir
    first = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    refusal = f"device plugin already connected: {first.path}"
    assert await register(folder, GPU, first.path.name) == refusal
    await first.stop()
    successor = await node.plugin(devices("d", 2), door=None)
    assert [await register(folder, GPU, successor.path.name) for _ in range(3)] == [refusal] * 3, "and so for ever"
    await node.plugin(devices("d", 3), name="own.sock")
    await kubelet.wait_for(GPU, healthy=3)
    stream.close()
    seen = [type(event) async for event in stream]
    assert (seen.count(RegistrationFailed), seen.count(PluginRegistered)) == (4, 2)
