"""A fact that is read when the first check asks for it, and is then the same for all; checks run in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Fact = TypeVar("Fact")


class Once(Generic[Fact]):
    """Calls ``read`` at most once; what it raised is raised again for every asker."""

    def __init__(self, read: Callable[[], Fact]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._result: tuple[Fact] | BaseException | None = None

    def __call__(self) -> Fact:
        """The fact; waits while another thread reads it."""
        with self._lock:
            if self._result is None:
                try:
                    self._result = (self._read(),)
                except Exception as error:  # noqa: BLE001 - raised below, for every check that asks
                    self._result = error
            result = self._result
        if isinstance(result, BaseException):
            raise result
        return result[0]
