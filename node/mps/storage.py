"""Where MPS daemons and their pods store what they share: bounded, so that no pod fills the node's memory.

Pods write to their daemon's folder of pipes and to its /dev/shm, and make its logs grow. By default each daemon has a
file system in memory for these, with a limit of bytes and of files: a pod that fills it harms the pods of this daemon
alone. It is mounted before the daemon starts and unmounted after its end. One that a killed agent left is found among
the mounts. Pods that still have it then keep their content, and cannot add to it. ``root`` itself gets a small file
system, too: a container runtime makes a folder that is missing, and a container that starts just then would have one on
the node's.

Where the agent cannot mount (its mounts would be seen by nobody else), the operator gives ``root`` a file system of its
own. It is used only if it has limits; all daemons share it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeGuard

from node.edits.mps import log_folder, pipe_folder, shm_folder
from node.mps.folders import LIBRARIES, REMOVED, clear, remove
from node.mps.mounts import KernelMount, Mounts, Result
from node.opening import opened
from node.values import Value, value

_BYTES_PER_FILE = 16 << 10
"""A file system may have one file for this many bytes: the kernel's memory for empty files is bounded as well."""
FULL = 0.95
"""Used part of the file system from which pods are warned that nothing more fits."""
_LOGS = 1 / 8
"""Part of the file system that a log may use before it is shortened."""
_TAIL = 64 << 10
"""Bytes of a shortened log that are kept, beside it."""
_PARTS = frozenset({"pipe", "log", "shm"})
_ROOT_SIZE = 4 << 20
_ROOT_FILES = 4096
"""Limits of the file system at the root: it has links, and folders to mount at."""
_LIMITS = ("size", "nr_inodes")
_SHARED = (Path("/"), Path("/run"))
"""Folders whose file systems the node itself needs."""


_BOUNDING = threading.Lock()
"""Held while a root gets its file system: resources' and claims' daemons may need it at the same time."""


@value
class StorageUsage(Value):
    """How much of a file system is in use: bytes and files, and their limits. ``shared``: all daemons have it."""

    size: int
    used: int
    files: int
    used_files: int
    shared: bool = False

    @property
    def remedy(self) -> str:
        """The setting that gives a full one more room."""
        return "give nvidia.mpsRoot a larger one" if self.shared else "raise nvidia.mpsFileSystemSize"

    @property
    def ratio(self) -> float:
        """The part in use, of what is scarcer; 1 for all of it."""
        return max(self.used / max(1, self.size), self.used_files / max(1, self.files))

    def __str__(self) -> str:
        return f"{self.used >> 20} of {self.size >> 20} MiB, {self.used_files} of {self.files} files"


class MpsStorage:
    """The folders of daemons below ``root``, known by the daemon's name; every method blocks.

    ``size``: bytes of each daemon's file system; None where ``root`` is a file system that the operator provides.
    ``shared_memory``: where daemons look for the memory that they share with pods.
    """

    def __init__(self, root: Path, mounts: Mounts, size: int | None, shared_memory: Path) -> None:
        self._root = root
        self._mounts = mounts
        self._size = size
        self._shared_memory = shared_memory

    def hindrance(self) -> str:
        """Why no daemon can store anything here, with what to do; empty if one can. ``root`` must be there."""
        return self._unbounded() if self._size is None else self._unmountable()

    def _unmountable(self) -> str:
        problem = self._mounts.hindrance(self._root, self._shared_memory)
        if problem:
            return (
                f"the agent cannot mount a file system in {self._root}: {problem}; give the agent CAP_SYS_ADMIN "
                "and the calls mount, umount2 and unshare (docs/sharing.md says how)"
            )
        if not self._mounts.is_visible(self._root):
            return (
                f"what the agent mounts in {self._root} stays in its own mount namespace, so pods do not get it; mount "
                f"{self._root} with mountPropagation: Bidirectional, or, in a systemd unit, give {self._root} a tmpfs "
                "with size and nr_inodes and set nvidia.mpsFileSystem: provided"
            )
        return ""

    def _unbounded(self) -> str:
        """Why pods may not write to the operator's file system."""
        mount = self._mounts.at(self._root)
        if not self._is_own(mount):
            return (
                f"nvidia.mpsFileSystem is provided, but {self._root} is not a file system of its own, so pods could "
                "fill the node's; mount a tmpfs with size and nr_inodes there, or remove nvidia.mpsFileSystem"
            )
        missing = _missing_limits(mount)
        if missing or not self._usage(self._root).size:
            return (
                f"the tmpfs at {self._root} has no limit {' and '.join(missing) or 'size'}, so pods could fill the "
                "node's memory; mount it with size=512m,nr_inodes=32k"
            )
        problem = self._mounts.hindrance(self._root, self._shared_memory)
        return problem and (
            f"the agent cannot give daemons a {self._shared_memory} of their own: {problem}; give the agent "
            "CAP_SYS_ADMIN and the calls mount, umount2 and unshare (docs/sharing.md says how)"
        )

    def _is_own(self, mount: KernelMount | None) -> TypeGuard[KernelMount]:
        """Whether the mount that the root is on is of a file system for the root alone."""
        return mount is not None and mount.point == self._root and mount.root == "/" and not self._is_nodes(mount)

    def _bound_root(self) -> None:
        """Mount the root's own file system, unless it is there; raises OSError."""
        with _BOUNDING:
            mount = self._mounts.at(self._root)
            if not self._is_own(mount) or _missing_limits(mount):
                self._mounts.mount(self._root, _ROOT_SIZE, _ROOT_FILES)

    def _is_nodes(self, mount: KernelMount) -> bool:
        others = (self._mounts.at(folder) for folder in _SHARED if folder.exists())
        return any(other is not None and other.device == mount.device for other in others)

    def make(self, name: str) -> str:
        """Give a daemon new, empty folders, which no pod has yet; returns the remains of older ones. Raises OSError."""
        if self._size is not None:
            self._bound_root()
        left = self.remove(name)
        folder = self._folder(name)
        for each in reversed((folder, *folder.parents)):
            if self._root in (each, *each.parents):
                each.mkdir(mode=0o755, parents=True, exist_ok=True)
                each.chmod(0o755)
        if self._size is not None:
            self._mounts.mount(folder, self._size, self._size // _BYTES_PER_FILE)
        # Pods of any user connect to the pipes, which the daemon opens to all.
        for path, mode in ((self._pipe(name), 0o755), (self.log(name), 0o755), (self._shm(name), 0o1777)):
            path.mkdir()
            path.chmod(mode)
        return left

    def remove(self, name: str) -> str:
        """Take a daemon's folders out of use, and remove what pods let go; what stays for now, in words.

        Raises OSError. A file system that pods still have stops growing, and ends with the last of them.
        """
        folder, left = self._folder(name), ""
        if not folder.exists():
            return ""
        while folder in self._mounts.below(self._root):
            with contextlib.suppress(OSError):
                self._mounts.shrink(folder)
            with contextlib.suppress(OSError):
                clear(folder)
                self._mounts.shrink(folder)
            if not self._mounts.unmount(folder):
                left = f"{folder} is still in use on the node; it was detached, and its memory is free when that ends"
        remove(self._root, folder)
        return left

    def has(self, name: str) -> bool:
        """Whether a daemon has its folders."""
        return self._pipe(name).is_dir()

    def names(self) -> tuple[str, ...]:
        """Daemons that have folders or a file system, whether they run or not; raises OSError."""
        found = set(self._mounts.below(self._root))
        for folder in self._folders_in(self._root):
            inner = self._folders_in(folder)
            if folder.name in (LIBRARIES, REMOVED):
                continue
            # A resource's name has two parts. Of a daemon whose agent was killed the folder may be empty.
            own = not inner or _PARTS & {each.name for each in inner}
            found |= {folder} if own else set(inner)
        return tuple(sorted(str(folder.relative_to(self._root)) for folder in found))

    @staticmethod
    def _folders_in(folder: Path) -> tuple[Path, ...]:
        return tuple(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())

    def usage(self, name: str) -> StorageUsage:
        """How full the file system of a daemon is; raises OSError."""
        return self._usage(self._folder(name))

    def _usage(self, folder: Path) -> StorageUsage:
        found = os.statvfs(folder)
        blocks, files = found.f_blocks - found.f_bfree, found.f_files - found.f_ffree
        size, used = found.f_blocks * found.f_frsize, blocks * found.f_frsize
        return StorageUsage(size, used, found.f_files, files, shared=self._size is None)

    def shorten_logs(self, name: str) -> None:
        """Cut logs that have grown too long, and keep the end of each beside it; raises OSError.

        The daemon keeps its log open: it continues to write to the truncated file.
        """
        most = self.usage(name).size * _LOGS
        for path in sorted(self.log(name).iterdir()):
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_blocks * 512 <= most:
                continue
            with opened(path, os.O_RDWR) as log:
                tail = os.pread(log, _TAIL, max(0, os.fstat(log).st_size - _TAIL))
                os.ftruncate(log, 0)
            older = path.with_name(f"{path.name}.1")
            older.unlink(missing_ok=True)
            with contextlib.suppress(OSError), opened(older, os.O_RDWR | os.O_CREAT) as kept:
                os.write(kept, tail)

    def log(self, name: str) -> Path:
        """The folder of a daemon's logs."""
        return Path(log_folder(str(self._root), name))

    def acting(self, name: str, act: Callable[[], Result]) -> Result:
        """Act where the daemon's shared memory is at ``shared_memory``; raises OSError, and what ``act`` raises."""
        return self._mounts.in_namespace(self._root, self._shm(name), self._shared_memory, act)

    def _folder(self, name: str) -> Path:
        return self._pipe(name).parent

    def _pipe(self, name: str) -> Path:
        return Path(pipe_folder(str(self._root), name))

    def _shm(self, name: str) -> Path:
        return Path(shm_folder(str(self._root), name))


def _missing_limits(mount: KernelMount) -> list[str]:
    """Limits that a tmpfs does not have, as options of the mount."""
    given = {option.partition("=")[0] for option in mount.options}
    return [limit for limit in _LIMITS if mount.kind == "tmpfs" and limit not in given]


def folders_below(root: Path) -> list[str]:
    """Resources, and daemons of claims, that have a folder of pipes below MPS's root; raises OSError."""
    # A daemon's own folders are not looked into: pods can put anything there.
    found = {pipe.parent for pipe in root.glob("*/pipe")}
    found |= {pipe.parent for pipe in root.glob("*/*/pipe") if pipe.parent.parent not in found}
    names = (str(folder.relative_to(root)) for folder in found)
    return sorted(name for name in names if not name.startswith(REMOVED))
