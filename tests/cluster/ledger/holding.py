"""Who has a device, told by the containers themselves: each locks a file on the host for every device that it sees.

The locks are record locks of ``hold.c``, a static program that is compiled into the folder: a lock ends with its
process, also where a container is killed while it is being started, and can be looked at without being taken.
"""

from __future__ import annotations

import fcntl
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("hold.c")
PROGRAM = "hold"
_FLAGS = ("-std=gnu11", "-static", "-O1", "-Wall", "-Wextra", "-Werror")
_FLOCK = "hhqqi0q"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


class ContainerHolding:
    """A folder that containers mount, for devices of these file names."""

    def __init__(self, folder: Path, devices: Sequence[str]) -> None:
        self.folder = folder
        self._devices = devices
        (folder / "held").mkdir(parents=True)
        subprocess.run(["gcc", *_FLAGS, "-o", folder / PROGRAM, SOURCE], check=True)

    def held(self) -> set[str]:
        """The devices that a living process has."""
        return {device for device in self._devices if _is_locked(self._file(device))}

    def last_used(self) -> dict[str, float]:
        """When a process that had each device last ended by itself: seconds since 1970, 0 where none has."""
        files = {device: self._file(device) for device in self._devices}
        return {device: file.stat().st_mtime if file.exists() else 0.0 for device, file in files.items()}

    def doubles(self) -> list[str]:
        """For every process that found a device taken: the device and the process's host name."""
        return self._lines("doubles")

    def ran(self) -> list[str]:
        """Host names of all that ran."""
        return self._lines("ran")

    def _file(self, device: str) -> Path:
        return self.folder / "held" / device

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def _is_locked(file: Path) -> bool:
    try:
        opened = file.open("rb+")
    except FileNotFoundError:
        return False
    with opened:
        found = fcntl.fcntl(opened, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)
