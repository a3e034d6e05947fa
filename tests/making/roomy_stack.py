"""Room on the interpreter's stack of frames: a loop of calls must not get and give back memory with every call.

Python keeps frames in chunks of 16 KiB. A call whose frame no longer fits gets a chunk from the kernel, and its return
gives the chunk back. Where a loop stands just below the end of a chunk, every call in it is a ``mmap``, a ``munmap``
and pages that the kernel clears: ten times the work of the call. Tests stand deep, below pytest, execnet and pluggy, so
that some loop always stood there. A frame that is large gets a chunk of the next power of two, and those above it have
the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")

ROOM = 1 << 20
"""Bytes for the frames of what is called: a few thousand calls. Only what is used becomes memory."""
_WORD = 8


def _call(function: Callable[[], Any]) -> Any:
    return function()


# More than half of a chunk, so that Python takes one of twice the size, and the rest of it is room.
_call.__code__ = _call.__code__.replace(co_stacksize=ROOM // _WORD + 1)


def call_with_room(function: Callable[[], T]) -> T:
    """Call it from a frame that has ``ROOM`` above it."""
    return cast("T", _call(function))
