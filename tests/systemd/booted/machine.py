"""A machine that systemd runs: systemd-nspawn on an overlay over the cached root, with the host's kernel and network.

Invariants: the roots it stands on are never written to; what it starts lies in control groups of its own, so that two
machines do not meet; ``stop`` leaves no process, mount or control group, however the machine ended. It sees the second
version of control groups alone, because device rules are enforced there even inside a container.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

PATIENCE = 120.0
"""Most seconds until what is waited for is there: many times what it takes on a machine that has nothing else to do."""
_HIERARCHIES = ("systemd", "unified")
_CGROUPS = Path("/sys/fs/cgroup")


class BootedMachineError(Exception):
    """The machine did not boot, or a command in it failed; the message has what was written."""


class BootedMachine:
    """One machine in ``folder`` (empty, with a short path); ``lower``: roots, the uppermost first.

    ``binds``: folders of the host by where they are seen, read-only. Use it with ``with``.
    """

    def __init__(self, folder: Path, lower: Sequence[Path], binds: dict[str, Path] | None = None) -> None:
        self.root = folder / "root"
        self._folder = folder
        self._lower = lower
        self._binds = binds or {}
        self._name = f"ostler-{folder.name}"
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def start(self) -> None:
        """Mount and boot; raises ``BootedMachineError``."""
        upper, work = self._folder / "upper", self._folder / "work"
        for path in (self.root, upper, work):
            path.mkdir()
        layers = f"lowerdir={':'.join(map(str, self._lower))},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(self.root)], check=True)
        groups = self._groups()
        for group in groups:
            group.mkdir()
        join = "".join(f'echo $$ > "{group}/cgroup.procs"; ' for group in groups)
        nspawn = ["systemd-nspawn", "--quiet", f"--directory={self.root}", "--boot", "--keep-unit", "--register=no"]
        # Everything that a real machine's systemd has, so that what the unit takes away is the unit's doing.
        nspawn += ["--link-journal=no", "--capability=all", "--system-call-filter=bpf"]
        nspawn += [f"--bind-ro={path}:{seen}" for seen, path in self._binds.items()]
        with (self._folder / "console").open("wb") as console:
            self._process = subprocess.Popen(
                ["sh", "-c", f'{join}exec "$@"', "sh", *nspawn],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,
            )
        self.until(self._is_up, "systemd runs")

    def _groups(self) -> list[Path]:
        found = [_CGROUPS / name for name in _HIERARCHIES if (_CGROUPS / name / "cgroup.procs").exists()]
        return [group / self._name for group in found or [_CGROUPS]]

    def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise BootedMachineError(
                f"the machine ended: {(self._folder / 'console').read_text(errors='replace')[-2000:]}"
            )
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._leader = int(children[0]) if children else 0
        return bool(self._leader) and self.run("systemctl", "is-system-running", check=False).strip() == "running"

    def run(self, *command: str, check: bool = True, errors: bool = False) -> str:
        """What a command in the machine writes; with ``errors`` what it writes to standard error, too."""
        done = subprocess.run(
            ["nsenter", f"--target={self._leader}", "--all", "--", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.PIPE,
            text=True,
            check=False,
            timeout=900,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"},
        )
        if check and done.returncode:
            raise BootedMachineError(
                f"{' '.join(command)}: exit code {done.returncode}: {done.stdout}{done.stderr or ''}"
            )
        return done.stdout

    def show(self, field: str, unit: str = "ostler.service") -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", "--property", field, "--value", unit).strip()

    def pid(self) -> int:
        """The service's main process, by its number in the machine; 0 when it does not run."""
        return int(self.show("MainPID"))

    def kill(self, signal_name: str) -> None:
        """Send the service's main process a signal (``KILL``)."""
        self.run("systemctl", "kill", "--kill-whom=main", f"--signal={signal_name}", "ostler")

    def answers(self) -> bool:
        """Whether the agent answers on its own socket."""
        return "version" in self.run("ostler", "status", "--output=json", check=False)

    def journal(self, *options: str) -> str:
        """The service's lines."""
        return self.run("journalctl", "--unit=ostler", "--no-pager", "--output=cat", *options)

    def inside(self, command: str) -> str:
        """What a shell command writes that runs as the service does: its mounts, control group and rights."""
        pid = self.pid()
        group = self.show("ControlGroup")
        join = f'echo $$ > "/sys/fs/cgroup{group}/cgroup.procs"'
        script = f'{join} && exec nsenter --target={pid} --mount -- setpriv --bounding-set=-all sh -c "$1"'
        return self.run("sh", "-c", script, "sh", command, errors=True, check=False)

    def until(self, condition: Callable[[], object], what: str, within: float = PATIENCE) -> None:
        """Wait for a condition; raises ``BootedMachineError`` with the service's journal."""
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() > deadline:
                tail = self.journal("--lines=30") if self._leader else ""
                raise BootedMachineError(f"not within {within:g} s: {what}\n{tail}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Turn it off and remove every trace."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(BootedMachineError, subprocess.TimeoutExpired):
                self.run("systemctl", "poweroff", check=False)
                self._process.wait(60)
            self._kill()
        while os.path.ismount(self.root):
            subprocess.run(["umount", "--recursive", str(self.root)], check=False, capture_output=True)
        for group in self._groups():
            self._remove(group)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kill(self) -> None:
        """The namespace's first process takes everything in it along."""
        assert self._process is not None
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                if self._leader:
                    os.kill(self._leader, signal.SIGKILL)
                self._process.kill()
            self._process.wait(60)

    @staticmethod
    def _remove(group: Path) -> None:
        """A control group and those below it, as soon as they are empty."""
        deadline = time.monotonic() + 60
        while group.exists() and time.monotonic() < deadline:
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            time.sleep(0.02)

    def __enter__(self) -> BootedMachine:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
