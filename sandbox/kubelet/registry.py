"""What is in ``plugins_registry/``: the sockets a kubelet would see there, each with a stamp of its creation.

The folder is looked at instead of watched: inode and modification time tell a new socket under an old name from the
old one (not the change time, for a chmod creates nothing). The price is that a socket renamed away counts as removed,
which a real kubelet does not notice, and that two changes between two looks are seen as one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stamp:
    """Tells one socket from its successor at the same path."""

    device: int
    inode: int
    modified_ns: int


class RegistryFolder:
    """The folder; the first look walks into hidden folders too, later ones only into those of the first look."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._hidden: set[str] | None = None

    def sockets(self) -> dict[str, Stamp]:
        """Path -> stamp of every socket at any depth whose name is not hidden."""
        hidden: set[str] = set()
        found = dict(self._walk(self._root, hidden))
        if self._hidden is None:
            self._hidden = hidden
        return found

    def _walk(self, directory: Path, hidden: set[str]) -> Iterator[tuple[str, Stamp]]:
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            return  # Gone between two looks, or not readable: nothing is there.
        for entry in entries:
            try:
                status = entry.stat()
            except OSError:
                continue  # Gone, or a dangling link.
            concealed = entry.name.startswith(".")
            if stat.S_ISDIR(status.st_mode) and not entry.is_symlink():
                if concealed and self._hidden is not None and entry.path not in self._hidden:
                    continue
                if concealed:
                    hidden.add(entry.path)
                yield from self._walk(Path(entry.path), hidden)
            elif stat.S_ISSOCK(status.st_mode) and not concealed:
                yield entry.path, Stamp(status.st_dev, status.st_ino, status.st_mtime_ns)
