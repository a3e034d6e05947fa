"""A file whose opening takes as long as a test wants, as on a disk that hangs: by fanotify, which asks before."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from pathlib import Path

import pytest

_CLASS_CONTENT, _CLOEXEC = 0x4, 0x1
_MARK_ADD, _OPEN_PERM, _AT_FDCWD = 0x1, 0x10000, -100
_EVENT = struct.Struct("IBBHQii")
"""``struct fanotify_event_metadata``: length, version, reserved, length of this, mask, descriptor, pid."""
_ANSWER = struct.Struct("iI")
_ALLOW = 1


_LIBC = ctypes.CDLL(None, use_errno=True)


def _group() -> int:
    group: int = _LIBC.fanotify_init(_CLASS_CONTENT | _CLOEXEC, os.O_RDONLY)
    if group < 0:
        raise OSError(ctypes.get_errno(), "fanotify_init")
    return group


def _may_ask() -> bool:
    try:
        os.close(_group())
    except OSError:
        return False
    return True


needs_fanotify = pytest.mark.skipif(not _may_ask(), reason="fanotify's questions need root and a kernel that has them")


class HeldFile:
    """Whoever opens the file waits for ``let_go``."""

    def __init__(self, path: Path) -> None:
        self._group = _group()
        mask = ctypes.c_uint64(_OPEN_PERM)
        if _LIBC.fanotify_mark(self._group, _MARK_ADD, mask, _AT_FDCWD, os.fsencode(path)) < 0:
            raise OSError(ctypes.get_errno(), "fanotify_mark")

    def is_waited_for(self) -> bool:
        """Whether somebody is opening the file."""
        return bool(select.select([self._group], [], [], 0)[0])

    def let_go(self) -> None:
        """Let everybody open it."""
        events = os.read(self._group, 4096)
        for _, _, _, _, _, descriptor, _ in _EVENT.iter_unpack(events):
            os.write(self._group, _ANSWER.pack(descriptor, _ALLOW))
            os.close(descriptor)
        os.close(self._group)
