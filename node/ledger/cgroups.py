"""The cgroups of pods: whether a pod (by the kubelet's UID) has a process left, at the price of one file.

The kubelet gives every pod a cgroup before its first container and removes it after its last one. Both cgroup versions
and both of the kubelet's drivers are understood, below any ``cgroupRoot``: the folders that hold the pods' are looked
for once, within bounds, and again when they do not fit any more. Emptiness is asked of the kernel's own count, which
includes what is below a cgroup and does not depend on the PID namespace of whoever asks. So a folder that is left for
ever keeps nobody from anything. Blocking; for one thread at a time.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from node.inventory.sysfs.small_file import read_now

DEEPEST, MOST = 6, 4096
"""How far down the folders of pods are looked for, and in how many folders at most."""
AGAIN = 10.0
"""Seconds between two searches for them."""
_CONTROLLERS = ("pids",)
"""Hierarchies of version 1 that count processes for everything below a cgroup."""
_UID = r"[0-9A-Za-z][0-9A-Za-z-]{0,63}"
_CLASSES = ("", "burstable", "besteffort")
_PODS, _SLICE = "kubepods", ".slice"


class PodCgroups:
    """The pods' cgroups below ``root``, which is where the node's are mounted; ``clock``: monotonic seconds."""

    def __init__(self, root: Path, *, clock: Callable[[], float]) -> None:
        self._root = root
        self._clock = clock
        self._folders: tuple[str, ...] = ()
        self._searched = -math.inf
        self.is_proved = False
        """Whether the cgroup of a pod was ever found; before, one that is not found proves less."""

    @property
    def is_found(self) -> bool:
        """Whether there is a folder for pods' cgroups."""
        if not self._folders or not all(map(os.path.isdir, self._folders)):
            self._search()
        return bool(self._folders)

    def has_processes(self, uid: str) -> bool | None:
        """Whether a process of the pod is left; None where the pod has no cgroup. Raises OSError."""
        if not re.fullmatch(_UID, uid):
            return None
        found = self._populated(uid)
        if found is None and not self.is_proved and self._search():
            found = self._populated(uid)
        self.is_proved |= found is not None
        return found

    def doubt(self) -> None:
        """Pods that live were not found: the folders may not be theirs, or not theirs any more."""
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
        """Look for the folders, unless that was just done; whether it was done."""
        now = self._clock()
        if now - self._searched < AGAIN:
            return False
        self._searched = now
        self._folders = tuple(folder for hierarchy in self._hierarchies() for folder in _folders_of_pods(hierarchy))
        return True

    def _hierarchies(self) -> Iterator[str]:
        if (self._root / "cgroup.controllers").exists():
            yield str(self._root)
        for name in _CONTROLLERS:
            if (self._root / name / "cgroup.procs").exists():
                yield str(self._root / name)


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
    """Where the kubelet puts the pod's cgroup, whatever its quality of service: the drivers name them differently."""
    prefix = folder.rpartition("/")[2]
    if not prefix.endswith(_SLICE):
        for name in _CLASSES:
            yield os.path.join(folder, name, f"pod{uid}")  # noqa: PTH118 - it is called for every look
        return
    prefix, pod = prefix.removesuffix(_SLICE), f"pod{uid.replace('-', '_')}{_SLICE}"
    for name in _CLASSES:
        yield f"{folder}/{prefix}-{name}{_SLICE}/{prefix}-{name}-{pod}" if name else f"{folder}/{prefix}-{pod}"


def _has_process(folder: str) -> bool:
    """By the kernel's count of the cgroup and everything below it."""
    try:
        return "populated 1" in read_now(f"{folder}/cgroup.events")
    except FileNotFoundError:
        return int(read_now(f"{folder}/pids.current")) > 0
    except OSError as error:
        return _gone(error)


def _gone(error: OSError) -> bool:
    """What is removed while it is read has no process; anything else is the caller's to hear."""
    if error.errno == errno.ENODEV:
        return False
    raise error
