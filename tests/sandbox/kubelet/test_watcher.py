"""The DRA door: sockets in ``plugins_registry``."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.dialling import plugin_channel, ready, registry_channel
from sandbox.kubelet.events import RegistrationFailed
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_watcher import OperationBackoff, RegistryFolder
from tests.sandbox.kubelet.conftest import GPU, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, ScriptedPlugin, devices
from tests.waiting import eventually


def _info(**fields: object) -> PluginScript:
    base: dict[str, object] = {"type": "DevicePlugin", "name": GPU, "supported_versions": ["v1beta1"]}
    return PluginScript(info=api_pb2.PluginInfo(**{**base, **fields}))  # type: ignore[arg-type]


async def _refusal(node: KubeletNode, script: PluginScript) -> str:
    """The error that a plugin with this script is told."""
    kubelet = await node.kubelet()
    stream = kubelet.events()
    plugin = await node.plugin(devices("d", 1), door="watcher", script=script)
    event = await anext(stream)
    assert isinstance(event, RegistrationFailed)
    assert event.door == "watcher"
    assert [(status.plugin_registered, status.error) for status in plugin.notified] == [(False, event.message)]
    return event.message.replace(str(plugin.path), "SOCKET")


async def test_socket_in_the_registry_is_registered_and_told(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 2), door="watcher")
    await kubelet.wait_for(GPU, healthy=2)
    await eventually(lambda: plugin.notified, "the notification")
    assert [(status.plugin_registered, status.error) for status in plugin.notified] == [(True, "")]
    assert kubelet.register_calls[GPU] == 0
    assert kubelet.registrations[GPU] == 1


async def test_kubelet_that_does_not_watch_never_asks(node: KubeletNode) -> None:
    kubelet = await node.kubelet(watch_plugins=False)
    (node.root / "plugins_registry").mkdir()
    plugin = await node.plugin(devices("d", 2), door="watcher", script=PluginScript())
    with pytest.raises(TimeoutError):
        await kubelet.wait_for(GPU, healthy=2, within=0.4)
    assert plugin.info_calls == 0


async def test_plugin_can_serve_elsewhere_than_it_registers(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    service = await node.plugin(devices("d", 1), door=None, name="service.sock")
    await node.plugin([], door="watcher", script=_info(endpoint=str(service.path)))
    await kubelet.wait_for(GPU, healthy=1)
    assert service.streams == 1


async def test_sockets_are_found_at_any_depth_and_before_the_start(node: KubeletNode) -> None:
    folder = node.root / "plugins_registry" / "one" / "two"
    folder.mkdir(parents=True)
    await node.plugin(devices("d", 1), door="watcher", name="one/two/p.sock")
    kubelet = await node.kubelet()
    await kubelet.wait_for(GPU, healthy=1)


async def test_restart_registers_a_live_socket_again_without_its_doing(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1), door="watcher")
    await kubelet.wait_for(GPU, healthy=1)
    await kubelet.restart()
    await kubelet.wait_for(GPU, healthy=1)
    assert kubelet.registrations[GPU] == 1


async def test_vanished_socket_deregisters_and_a_new_one_registers_again(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1), door="watcher")
    await kubelet.wait_for(GPU, healthy=1)
    plugin.path.unlink()
    await kubelet.wait_for(GPU, healthy=0)
    await eventually(lambda: plugin.notified and plugin.notified[-1].plugin_registered)
    await node.plugin(devices("d", 3), door="watcher")
    await kubelet.wait_for(GPU, healthy=3)


async def test_socket_renamed_over_the_old_one_forces_a_new_registration(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1), door="watcher")
    await kubelet.wait_for(GPU, healthy=1)
    second = await node.plugin(devices("e", 2), door="watcher", name=".hidden")
    second.path.rename(second.path.with_name("p.sock"))
    await kubelet.wait_for(GPU, healthy=2)
    assert [item.id for item in kubelet.devices(GPU)] == ["e0", "e1"]


async def test_chmod_of_a_socket_changes_nothing(short_dir: Path) -> None:
    plugin = await ScriptedPlugin(GPU, short_dir / "p.sock").start()
    folder = RegistryFolder(short_dir)
    before = folder.sockets()
    plugin.path.chmod(0o600)
    assert folder.sockets() == before
    assert list(before) == [str(plugin.path)]
    await plugin.stop()


async def test_hidden_names_and_other_files_are_not_looked_at(short_dir: Path) -> None:
    (short_dir / "regular.sock").touch()
    (short_dir / ".old").mkdir()
    (short_dir / "dangling").symlink_to("nowhere")
    folder = RegistryFolder(short_dir)
    plugins = [await ScriptedPlugin(GPU, short_dir / name).start() for name in (".p.sock", ".old/p.sock")]
    assert list(folder.sockets()) == [str(short_dir / ".old/p.sock")]
    (short_dir / ".new").mkdir()
    plugins.append(await ScriptedPlugin(GPU, short_dir / ".new/p.sock").start())
    assert list(folder.sockets()) == [str(short_dir / ".old/p.sock")]
    for plugin in plugins:
        await plugin.stop()


async def test_unknown_type_is_refused(node: KubeletNode) -> None:
    assert await _refusal(node, _info(type="FancyPlugin")) == (
        "RegisterPlugin error -- no handler registered for plugin type: FancyPlugin at socket SOCKET"
    )


async def test_unknown_version_is_refused(node: KubeletNode) -> None:
    assert await _refusal(node, _info(supported_versions=["v1", "v2"])) == (
        "RegisterPlugin error -- plugin validation failed with err: "
        "manager version, v1beta1, is not among plugin supported versions [v1 v2]"
    )


async def test_bad_name_is_refused(node: KubeletNode) -> None:
    assert await _refusal(node, _info(name="gpu")) == (
        "RegisterPlugin error -- plugin validation failed with err: "
        'invalid name of device plugin socket: the ResourceName "gpu" is invalid'
    )


async def test_slow_get_info_fails_after_a_second_and_is_tried_again(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    stream = kubelet.events()
    plugin = await node.plugin(devices("d", 1), door="watcher", script=PluginScript(info_seconds=3.0))
    event = await anext(stream)
    assert isinstance(event, RegistrationFailed)
    assert event.message.startswith(
        f"RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {plugin.path}, "
        "err: rpc error: code = DeadlineExceeded"
    )
    plugin.script.info_seconds = 0.0
    await kubelet.wait_for(GPU, healthy=1)
    await eventually(lambda: plugin.notified and plugin.notified[-1].plugin_registered)


@pytest.mark.parametrize("generation", ["1.36", "1.37"])
async def test_failed_registration_is_tried_again(node: KubeletNode, generation: Generation) -> None:
    kubelet = await node.kubelet(generation=generation)
    stream = kubelet.events()
    plugin = await node.plugin(devices("d", 1), door="watcher", script=PluginScript(options_error="not now"))
    event = await anext(stream)
    assert isinstance(event, RegistrationFailed)
    assert event.message == (
        "RegisterPlugin error -- plugin registration failed with err: "
        "failed to get device plugin options: rpc error: code = Unknown desc = not now"
    )
    plugin.script.options_error = ""
    await kubelet.wait_for(GPU, healthy=1)


async def test_until_1_35_a_failed_registration_is_not_tried_again(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.35")
    stream = kubelet.events()
    plugin = await node.plugin(devices("d", 1), door="watcher", script=PluginScript(options_error="not now"))
    assert isinstance(await anext(stream), RegistrationFailed)
    plugin.script.options_error = ""
    with pytest.raises(TimeoutError):
        await kubelet.wait_for(GPU, healthy=1, within=1.0)
    assert plugin.info_calls == 1
    await node.plugin(devices("d", 1), door="watcher")
    await kubelet.wait_for(GPU, healthy=1)


async def test_error_answer_to_the_notification_undoes_the_registration(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    stream = kubelet.events()
    plugin = await node.plugin(devices("d", 1), door="watcher", script=PluginScript(notify_error="no"))
    async for event in stream:
        if isinstance(event, RegistrationFailed):
            assert event.message == (
                f"RegisterPlugin error -- failed to send registration status at socket {plugin.path}, "
                "err: : rpc error: code = Unknown desc = no"
            )
            break
    assert kubelet.allocatable().get(GPU, 0) == 0
    await eventually(lambda: kubelet.registrations[GPU] == 2, "the next attempt")


async def test_until_1_35_an_error_answer_to_the_notification_is_only_logged(
    node: KubeletNode, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet = await node.kubelet(generation="1.35")
    await node.plugin(devices("d", 1), door="watcher", script=PluginScript(notify_error="no"))
    await kubelet.wait_for(GPU, healthy=1)
    await eventually(lambda: "the plugin did not get the registration status" in caplog.text, "the log line")
    assert (await kubelet.admit(pod("p1"))).admitted


def test_backoff_doubles_up_to_its_limit_and_a_success_resets_it() -> None:
    backoff = OperationBackoff()
    now, waits = 0.0, []
    for _ in range(10):
        backoff.failed("p", now)
        assert not backoff.may_start("p", now)
        assert backoff.may_start("other", now)
        wait = next(seconds / 2 for seconds in range(1, 1000) if backoff.may_start("p", now + seconds / 2))
        waits.append(wait)
        now += wait
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122]
    backoff.succeeded("p")
    backoff.failed("p", now)
    assert backoff.may_start("p", now + 0.5)


def _heard(received: list[bytes], text: str) -> bool:
    return text.encode() in b"".join(received)


async def test_registry_dial_sends_the_encoded_path_and_the_service_dial_localhost(short_dir: Path) -> None:
    heard: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(bytes.fromhex("000000040000000000"))  # An empty SETTINGS frame makes the client go on.
        while data := await reader.read(65536):
            heard.append(data)

    path = str(short_dir / "p.sock")
    server = await asyncio.start_unix_server(listen, path)
    for channel, authority in ((registry_channel(path), quote(path, safe="")), (plugin_channel(path), "localhost")):
        heard.clear()
        assert await ready(channel, 5)
        call = api_pb2_grpc.RegistrationStub(channel).GetInfo(api_pb2.InfoRequest())
        await eventually(partial(_heard, heard, authority), authority)
        call.cancel()
        await channel.close()
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()
