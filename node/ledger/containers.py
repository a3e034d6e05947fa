"""Whether pods still have containers on this node, whatever the kubelet and the API server say of them.

Both forget a pod that was deleted by force while its containers run on. What cannot be deceived is the kernel: the
pod's cgroup, or its processes, which have files of the kubelet's ``pods/UID`` mounted. Processes are looked through
only where no cgroup of a pod was ever found (a kubelet with ``cgroupsPerQOS: false``), and only for pods whose end
matters.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from node.ledger.cgroups import PodCgroups
from node.ledger.processes import sees_processes
from node.opening import read_kernel_text

_UNSEEN = (
    "containers of pods that were deleted by force are not looked for: neither pods' cgroups are found below {cgroups} "
    "nor does the agent see the node's processes; mount the node's /sys/fs/cgroup there"
)
_OF_POD = r"pods?[/]?([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
"""In a process's cgroups and mounts: the UID of its pod; a static pod's is a hash."""


class PodContainers(Protocol):
    """Who can tell whether pods have containers here; both calls block, for one thread at a time."""

    @property
    def off(self) -> str:
        """Why nobody can tell, in words; empty where somebody can. At once."""
        ...

    def left(self, uids: Collection[str]) -> frozenset[str]:
        """Those of the pods that have a process in a container now, as far as that can be seen. Raises OSError.

        Where nobody can tell there are none: the word of kubelet and API server has to do.
        """
        ...

    def confirm(self, living: Collection[str]) -> None:
        """Compare what is seen with pods of which the kubelet says that they have been living for a while."""
        ...


class NodeContainers:
    """Tells by the cgroups below ``cgroups`` and the processes in ``proc``; ``clock``: monotonic seconds."""

    def __init__(self, cgroups: Path, proc: Path, *, clock: Callable[[], float]) -> None:
        self._cgroups = PodCgroups(cgroups, clock=clock)
        self._place = cgroups
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
            # Also where it is not known that those of others are seen: what is found is found.
            left |= processes_of(unknown, self._proc)
        return frozenset(left)

    def confirm(self, living: Collection[str]) -> None:
        """See ``PodContainers``; one pod that is seen is enough, since some may just have ended."""
        fits = self._cgroups.is_found
        if living:
            fits = any(self._cgroups.has_processes(uid) is not None for uid in living)
            if not fits:
                self._cgroups.doubt()
                fits = any(self._cgroups.has_processes(uid) is not None for uid in living)
        if not fits and not self._sees_processes:
            # In a PID namespace of one's own nothing is seen, unless the kubelet is in the same one.
            self._sees_processes = bool(living) and bool(processes_of(set(living), self._proc))
        self._off = "" if fits or self._sees_processes else _UNSEEN.format(cgroups=self._place)


def processes_of(uids: Collection[str], proc: Path) -> set[str]:
    """Those of the pods that have a process, by every process's cgroups and mounts."""
    left: set[str] = set()
    with os.scandir(proc) as entries:
        pids = [entry.name for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        if len(left) == len(uids):
            break
        with contextlib.suppress(OSError):
            # One that has ended is nobody's; and where they are hidden from us, all are.
            left |= _pods_of(proc / pid) & set(uids)
    return left


def _pods_of(process: Path) -> set[str]:
    found = set(re.findall(_OF_POD, read_kernel_text(process / "cgroup")))
    for line in read_kernel_text(process / "mountinfo").splitlines():
        _, _, _, source, target, *_ = *line.split(" ", 5), "", "", "", "", ""
        # On the node itself the volumes of pods are mounted below the same folders, some for longer than the pods are.
        found |= set(re.findall(_OF_POD, source)) - set(re.findall(_OF_POD, target))
    return {uid.replace("_", "-") for uid in found}
