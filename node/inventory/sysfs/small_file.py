"""Reading the small text files and folders of sysfs, procfs and /dev, with errors that name the file.

Attributes there are short; a file that is long is not what it claims to be and is not read to its end. Texts never hold
lone surrogates, whatever bytes the kernel shows: they go into protocols and files that take Unicode only.
"""

from __future__ import annotations

import os

_HOW = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LIMIT = 4096
"""Bytes: sysfs hands out one page per attribute at most."""


class Unreadable(Exception):
    """A file that cannot be read; the text names it and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{printable(path)}: {reason}")
        self.path = path
        self.reason = reason


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
    """The file's inode number, which is another one where it was made anew; 0 where there is no such file."""
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
        """The first page as it stands; empty where it cannot be read, and then it is opened anew the next time."""
        try:
            if self._handle < 0:
                self._handle = os.open(self._path, _HOW)
            return os.pread(self._handle, _LIMIT, 0)
        except OSError:
            self.close()
            return b""

    def close(self) -> None:
        """Let go of it; it may be read again."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    __del__ = close


def entries(folder: str, errors: list[str], *, absent_is_fine: bool = False) -> list[os.DirEntry[str]]:
    """The entries of a folder by name; a line in ``errors`` and no entries where it cannot be listed."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError as error:
        if not absent_is_fine:
            errors.append(f"{printable(folder)}: {error.strerror}")
    except OSError as error:
        errors.append(f"{printable(folder)}: {error.strerror}")
    return []
