"""One active instance per node: a lock file held for as long as anything is decided or written.

Two live instances would be two ledgers. The lock is the kernel's (flock), so it falls free the moment its holder dies,
however it dies; the file itself stays for ever, because removing a lock file lets two processes hold two files.

A standby says that it is there by holding a second lock of this kind; the active instance asks for it with ``taken``.
That one keeps nobody from anything: who cannot have it waits for the first all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

POLL = 0.05
"""Seconds between attempts of a standby. flock tells nobody when it falls free; only standbys pay for asking."""


class LockError(Exception):
    """The lock file cannot be used."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: the lock file cannot be used ({problem}); check the state folder's permissions")
        self.path = path
        self.problem = problem


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
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LockError(self.path, error.strerror or str(error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise LockError(self.path, error.strerror or str(error)) from error
        self._descriptor = descriptor
        # The number is for messages only: a full disk must not keep a node's devices from being served.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        return True

    async def acquire(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until the lock is ours; ``meanwhile`` is called after every attempt that failed."""
        while not self.try_acquire():
            meanwhile()
            await asyncio.sleep(POLL)

    def taken(self) -> bool:
        """Whether somebody else holds the lock now; False where there is no file to ask."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # Shared, so that two who ask do not see each other; one who wants the lock tries again anyway.
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
            return self.path.read_text().strip()
        except OSError:
            return ""

    def release(self) -> None:
        """Let the lock fall free."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
