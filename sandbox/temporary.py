"""Temporary folders that outlive no program for long: what a killed one leaves, the next one removes.

The maker of a folder holds a lock on a file in it for as long as it lives. The kernel frees the lock when the maker
dies, however it dies; the next process that makes a folder removes those of its user that nobody locks any more. A
folder without this file is somebody else's and stays. Whoever wants to keep its folder after its death (for the log)
locks a file of another name, and clears by ``abandoned`` what must not outlive it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from node.opening import open_regular

SHORT: Final = Path("/tmp")  # noqa: S108 - sockets' paths may have 107 bytes only, and TMPDIR may be long
"""Where a folder is made that holds sockets."""

_OWNER: Final = ".ostler-owner"
"""The file that the maker locks. It gets its name when it is locked, so that no unlocked one is a living maker's."""


class NoTemporaryFolder(Exception):
    """No folder can be made; the text says where and why."""

    def __init__(self, parent: Path | None, error: OSError) -> None:
        where = f"in {parent}" if parent is not None else "anywhere"
        super().__init__(f"no temporary folder can be made {where}: {error.strerror or error}")


class TemporaryFolder:
    """A new folder in ``parent`` whose name begins with ``prefix``; ``remove`` it after use.

    Raises ``NoTemporaryFolder``. Removes first what killed programs have left under that prefix.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        try:
            parent = Path(tempfile.gettempdir()) if parent is None else parent
            _remove_abandoned(parent, prefix)
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        except OSError as error:
            raise NoTemporaryFolder(parent, error) from error
        try:
            self._lock = locked(self.path)
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            raise NoTemporaryFolder(parent, error) from error

    def remove(self) -> None:
        """Remove it with everything in it; can be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def locked(folder: Path, name: str = _OWNER) -> int:
    """Lock a new file of this name in the folder until the descriptor is closed, or this process ends.

    Raises OSError.
    """
    unnamed = folder / f"{name}.new"
    descriptor = open_regular(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unnamed.rename(folder / name)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def abandoned(parent: Path, prefix: str, name: str = _OWNER) -> Iterator[Path]:
    """Folders of this user with a file of that name that nobody locks any more."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and _is_abandoned(entry, name):
                yield Path(entry.path)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for folder in abandoned(parent, prefix):
        shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(entry: os.DirEntry[str], name: str) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        descriptor = open_regular(Path(entry.path) / name)
    except OSError:
        return False  # Somebody else's, or gone meanwhile.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # Its maker lives.
    finally:
        os.close(descriptor)
    return True
