"""A device plugin or DRA driver as a process: an unmodified command that finds the embedded kubelet's folders.

Most plugins have ``/var/lib/kubelet`` built in. The command therefore runs in a mount namespace in which the kubelet's
root is mounted there (``plugin_namespace.py``); the machine's own folder, if it has one, is hidden and never touched.
The command leads a process group of its own. When it is ended, that group is, and whatever else still runs in its
namespace; if this process is killed, the kernel kills the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from node.opening import read_kernel_text
from sandbox.kubelet.errors import KubeletError
from sandbox.temporary import NoTemporaryFolder, TemporaryFolder

BUILT_IN: Final = Path("/var/lib/kubelet")
"""The kubelet's root as plugins know it."""

FOLDERS: Final = {"device-plugins": 0o755, "plugins_registry": 0o750, "plugins": 0o750, "pod-resources": 0o750}
"""What a kubelet's root holds for plugins, with the modes that a kubelet gives."""

GRACE_SECONDS: Final = 10.0
"""Between SIGTERM and SIGKILL, unless the caller says otherwise."""

LINE: Final = 4096
"""Characters of one line of the log; the rest of a longer one is cut off."""

LINES: Final = 200
"""Lines of the log that are kept."""

_LAUNCHER: Final = Path(__file__).with_name("plugin_namespace.py")
_DRAIN_SECONDS: Final = 1.0
_SYSCTLS: Final = {
    "user/max_user_namespaces": ("0", "100000"),
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
}
"""Settings that forbid user namespaces: file below /proc/sys, the forbidding value, one that allows them."""


class PluginStartError(KubeletError):
    """The plugin's command could not be started; the text says what to do."""


@dataclass(frozen=True, slots=True)
class PluginExit:
    """How a command ended: by itself with an exit ``code``, or by a ``signal``; ``asked``: we told it to end.

    ``overran``: the seconds of grace after SIGTERM in which it did not end, so that it was killed; 0 if it did.
    """

    code: int | None
    signal: signal.Signals | None
    asked: bool = False
    overran: float = 0.0

    def __str__(self) -> str:
        if self.overran:
            return f"did not end within {self.overran:g} s of SIGTERM and was killed"
        if self.signal is None:
            return f"ended with exit code {self.code}"
        return f"was {'ended' if self.signal is signal.SIGTERM else 'killed'} by {self.signal.name}"


def _no_log(line: str) -> None:
    """Keep nothing but what the process keeps itself."""


class PluginProcess:
    """``command`` with the kubelet's ``root`` at ``/var/lib/kubelet``; use it with ``async with``.

    ``log`` gets every line that the command writes, without its end. ``environment`` is added to this process's.
    ``grace``: seconds between SIGTERM and SIGKILL. ``folders``: further folders of ours by the path at which the
    command shall find them. ``otherwise``: the advice if no namespace can be made, for a plugin whose folders can be
    set; by default to start it with the folders of ``root``.
    """

    def __init__(
        self,
        command: Sequence[str],
        root: Path,
        *,
        log: Callable[[str], None] = _no_log,
        environment: Mapping[str, str] | None = None,
        grace: float = GRACE_SECONDS,
        folders: Mapping[Path, Path] | None = None,
        otherwise: str = "",
    ) -> None:
        if not command:
            raise PluginStartError("the plugin's command is empty; write it after '--'")
        self.command = tuple(command)
        self.root = root
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._grace = grace
        self._folders = {BUILT_IN: root, **(folders or {})}
        self._otherwise = otherwise or f"start it yourself with {root / 'device-plugins'}"
        self._lines: deque[str] = deque(maxlen=LINES)
        self._lines_of_run: deque[str] = deque(maxlen=LINES)
        self._stage: TemporaryFolder | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._namespace: int | None = None
        self._watching: asyncio.Task[PluginExit] | None = None
        self._asked = False
        self._overran = 0.0

    @property
    def pid(self) -> int:
        """The process id of the command, which leads a process group of that number; of the last run once it ended."""
        if self._process is None:
            raise PluginStartError(f"{self} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the command runs now."""
        return self._watching is not None and not self._watching.done()

    @property
    def ended(self) -> Awaitable[PluginExit]:
        """How the current run ends; can be awaited any number of times, and cancelled without effect on the run."""
        if self._watching is None:
            raise PluginStartError(f"{self} has not been started")
        return asyncio.shield(self._watching)

    @property
    def exit(self) -> PluginExit | None:
        """How the last run ended, None while it runs or before the first."""
        watching = self._watching
        return watching.result() if watching is not None and watching.done() else None

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The end of the log, over all runs: at most ``LINES`` lines."""
        return tuple(self._lines)

    @property
    def lines_of_run(self) -> tuple[str, ...]:
        """The end of the log of this run, or of the last one: at most ``LINES`` lines."""
        return tuple(self._lines_of_run)

    def __str__(self) -> str:
        return f"plugin '{shlex.join(self.command)}'"

    async def start(self) -> None:
        """Start the command, again after its end; raises ``PluginStartError``."""
        if self.running:
            raise PluginStartError(f"{self} is already running as process {self.pid}; end it first")
        # What an earlier run left behind would answer beside the new one.
        self._kill_stragglers()
        self._leave_namespace()
        for name, mode in FOLDERS.items():
            (self.root / name).mkdir(mode=mode, parents=True, exist_ok=True)
        if self._stage is None:
            try:
                self._stage = TemporaryFolder("ostler-plugin-")
            except NoTemporaryFolder as error:
                raise PluginStartError(f"{self} cannot be started: {error}; name another one in TMPDIR") from error
        self._asked, self._overran = False, 0.0
        self._lines_of_run.clear()
        # Not asyncio's pipes: with them it would report an end only when all children have closed theirs.
        report, launchers = socket.socketpair()
        output, commands = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_LAUNCHER), str(launchers.fileno()), *self.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=commands,
                stderr=commands,
                pass_fds=(launchers.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            report.close()
            os.close(output)
            raise PluginStartError(f"{self} cannot be started: {error.strerror}") from error
        except BaseException:
            report.close()
            os.close(output)
            raise
        finally:
            launchers.close()
            os.close(commands)
        self._process = process
        self._watching = asyncio.create_task(self._watch(process, output), name=f"{self}")
        try:
            failed = await self._launched(report)
        except BaseException:
            # A cancelled start leaves nothing behind.
            self._signal(signal.SIGKILL)
            raise
        if failed is not None:
            await self.ended
            raise PluginStartError(failed)

    async def terminate(self) -> PluginExit | None:
        """End it: SIGTERM to its process group, SIGKILL after the grace period; None if it was never started."""
        return await self._end(signal.SIGTERM)

    async def kill(self) -> PluginExit | None:
        """End it by SIGKILL; None if it was never started."""
        return await self._end(signal.SIGKILL)

    def kill_now(self) -> None:
        """Send SIGKILL to its process group without waiting for its end, which ``end`` does anyway."""
        if self._process is not None and self._process.returncode is None:
            self._signal(signal.SIGKILL)

    async def restart(self) -> PluginExit | None:
        """End it as ``terminate`` does and start it again; how it ended. Raises ``PluginStartError``."""
        ended = await self.terminate()
        await self.start()
        return ended

    async def end(self) -> None:
        """Terminate it and remove what was made for it; can be called again."""
        try:
            await self.terminate()
        finally:
            self._leave_namespace()
            stage, self._stage = self._stage, None
            if stage is not None:
                # Its entries were mount points only in the namespace, so none of the originals is below it here.
                stage.remove()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    def _settings(self) -> str:
        folders = {str(seen): str(given.resolve()) for seen, given in self._folders.items()}
        # An existing folder needs no mount, and without mounts no namespace is needed.
        needed = {seen: given for seen, given in folders.items() if os.path.realpath(seen) != given}
        settings = {
            "stage": str(self._stage.path) if self._stage is not None else "",
            "folders": needed,
            "environment": self._environment,
            "parent": os.getpid(),
        }
        return json.dumps(settings)

    async def _launched(self, report: socket.socket) -> str | None:
        """Wait until the launcher is the command; why it could not be, None if it is."""
        reader, writer = await asyncio.open_connection(sock=report)
        try:
            writer.write(self._settings().encode() + b"\n")
            first = await reader.readline()
            if first == b"{}\n":
                self._namespace = os.open(f"/proc/{self.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
                writer.write(b"\n")
                first = await reader.readline()
                if not first:
                    return None
        finally:
            writer.close()
        if first:
            return self._problem(json.loads(first))
        await self.ended
        return "\n  ".join((f"{self} could not be started; its launcher wrote:", *self._lines_of_run))

    def _problem(self, failed: Mapping[str, Any]) -> str:
        problem = str(failed["problem"])
        if failed["step"] == "command":
            return f"{self} cannot be started: {failed['what']}: {problem}"
        if failed["step"] == "mount" and failed["errno"] not in (1, 13):
            return f"{self} cannot be given its folder {failed['what']}: the mount failed: {problem}"
        # EPERM and EACCES: security modules let the namespace be made and forbid the mount in it.
        return (
            f"{self} cannot be given the kubelet's folders at {BUILT_IN}: this user may create no mount namespace "
            f"({problem}). Run ostler as root, or {_how_to_allow()}. If the plugin can be told its folders, no "
            f"namespace is needed: {self._otherwise}"
        )

    async def _watch(self, process: asyncio.subprocess.Process, output: int) -> PluginExit:
        reading = asyncio.create_task(self._read(output))
        try:
            code = await process.wait()
            # A child of the command may hold the other end for ever.
            await asyncio.wait([reading], timeout=_DRAIN_SECONDS)
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait([reading])
        if code >= 0:
            return PluginExit(code, None, self._asked)
        return PluginExit(None, signal.Signals(-code), self._asked, self._overran)

    async def _read(self, output: int) -> None:
        """Pass on each line; a longer one than ``LINE`` is cut."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb")
        )
        rest, cut = b"", False
        try:
            while data := await reader.read(1 << 16):
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    if not cut:
                        self._forward(line)
                    cut = False
                if len(rest) > 4 * LINE:
                    if not cut:
                        self._forward(rest)
                    rest, cut = b"", True
        finally:
            transport.close()
        if rest and not cut:
            self._forward(rest)

    def _forward(self, data: bytes) -> None:
        text = data.decode(errors="replace").rstrip("\r")
        line = text if len(text) <= LINE else f"{text[:LINE]}…"
        self._lines.append(line)
        self._lines_of_run.append(line)
        self._log(line)

    async def _end(self, number: signal.Signals) -> PluginExit | None:
        if self._watching is None or self._process is None:
            return None
        if self._process.returncode is None:
            self._asked = True
            self._signal(number)
            try:
                await asyncio.wait_for(self._process.wait(), self._grace)
            except TimeoutError:
                self._overran = self._grace
            # Its children too, and itself if it is still there.
            self._signal(signal.SIGKILL)
        self._kill_stragglers()
        return await self.ended

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _kill_stragglers(self) -> None:
        """Kill what has left the process group and is still in the namespace, which only its processes are in."""
        if self._namespace is None:
            return
        # Open, so that no other namespace can have its number.
        found = os.fstat(self._namespace)
        if os.path.samestat(found, Path("/proc/self/ns/mnt").stat()):
            return
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.path.samestat(found, (folder / "ns" / "mnt").stat()):
                    os.kill(int(folder.name), signal.SIGKILL)
            except OSError:
                continue  # Gone meanwhile, or another user's.

    def _leave_namespace(self) -> None:
        namespace, self._namespace = self._namespace, None
        if namespace is not None:
            os.close(namespace)


def _how_to_allow() -> str:
    """What lets users without privileges create user namespaces on this machine."""
    forbidding = []
    for name, (bad, good) in _SYSCTLS.items():
        try:
            value = read_kernel_text(Path("/proc/sys") / name).strip()
        except OSError:
            continue  # This kernel has no such setting.
        if value == bad:
            forbidding.append(f"'sysctl -w {name.replace('/', '.')}={good}'")
    if forbidding:
        return f"allow user namespaces with {' and '.join(forbidding)}"
    return "allow user namespaces, which a container's seccomp profile or a security module forbids here"
