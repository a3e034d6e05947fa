"""A node for plugins: the embedded kubelet in a folder, the plugin's command, and an API server if asked for.

Whatever happens, leaving it ends the command and all its children, every server and socket, and removes the temporary
folder. A folder that the caller names stays, with the kubelet's checkpoint in it: another kubelet continues from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.apiserver.server import ApiServer
from sandbox.cluster.client import ClusterClient, KubeletApi
from sandbox.cluster.cluster import PodOutcome, SandboxCluster
from sandbox.kubelet.dra.settings import CALL_SECONDS, DraManagerSettings
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.events import KubeletEvent, PluginCallFailed, PluginDeregistered, RegistrationFailed
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.plugin_process import BUILT_IN, FOLDERS, PluginExit, PluginProcess
from sandbox.standalone.console import Console, EventDisplay, PluginLog, ServerLog
from sandbox.standalone.event_lines import event_line
from sandbox.standalone.pods import StandalonePods
from sandbox.standalone.registrations import Registrations
from sandbox.standalone.settings import StandaloneError, StandaloneSettings, check_root
from sandbox.temporary import SHORT, NoTemporaryFolder, TemporaryFolder

NOTICE_SECONDS = 2.0
"""How long the kubelet may take to notice the plugin's end."""

QUIET_SECONDS = 0.15
"""A plugin registers its resources one after the other; if no further one follows for so long, all are registered."""
MOST_QUIET_SECONDS = 2.0
"""The same for a plugin, or a machine, that is slow: a quarter of the time until its first registration."""
ENDING_SECONDS = 1.0
"""After so long on SIGTERM the node says that it waits for the plugin."""
PUBLISH_SECONDS = 5.0
"""How long a driver that has registered may take to publish its devices before a pod is admitted anyway."""

CDI = Path("/var/run/cdi")
"""Where plugins write CDI specs; the command sees a folder of ours there."""

_KUBELET_LOG = logging.getLogger("ostler.sandbox.kubelet")
_SERVER_LOG = logging.getLogger("ostler.sandbox.apiserver")


class StandaloneNode:
    """One node; use it with ``async with``. Raises ``StandaloneError`` and ``KubeletError`` when it cannot start."""

    def __init__(self, settings: StandaloneSettings, console: Console) -> None:
        if not settings.api_server and any("{kubeconfig}" in word for word in settings.command):
            raise StandaloneError("COMMAND has {kubeconfig}, which needs an API server; add --with-apiserver")
        self.settings = settings
        self.root = settings.root.absolute() if settings.root is not None else None
        self._temporary: TemporaryFolder | None = None
        if self.root is None:
            try:
                self._temporary = TemporaryFolder("ostler-", SHORT)
            except NoTemporaryFolder as error:
                raise StandaloneError(f"{error}; name another folder with --root") from error
            self.root = self._temporary.path / "kubelet"
        else:
            check_root(self.root)
        self.folder: Path = self.root
        self.cdi = self.folder / "cdi"
        self._server = ApiServer() if settings.api_server else None
        client = ClusterClient(self._server.url) if self._server is not None else None
        dra = DraManagerSettings(
            KubeletApi(client, settings.node_name) if client is not None else None,
            call_seconds=min(CALL_SECONDS, settings.call_timeout or CALL_SECONDS),
        )
        self.kubelet = Kubelet(
            self.folder,
            generation=settings.generation,
            reconcile_interval=settings.reconcile_interval,
            dra=dra,
            topology=settings.topology,
            call_timeout=settings.call_timeout,
            seen_as=BUILT_IN,
            seed=settings.seed,
        )
        # A plugin that is started elsewhere writes where it always does.
        specs = [Path("/etc/cdi"), self.cdi if settings.command else CDI]
        self.cluster = SandboxCluster(client, settings.node_name, self.kubelet, specs) if client is not None else None
        self.pods = StandalonePods(self.kubelet, self.cluster, specs)
        self.is_up = False
        self.is_closing = False
        self.registrations = Registrations()
        self.events = EventDisplay(console, f"{self.folder}/")
        self._console = console
        self._quiet = logging.NullHandler()
        self._server_log: ServerLog | None = None
        self._log = PluginLog(console)
        self.plugin = self._process() if settings.command else None
        self._following: asyncio.Task[None] | None = None
        self._expected: list[str] = []
        self._served: frozenset[str] = frozenset()
        """Names that were registered when the command ended last."""
        self._faults: list[str] = []
        self._started = 0.0
        self._refusal = ""

    def _process(self) -> PluginProcess:
        environment = {"NODE_NAME": self.settings.node_name, **self.settings.environment}
        if self._server is not None:
            environment = {"KUBECONFIG": str(self.folder / "kubeconfig"), **environment}
        return PluginProcess(
            self._filled_in(self.settings.command),
            self.folder,
            log=self._log.line,
            environment=environment,
            grace=self.settings.grace,
            folders={CDI: self.cdi},
            otherwise="run 'ostler kubelet --root DIR' without a command, and start it with DIR/device-plugins",
        )

    def _filled_in(self, command: Sequence[str]) -> list[str]:
        """The command with its placeholders replaced by the node's facts, as for ``ostler conformance``."""
        words = {"{node}": self.settings.node_name, "{cdi}": str(self.cdi), "{state}": str(self.folder / "state")}
        if self._server is not None:
            words["{kubeconfig}"] = str(self.folder / "kubeconfig")
        filled = list(command)
        for placeholder, text in words.items():
            filled = [word.replace(placeholder, text) for word in filled]
        return filled

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
        try:
            for name, mode in FOLDERS.items():
                (self.folder / name).mkdir(mode=mode, parents=True, exist_ok=True)
            self.cdi.mkdir(exist_ok=True)
            (self.folder / "state").mkdir(exist_ok=True)
        except OSError as error:
            raise StandaloneError(
                f"--root: {error.filename} cannot be made: {error.strerror}; name a folder that this user may "
                "write, on a local disk with room"
            ) from error
        # The kubelet's own warnings are events as well.
        _KUBELET_LOG.addHandler(self._quiet)
        if self._server is not None and self.cluster is not None:
            self._server_log = ServerLog(self._console)
            _SERVER_LOG.addHandler(self._server_log)
            self._server.start()
            self._server.kubeconfig(self.folder / "kubeconfig")
            await self.cluster.start()
        self.kubelet.on_event(self._happened)
        try:
            await self.kubelet.start()
        except KubeletError as error:
            raise StandaloneError(
                f"--root: {error}; see what 'ostler checkpoint verify {self.folder}' says of its state files, or name "
                "another folder, on a local disk with room"
            ) from error
        self.is_up = True
        if self.plugin is not None:
            await self.start_plugin()

    async def _close(self) -> None:
        self.is_closing = True
        self.events.silence()
        try:
            if self.plugin is not None:
                await self._end_for_good(self.plugin)
            if self._following is not None:
                self._following.cancel()
            await self.kubelet.stop()
        finally:
            self.is_up = False
            _KUBELET_LOG.removeHandler(self._quiet)
            if self._server_log is not None:
                _SERVER_LOG.removeHandler(self._server_log)
            if self._server is not None:
                self._server.stop()
                (self.folder / "kubeconfig").unlink(missing_ok=True)
            if self._temporary is not None:
                self._temporary.remove()

    async def _end_for_good(self, plugin: PluginProcess) -> None:
        def say_waiting() -> None:
            grace = self.settings.grace
            text = f"{plugin} has not ended on SIGTERM yet; Ctrl-C kills it now, else it is killed after {grace:g} s"
            self._console.aside("kubelet", text)

        waiting = asyncio.get_running_loop().call_later(ENDING_SECONDS, say_waiting)
        try:
            await plugin.end()
        finally:
            waiting.cancel()
        self._log.flush()
        ended = plugin.exit
        if ended is not None and ended.overran:
            self._console.aside("kubelet", f"{plugin} {ended}")

    def hasten(self) -> None:
        """End the plugin at once instead of in its grace period."""
        if self.plugin is not None:
            self.plugin.kill_now()

    # The plugin's command.

    async def start_plugin(self) -> None:
        """Start the command; raises ``PluginStartError``."""
        plugin = self._command()
        self._refusal = ""
        self._started = asyncio.get_running_loop().time()
        await plugin.start()
        self._following = asyncio.create_task(self._follow(plugin), name="follow the plugin")

    async def end_plugin(self, *, kill: bool = False) -> PluginExit | None:
        """End the command and wait a moment until the kubelet has noticed."""
        plugin = self._command()
        before = set(self.registrations.sockets())
        if plugin.running and before:
            self._served = frozenset(self.registrations.names())
        ended = await (plugin.kill() if kill else plugin.terminate())
        if before and self.is_up:
            with contextlib.suppress(TimeoutError):
                await self.registrations.until(lambda: before - set(self.registrations.sockets()), NOTICE_SECONDS)
        return ended

    def _command(self) -> PluginProcess:
        if self.plugin is None:
            raise StandaloneError("no plugin was started here; write its command after '--': ostler kubelet -- COMMAND")
        return self.plugin

    async def _follow(self, plugin: PluginProcess) -> None:
        ended = await plugin.ended
        self.registrations.wake()
        if not ended.asked:
            self.events.say(f"{plugin} {ended}; 'restart plugin' starts it again")

    # Registrations.

    async def registered(self, earlier: Mapping[str, int] | None = None) -> list[str]:
        """Wait until the command has registered something and listed its devices; the names that are registered.

        ``earlier``: earlier registrations; there must be more now. All that was registered when the command ended is
        waited for then. Raises ``StandaloneError``.
        """
        plugin = self._command()
        registrations, expected = self.registrations, self._served if earlier is not None else frozenset()
        try:
            await registrations.until(
                lambda: (
                    not plugin.running
                    or (registrations.is_newer(earlier or {}) and not registrations.missing(expected))
                ),
                self.settings.wait,
            )
        except TimeoutError:
            if not registrations.is_newer(earlier or {}):
                raise StandaloneError(self._silent(plugin)) from None
            missing = ", ".join(registrations.missing(expected))
            raise StandaloneError(
                f"{missing} did not register again within {self.settings.wait:g} s of the plugin's restart; "
                f"{_log_end(plugin)}"
            ) from None
        if not plugin.running:
            refused = f" ({self._refusal})" if self._refusal else ""
            raise StandaloneError(f"{plugin} {plugin.exit} before it registered{refused}; {_log_end(plugin)}")
        if earlier is None:
            await self._until_quiet()
        await self._published()
        return self.registrations.names()

    async def _until_quiet(self) -> None:
        """Wait until nothing more registers, within the time for all of it."""
        taken = asyncio.get_running_loop().time() - self._started
        quiet = min(MOST_QUIET_SECONDS, max(QUIET_SECONDS, taken / 4))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.wait):
                while True:
                    counts = self.registrations.counts()
                    try:
                        await self.registrations.until(partial(self.registrations.is_newer, counts), quiet)
                    except TimeoutError:
                        return

    async def _published(self) -> None:
        """Give the connected drivers a moment to publish whole pools; one without devices publishes none."""
        if self.cluster is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PUBLISH_SECONDS):
                for driver in self.registrations.drivers():
                    while True:
                        if await self.cluster.has_whole_pools(driver):
                            break
                        await asyncio.sleep(0.05)

    def _silent(self, plugin: PluginProcess) -> str:
        sockets = [
            str(path.relative_to(self.folder))
            for folder in ("device-plugins", "plugins_registry")
            for path in sorted((self.folder / folder).rglob("*"))
            if stat.S_ISSOCK(path.lstat().st_mode) and path.name != "kubelet.sock"
        ]
        if self._refusal:
            seen = self._refusal
        elif sockets:
            seen = f"it serves {', '.join(sockets)}"
        else:
            seen = f"it has made no socket in {BUILT_IN}/device-plugins or {BUILT_IN}/plugins_registry"
        # One that was refused knows how to register.
        how = (
            f". A plugin calls Register at {BUILT_IN}/device-plugins/kubelet.sock, or answers GetInfo on a socket in "
            "plugins_registry"
        )
        return (
            f"{plugin} (process {plugin.pid}) has not registered and listed devices within "
            f"{self.settings.wait:g} s: {seen}{'' if self._refusal else how}; {_log_end(plugin)}"
        )

    # The kubelet.

    async def restart_kubelet(self) -> list[PodOutcome]:
        """Restart the kubelet while the containers run on; the pods that it refuses then.

        Waits until everything that was registered is so again. A plugin that has ended itself meanwhile is started
        again, as Kubernetes does with a container of a DaemonSet. Raises ``StandaloneError`` with what is missing.
        """
        expected = self.registrations.names() if self.is_up else self._expected
        pods = self.kubelet.pods()
        self.registrations.lose_all()
        verdicts = await self.kubelet.restart()
        self.is_up = True
        refused = self.pods.judged(verdicts, pods)
        try:
            await self.registrations.until(
                lambda: not self.registrations.missing(expected) or self._has_ended_itself(), self.settings.wait
            )
            if self.registrations.missing(expected):
                self.events.say(f"{self.plugin} is started again, as Kubernetes does with a container of a DaemonSet")
                await self.start_plugin()
                await self.registrations.until(lambda: not self.registrations.missing(expected), self.settings.wait)
        except TimeoutError:
            missing = ", ".join(self.registrations.missing(expected))
            raise StandaloneError(
                f"{missing} did not register again within {self.settings.wait:g} s of the kubelet's restart, which "
                f"removes all sockets in device-plugins and makes kubelet.sock anew: a plugin there has to notice and "
                f"to call Register again"
            ) from None
        await self._published()
        return refused

    def _has_ended_itself(self) -> bool:
        ended = self.plugin.exit if self.plugin is not None else None
        return ended is not None and not ended.asked

    async def kill_kubelet(self) -> None:
        """End the kubelet; containers and plugins run on."""
        # What was registered is waited for when it starts again.
        self._expected = self.registrations.names()
        await self.kubelet.stop()
        self.registrations.lose_all()
        self.is_up = False

    def faults(self) -> list[str]:
        """The calls to plugins that failed since the last look, with what to look at."""
        faults, self._faults = self._faults, []
        return faults

    def _happened(self, event: KubeletEvent) -> None:
        if isinstance(event, PluginCallFailed):
            self._faults.append(self.events.short(str(event.fault)))
        if isinstance(event, RegistrationFailed | PluginDeregistered):
            self._refusal = self.events.short(event_line(event))
        self.registrations.note(event)
        self.events.show(event)


def _log_end(plugin: PluginProcess) -> str:
    lines = plugin.lines_of_run[-5:]
    return "\n  ".join(("the end of its log:", *lines)) if lines else "it has written nothing"
