"""Themes of the plugin manager's tests, and what they leave open: slow, wrong and failing plugins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from protos.pluginregistration.v1 import api_pb2
from sandbox.kubelet.errors import RegistrationError
from sandbox.kubelet.events import EventFeed, RegistrationFailed
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_watcher import PluginWatcher, RegistryFolder, Stamp
from tests.making.clock import ManualClock
from tests.sandbox.kubelet.conftest import GPU, KubeletNode
from tests.sandbox.kubelet.scripted_plugin import PluginScript, ScriptedPlugin, devices
from tests.waiting import eventually


class _Recorder:
    """A handler that records; ``hold`` makes ``register`` wait for ``go_on``, ``refuse`` makes it fail."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.go_on = asyncio.Event()
        self.hold = False
        self.refuse = ""
        self.registering = 0
        self.most_at_once = 0

    def validate(self, name: str, socket: str, versions: Sequence[str]) -> None:
        self.events.append(("validate", name))

    async def register(self, name: str, socket: str, versions: Sequence[str]) -> None:
        self.registering += 1
        self.most_at_once = max(self.most_at_once, self.registering)
        try:
            if self.hold:
                await self.go_on.wait()
        finally:
            self.registering -= 1
        if self.refuse:
            raise RegistrationError(self.refuse)
        self.events.append(("register", name))

    def deregister(self, name: str, socket: str) -> None:
        self.events.append(("deregister", name))


class CountedFolder(RegistryFolder):
    """Counts the looks at the folder."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.looks = 0

    def sockets(self) -> dict[str, Stamp]:
        self.looks += 1
        return super().sockets()


class _Watched:
    """A plugin watcher on ``folder`` with a handler that records, and plugins in the folder."""

    def __init__(self, folder: Path, generation: Generation = "1.36") -> None:
        self.folder = folder
        self.handler = _Recorder()
        self.clock = ManualClock(0.0)
        self.feed = EventFeed()
        self.failures: list[str] = []
        self.feed.subscribe(self._note)
        self.plugins: list[ScriptedPlugin] = []
        self.watcher = PluginWatcher(
            folder,
            {"DevicePlugin": self.handler},
            generation=generation,
            feed=self.feed,
            interval=0.01,
            clock=self.clock,
        )
        self._folder = self.watcher._folder = CountedFolder(folder)
        self._running: asyncio.Task[None] | None = None

    async def some_rounds(self) -> None:
        """Wait until the watcher has looked a few times more, and reconciled as often."""
        before = self._folder.looks
        await eventually(lambda: self._folder.looks > before + 4, "some rounds")

    def _note(self, event: object) -> None:
        if isinstance(event, RegistrationFailed):
            self.failures.append(event.message)

    def start(self) -> None:
        self._running = asyncio.create_task(self.watcher.run())

    async def plugin(self, path: str, name: str = GPU, script: PluginScript | None = None) -> ScriptedPlugin:
        own = self.folder / path
        own.parent.mkdir(parents=True, exist_ok=True)
        plugin = await ScriptedPlugin(name, own, script=script or PluginScript()).start()
        self.plugins.append(plugin)
        return plugin

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        for plugin in self.plugins:
            await plugin.stop()


@pytest.fixture
async def watched(short_dir: Path) -> AsyncIterator[_Watched]:
    watched = _Watched(short_dir)
    yield watched
    await watched.close()


def _name(number: int) -> str:
    return f"a.example/r{number}"


async def test_manager_plugin_registration(watched: _Watched) -> None:
    watched.start()
    for number, path in enumerate(("p.sock", "one/p.sock", "one/two/p.sock")):
        await watched.plugin(path, _name(number))
    events = watched.handler.events
    await eventually(lambda: len(events) == 6, "three registrations")
    for number in range(3):
        assert [what for what, name in events if name == _name(number)] == ["validate", "register"]


async def test_watcher_plugin_registration(watched: _Watched) -> None:
    folder = RegistryFolder(watched.folder)
    assert folder.sockets() == {}
    plugins = [await watched.plugin(f"p{number}.sock") for number in range(10)]
    assert sorted(folder.sockets()) == sorted(str(plugin.path) for plugin in plugins)
    for plugin in plugins:
        plugin.path.unlink()
    assert folder.sockets() == {}


async def test_watcher_plugin_registration_same_name(watched: _Watched) -> None:
    watched.start()
    plugins = [await watched.plugin(f"p{number}.sock") for number in range(10)]
    await eventually(lambda: len(watched.watcher.registered) == 10, "all of them")
    assert {plugin.name for plugin in watched.watcher.registered.values()} == {GPU}
    assert sorted(watched.watcher.registered) == sorted(str(plugin.path) for plugin in plugins)


async def test_watcher_plugin_re_registration(watched: _Watched) -> None:
    folder = RegistryFolder(watched.folder)
    first = await watched.plugin("p.sock")
    before = folder.sockets()
    await first.stop()
    await watched.plugin("p.sock")
    after = folder.sockets()
    assert before.keys() == after.keys() == {str(first.path)}
    assert before != after, "another stamp"


async def test_watcher_plugin_registration_at_kubelet_start(watched: _Watched) -> None:
    for number in range(3):
        await watched.plugin(f"p{number}.sock", _name(number))
    watched.start()
    await eventually(lambda: len(watched.watcher.registered) == 3, "those that were there")


async def test_reconciler_do_nothing(watched: _Watched) -> None:
    plugin = await watched.plugin("p.sock")
    watched.start()
    await eventually(lambda: watched.handler.events.count(("register", GPU)) == 1, "the registration")
    await eventually(lambda: plugin.notified, "the verdict")
    calls = plugin.info_calls
    await watched.some_rounds()
    assert watched.handler.events == [("validate", GPU), ("register", GPU)]
    assert plugin.info_calls == calls == 1, "a registered plugin is not asked again"


async def test_reconciler_register(watched: _Watched) -> None:
    watched.start()
    plugin = await watched.plugin("p.sock")
    await eventually(lambda: watched.handler.events == [("validate", GPU), ("register", GPU)], "the registration")
    assert list(watched.watcher.registered) == [str(plugin.path)]


async def test_reconciler_register_then_unregister(watched: _Watched) -> None:
    watched.start()
    plugin = await watched.plugin("p.sock")
    await eventually(lambda: plugin.notified, "the registration")
    plugin.path.unlink()
    await eventually(lambda: ("deregister", GPU) in watched.handler.events, "the end")
    assert watched.watcher.registered == {}


async def test_reconciler_re_register(watched: _Watched) -> None:
    watched.start()
    plugin = await watched.plugin("p.sock")
    await eventually(lambda: plugin.notified, "the registration")
    await plugin.stop()
    await watched.plugin("p.sock")
    order = [("validate", GPU), ("register", GPU), ("deregister", GPU), ("validate", GPU), ("register", GPU)]

    def again() -> bool:
        watched.clock.now += 1  # a look at the socket that ended may have failed: it is repeated after a pause
        return watched.handler.events == order

    await eventually(again, "the second registration")


async def test_operations_of_one_socket_never_overlap_and_those_of_others_do(watched: _Watched) -> None:
    watched.handler.hold = True
    watched.start()
    plugins = [await watched.plugin(f"p{number}.sock", _name(number)) for number in range(3)]
    await eventually(lambda: watched.handler.registering == 3, "three at once")
    plugins[0].path.unlink()
    await watched.some_rounds()
    assert watched.handler.most_at_once == 3
    assert ("deregister", _name(0)) not in watched.handler.events, "the removal waits for the registration"
    watched.handler.go_on.set()
    await eventually(lambda: ("deregister", _name(0)) in watched.handler.events, "the removal")


def _has(items: Sequence[object], count: int) -> bool:
    return len(items) == count


async def test_back_off_of_a_socket_follows_the_injected_clock(watched: _Watched) -> None:
    watched.handler.refuse = "not now"
    watched.start()
    plugin = await watched.plugin("p.sock")
    for attempt, seconds in enumerate((0.5, 1.0, 2.0, 4.0), start=1):
        await eventually(partial(_has, watched.failures, attempt), "the failure")
        watched.clock.now += seconds - 0.01
        await watched.some_rounds()
        assert plugin.info_calls == attempt, "too early"
        watched.clock.now += 0.02
    watched.handler.refuse = ""
    await eventually(lambda: ("register", GPU) in watched.handler.events, "the registration")


async def test_removal_waits_behind_failed_registrations(short_dir: Path) -> None:
    watched = _Watched(short_dir, "1.35")
    watched.handler.refuse = "not now"
    watched.start()
    plugin = await watched.plugin("p.sock")
    await eventually(lambda: watched.failures, "the failure")
    plugin.path.unlink()
    await watched.some_rounds()
    assert ("deregister", GPU) not in watched.handler.events
    watched.clock.now += 1.0
    await eventually(lambda: ("deregister", GPU) in watched.handler.events, "the removal")
    await watched.close()


def _info(**fields: object) -> PluginScript:
    base: dict[str, object] = {"type": "DevicePlugin", "name": GPU, "supported_versions": ["v1beta1"]}
    return PluginScript(info=api_pb2.PluginInfo(**{**base, **fields}))  # type: ignore[arg-type]


async def test_relative_endpoint_is_dialled_as_it_stands_and_fails(node: KubeletNode) -> None:
    kubelet = await node.kubelet(dial_timeout=0.5)
    stream = kubelet.events()
    plugin = await node.plugin(devices("d", 1), door="watcher", script=_info(endpoint="p.sock"))
    event = await anext(stream)
    assert isinstance(event, RegistrationFailed)
    assert event.message == (
        "RegisterPlugin error -- plugin registration failed with err: "
        "failed to dial device plugin: context deadline exceeded"
    )
    assert event.fault is not None
    assert event.fault.socket == "p.sock"
    assert plugin.notified[0].error == event.message


@pytest.mark.parametrize(("generation", "stays"), [("1.35", True), ("1.36", False)])
async def test_notify_slower_than_its_time(
    short_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    generation: Generation,
    stays: bool,
) -> None:
    monkeypatch.setattr("sandbox.kubelet.plugin_watcher.NOTIFY_SECONDS", 0.1)
    watched = _Watched(short_dir, generation)
    watched.start()
    plugin = await watched.plugin("p.sock", script=PluginScript(notify_seconds=30.0))
    await eventually(lambda: plugin.notified, "the verdict")
    if stays:
        await eventually(lambda: "the plugin did not get the registration status" in caplog.text, "the line in the log")
        assert ("deregister", GPU) not in watched.handler.events
        assert list(watched.watcher.registered) == [str(plugin.path)]
    else:
        await eventually(lambda: ("deregister", GPU) in watched.handler.events, "the end")
        assert watched.failures[0].startswith(
            f"RegisterPlugin error -- failed to send registration status at socket {plugin.path}, err: : rpc error: "
        )
    await watched.close()
