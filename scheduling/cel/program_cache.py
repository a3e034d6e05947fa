"""Programs that were compiled lately, bounded by what they take and not by their number.

A program takes about a kilobyte for each node of its tree, and macros make large trees of short texts: a thousand
programs may be some megabytes or all the memory there is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class ProgramCache(Generic[T]):
    """What was made for each key; the least recently used is forgotten first. Safe to use from threads."""

    def __init__(self, limit: int) -> None:
        """`limit`: the largest sum of weights that is kept."""
        self._limit = limit
        self._weight = 0
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """What was made for the key; `make` gives it and its weight. Threads may make the same at once."""
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known[0]
        made, weight = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = (made, weight)
                self._weight += weight
            while self._weight > self._limit:
                _, (_, lost) = self._kept.popitem(last=False)
                self._weight -= lost
        return made
