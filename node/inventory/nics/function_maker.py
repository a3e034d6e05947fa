"""Makes virtual functions by sysfs, and remembers on disk which ones.

The only place that writes to sysfs. ``sriov_numvfs`` is written once, from 0, in one call that lasts until the kernel
and the driver have made all functions (seconds, for many of them). The kernel refuses for a few reasons that an
operator can fix, and each has its own message: no right to write, no room for the functions' memory or bus numbers, a
driver that makes none.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from node.files import FileError, JsonValue, read_record, write_record
from node.opening import read_kernel_text

log = logging.getLogger("ostler.virtual_functions")


class VfError(Exception):
    """Virtual functions were not made; the text is the reason with the fix.

    ``again``: whether the next look at the function may find that it is no longer so.
    """

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again


class VfMaker(Protocol):
    """Makes virtual functions; blocking, for worker threads. One call at a time."""

    def make(self, address: str, count: int, *, autoprobe: bool | None) -> bool:
        """Make that many virtual functions of the physical one at this address, which has none.

        Returns whether the kernel binds a driver to them; ``autoprobe`` None leaves that as it is. Raises VfError.
        """


_NUMBER, _AUTOPROBE = "sriov_numvfs", "sriov_drivers_autoprobe"
_NO_ROOM = (
    "the kernel found no room for them ({error}); 'dmesg' says of what: for 'not enough MMIO resources' turn on Above "
    "4G Decoding and SR-IOV in the machine's BIOS, or boot with pci=realloc; for 'bus out of range' (bus numbers) boot "
    "with pci=assign-busses; or ask for fewer"
)
_REASONS = {
    errno.ENOMEM: _NO_ROOM,
    errno.ENOSPC: _NO_ROOM,
    errno.ENOENT: "its driver makes no virtual functions through sysfs ({error}); see the documentation of the driver",
    errno.ERANGE: "the kernel allows fewer ({error}); ask for at most the number in sriov_totalvfs",
    errno.EOPNOTSUPP: "its driver refuses to make them in the mode that the NIC is in ({error}); 'dmesg' says why",
}
_OTHER = "the kernel says {error}; 'dmesg' has the reason of its driver"
_READ_ONLY = (
    "the agent may not write to {path} ({error}); in the chart set nics.virtualFunctions to true, on a node without "
    "containers run the agent as root with /sys writable"
)


class AttributeWriter(Protocol):
    """Writes to sysfs: the edge of the hardware."""

    def __call__(self, path: Path, text: str) -> None:
        """Give the attribute at ``path`` this text in one call. Raises OSError with what the kernel says."""


def write_attribute(path: Path, text: str) -> None:
    """See ``AttributeWriter``; a file that is missing is not made."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


class SysfsVfMaker:
    """Makes virtual functions by the files of sysfs at ``sys``."""

    def __init__(self, sys: Path = Path("/sys"), write: AttributeWriter = write_attribute) -> None:
        self._folder = sys / "bus/pci/devices"
        self._writer = write

    def make(self, address: str, count: int, *, autoprobe: bool | None) -> bool:
        """See ``VfMaker``. If it fails, whether drivers are bound by themselves is as it was before."""
        folder = self._folder / address
        now = _read(folder, _NUMBER)
        if now != "0":
            raise VfError(f"another program has made {now} in the meantime", again=True)
        before = _probing(folder)
        wanted = before if autoprobe is None else str(int(autoprobe))
        if before is not None and wanted is not None and before != wanted:
            self._write(folder / _AUTOPROBE, wanted)
        elif before is None and autoprobe is False:
            raise VfError("the kernel is too old to leave them without a driver (no sriov_drivers_autoprobe)")
        try:
            self._write(folder / _NUMBER, str(count))
        except VfError:
            if before is not None and before != wanted:
                self._write(folder / _AUTOPROBE, before)
            raise
        made = _read(folder, _NUMBER)
        if made != str(count):
            raise VfError(f"the driver has made only {made} of {count}; ask for at most {made}, and see 'dmesg'")
        return wanted != "0"

    def _write(self, path: Path, text: str) -> None:
        try:
            self._writer(path, text)
        except OSError as error:
            raise _refusal(error, path) from error


def _refusal(error: OSError, path: Path) -> VfError:
    """What the kernel's error means."""
    said = error.strerror or str(error)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return VfError(_READ_ONLY.format(path=path, error=said))
    if error.errno == errno.EBUSY:
        return VfError(f"the kernel says {said}: another program is making some at this moment", again=True)
    if error.errno == errno.ENODEV:
        return VfError("it was removed from the machine", again=True)
    return VfError(_REASONS.get(error.errno or 0, _OTHER).format(error=said))


def _probing(folder: Path) -> str | None:
    """Whether the kernel binds drivers to virtual functions (``1``, ``0``); None if that is unknown."""
    try:
        return read_kernel_text(folder / _AUTOPROBE).strip()
    except OSError:
        return None


def _read(folder: Path, name: str) -> str:
    try:
        return read_kernel_text(folder / name).strip()
    except OSError as error:
        again = error.errno in (errno.ENOENT, errno.ENODEV)
        raise VfError(f"{folder / name} cannot be read: {error.strerror or error}", again=again) from error


SCHEMA = "virtual-functions/v1"
FILE = "virtual-functions.json"


class VfRecord:
    """The virtual functions that ostler made since the boot, by the address of their physical function, on disk.

    It shows people who made them; ostler decides nothing by it, so a file that is damaged or cannot be written costs
    only that. ``boot``: the kernel's id of this boot, with which virtual functions end.
    """

    def __init__(self, folder: Path, boot: str) -> None:
        self._path = folder / FILE
        self._boot = boot
        self.made = self._load()

    def note(self, address: str, count: int) -> None:
        """Record how many were made. Raises FileError; in memory it is recorded anyway."""
        self.made = {**self.made, address: count}
        write_record(self._path, SCHEMA, {"boot": self._boot, "made": dict(sorted(self.made.items()))})

    def _load(self) -> Mapping[str, int]:
        try:
            data = read_record(self._path, SCHEMA)
        except FileError as error:
            log.warning("%s; who made the virtual functions of this node is not known", error)
            return {}
        made: JsonValue = data.get("made") if isinstance(data, dict) and data.get("boot") == self._boot else None
        if not isinstance(made, dict):
            return {}
        return {address: count for address, count in made.items() if type(count) is int}
