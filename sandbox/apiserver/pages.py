"""Long lists in pieces: what `limit` leaves out is remembered, as it was, until it is asked for.

The server remembers only the resource version and reads the old state from etcd; here the state itself is kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from sandbox.apiserver.kinds import Json
from sandbox.apiserver.refusals import bad_request, expired

_MARK: Final = "rest-"
_MOST: Final = 100
"""Rests that are remembered; the oldest is forgotten first."""


class Pages:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rests: OrderedDict[str, tuple[list[Json], int]] = OrderedDict()
        self._made = 0

    def rest(self, token: str) -> tuple[list[Json], int]:
        """Return what the token stands for: objects and their version. Raises StatusError (400, 410)."""
        with self._lock:
            if not token.startswith(_MARK):
                raise bad_request(f"invalid continue token: {token!r} is none of this server's")
            if token not in self._rests:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            return self._rests[token]

    def cut(self, items: list[Json], version: int, limit: int | None) -> tuple[list[Json], str]:
        """Return the first page, and the token for the rest ("" if there is none)."""
        if limit is None or limit <= 0 or len(items) <= limit:
            return items, ""
        with self._lock:
            self._made += 1
            token = f"{_MARK}{version}-{self._made}"
            self._rests[token] = (items[limit:], version)
            if len(self._rests) > _MOST:
                self._rests.popitem(last=False)
        return items[:limit], token

    def forget(self) -> None:
        """Let no token count any more."""
        with self._lock:
            self._rests.clear()
