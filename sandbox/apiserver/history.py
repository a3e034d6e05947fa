"""What happened to the objects, in order: the resource versions that watches resume from.

Invariants: a resource version is the number of a change, over all kinds; a number is never used twice; events never
change once written. Old events are forgotten, as etcd compacts them: who resumes from before that is told to list anew.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from sandbox.apiserver.kinds import Object, ServedKind
from sandbox.apiserver.refusals import expired

_FIRST: Final = 990
"""Just below a power of ten, so that whoever compares resource versions as texts is found out early."""


@dataclass(frozen=True, slots=True)
class StoredChange:
    """`change`: ADDED, MODIFIED or DELETED; `new`: the object, of a deletion as it was with the deletion's version."""

    version: int
    change: str
    kind: ServedKind
    new: Object
    old: Object | None


class History:
    """Not locked: `Objects` does that. `most`: events that are kept at least."""

    def __init__(self, most: int = 100_000) -> None:
        self.version = _FIRST
        """Of the last change."""
        self._most = most
        self._events: list[StoredChange] = []
        self._floor = _FIRST

    def next(self) -> int:
        """The number of the change that is now made."""
        self.version += 1
        return self.version

    def append(self, event: StoredChange) -> None:
        """Write down the change."""
        self._events.append(event)
        if len(self._events) > 2 * self._most:
            self._floor = self._events[-self._most - 1].version
            del self._events[: -self._most]

    def forget(self) -> None:
        """Compact: nothing before now can be resumed from."""
        self._events.clear()
        self._floor = self.version

    def check(self, version: int) -> None:
        """Raise StatusError (410) if not all that followed `version` is known."""
        if version < self._floor:
            raise expired(f"too old resource version: {version} ({self._floor})")

    def after(self, version: int, kind: ServedKind) -> list[StoredChange]:
        """The events of `kind` after a version. Raises StatusError (410)."""
        self.check(version)
        if version >= self.version:
            return []
        begin = bisect_right(self._events, version, key=lambda event: event.version)
        return [event for event in self._events[begin:] if event.kind is kind]
