"""A cluster's processes: started so that they can be found again, ended so that none stays.

Every process carries the cluster's folder in its environment, and what it starts inherits it (containerd passes it to
its shims). So a cluster can be ended by anybody, also when whoever started it was killed and no file says what runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

VARIABLE = "OSTLER_CLUSTER"
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.02, 0.1, 1.2
"""Seconds between two looks, and by how much they grow; conditions are waited for, never slept for.

A question to an API server costs 2.5 ms of a core, for it and for who asks: the cores belong to what is waited for.
"""

_children: dict[Path, list[subprocess.Popen[bytes]]] = {}
"""What this process has started, by cluster: it has to wait for them when they are ended."""


class ProcessNotReady(Exception):
    """What was waited for did not come."""


PATIENCE = 120.0
"""Most seconds until what is waited for is there: many times what it takes on a machine that has nothing else to do."""


def pauses() -> Iterator[float]:
    """Seconds to sleep between looks at one condition."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(GROWTH * pause, LONGEST_PAUSE)


def wait_until(
    what: str, condition: Callable[[], bool], timeout: float = PATIENCE, alive: Callable[[], str] = str
) -> None:
    """Wait for ``condition``; ``alive`` says why waiting on makes no sense, or ''. Raises ``ProcessNotReady``."""
    deadline, looks = time.monotonic() + timeout, pauses()
    while not condition():
        dead = alive()
        if dead:
            raise ProcessNotReady(f"{what}: {dead}")
        if time.monotonic() > deadline:
            raise ProcessNotReady(f"{what}: not after {timeout:g} s")
        time.sleep(next(looks))


def start(
    root: Path, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process of the cluster in ``root``; its output is appended to ``logs/NAME.log``."""
    log = log_of(root, name)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {}), VARIABLE: str(root)},
            start_new_session=True,
        )
    _children.setdefault(root, []).append(process)
    return process


def log_of(root: Path, name: str) -> Path:
    """Where a process of the cluster writes."""
    return root / "logs" / f"{name}.log"


def died(process: subprocess.Popen[bytes], root: Path, name: str) -> str:
    """'' while the process lives, else how it ended and its last words."""
    code = process.poll()
    if code is None:
        return ""
    lines = log_of(root, name).read_text(errors="replace").splitlines()
    return f"{name} ended with {code}:\n" + "\n".join(lines[-15:])


def living(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def children(pid: int) -> list[int]:
    """The children of a process."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Inside:
    """A process inside a node's pid namespace, which ``nsenter`` started as its child."""

    def __init__(self, entering: subprocess.Popen[bytes], root: Path, name: str, before: int) -> None:
        self._entering = entering
        self._before = before
        self._root = root
        self.name = name
        self.pid = 0
        """The process itself, as seen from outside the namespace."""
        wait_until(f"{name} starts", self._has_child, alive=self.died)

    @classmethod
    def start(
        cls, root: Path, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> Inside:
        """Start ``command``, which has to be an ``nsenter`` into a pid namespace."""
        log = log_of(root, name)
        before = log.stat().st_size if log.exists() else 0
        return cls(start(root, name, command, environment), root, name, before)

    def _has_child(self) -> bool:
        self.pid = next(iter(children(self._entering.pid)), 0)
        return self.pid != 0

    @property
    def output(self) -> str:
        """What this process has written, without what others of its name wrote before."""
        return log_of(self._root, self.name).read_bytes()[self._before :].decode(errors="replace")

    @property
    def pid_inside(self) -> int:
        """The process as seen from inside the namespace."""
        fields = dict(line.partition(":")[::2] for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(fields["NSpid"].split()[-1])

    @property
    def living(self) -> bool:
        """Whether the process lives."""
        return living(self.pid)

    def died(self) -> str:
        """'' while the process lives, else how it ended and its last words."""
        return died(self._entering, self._root, self.name)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process; it may be gone."""
        kill(self.pid, number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the end; the exit status as nsenter hands it on."""
        # When its child is stopped nsenter stops itself too, and would stay so.
        kill(self._entering.pid, signal.SIGCONT)
        return self._entering.wait(timeout)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.send(number)
        return self.wait()


def belonging(root: Path) -> list[int]:
    """Every living process of the cluster in ``root``, whoever started it."""
    mark = f"{VARIABLE}={root}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0") and living(int(entry.name)):
                found.append(int(entry.name))
    return found


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal; the process may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def end_all(root: Path) -> None:
    """End every process of the cluster; a new one may appear while the old ones die."""

    def none_left() -> bool:
        found = belonging(root)
        for pid in found:
            kill(pid)
        return not found

    wait_until(f"processes of {root} end", none_left)
    for process in _children.pop(root, []):
        process.wait()
