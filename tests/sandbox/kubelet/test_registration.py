"""The first door: plugins that call Register."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import grpc.aio
import pytest

from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.events import ListReceived, PluginDeregistered, PluginRegistered, RegistrationFailed
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.registration import remove_sockets
from tests.sandbox.kubelet.conftest import GPU, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, device, devices, register
from tests.waiting import eventually


async def test_registered_plugin_counts_with_its_first_list(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin([*devices("d", 2), device("sick", "Unhealthy")])
    await kubelet.wait_for(GPU, healthy=2)
    assert kubelet.capacity().capacity == {GPU: 3}
    assert kubelet.allocatable() == {GPU: 2}
    assert (kubelet.registrations[GPU], kubelet.register_calls[GPU], kubelet.list_messages[GPU]) == (1, 1, 1)
    last = kubelet.last_list(GPU)
    assert last is not None
    assert [item.ID for item in last.devices] == ["d0", "d1", "sick"]


async def test_events_tell_what_happens_in_its_order(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    called: list[object] = []
    kubelet.on_event(called.append)
    stream = kubelet.events()
    plugin = await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    await plugin.stop()
    await kubelet.wait_for(GPU, healthy=0)
    path = str(plugin.path)
    expected = [
        PluginRegistered(GPU, path, "register"),
        ListReceived(GPU, 1, 2, 0),
        PluginDeregistered(GPU, path, devices_lost=True),
    ]
    assert [await anext(stream) for _ in expected] == expected
    assert called == expected
    await kubelet.stop()
    assert [event async for event in stream] == []


async def test_refused_registration_is_told_to_the_plugin_and_as_an_event(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    stream = kubelet.events()
    message = await register(kubelet.settings.device_plugin_dir, "gpu", "p.sock")
    assert message == 'the ResourceName "gpu" is invalid'
    event = await anext(stream)
    assert isinstance(event, RegistrationFailed)
    assert (event.resource, event.door, event.message) == ("gpu", "register", message)
    assert (kubelet.register_calls["gpu"], kubelet.registrations["gpu"]) == (1, 0)


async def test_socket_that_never_comes_fails_after_the_whole_time(node: KubeletNode) -> None:
    kubelet = await node.kubelet(dial_timeout=0.2)
    message = await register(kubelet.settings.device_plugin_dir, GPU, "none.sock")
    assert message == "failed to dial device plugin: context deadline exceeded"


async def test_full_path_as_endpoint_ends_up_inside_the_folder(node: KubeletNode) -> None:
    kubelet = await node.kubelet(dial_timeout=0.1)
    plugin = await node.plugin(devices("d", 1), door=None)
    stream = kubelet.events()
    folder = kubelet.settings.device_plugin_dir
    assert await register(folder, GPU, str(plugin.path)) != ""
    event = await anext(stream)
    assert isinstance(event, RegistrationFailed)
    assert event.socket == f"{folder}{plugin.path}"


async def test_deadline_of_register_bounds_the_dial_back(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1), door=None, script=PluginScript(options_error="hang"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await register(kubelet.settings.device_plugin_dir, GPU, plugin.path.name, timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: not kubelet.manager.connections.connected(GPU), "an empty slot")
    assert kubelet.open_streams(GPU) == 0


async def test_kubelet_can_end_a_connection_by_itself(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    kubelet.disconnect(GPU)
    await kubelet.wait_for(GPU, healthy=0)
    await eventually(lambda: plugin.streams == 0, "the end of the plugin's stream")
    assert [item.healthy for item in kubelet.devices(GPU)] == [False]


async def test_register_again_after_a_lost_stream_brings_the_devices_back(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    kubelet.disconnect(GPU)
    await kubelet.wait_for(GPU, healthy=0)
    assert await register(kubelet.settings.device_plugin_dir, GPU, plugin.path.name) == ""
    await kubelet.wait_for(GPU, healthy=1)
    assert kubelet.registrations[GPU] == 2


def test_start_removes_sockets_only(short_dir: Path) -> None:
    (short_dir / "sub").mkdir()
    (short_dir / "regular.sock").touch()
    for name in ("sub/stale.sock", "stale.sock", ".hidden.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(short_dir / name))
    (short_dir / "link.sock").symlink_to("sub/stale.sock")
    (short_dir / "dangling.sock").symlink_to("nowhere")
    remove_sockets(short_dir)
    assert {path.name for path in short_dir.iterdir()} == {"sub", "regular.sock", "dangling.sock"}
    assert (short_dir / "sub" / "stale.sock").is_socket()


async def test_folder_too_long_for_sockets_is_one_clear_error(short_dir: Path) -> None:
    kubelet = Kubelet(short_dir / ("x" * 100))
    with pytest.raises(
        KubeletError,
        match=r"^the kubelet cannot start in .*x: .*/device-plugins/kubelet\.sock: AF_UNIX path too long$",
    ):
        await kubelet.start()
    with pytest.raises(KubeletError, match="the kubelet is not running; start it first"):
        kubelet.capacity()


async def test_second_start_is_refused(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    with pytest.raises(KubeletError, match="already running; stop it first"):
        await kubelet.start()


async def test_waiting_in_vain_says_what_there_is(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    with pytest.raises(TimeoutError, match=r"a\.example/gpu has None healthy devices, not 1, after 0\.05 s"):
        await kubelet.wait_for(GPU, healthy=1, within=0.05)


async def test_stop_ends_everything_while_plugins_hang(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    script = PluginScript(allocate="hang")
    plugin = await node.plugin(devices("d", 1), script=script)
    await kubelet.wait_for(GPU, healthy=1)
    admission = asyncio.create_task(kubelet.admit(pod("p1")))
    await plugin.called.wait()
    slow = await node.plugin(
        [], door=None, name="q.sock", resource="c.example/x", script=PluginScript(options_error="hang")
    )
    registering = asyncio.create_task(
        register(kubelet.settings.device_plugin_dir, slow.resource, slow.path.name, timeout=60)
    )
    await eventually(lambda: kubelet.manager.connections.connected(slow.resource), "a dial-back")
    began = time.monotonic()
    await kubelet.stop()
    assert time.monotonic() - began < 30
    verdict = await admission
    assert "rpc error: code = Canceled desc = grpc: the client connection is closing" in verdict.message
    with pytest.raises(grpc.aio.AioRpcError):
        await registering
    await kubelet.stop()


async def test_call_timeout_keeps_a_hanging_plugin_from_blocking_admissions(node: KubeletNode) -> None:
    kubelet = await node.kubelet(call_timeout=0.2)
    await node.plugin(devices("d", 1), script=PluginScript(allocate="hang"))
    await kubelet.wait_for(GPU, healthy=1)
    verdict = await kubelet.admit(pod("p1"))
    assert verdict.error.startswith("rpc error: code = DeadlineExceeded")
    assert (verdict.admitted, verdict.reason) == (False, "UnexpectedAdmissionError")
    assert verdict.message == f"Allocate failed due to {verdict.error}, which is unexpected"


async def test_folders_are_as_on_a_node(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    folders = {"device-plugins", "plugins_registry", "pod-resources", "dra_manager_state"}
    assert {path.name for path in node.root.iterdir()} == folders
    assert [path.name for path in kubelet.settings.device_plugin_dir.iterdir()] == ["kubelet.sock"]


async def test_device_plugin_folder_can_be_elsewhere(node: KubeletNode) -> None:
    folder = node.root / "elsewhere"
    kubelet = await node.kubelet(device_plugin_dir=folder)
    assert (folder / "kubelet.sock").is_socket()
    assert kubelet.capacity().capacity == {}
