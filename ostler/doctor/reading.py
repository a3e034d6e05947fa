"""Reads small files and processes; what does not exist or is unreadable for this user gives nothing.

On the node all processes are visible, in a pod without hostPID only the pod's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.documents import parse_toml
from node.inventory.sysfs.files import read_now
from node.opening import KERNEL_FILE, read_regular

MAX_SETTINGS = 1 << 20
"""Bytes of a container runtime's settings; an ordinary file has 10 KiB."""


def text_of(path: Path) -> str | None:
    """The file's text without surrounding white space; None if it is missing or unreadable."""
    try:
        return read_now(str(path))
    except OSError:
        return None


def read_toml(path: Path) -> dict[str, Any]:
    """The settings of a container runtime, which may be a link; raises OSError, ValueError."""
    return parse_toml(read_regular(path, MAX_SETTINGS, links=True))


def hidden(path: Path) -> bool:
    """Whether this user may not even see whether the path exists."""
    try:
        path.lstat()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def number_of(path: Path) -> int | None:
    """The whole number in the file; None if there is none."""
    text = text_of(path)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def number_after(word: str, text: str | None) -> int | None:
    """The whole number after a word in a text; None if there is none."""
    found = (text or "").partition(word)[2].split()
    return int(found[0]) if found and found[0].isdigit() else None


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """``words``: its command line. Kernel threads and processes that have ended are left out."""

    pid: int
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """File name of the program."""
        return self.words[0].rpartition("/")[2]

    @property
    def runs_agent(self) -> bool:
        """Whether it is ``ostler run``, started by its script or as a module."""
        for word, following in itertools.pairwise(self.words):
            if word == "ostler" or word.endswith(("/ostler", "/ostler/__main__.py")):
                return following == "run"
        return False

    def flag(self, name: str) -> str | None:
        """The value of ``--name=value`` or ``--name value``, None if it is absent; the last of several."""
        found = None
        for place, word in enumerate(self.words):
            if word.startswith(f"{name}="):
                found = word.partition("=")[2]
            elif word == name and place + 1 < len(self.words):
                found = self.words[place + 1]
        return found


def processes(proc: Path) -> tuple[RunningProcess, ...]:
    """All processes that have a command line, by process id."""
    found = []
    for pid in pids(proc):
        try:
            raw = read_regular(proc / str(pid) / "cmdline", KERNEL_FILE, links=True)
        except OSError:
            continue  # Ended meanwhile, or hidden from this user.
        words = tuple(word.decode(errors="backslashreplace") for word in raw.rstrip(b"\0").split(b"\0"))
        if words[0]:
            found.append(RunningProcess(pid, words))
    return tuple(found)


def on_this_node(proc: Path, found: tuple[RunningProcess, ...]) -> tuple[RunningProcess, ...]:
    """Those that share the mount namespace of this process or of process 1; others run in their own containers."""
    ours = {_mounts(proc / "self"), _mounts(proc / "1")} - {""}
    return tuple(process for process in found if _mounts(proc / str(process.pid)) in (*ours, ""))


def _mounts(process: Path) -> str:
    """The mount namespace; empty if unknown."""
    try:
        return str((process / "ns/mnt").readlink())
    except OSError:
        return ""


def pids(proc: Path) -> Iterator[int]:
    """Process ids, in order."""
    try:
        names = [entry.name for entry in proc.iterdir()]
    except OSError:
        return  # Not a proc file system, or hidden: no process is visible.
    yield from sorted(int(name) for name in names if name.isdigit())
