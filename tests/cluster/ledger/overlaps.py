"""Devices that pods have more than all of at the same moment, found by looking at running containers.

It knows nothing of ostler.

Every 20 ms it looks at all processes that have a root file system other than the node's and lists the device files in
it, so a container counts from the moment its ``/dev`` is made until its last process ends. What books, APIs or agents
say plays no part. It is a process of its own, so that a busy test does not make it late::

    python -m tests.cluster.ledger.overlaps PATTERN INIT:CGROUP ...   # prints one JSON document when its input ends

For each node, ``INIT``: the pid of its first process; ``CGROUP``: the one that its containers are below. Containers of
one pod share its host name, which no other pod has, on any node; pods whose names are the same up to the last ``--``
are users of one claim, who may share. A name that begins with a number and ``m-`` says how many thousandths of the
device the pod asked for; others have all of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.rig.node import RigNode

EVERY = 0.02
"""Seconds between two looks."""


_PORTION = re.compile(r"(\d+)m-")
WHOLE = 1000


def portion(pod: str) -> int:
    """Thousandths of a device that the pod asked for."""
    named = _PORTION.match(pod)
    return int(named.group(1)) if named else WHOLE


@dataclass(slots=True)
class Overlap:
    """Pods had more than all of a device from ``began`` on (Unix seconds), for so long at least."""

    device: str
    pods: tuple[str, ...]
    began: float
    seconds: float = 0.0


@dataclass(slots=True)
class Report:
    """What was seen; ``slowest``: the longest time between two looks."""

    overlaps: list[Overlap]
    looks: int
    slowest: float
    pods: int


class Overlaps:
    """Brings looks together; pure. A look says which devices each pod has."""

    def __init__(self) -> None:
        self.found: list[Overlap] = []
        self._open: dict[tuple[str, tuple[str, ...]], Overlap] = {}

    def look(self, now: float, devices_of: Mapping[str, Iterable[str]]) -> None:
        """At this time the pods have these devices."""
        pods: dict[str, set[str]] = {}
        for pod, devices in devices_of.items():
            for device in devices:
                pods.setdefault(device, set()).add(pod.rpartition("--")[0] or pod)
        seen = {(device, tuple(sorted(those))) for device, those in pods.items() if sum(map(portion, those)) > WHOLE}
        for key in self._open.keys() - seen:
            del self._open[key]
        for key in seen:
            if key not in self._open:
                self._open[key] = Overlap(*key, now)
                self.found.append(self._open[key])
            self._open[key].seconds = now - self._open[key].began


_NO_CONTAINER: tuple[str, str, tuple[str, ...]] = ("", "", ())


class _Processes:
    """Containers' processes on ``nodes``: cgroups by the nodes' first processes. ``devices`` names files that count.

    A device is named by the cgroup of its node and its file.
    """

    def __init__(self, nodes: Mapping[int, str], devices: re.Pattern[str]) -> None:
        self._cgroups = tuple(nodes.values())
        self._devices = devices
        self._outside = {_mounts(os.getpid()), *map(_mounts, nodes)}
        # Nodes have the machine's.
        self._root = Path(f"/proc/{min(nodes)}/root").stat()
        self._plain: set[str] = set()
        """Processes that are in no container and never will be."""
        self._known: dict[str, tuple[str, str, tuple[str, ...]]] = {}

    def look(self) -> dict[str, set[str]]:
        """By host name the device files of containers that have a living process now."""
        found: dict[str, set[str]] = {}
        pids = {name for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208 - it is called all the time
        self._plain &= pids
        self._known = {pid: what for pid, what in self._known.items() if pid in pids}
        for pid in pids - self._plain:
            with contextlib.suppress(OSError):
                host, cgroup, devices = self._known.get(pid) or self._examined(pid)
                for device in devices:
                    Path(f"/proc/{pid}/root/dev/{device}").stat()  # A process that has ended has no root any more.
                    found.setdefault(host, set()).add(f"{cgroup}/{device}")
        return found

    def _examined(self, pid: str) -> tuple[str, str, tuple[str, ...]]:
        if _mounts(pid) in self._outside:
            if time.time() - Path(f"/proc/{pid}").stat().st_mtime > 2.0:
                # A young one may be about to become a container.
                self._plain.add(pid)
            return _NO_CONTAINER
        if os.path.samestat(Path(f"/proc/{pid}/root").stat(), self._root):
            return _NO_CONTAINER  # It is being made.
        groups = Path(f"/proc/{pid}/cgroup").read_text()
        cgroup = next((each for each in self._cgroups if f":{each}/" in groups), "")
        if not cgroup:
            return _NO_CONTAINER  # Of another node on this machine.
        devices = tuple(filter(self._devices.fullmatch, os.listdir(f"/proc/{pid}/root/dev")))  # noqa: PTH208
        host = Path(f"/proc/{pid}/root/etc/hostname").read_text().strip()
        if host and devices:
            self._known[pid] = host, cgroup, devices
        return host, cgroup, devices


def _mounts(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115 - as above


class OverlapWatcher:
    """The process that looks at these nodes; a context of which ``report`` tells afterwards."""

    def __init__(self, devices: str, *nodes: RigNode) -> None:
        self._command = [sys.executable, "-m", __name__, devices, *(f"{node.init}:{node.cgroup}" for node in nodes)]
        self._process: subprocess.Popen[str] | None = None
        self.report = Report([], 0, 0.0, 0)

    def __enter__(self) -> OverlapWatcher:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        output, _errors = self._process.communicate(timeout=120)
        told = json.loads(output)
        overlaps = [Overlap(**{**each, "pods": tuple(each["pods"])}) for each in told.pop("overlaps")]
        self.report = Report(overlaps, **told)


def main(devices: str, *nodes: str) -> None:
    """Look until the input ends and once more then, and tell what was seen."""
    cgroups = {int(init): cgroup for init, _, cgroup in (each.partition(":") for each in nodes)}
    processes, overlaps = _Processes(cgroups, re.compile(devices)), Overlaps()
    report = Report(overlaps.found, 0, 0.0, 0)
    pods: set[str] = set()
    last = time.time()
    has_ended = False
    while not has_ended:
        has_ended = bool(select.select([sys.stdin], [], [], EVERY)[0])
        now = time.time()
        found = processes.look()
        overlaps.look(now, found)
        pods |= found.keys()
        report.looks += 1
        report.slowest = max(report.slowest, now - last)
        last = now
    report.pods = len(pods)
    print(json.dumps(asdict(report)))


if __name__ == "__main__":
    main(*sys.argv[1:])
