"""Keeps modules out of the agent's start that libraries import and that no agent uses before it has registered.

- **OpenSSL** (4.7 MB, 10 ms): ``asyncio`` and ``hashlib`` do without it, as in a Python that is built without OpenSSL.
  The API server's client imports ``ssl`` itself, later.
- **protobuf's implementation in Python** (1.5 MB, 6 ms with what it imports): the generated code imports it also where
  messages are made by the compiled implementation, which never calls it.
- **typing_extensions** (1.5 ms): ``grpc.aio`` takes one name from it, which Python has since 3.11.
- **ipaddress** (1 ms) and **asyncio.sslproto** (0.5 ms): for URLs with addresses, and for TLS of the event loop itself.

The first is reported as missing, the others are replaced by stand-ins that load the real module when somebody takes
anything else from it. Invariant: after the block every one of them can be imported as before.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Self

_ABSENT = ("ssl", "_hashlib")
_DEFERRED: dict[str, dict[str, object]] = {
    "asyncio.sslproto": {},
    "google.protobuf.internal.python_message": {},
    "ipaddress": {},
    "typing_extensions": {"Self": Self},
}
"""The modules that are replaced, and what their stand-ins have."""


class DeferredModule(ModuleType):
    """Has what it is given, and imports the real module for any other attribute; may be used by several threads."""

    def __init__(self, name: str, known: dict[str, object]) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, attribute: str) -> object:
        name = self.__name__
        if attribute.startswith("__"):
            # The import system asks for such names, and must not be answered for another module.
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        self.withdraw()
        return getattr(importlib.import_module(name), attribute)

    def withdraw(self) -> None:
        """Let the next import find the real module."""
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Leave these modules out of the imports in this block, each unless it is loaded already."""
    absent = [name for name in _ABSENT if name not in sys.modules]
    deferred = [DeferredModule(name, known) for name, known in _DEFERRED.items() if name not in sys.modules]
    # None is how Python is told that there is no such module.
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    sys.modules.update({module.__name__: module for module in deferred})
    try:
        yield
    finally:
        for name in absent:
            if sys.modules[name] is None:
                del sys.modules[name]
        for module in deferred:
            module.withdraw()
