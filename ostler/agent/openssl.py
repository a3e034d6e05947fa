"""Keeps OpenSSL out of an agent that speaks to Unix sockets alone: 4.7 MB, and 10 ms of its start.

``asyncio`` imports ``ssl`` and ``hashlib`` imports ``_hashlib`` where they can be had; each does without where they
cannot, as in a Python that is built without OpenSSL. Who needs TLS (the API server's client) imports ``ssl`` itself,
later, and gets it. Invariant: after the block both can be imported as before. What is given up: the event loop itself
speaks no TLS, and hashes are computed by Python's own code.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

_MODULES = ("ssl", "_hashlib")


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """What is imported in this block does without OpenSSL, unless that is loaded already."""
    absent = [name for name in _MODULES if name not in sys.modules]
    # None is how Python is told that there is no such module.
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            if sys.modules[name] is None:
                del sys.modules[name]
