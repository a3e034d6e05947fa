"""The small files that say how to reach an API server (kubeconfig, token, namespace, ids), and key material in memory.

Files are read by the rules of ``node.opening``, repeated here because this leaf imports nothing of ours: never wait,
follow links (a mounted Secret or token consists of them), read regular files only, at most ``limit`` bytes.
``/dev/stdin`` and ``/dev/fd/63``, as the shell writes ``<(command)``, may be pipes: the person who names one means it.

TLS libraries read certificates and keys from files only, and a kubeconfig may hold them inline. An anonymous file in
memory has a path under /proc, works if the root file system is read-only, and disappears with the process, however that
ends.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import weakref
from pathlib import Path

_INHERITED = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/[0-9]{1,6}")
SMALL = 64 << 10
"""Bytes of a token, a namespace or an id."""


class FileTooLarge(OSError):
    """The file is larger than its reader's limit."""


def read_small(path: Path, limit: int = SMALL) -> bytes:
    """The file's content; raises ``OSError`` with the reason, also for a file above ``limit`` bytes."""
    inherited = _INHERITED.fullmatch(str(path)) is not None
    if not inherited:
        _check(path.stat())  # Opening a device may have effects.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if inherited:
            os.set_blocking(descriptor, True)
        else:
            _check(status)
        data = b"" if status.st_size > limit else file.read(limit + 1)
    if status.st_size > limit or len(data) > limit:
        raise FileTooLarge(errno.EFBIG, f"has more than {limit} bytes")
    return data


def _check(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


class MemoryFile:
    """A file in memory; this process can open ``path`` as long as the object lives."""

    __slots__ = ("__weakref__", "path")

    def __init__(self, content: bytes) -> None:
        descriptor = os.memfd_create("ostler", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        self.path = f"/proc/self/fd/{descriptor}"
