"""Opens files in whose place somebody may have put something else: the only way in for every file the agent reads.

A FIFO blocks its opener for ever, a device acts when it is opened, a sparse file is larger than memory, and a link
leads to another file. So a file is checked before it is opened and again afterwards, is opened without waiting, must be
a regular file, and is read only up to a limit that its reader names.

Links: files that ostler or the kubelet writes are replaced by a rename and are never links, so a link there is refused.
Files that people name (``node.named_files``) may be links, since every file of a mounted ConfigMap is one; the
target of the link must be a regular file. Every refusal is an ``OSError`` whose ``strerror`` says what is there.

``kube/files.py`` has the same for the leaf ``kube``, which imports nothing of ours.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KERNEL_FILE = 16 << 20
"""Bytes read of a file that the kernel makes up (procfs), which has no size."""
KUBELET_STATE = 16 << 20
"""Bytes read of a state file of the kubelet (device allocations, claims); a full node's has 1 or 2 MiB."""
_CHUNK = 256 << 10
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class NotRegular(OSError):
    """Something else than a regular file is there; ``kind`` says what, with its article."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
        self.kind = kind


class TooLarge(OSError):
    """The file has more bytes than its reader takes. ``size``: 0 where the file says nothing of its size."""

    def __init__(self, path: Path, size: int, limit: int) -> None:
        has = f"the file is {size} bytes" if size > limit else "the file is larger than it says"
        super().__init__(errno.EFBIG, f"{has}; the limit is {limit}", str(path))


@contextmanager
def opened(path: Path, how: int = os.O_RDONLY, *, links: bool = False) -> Iterator[int]:
    """The descriptor of the regular file at ``path`` while it is used; raises ``OSError``."""
    descriptor = open_regular(path, how, links=links)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(path: Path, how: int = os.O_RDONLY, mode: int = 0o600, *, links: bool = False) -> int:
    """A descriptor of the regular file at ``path``, which the caller closes; raises ``OSError``.

    ``how``: flags for ``os.open``, ``mode`` those of a file that ``O_CREAT`` makes.
    """
    try:
        _check(path, path.stat(follow_symlinks=links))
    except FileNotFoundError:
        if not how & os.O_CREAT:
            raise
    # It may have been replaced since: opened so that neither a FIFO nor a link does harm, and checked again.
    flags = how | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and not links:
            raise NotRegular(path, "a symbolic link") from error
        raise
    try:
        _check(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, limit: int, *, links: bool = False) -> bytes:
    """The content of the regular file at ``path``; raises ``OSError``, also for more than ``limit`` bytes."""
    with opened(path, links=links) as descriptor:
        return content(descriptor, path, limit)


def read_kernel_text(path: Path) -> str:
    """The content of a file of procfs or sysfs, decoded whatever its bytes are; raises ``OSError``."""
    return read_regular(path, KERNEL_FILE, links=True).decode(errors="replace")


def content(descriptor: int, path: Path, limit: int, begin: bytes = b"") -> bytes:
    """What an open file holds after ``begin``, which is read already, and that itself.

    Raises ``OSError``, also for more than ``limit`` bytes.
    """
    size = os.fstat(descriptor).st_size
    if size > limit:
        raise TooLarge(path, size, limit)
    chunks, left = [begin], limit + 1 - len(begin)
    while left and (chunk := os.read(descriptor, min(left, _CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    if not left:
        raise TooLarge(path, 0, limit)
    return b"".join(chunks)


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((words for is_kind, words in _KINDS if is_kind(status.st_mode)), "something unknown")
        raise NotRegular(path, kind)


def boot_id(proc: Path = Path("/proc")) -> str:
    """The kernel's id of this boot, empty if it cannot be read: then boots cannot be distinguished."""
    try:
        return read_kernel_text(proc / "sys/kernel/random/boot_id").strip()
    except OSError:
        return ""
