"""A node for plugins: the embedded kubelet in a folder, the plugin's command, and an API server if asked for.

Whatever happens, leaving it ends the command and all its children, every server and socket, and removes the temporary
folder. A folder that the caller names stays, with the kubelet's checkpoint in it: another kubelet goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from node.sockets import is_answered
from sandbox.apiserver.server import ApiServer
from sandbox.cluster.client import ClusterClient, KubeletApi
from sandbox.cluster.cluster import PodOutcome, SandboxCluster
from sandbox.kubelet.dra.settings import DraManagerSettings
from sandbox.kubelet.events import (
    DriverConnection,
    HealthChanged,
    KubeletEvent,
    ListReceived,
    PluginCallFailed,
    PluginDeregistered,
    PluginRegistered,
)
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.plugin_process import BUILT_IN, FOLDERS, GRACE_SECONDS, PluginExit, PluginProcess
from sandbox.kubelet.topology import TopologyManager
from sandbox.standalone.event_lines import DETAILS, event_line
from sandbox.standalone.pods import StandalonePods

LONGEST_ROOT = 60
"""Bytes of the root's path: sockets have 107 in all, and those below it have long names."""

PUBLISH_SECONDS = 5.0
"""How long a driver that has registered may take to publish its devices before a pod is admitted all the same."""

WAIT_SECONDS = 15.0
"""How long a plugin may take to register, unless the caller says otherwise."""

MOST_CHANGES = 5
"""Changes of devices' health that are shown of one list."""

CDI = Path("/var/run/cdi")
"""Where plugins write CDI specs; the command sees a folder of ours there."""

_REAL = ("pki", "pods", "config.yaml")
"""What lies in the folder of a kubelet that runs, or ran, containers."""


class StandaloneError(Exception):
    """The node cannot start, or the plugin did not do what it was waited for; the text says what to look at."""


class Console(Protocol):
    """Where lines go that no command asked for."""

    def aside(self, source: str, text: str) -> None:
        """Show a line of ``source``: the plugin or the kubelet."""


@dataclass(frozen=True, slots=True)
class StandaloneSettings:
    """How the node is set up. ``root`` None: a temporary folder; ``command`` empty: plugins are started elsewhere.

    ``environment`` is added to the command's. ``call_timeout``: seconds, None for ever, as in real kubelets.
    ``wait``: seconds that a plugin may take to register.
    """

    root: Path | None = None
    topology: TopologyManager = field(default_factory=TopologyManager)
    generation: Generation = "1.36"
    api_server: bool = False
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    node_name: str = "node"
    call_timeout: float | None = None
    wait: float = WAIT_SECONDS
    grace: float = GRACE_SECONDS
    reconcile_interval: float = 0.2


class StandaloneNode:
    """One node; use it with ``async with``. Raises ``StandaloneError`` and ``KubeletError`` when it cannot start."""

    def __init__(self, settings: StandaloneSettings, console: Console) -> None:
        self.settings = settings
        self.root = settings.root.absolute() if settings.root is not None else None
        self._temporary: Path | None = None
        self._console = console
        if self.root is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="ostler-", dir="/tmp"))
            self.root = self._temporary / "kubelet"
        else:
            check_root(self.root)
        self.folder: Path = self.root
        self.cdi = self.folder / "cdi"
        self._server = ApiServer() if settings.api_server else None
        client = ClusterClient(self._server.url) if self._server is not None else None
        dra = DraManagerSettings(KubeletApi(client, settings.node_name) if client is not None else None)
        self.kubelet = Kubelet(
            self.folder,
            generation=settings.generation,
            reconcile_interval=settings.reconcile_interval,
            dra=dra,
            topology=settings.topology,
            call_timeout=settings.call_timeout,
            seen_as=BUILT_IN,
        )
        # A plugin that is started elsewhere writes where it always does.
        specs = [Path("/etc/cdi"), self.cdi if settings.command else CDI]
        self.cluster = SandboxCluster(client, settings.node_name, self.kubelet, specs) if client is not None else None
        self.pods = StandalonePods(self.kubelet, self.cluster, specs)
        self.plugin = self._process() if settings.command else None
        self.is_up = False
        self.connected: dict[str, dict[str, str]] = {}
        """Resource or driver -> socket -> door, of those that are registered now."""
        self.watchers: list[Callable[[KubeletEvent], None]] = []
        """Called with every event; who watches adds and removes its own."""
        self._changed = asyncio.Event()
        self._changes: list[HealthChanged] = []
        self._following: asyncio.Task[None] | None = None
        self._faults: list[str] = []
        self._closing = False
        self._registrations: Counter[str] = Counter()
        self._ready: set[str] = set()
        self._expected: set[str] = set()
        self._drivers: set[str] = set()

    def _process(self) -> PluginProcess:
        environment = {"NODE_NAME": self.settings.node_name, **self.settings.environment}
        if self._server is not None:
            environment = {"KUBECONFIG": str(self.folder / "kubeconfig"), **environment}
        return PluginProcess(
            self.settings.command,
            self.folder,
            log=lambda line: self._console.aside("plugin", line),
            environment=environment,
            grace=self.settings.grace,
            folders={CDI: self.cdi},
        )

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _start(self) -> None:
        for name, mode in FOLDERS.items():
            (self.folder / name).mkdir(mode=mode, parents=True, exist_ok=True)
        self.cdi.mkdir(exist_ok=True)
        if self._server is not None and self.cluster is not None:
            self._server.start()
            self._server.kubeconfig(self.folder / "kubeconfig")
            await self.cluster.start()
        self.kubelet.on_event(self._happened)
        await self.kubelet.start()
        self.is_up = True
        if self.plugin is not None:
            await self.start_plugin()

    async def _close(self) -> None:
        # From here on everything ends because we end it.
        self._closing = True
        try:
            if self.plugin is not None:
                await self.plugin.end()
            if self._following is not None:
                self._following.cancel()
            await self.kubelet.stop()
        finally:
            self.is_up = False
            if self._server is not None:
                self._server.stop()
                (self.folder / "kubeconfig").unlink(missing_ok=True)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def hasten(self) -> None:
        """End the plugin at once instead of in its grace period."""
        if self.plugin is not None:
            self.plugin.kill_now()

    # The plugin's command.

    async def start_plugin(self) -> None:
        """Start the command; raises ``PluginStartError``."""
        plugin = self._command()
        await plugin.start()
        self._following = asyncio.create_task(self._follow(plugin), name="follow the plugin")

    async def end_plugin(self, *, kill: bool = False) -> PluginExit | None:
        """End the command and wait a moment until the kubelet has noticed."""
        plugin = self._command()
        before = set(self._sockets())
        ended = await (plugin.kill() if kill else plugin.terminate())
        if before and self.is_up:
            with contextlib.suppress(TimeoutError):
                await self.until(lambda: before - set(self._sockets()), 2.0)
        return ended

    def _command(self) -> PluginProcess:
        if self.plugin is None:
            raise StandaloneError("no plugin was started here; write its command after '--': ostler kubelet -- COMMAND")
        return self.plugin

    async def _follow(self, plugin: PluginProcess) -> None:
        ended = await plugin.ended
        self._changed.set()
        if not ended.asked:
            self._show(f"{plugin} {ended}; 'restart plugin' starts it again")

    # Registrations.

    async def registered(self, earlier: Mapping[str, int] | None = None) -> list[str]:
        """Wait until the command has registered something and listed its devices; the names that are registered.

        ``earlier``: registrations before, of which there must be more. Raises ``StandaloneError``.
        """
        plugin = self._command()
        before = dict(earlier or {})

        def seen() -> bool:
            return not plugin.running or any(count > before.get(name, 0) for name, count in self.known().items())

        try:
            await self.until(seen, self.settings.wait)
        except TimeoutError:
            raise StandaloneError(self._silent(plugin)) from None
        if not plugin.running:
            raise StandaloneError(f"{plugin} {plugin.exit} before it registered; {_log_end(plugin)}")
        await self._published()
        return sorted(self.connected)

    async def _published(self) -> None:
        """Give the connected drivers a moment to publish whole pools; one without devices publishes none."""
        if self.cluster is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PUBLISH_SECONDS):
                for driver in sorted(self._drivers & self._ready):
                    while True:
                        if _is_whole(await self.cluster.slices(driver)):
                            break
                        await asyncio.sleep(0.05)

    def known(self) -> dict[str, int]:
        """Resources that listed devices and drivers that are connected, with how often they registered."""
        return {name: self._registrations[name] for name in self._ready}

    def _silent(self, plugin: PluginProcess) -> str:
        sockets = [
            str(path.relative_to(self.folder))
            for folder in ("device-plugins", "plugins_registry")
            for path in sorted((self.folder / folder).rglob("*"))
            if stat.S_ISSOCK(path.lstat().st_mode) and path.name != "kubelet.sock"
        ]
        if sockets:
            seen = f"it serves {', '.join(sockets)}"
        else:
            seen = f"it has made no socket in {BUILT_IN}/device-plugins or {BUILT_IN}/plugins_registry"
        return (
            f"{plugin} (process {plugin.pid}) has not registered and listed devices within "
            f"{self.settings.wait:g} s: {seen}. A plugin calls Register at {BUILT_IN}/device-plugins/kubelet.sock, or "
            f"answers GetInfo on a socket in plugins_registry; {_log_end(plugin)}"
        )

    def _sockets(self) -> Iterator[tuple[str, str]]:
        for name, sockets in self.connected.items():
            for socket in sockets:
                yield name, socket

    # The kubelet.

    async def restart_kubelet(self) -> list[PodOutcome]:
        """Restart the kubelet while the containers run on; the pods that it refuses then.

        Waits until everything that was registered is so again. Raises ``StandaloneError`` with what is missing.
        """
        expected = self._expected if not self.is_up else set(self.connected)
        pods = self.kubelet.pods()
        verdicts = await self.kubelet.restart()
        self.is_up = True
        refused = self.pods.judged(verdicts, pods)
        try:
            await self.until(lambda: expected <= self._ready, self.settings.wait)
        except TimeoutError:
            missing = ", ".join(sorted(expected - self._ready))
            raise StandaloneError(
                f"{missing} did not register again within {self.settings.wait:g} s of the kubelet's restart, which "
                f"removes all sockets in device-plugins and makes kubelet.sock anew: a plugin there has to notice and "
                f"to call Register again"
            ) from None
        await self._published()
        return refused

    async def kill_kubelet(self) -> None:
        """End the kubelet; containers and plugins run on."""
        # What was registered is waited for when it starts again.
        self._expected = set(self.connected)
        await self.kubelet.stop()
        self.is_up = False

    # Events.

    async def until(self, condition: Callable[[], object], seconds: float) -> None:
        """Wait for a condition that events make true; raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def faults(self) -> list[str]:
        """The calls to plugins that failed since the last look, with what to look at."""
        faults, self._faults = self._faults, []
        return faults

    def _happened(self, event: KubeletEvent) -> None:
        match event:
            case PluginRegistered(name, socket, door):
                self._registrations[name] += 1
                self._ready.discard(name)
                self.connected.setdefault(name, {})[socket] = door
            case PluginDeregistered(name, socket):
                sockets = self.connected.get(name, {})
                sockets.pop(socket, None)
                if not sockets:
                    self.connected.pop(name, None)
                    self._ready.discard(name)
            case DriverConnection(name, connected=True):
                self._drivers.add(name)
                self._ready.add(name)
            case ListReceived(name):
                self._ready.add(name)
            case DriverConnection(name):
                self._ready.discard(name)
            case PluginCallFailed(fault):
                self._faults.append(self._short(str(fault)))
        self._changed.set()
        for watcher in tuple(self.watchers):
            watcher(event)
        if self.watchers or self._closing or isinstance(event, DETAILS):
            return
        if isinstance(event, HealthChanged):
            if not self._changes:
                # All changes of one list happen before the loop goes on.
                asyncio.get_running_loop().call_soon(self._show_changes)
            self._changes.append(event)
            return
        self._show(event_line(event))

    def _show(self, text: str) -> None:
        self._console.aside("kubelet", self._short(text))

    def _short(self, text: str) -> str:
        """The text without the folder that everything is below."""
        return text.replace(f"{self.folder}/", "")

    def _show_changes(self) -> None:
        changes, self._changes = self._changes, []
        for change in changes[:MOST_CHANGES]:
            self._show(event_line(change))
        if len(changes) > MOST_CHANGES:
            more = len(changes) - MOST_CHANGES
            self._show(f"{changes[0].resource}: {more} more devices changed their health")


def check_root(root: Path) -> None:
    """Raise ``StandaloneError`` for a folder that no kubelet of ours may use."""
    size = len(bytes(root))
    if size > LONGEST_ROOT:
        raise StandaloneError(
            f"--root: {root} has {size} bytes; the limit is {LONGEST_ROOT}, because a socket's path has 107 bytes in "
            "all; name a shorter folder or leave --root out"
        )
    if root.exists() and not root.is_dir():
        raise StandaloneError(f"--root: {root} is not a folder; name a folder")
    served = root / "device-plugins" / "kubelet.sock"
    if is_answered(served):
        raise StandaloneError(f"--root: a kubelet already serves {served}; name another folder or end that kubelet")
    found = next((name for name in _REAL if (root / name).exists()), None)
    if found is not None:
        raise StandaloneError(
            f"--root: {root} has {found}, so it is the folder of a real kubelet, which would lose its state; "
            "name another folder"
        )


def _is_whole(slices: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are slices, and for every pool as many as each of them says."""
    pools = [each["spec"]["pool"] for each in slices]
    counts = Counter((pool["name"], pool["generation"]) for pool in pools)
    return bool(pools) and all(counts[pool["name"], pool["generation"]] == pool["resourceSliceCount"] for pool in pools)


def _log_end(plugin: PluginProcess) -> str:
    lines = plugin.last_lines[-5:]
    return "\n  ".join(("the end of its log:", *lines)) if lines else "it has written nothing"
