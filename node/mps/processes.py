"""Processes of MPS control daemons: which one is on record, and which ones an earlier agent left.

Pods may start processes that look like a daemon, so a process counts only by what no pod can give it: the agent's user
and pid namespace.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from node.edits.mps import PIPE_VARIABLE
from node.opening import read_kernel_text, read_regular
from node.values import Value, value

PROGRAM = "nvidia-cuda-mps-control"
DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Says to a daemon which GPUs it serves, by UUID."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
"""A resource's name or a claim's daemon: what daemons are for, and their folders below the root."""
_LARGEST = 1 << 20
"""Bytes of a process's command line or environment that are read."""


@value
class MpsProcess(Value):
    """A daemon's process; ``started`` (clock ticks since the boot) distinguishes it from a later one with its pid."""

    pid: int
    started: int


def find_process(pid: int, proc: Path) -> MpsProcess | None:
    """The process with this pid; None if it is gone or only waits to be reaped."""
    try:
        # The name in parentheses may hold blanks and parentheses itself.
        fields = read_kernel_text(proc / str(pid) / "stat").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else MpsProcess(pid, int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def served_devices(process: MpsProcess, proc: Path) -> frozenset[str] | None:
    """UUIDs of the GPUs that a daemon was started for; None if they cannot be read."""
    try:
        environment = read_regular(proc / str(process.pid) / "environ", _LARGEST).split(b"\0")
    except OSError:
        return None
    head = f"{DEVICES_VARIABLE}=".encode()
    found = next((each.removeprefix(head) for each in environment if each.startswith(head)), None)
    return None if found is None else frozenset(found.decode(errors="replace").split(",")) - {""}


def find_daemons(root: Path, proc: Path) -> tuple[tuple[str, MpsProcess], ...]:
    """Control daemons that an agent started with folders below ``root``, with the name of each; blocks.

    Anybody can start a process that looks like one. So a pod's process, which has a pid namespace of its own, and one
    of another user are never among these, nor one with a name that leads out of MPS's root. Nothing of a pod's process
    is read: its memory, where its command line is, may be locked for as long as the driver hangs.
    """
    found = []
    for entry in proc.iterdir() if proc.is_dir() else ():
        if not entry.name.isdecimal():
            continue
        try:
            if not _can_be_of_agent(entry, proc):
                continue
            command = read_regular(entry / "cmdline", _LARGEST)
            if f"{PROGRAM}\0-f".encode() not in command:
                continue
            environment = read_regular(entry / "environ", _LARGEST)
        except OSError:
            continue  # It has ended, is somebody else's, or is larger than any that an agent starts.
        head = f"{PIPE_VARIABLE}={root}/".encode()
        pipe = next((each for each in environment.split(b"\0") if each.startswith(head)), b"")
        name = pipe.removeprefix(head).decode(errors="replace").removesuffix("/pipe")
        process = find_process(int(entry.name), proc)
        if _NAME.fullmatch(name) and process is not None:
            found.append((name, process))
    return tuple(found)


def _can_be_of_agent(entry: Path, proc: Path) -> bool:
    """Whether a process has the user and the pid namespace of this one; raises OSError."""
    if entry.stat().st_uid != os.geteuid():
        return False
    return (entry / "ns/pid").readlink() == (proc / "self/ns/pid").readlink()
