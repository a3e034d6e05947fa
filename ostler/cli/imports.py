"""Keeps modules out of the agent's start that libraries import and that no agent uses before it has registered.

- **OpenSSL** (4.7 MB, 10 ms): ``asyncio`` and ``hashlib`` do without it, as in a Python that is built without OpenSSL.
  The API server's client imports ``ssl`` itself, later.
- **protobuf's implementation in Python** (1.5 MB, 6 ms with what it imports) and its **text_encoding**: the generated
  code imports them also where messages are made by the compiled implementation, which never calls them.
- **protobuf's well-known types** (0.2 MB with calendar): what protobuf adds to the classes of its own messages, such as
  time stamps. It asks for that at the first class of any message and keeps the answer, also after the block: an agent
  has none of these, and could not use their additions.
- **inspect** (4 ms with what it imports): for descriptions of functions; ``asyncio`` and gRPC only ask whether one is
  a coroutine's, and ``dataclasses`` for a text that serves classes without docstring as one.
- **traceback** (2 ms with what it imports): for errors.
- **typing_extensions** (1.5 ms): ``grpc.aio`` takes one name from it, which Python has since 3.11.
- **locale** (1 ms): for dates in other languages.
- **urllib.parse** (2 ms with what it imports) and **asyncio.sslproto** (0.5 ms): for paths as URLs, and for TLS of the
  event loop itself.
- **subprocess** (1 ms): most agents start no process. ``asyncio`` takes three numbers from it.
- **pkgutil** (0.8 ms) and **ntpath** (0.3 ms): for certificates that gRPC has built in, and for paths of Windows.
- **grpc_tools** and its siblings (0.3 ms): gRPC looks for them in every folder, and makes a second name for them.

- **Regular expressions** (2 ms): each is compiled at its first use, and half of 70 have none before the registration.

OpenSSL and gRPC's siblings are reported as missing, the others are replaced by stand-ins that load the real module when
somebody takes anything else from it. Invariant: after the block every one of them can be imported as before. Limit: in
the block, ``from package.module import name`` finds a stand-in, and ``package.module`` does not.
The agent loads ``traceback`` once it has settled (``ostler.agent.loading``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from types import FunctionType, MethodType
from typing import Self

from node.stand_ins import Answer, compiling_later, standing_in, unanswered

_ABSENT = ("ssl", "_hashlib", "grpc_health", "grpc_reflection", "grpc_tools")
_DEFERRED: dict[str, dict[str, object]] = {
    "asyncio.sslproto": {},
    "google.protobuf.internal.python_message": {},
    "google.protobuf.internal.well_known_types": {"WKTBASES": {}},
    "google.protobuf.text_encoding": {},
    "inspect": {},
    "linecache": {},
    "locale": {},
    "ntpath": {},
    "pkgutil": {},
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "tokenize": {},
    "traceback": {},
    "typing_extensions": {"Self": Self},
    "urllib.parse": {},
}
"""The modules that are replaced, and what their stand-ins have."""
_COROUTINE, _ASYNC_GENERATOR = 0x80, 0x200
"""Flags of a function's code (CO_COROUTINE, CO_ASYNC_GENERATOR)."""


def _plain_function(asked: object) -> FunctionType | None:
    """The function that something is or a method of; None for anything else, and for functions that are marked."""
    function = asked.__func__ if isinstance(asked, MethodType) else asked
    return function if isinstance(function, FunctionType) and not function.__dict__ else None


def _is_awaitable(asked: object) -> bool | None:
    return None if _plain_function(asked) is None else False


def _is_coroutine_function(asked: object) -> bool | None:
    function = _plain_function(asked)
    return None if function is None else bool(function.__code__.co_flags & _COROUTINE)


def _is_async_generator_function(asked: object) -> bool | None:
    function = _plain_function(asked)
    return None if function is None else bool(function.__code__.co_flags & _ASYNC_GENERATOR)


def _description_of_values(asked: object) -> str | None:
    """The signature of a class without docstring, for which ``dataclasses`` asks to make one of it."""
    fields = asked.__dict__.get("__dataclass_fields__") if isinstance(asked, type) else None
    return None if fields is None else f"({', '.join(fields)})"


_FUNCTIONS: dict[str, dict[str, Answer]] = {
    "inspect": {
        "isasyncgenfunction": _is_async_generator_function,
        "isawaitable": _is_awaitable,
        "iscoroutinefunction": _is_coroutine_function,
        "signature": _description_of_values,
    },
    "traceback": {"extract_stack": unanswered},
    "urllib.parse": {"quote_from_bytes": unanswered},
}
"""Functions of stand-ins, and what answers in their place; where that is None, the real function is asked.

``asyncio`` asks about every handler of a signal, gRPC about the handler of every call, and both have plain ones.
"""


def load_library_ahead() -> None:
    """Have a thread load gRPC's library while modules are imported.

    It takes 2.5 ms of a core, most of it in the loader, for which the thread does not need the interpreter's lock. If
    the library is not found, its module loads it as usual.
    """
    package = PathFinder.find_spec("grpc")
    folders = [] if package is None else package.submodule_search_locations or []
    names = [f"{folder}/_cython/cygrpc{suffix}" for folder in folders for suffix in EXTENSION_SUFFIXES]
    found = next(filter(os.path.exists, names), None)
    if found is not None:
        with contextlib.suppress(OSError, AttributeError):
            # ctypes.CDLL itself would keep the lock.
            load = ctypes.CDLL(None).dlopen
            threading.Thread(target=load, args=(os.fsencode(found), sys.getdlopenflags()), daemon=True).start()


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Leave these modules out of the imports in this block, each unless it is loaded already."""
    absent = [name for name in _ABSENT if name not in sys.modules]
    # None is how Python is told that there is no such module.
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        with standing_in(_DEFERRED, _FUNCTIONS), compiling_later():
            yield
    finally:
        for name in absent:
            if sys.modules[name] is None:
                del sys.modules[name]
