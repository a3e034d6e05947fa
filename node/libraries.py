"""Importing bindings without ``ctypes.util`` and subprocess.

pynvml and pyudev import that module for one function, which looks for a shared library. It brings
archive and temporary file modules along (5 to 10 ms on the way to the kubelet, 0.9 MB for good), and its search starts
ldconfig as a process, which small images lack: libudev would then not be found although it is there. So while a binding
is imported, a stand-in gives it a function that knows the sonames and leaves everything else to the real one. pyudev
imports subprocess to ask udevadm for its version, which ostler never does: 0.25 MB with what that imports.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from node.stand_ins import standing_in, unanswered

_NAME = "ctypes.util"
_SONAMES = {"udev": "libudev.so.1", "c": "libc.so.6"}
_LOCK = threading.Lock()


@contextmanager
def found_by_soname() -> Iterator[None]:
    """Modules imported inside find shared libraries by their sonames."""
    with _LOCK:
        if _NAME in sys.modules:
            yield
            return
        stand_in = ModuleType(_NAME)
        stand_in.find_library = find_library  # type: ignore[attr-defined]
        sys.modules[_NAME] = stand_in
        try:
            with standing_in({"subprocess": {}}, {"subprocess": {"check_output": unanswered}}):
                yield
        finally:
            # Unless somebody asked for the real one meanwhile.
            if sys.modules.get(_NAME) is stand_in:
                del sys.modules[_NAME]


def find_library(name: str) -> str | None:
    """The argument of ``ctypes.CDLL`` for a library's short name (``udev``); None if the library is missing."""
    soname = _SONAMES.get(name)
    if soname is not None:
        try:
            ctypes.CDLL(soname)
        except OSError:
            pass  # Another C library has other names; the search below knows them.
        else:
            return soname
    stand_in = sys.modules.get(_NAME)
    if isinstance(stand_in, ModuleType) and getattr(stand_in, "find_library", None) is find_library:
        del sys.modules[_NAME]
    from ctypes.util import find_library as search

    return search(name)
