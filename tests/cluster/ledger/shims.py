"""A container runtime that is slow to end a pod's containers: their shim is stopped for a while.

The kubelet kills the containers of a pod that was deleted by force after two seconds, and on an idle machine another
pod's start takes a fraction of one. With this a test chooses how long they outlive their pod.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

from tests.cluster.rig.node import RigNode

_SHIM = "containerd-shim"
BEGINS = 1.0
"""Seconds: the order to end comes before, and is obeyed by nobody; what kills comes later."""


def slow_to_end(node: RigNode, pod: str, seconds: float) -> None:
    """Have nobody kill the pod's containers (by its host name) for so long, from a moment on; returns at once."""
    shim = _shim_of(node, pod)
    if shim:
        _later(BEGINS, shim, signal.SIGSTOP)
        _later(BEGINS + seconds, shim, signal.SIGCONT)


def _later(seconds: float, shim: int, number: signal.Signals) -> None:
    def send() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(shim, number)

    timer = threading.Timer(seconds, send)
    timer.daemon = True
    timer.start()


def _shim_of(node: RigNode, pod: str) -> int:
    """The process id of the shim that is the parent of one of the pod's processes; 0 where it has none."""
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if f":{node.cgroup}/" not in (process / "cgroup").read_text():
                continue
            if (process / "root/etc/hostname").read_text().strip() != pod:
                continue
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if (Path("/proc") / str(parent) / "comm").read_text().startswith(_SHIM):
                return parent
    return 0
