"""What the standalone node says of plugins that do not register."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from protos.pluginregistration.v1 import api_pb2 as registration
from sandbox.standalone.node import StandaloneNode
from sandbox.standalone.settings import StandaloneError, StandaloneSettings
from tests.making.namespaces import needs_namespaces
from tests.sandbox.kubelet.scripted_plugin import PluginScript, ScriptedPlugin, devices, register
from tests.waiting import eventually

pytestmark = needs_namespaces


class _Lines(list[str]):
    def aside(self, source: str, text: str) -> None:
        self.append(f"{source} | {text}")


@pytest.fixture
async def lines() -> _Lines:
    return _Lines()


@pytest.fixture
async def node(lines: _Lines) -> AsyncIterator[StandaloneNode]:
    settings = StandaloneSettings(command=("sh", "-c", "echo up; sleep 600"), wait=0.05)
    async with StandaloneNode(settings, lines) as node:
        await eventually(lambda: "plugin | up" in lines, "the plugin's log")
        yield node


async def _problem(node: StandaloneNode) -> str:
    with pytest.raises(StandaloneError) as error:
        await node.registered()
    assert node.plugin is not None
    begin = f"{node.plugin} (process {node.plugin.pid}) has not registered and listed devices within 0.05 s: "
    end = "; the end of its log:\n  up"
    text = str(error.value)
    assert text.startswith(begin)
    assert text.endswith(end)
    return text.removeprefix(begin).removesuffix(end)


async def test_plugin_that_serves_without_a_registration_is_told_where(node: StandaloneNode) -> None:
    plugin = ScriptedPlugin("a.example/b", node.folder / "device-plugins" / "mute.sock", devices("d", 1))
    await plugin.start()
    try:
        assert await _problem(node) == (
            "it serves device-plugins/mute.sock. A plugin calls Register at "
            "/var/lib/kubelet/device-plugins/kubelet.sock, or answers GetInfo on a socket in plugins_registry"
        )
    finally:
        await plugin.stop()


async def test_plugin_that_misses_the_kubelets_restart_is_told_what_it_missed(node: StandaloneNode) -> None:
    folder = node.folder / "device-plugins"
    plugin = ScriptedPlugin("a.example/b", folder / "deaf.sock", devices("d", 1))
    await plugin.start()
    try:
        assert await register(folder, "a.example/b", "deaf.sock") == ""
        await node.kubelet.wait_for("a.example/b", healthy=1)
        with pytest.raises(StandaloneError) as error:
            await node.restart_kubelet()
    finally:
        await plugin.stop()
    assert str(error.value) == (
        "a.example/b did not register again within 0.05 s of the kubelet's restart, which removes all sockets in "
        "device-plugins and makes kubelet.sock anew: a plugin there has to notice and to call Register again"
    )


async def test_refused_registration_is_what_the_problem_names(node: StandaloneNode, lines: _Lines) -> None:
    info = registration.PluginInfo(type="DevicePlugin", name="Bad/name", supported_versions=["v1beta1"])
    path = node.folder / "plugins_registry" / "bad.sock"
    plugin = ScriptedPlugin("Bad/name", path, devices("d", 1), PluginScript(info=info))
    await plugin.start()
    try:
        await eventually(lambda: any(" failed: " in line for line in lines), "the refusal")
        assert await _problem(node) == (
            "registration of plugins_registry/bad.sock by plugins_registry failed: RegisterPlugin error -- plugin "
            'validation failed with err: invalid name of device plugin socket: the ResourceName "Bad/name" is invalid'
        )
    finally:
        await plugin.stop()
