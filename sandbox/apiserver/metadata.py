"""What the server writes into an object's metadata: names, uids, times.

Clock and randomness are given, so that a test can say what comes out.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Final

from sandbox.apiserver.kinds import Json, Object, ServedKind

GENERATED_FROM: Final = 58
"""Characters of generateName that go into a name: 63 less the random ones."""
_RANDOM: Final = 5
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The server's: nothing that could make a word or be misread."""
_CLEARED: Final = (
    "resourceVersion",
    "selfLink",
    "managedFields",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_KEPT: Final = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


class MetadataWriter:
    """`clock`: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float], random: Random) -> None:
        self._clock = clock
        self._random = random

    def now(self, ahead: float = 0) -> str:
        """The time as the server writes it: whole seconds, UTC."""
        return datetime.fromtimestamp(int(self._clock() + ahead), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def name(self, metadata: Object) -> str:
        """The object's name, made from generateName if it has none."""
        if metadata.get("name"):
            return str(metadata["name"])
        prefix = str(metadata.get("generateName", "")).encode()[:GENERATED_FROM].decode(errors="ignore")
        return prefix + "".join(self._random.choices(_LETTERS, k=_RANDOM))

    def born(self, kind: ServedKind, resource: Object, name: str, namespace: str) -> Json:
        """The object as it is stored first, but for its resource version."""
        own = {key: value for key, value in resource.get("metadata", {}).items() if key not in _CLEARED}
        own.pop("namespace", None)
        placed = {"namespace": namespace} if kind.namespaced else {}
        uid = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        own |= {"name": name, **placed, "uid": uid, "creationTimestamp": self.now()}
        if kind.counts:
            own["generation"] = 1
        return {**resource, "metadata": own}

    def changed(self, kind: ServedKind, new: Object, old: Object) -> Json:
        """The object that takes the place of `old`, but for its resource version."""
        before = old["metadata"]
        own = {key: value for key, value in new.get("metadata", {}).items() if key not in _CLEARED}
        own.pop("namespace", None)
        placed = {"namespace": before["namespace"]} if kind.namespaced else {}
        own |= {"name": before["name"], **placed, **{key: before[key] for key in _KEPT if key in before}}
        if kind.counts and new.get("spec") != old.get("spec"):
            own["generation"] = before.get("generation", 0) + 1
        return {**new, "metadata": own}
