"""Processes on devices: whether the agent can see them, and which of them may stay.

A PID means something only in the node's own PID namespace; elsewhere a driver reports no process, which would look like
a free device. So the agent first decides whether it can see processes at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from node.inventory.model import Device
from node.inventory.vendors import vendor_of
from node.rules import matches_pattern
from node.values import Value, value

_SHOWN = 15
"""Length to which Linux cuts a process's name (``/proc/PID/comm``), in bytes."""
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's number of the first PID namespace (``PROC_PID_INIT_INO``)."""


@value
class Process(Value):
    """A process on a device; ``name`` is the program's name or path, empty if unknown."""

    pid: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.pid} ({program(self.name)})" if self.name else f"{self.pid}"


class ComputeProcesses(Protocol):
    """Finds the processes that have a compute context on a device."""

    def compute_processes(self, device: Device) -> tuple[Process, ...] | None:
        """Processes on the device; None if its driver never reports them. Blocks, so it is called in a thread.

        Raises OSError if the driver cannot report them this time.
        """


def sees_processes(proc: Path) -> bool:
    """Whether this process sees those of the node's containers: it is in the node's own PID namespace."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _FIRST_NAMESPACE
    except OSError:
        return False


UNSEEN = (
    "ostler does not check for left-over processes: it does not see the node's processes; run it with hostPID: true"
)


def has_processes(device: Device) -> bool:
    """Whether a device of this kind can have compute processes and a driver that may report them."""
    vendor = vendor_of(device)
    return vendor is not None and vendor.source == "nvml"


def program(name: str) -> str:
    """The program in a path or command line: ``/usr/bin/python3 -m x`` gives ``python3``."""
    return name.split(" ", 1)[0].rpartition("/")[2] or name


def ignored(name: str, patterns: Iterable[str]) -> bool:
    """Whether a process of this name may stay on a device, also if the kernel has cut the name short."""
    short = program(name)
    if not short:
        return False
    cut = len(short.encode()) == _SHOWN
    return any(matches_pattern(pattern, short) or (cut and pattern.startswith(short)) for pattern in patterns)


DAEMONS = (
    "nvidia-persistenced",
    "nvidia-cuda-mps-server",
    "nvidia-cuda-mps-control",
    "nv-hostengine",
    "dcgm-exporter",
    "nv-fabricmanager",
    "nvidia-imex",
)
"""NVIDIA's own processes, which run on a GPU that nobody uses; patterns with ``*``."""
