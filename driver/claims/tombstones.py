"""Claims that were released a while ago: what arrives late for one of them is not a wish any more.

Bounded in number and age. A claim may come back for good, since one claim can serve one pod after the other; so a
tombstone refuses by itself only what began before it was set.
"""

from __future__ import annotations

from collections.abc import Callable

MOST = 4096


class Tombstones:
    """UIDs in the order of their release; ages are by a clock that only moves forward."""

    def __init__(self, age: float, monotonic: Callable[[], float], most: int = MOST) -> None:
        self.serial = 0
        """How many were ever set: what began at a number was overtaken by tombstones with a greater one."""
        self._age = age
        self._most = most
        self._monotonic = monotonic
        self._set: dict[str, tuple[int, float]] = {}

    def add(self, uid: str) -> None:
        """Remember that the claim is released now."""
        now = self._monotonic()
        self.serial += 1
        self._set.pop(uid, None)
        self._set[uid] = self.serial, now
        while len(self._set) > self._most or self._old(next(iter(self._set))):
            del self._set[next(iter(self._set))]

    def serial_of(self, uid: str) -> int | None:
        """The number of the claim's release, None if there was none lately."""
        return self._set[uid][0] if uid in self._set and not self._old(uid) else None

    def _old(self, uid: str) -> bool:
        return self._set[uid][1] + self._age <= self._monotonic()

    def __len__(self) -> int:
        return len(self._set)
