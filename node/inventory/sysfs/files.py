"""Reading the small files and folders of sysfs, procfs and /dev, with errors that name the file.

Attributes there are short; a file that is long is not what it claims to be and is not read to its end. Texts never hold
lone surrogates, whatever bytes the kernel shows: they go into protocols and files that take Unicode only.

Every reader of a device's folder needs three answers: the file's text, that the kernel has none (None), or that the
file is not as it should be (None and a line in ``errors`` that names it). Which errno means which is written here once.
ENODEV is what the kernel answers while a device is being removed: never an error, the device is gone at the next scan.
"""

from __future__ import annotations

import errno
import os
import re
from operator import attrgetter

HEXADECIMAL = re.compile(r"0x[0-9a-f]+")
_DECIMAL = re.compile(r"-?[0-9]{1,18}")

Stamp = tuple[int, int]
"""Inode and change time of a directory entry. The kernel gives a new device a new inode; other file systems use one
again, but not with the same time."""

PRESENT = frozenset({errno.ENODEV})
"""Of an attribute that every device of the kind has."""
OPTIONAL = PRESENT | {errno.ENOENT}
"""Of an attribute that not every kernel, driver or device has."""
ANSWERED = PRESENT | {errno.EINVAL, errno.EOPNOTSUPP}
"""Of an attribute that always exists and that a driver may decline to answer: EINVAL is also said of a link that is
down, or of an interface that is being removed."""
DRIVERS = ANSWERED | {errno.ENOENT}
"""Of an attribute that only some kernels have, and that a driver may decline to answer."""


class SysfsFolder:
    """The folder at ``path``; what could not be read is a line in ``errors``."""

    __slots__ = ("errors", "path")

    def __init__(self, path: str, errors: list[str]) -> None:
        self.path = path
        self.errors = errors

    @property
    def gone(self) -> bool:
        """Whether there is nothing at the path any more, or only a link to nothing."""
        try:
            os.stat(self.path)  # noqa: PTH116 - hot path
        except FileNotFoundError:
            return True
        except OSError:
            # Its error was noted when it was read.
            return False
        return False

    def text(self, name: str, silent: frozenset[int] = PRESENT) -> str | None:
        """An attribute's text, None for one that cannot be read; errors but those in ``silent`` are noted."""
        path = f"{self.path}/{name}"
        try:
            return read_now(path)
        except OSError as error:
            if error.errno not in silent:
                self.errors.append(f"{printable(path)}: {error.strerror}")
            return None

    def number(self, name: str, silent: frozenset[int] = PRESENT) -> int | None:
        """An attribute that is a decimal number."""
        text = self.text(name, silent)
        if text is None:
            return None
        if _DECIMAL.fullmatch(text):
            return int(text)
        self.complain(name, f"{text[:40]!r} is not a number")
        return None

    def hexadecimal(self, name: str, form: re.Pattern[str] = HEXADECIMAL) -> str | None:
        """An attribute that is a number in sysfs' hexadecimal form, as it is written."""
        text = self.text(name)
        if text is None or form.fullmatch(text):
            return text
        self.complain(name, f"{text[:40]!r} is not a hexadecimal number of sysfs")
        return None

    def link(self, name: str) -> str | None:
        """Base name of a link's target; None where there is no such link, such as the driver of an unbound device."""
        try:
            target = os.readlink(f"{self.path}/{name}")  # noqa: PTH115 - hot path
        except OSError as error:
            if error.errno not in OPTIONAL:
                self.complain(name, error.strerror or str(error))
            return None
        return printable(target.rpartition("/")[2]) or None

    def names(self, name: str, form: re.Pattern[str]) -> tuple[str, ...]:
        """Sorted names in a folder below that have the form; none where there is no such folder."""
        try:
            found = os.listdir(f"{self.path}/{name}")  # noqa: PTH208 - hot path
        except OSError as error:
            if error.errno not in OPTIONAL:
                self.complain(name, error.strerror or str(error))
            return ()
        return tuple(sorted(each for each in found if form.fullmatch(each)))

    def tree_path(self, name: str) -> str:
        """The path below /sys/devices of a link in a bus or class folder; empty if it is not such a link.

        The link is read and not resolved: the kernel makes such links to the device's own folder.
        """
        try:
            target = os.readlink(self.path)  # noqa: PTH115 - hot path
        except OSError as error:
            if error.errno not in OPTIONAL:
                self.errors.append(f"{printable(self.path)}: {error.strerror}; its place in the device tree is unknown")
            return ""
        path = os.path.normpath(target).lstrip("./")
        if not path.startswith("devices/"):
            # An absolute link, or one out of a folder that is mounted elsewhere.
            _, found, below = path.rpartition("/devices/")
            path = f"devices/{below}" if found else ""
        if path.endswith(f"/{name}"):
            return printable(path.removeprefix("devices/"))
        self.errors.append(
            f"{printable(self.path)}: link to {printable(target)!r}, not to the device's folder below devices"
        )
        return ""

    def complain(self, name: str, problem: str) -> None:
        """Note an attribute's error."""
        self.errors.append(f"{printable(self.path)}/{name}: {problem}")


def stamp(entry: os.DirEntry[str]) -> Stamp | None:
    """The entry's stamp, None if it has just gone."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


_HOW = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LIMIT = 4096
"""Bytes: sysfs hands out one page per attribute at most."""


class Unreadable(Exception):
    """A file cannot be read; the text names it and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{printable(path)}: {reason}")


def printable(name: str) -> str:
    """A path or file name as text; bytes of it that are no UTF-8 are written as ``\\xff``."""
    if name.isascii():
        return name
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def read_now(path: str) -> str:
    """The first page of a file as text without surrounding white space; bytes that are no UTF-8 become ``\\xff``.

    Raises OSError. A FIFO or terminal in the place of an attribute does not block.
    """
    handle = os.open(path, _HOW)
    try:
        return os.read(handle, _LIMIT).decode(errors="backslashreplace").strip()
    finally:
        os.close(handle)


def read_text(path: str) -> str:
    """``read_now``, with an error that names the file. Raises Unreadable."""
    try:
        return read_now(path)
    except OSError as error:
        raise Unreadable(path, error.strerror or str(error)) from error


def inode_of(path: str) -> int:
    """The file's inode number, which changes if it was created again; 0 if there is no such file."""
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - runs all the time
    except OSError:
        return 0


class KeptFile:
    """An attribute that is read again and again: open from the first reading on, which is most of what one costs.

    Of attributes of sysfs alone: there a file is never replaced, and one that is open keeps nothing from going away, it
    only cannot be read any more. Not for several threads.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def read(self) -> bytes:
        """The first page; empty if it cannot be read, and then it is opened again the next time."""
        try:
            if self._handle < 0:
                self._handle = os.open(self._path, _HOW)
            return os.pread(self._handle, _LIMIT, 0)
        except OSError:
            self.close()
            return b""

    def close(self) -> None:
        """Close the file; it may be read again."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    __del__ = close


def entries(folder: str, errors: list[str], *, absent_is_fine: bool = False) -> list[os.DirEntry[str]]:
    """The entries of a folder by name; a line in ``errors`` and no entries where it cannot be listed."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=attrgetter("name"))
    except FileNotFoundError as error:
        if not absent_is_fine:
            errors.append(f"{printable(folder)}: {error.strerror}")
    except OSError as error:
        errors.append(f"{printable(folder)}: {error.strerror}")
    return []
