"""Tells whether pods still have containers on this node, whatever the kubelet and the API server report.

Both forget a pod that was deleted by force while its containers run on. The kernel does not: it has the pod's cgroup,
and the pod's processes, which have files of the kubelet's ``pods/UID`` mounted. Processes are searched only if no pod's
cgroup was ever found (a kubelet with ``cgroupsPerQOS: false``), and only for pods that a device waits for.

The kubelet makes a pod's cgroup before its first container and removes it after its last one. Both cgroup versions and
both cgroup drivers of the kubelet are supported, below any ``cgroupRoot``: the folders of pods are searched for once,
within bounds, and again when they do not fit. The kernel's own count says whether a cgroup is empty: one file to read,
which covers everything below the cgroup and does not depend on the reader's PID namespace. So a folder that is never
removed blocks no device. Blocking; for one thread at a time.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Protocol

from node.clocks import Clocks
from node.inventory.sysfs.files import read_now
from node.ledger.processes import sees_processes
from node.opening import read_kernel_text

_UNSEEN = (
    "ostler does not check for containers of pods that were deleted by force: it finds no cgroups of pods below "
    "{cgroups} and does not see the node's processes; mount the node's /sys/fs/cgroup there"
)
_OF_POD = r"pods?[/]?([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
"""Finds the UID of a process's pod in its cgroups and mounts; a static pod's UID is a hash."""


class PodContainers(Protocol):
    """Tells whether pods have containers on this node; both methods block and are for one thread at a time."""

    @property
    def off(self) -> str:
        """Why containers cannot be checked, for people; empty if they can. Does not block."""

    def left(self, uids: Collection[str]) -> frozenset[str]:
        """Those of the pods that visibly have a process in a container. Raises OSError.

        While containers cannot be checked, none: the kubelet and the API server are believed.
        """

    def confirm(self, living: Collection[str]) -> None:
        """Compare what the node shows with pods that the kubelet has reported alive for a while."""


class NodeContainers:
    """Checks the cgroups below ``cgroups`` and the processes in ``proc``."""

    def __init__(self, cgroups: Path, proc: Path, *, clocks: Clocks) -> None:
        self._cgroups = PodCgroups(cgroups, clocks=clocks)
        self._proc = proc
        self._sees_processes = sees_processes(proc)
        self._off = ""

    @property
    def off(self) -> str:
        """See ``PodContainers``."""
        return self._off

    def left(self, uids: Collection[str]) -> frozenset[str]:
        """See ``PodContainers``."""
        found = {uid: self._cgroups.has_processes(uid) for uid in uids}
        left = {uid for uid, has in found.items() if has}
        unknown = {uid for uid, has in found.items() if has is None}
        if unknown and not self._cgroups.is_proved:
            # Even if processes of other PID namespaces may be invisible: one that is found proves enough.
            left |= processes_of(unknown, self._proc)
        return frozenset(left)

    def confirm(self, living: Collection[str]) -> None:
        """See ``PodContainers``; one visible pod is enough, because others may have ended a moment ago."""
        fits = self._cgroups.is_found
        if living:
            fits = any(self._cgroups.has_processes(uid) is not None for uid in living)
            if not fits:
                self._cgroups.doubt()
                fits = any(self._cgroups.has_processes(uid) is not None for uid in living)
        if not fits and not self._sees_processes:
            # An agent in its own PID namespace sees no pod's process, unless the kubelet is in the same one.
            self._sees_processes = bool(living) and bool(processes_of(set(living), self._proc))
        self._off = "" if fits or self._sees_processes else _UNSEEN.format(cgroups=self._cgroups.root)


def processes_of(uids: Collection[str], proc: Path) -> set[str]:
    """Those of the pods that have a process, found in every process's cgroups and mounts.

    Processes with the same view of the same mount namespace have the same mounts, which are read once: a busy node has
    a thousand processes and a hundred mounts in each namespace.
    """
    left: set[str] = set()
    views: set[MountView] = set()
    with os.scandir(proc) as entries:
        pids = [entry.name for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        if len(left) == len(uids):
            break
        with contextlib.suppress(OSError):
            # A process that has ended belongs to no pod; if processes are hidden from the agent, all of them are.
            left |= _pods_of(proc / pid, views) & set(uids)
    return left


MountView = tuple[str, str]
"""Identifies the mounts that a process sees: its mount namespace, and the path of its root in it."""


def _pods_of(process: Path, views: set[MountView]) -> set[str]:
    """The pods of a process's cgroups, and of its mounts unless a process of ``views`` has the same."""
    found = set(re.findall(_OF_POD, read_kernel_text(process / "cgroup")))
    view = _view(process)
    if view is None or view not in views:
        found |= _mounted(read_kernel_text(process / "mountinfo"))
        # It may have entered another namespace while its mounts were read.
        if view is not None and view == _view(process):
            views.add(view)
    return {uid.replace("_", "-") for uid in found}


def _view(process: Path) -> MountView | None:
    """A process's view; None if the kernel hides it."""
    try:
        # Links are read and not followed: a root on a server that does not answer would block us.
        return os.readlink(f"{process}/ns/mnt"), os.readlink(f"{process}/root")  # noqa: PTH115 - of every process
    except OSError:
        return None


def _mounted(mountinfo: str) -> set[str]:
    found: set[str] = set()
    for line in mountinfo.splitlines():
        _, _, _, source, target, *_ = *line.split(" ", 5), "", "", "", "", ""
        # The node itself mounts the volumes of pods below the same folders, some for longer than the pods live.
        found |= set(re.findall(_OF_POD, source)) - set(re.findall(_OF_POD, target))
    return found


DEEPEST, MOST = 6, 4096
"""Levels and folders that a search for the folders of pods covers at most."""
AGAIN = 10.0
"""Seconds between two searches."""
_CONTROLLERS = ("pids",)
"""Hierarchies of cgroup v1 that count the processes of everything below a cgroup."""
_UID = r"[0-9A-Za-z][0-9A-Za-z-]{0,63}"
_CLASSES = ("", "burstable", "besteffort")
_PODS, _SLICE = "kubepods", ".slice"


class PodCgroups:
    """The pods' cgroups below ``root``, where the node's cgroups are mounted."""

    def __init__(self, root: Path, *, clocks: Clocks) -> None:
        self.root = root
        self._clock = clocks.monotonic
        self._folders: tuple[str, ...] = ()
        self._searched = -math.inf
        self.is_proved = False
        """Whether any pod's cgroup was ever found; until then a missing one proves little."""

    @property
    def is_found(self) -> bool:
        """Whether a folder of pods' cgroups exists."""
        if not self._folders or not all(map(os.path.isdir, self._folders)):
            self._search()
        return bool(self._folders)

    def has_processes(self, uid: str) -> bool | None:
        """Whether the pod still has a process; None if it has no cgroup. Raises OSError."""
        if not re.fullmatch(_UID, uid):
            return None
        found = self._populated(uid)
        if found is None and not self.is_proved and self._search():
            found = self._populated(uid)
        self.is_proved |= found is not None
        return found

    def doubt(self) -> None:
        """Search again: live pods were not found, so the folders may be the wrong ones."""
        self.is_proved = False
        self._search()

    def _populated(self, uid: str) -> bool | None:
        found = None
        for folder in self._folders:
            for path in _places(folder, uid):
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    if _has_process(path):
                        return True
                    found = False
        return found

    def _search(self) -> bool:
        """Search for the folders unless the last search was a moment ago; returns whether it searched."""
        now = self._clock()
        if now - self._searched < AGAIN:
            return False
        self._searched = now
        self._folders = tuple(folder for hierarchy in self._hierarchies() for folder in _folders_of_pods(hierarchy))
        return True

    def _hierarchies(self) -> Iterator[str]:
        if (self.root / "cgroup.controllers").exists():
            yield str(self.root)
        for name in _CONTROLLERS:
            if (self.root / name / "cgroup.procs").exists():
                yield str(self.root / name)


def _folders_of_pods(top: str) -> Iterator[str]:
    """Every ``kubepods`` below a hierarchy's root, the nearest first."""
    waiting = deque([(top, 0)])
    looked = 0
    while waiting and looked < MOST:
        folder, depth = waiting.popleft()
        looked += 1
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                if _holds_pods(entry.name):
                    yield entry.path
                elif depth < DEEPEST and not entry.name.endswith((".scope", ".service", ".mount", ".socket")):
                    waiting.append((entry.path, depth + 1))


def _holds_pods(name: str) -> bool:
    return name in (_PODS, _PODS + _SLICE) or name.endswith(f"-{_PODS}{_SLICE}")


def _places(folder: str, uid: str) -> Iterator[str]:
    """Every path at which the kubelet may put the pod's cgroup, for each quality of service and cgroup driver."""
    prefix = folder.rpartition("/")[2]
    if not prefix.endswith(_SLICE):
        for name in _CLASSES:
            yield os.path.join(folder, name, f"pod{uid}")  # noqa: PTH118 - called for every check
        return
    prefix, pod = prefix.removesuffix(_SLICE), f"pod{uid.replace('-', '_')}{_SLICE}"
    for name in _CLASSES:
        yield f"{folder}/{prefix}-{name}{_SLICE}/{prefix}-{name}-{pod}" if name else f"{folder}/{prefix}-{pod}"


def _has_process(folder: str) -> bool:
    """Whether the kernel counts a process in the cgroup or below it."""
    try:
        return "populated 1" in read_now(f"{folder}/cgroup.events")
    except FileNotFoundError:
        return int(read_now(f"{folder}/pids.current")) > 0
    except OSError as error:
        return _gone(error)


def _gone(error: OSError) -> bool:
    """False for a cgroup that was removed while it was read, which has no process; raises every other error."""
    if error.errno == errno.ENODEV:
        return False
    raise error
