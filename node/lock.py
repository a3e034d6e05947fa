"""One active instance per node, and per kubelet: locks held for as long as anything is decided or written.

Two live instances would be two ledgers. The lock is the kernel's (flock), which releases it the moment its holder dies,
however it dies. The file itself is never removed, because then two processes could hold two files.

A standby announces itself by holding a second lock of this kind, which the active instance checks with ``taken``. The
second lock blocks nobody: an instance that cannot get it waits for the first one anyway.

Agents with different state folders have different lock files, and would be two ledgers of one kubelet. So the kubelet's
folder of device plugins is locked as well: the folder itself, because the kubelet removes files of others in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from node.opening import open_regular, read_kernel_text, read_regular

FILE_NAME = "lock"
"""In the state folder."""
POLL = 0.05
"""Seconds between attempts of a standby. flock does not report when it becomes free; only standbys pay for asking."""

_LONGEST = 64
"""Bytes of a lock file: a process id and the end of its line."""


class LockError(Exception):
    """The lock file, or the folder that is locked, cannot be used; ``advice``: what to do."""

    def __init__(
        self,
        path: Path,
        problem: str,
        what: str = "the lock file cannot be used",
        advice: str = "check the state folder's permissions",
    ) -> None:
        super().__init__(f"{path}: {what} ({problem}); {advice}")


class InstanceLock:
    """The lock at ``path``, which must be on a local file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free and write our process id into it; raises ``LockError``."""
        if self.held:
            return True
        try:
            descriptor = self._open()
        except OSError as error:
            raise self._error(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise self._error(error) from error
        self._descriptor = descriptor
        self._sign(descriptor)
        return True

    def _open(self) -> int:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open_regular(self.path, os.O_RDWR | os.O_CREAT)

    def _error(self, error: OSError) -> LockError:
        return LockError(self.path, error.strerror or str(error))

    def _look(self) -> int:
        return open_regular(self.path)

    def _sign(self, descriptor: int) -> None:
        # The number is for messages only: a full disk must not keep a node's devices from being served.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())

    async def acquire(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until the lock is ours; ``meanwhile`` is called after every attempt that failed."""
        while not self.try_acquire():
            meanwhile()
            await asyncio.sleep(POLL)

    def taken(self) -> bool:
        """Whether somebody else holds the lock now; False where there is no file to ask."""
        try:
            descriptor = self._look()
        except OSError:
            return False
        try:
            # Shared, so that two who ask do not see each other; an instance that wants the lock tries again anyway.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return not self.held
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return False

    def holder(self) -> str:
        """Process id of the holder as it wrote it, empty when unknown; for messages only."""
        try:
            return read_regular(self.path, _LONGEST).decode(errors="replace").strip()
        except OSError:
            return ""

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class FolderLock(InstanceLock):
    """The lock of the folder ``path`` itself: nothing is written to it, and the kernel knows the holder.

    A folder that is not there is nobody's: there is no kubelet that could be served through it.
    """

    def __init__(self, path: Path, proc: Path = Path("/proc")) -> None:
        super().__init__(path)
        self._proc = proc

    @property
    def is_current(self) -> bool:
        """Whether no other folder is at the path: false once somebody has created it again."""
        try:
            there = self.path.stat()
        except OSError:
            return True
        return self._descriptor is not None and os.path.samestat(os.fstat(self._descriptor), there)

    def try_acquire(self) -> bool:
        """Take the lock if it is free, or there is nothing to lock; raises ``LockError``."""
        if not self.is_current:
            self.release()
        try:
            return not self.path.is_dir() or super().try_acquire()
        except LockError:
            # It may have been removed since the check.
            if self.path.exists():
                raise
            return True

    def holder(self) -> str:
        """Who holds it, in words and as far as /proc shows it: ``process 12 with state folder /var/lib/ostler``."""
        try:
            inode, table = self.path.stat().st_ino, read_kernel_text(self._proc / "locks")
        except OSError:
            return ""
        pid = holder_of(inode, table)
        if pid is None:
            return ""
        folder = self._state_of(pid)
        return f"process {pid}" + (f" with state folder {folder}" if folder else "")

    def _open(self) -> int:
        return os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    _look = _open

    def _error(self, error: OSError) -> LockError:
        what, advice = "the kubelet's folder cannot be locked", "let the agent read this folder, on a local file system"
        return LockError(self.path, error.strerror or str(error), what, advice)

    def _sign(self, descriptor: int) -> None:
        """Does nothing: a folder cannot hold our process id."""

    def _state_of(self, pid: int) -> str:
        """The process's state folder, found by the lock file that it has open; empty if /proc hides it."""
        with contextlib.suppress(OSError):
            for link in (self._proc / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    path = link.readlink()
                    if path.name == FILE_NAME:
                        return str(path.parent)
        return ""


def holder_of(inode: int, table: str) -> int | None:
    """The process that holds a flock on the inode, by the text of /proc/locks; None if none is visible."""
    for line in table.splitlines():
        # "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"; who waits for a lock has an arrow after the number.
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            return int(words[4])
    return None
