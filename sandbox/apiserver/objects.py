"""The stored objects, what may be done to them, and the history of their changes: the server without its HTTP.

Invariants: a stored object is a value that nobody changes; a change puts another in its place, under one lock, with the
next resource version, and writes one event. A change that changes nothing has neither. All objects are in their v1.
Callers receive the stored values themselves and must treat them as read-only; `store` hands out copies.

A resource version is the number of a change, over all kinds; a number is never used twice, and events never change. Old
events are forgotten, as etcd compacts them: a watch that resumes from before them must list again.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from sandbox.apiserver import lifecycle, refusals
from sandbox.apiserver.kinds import Catalogue, Json, Object, ServedKind
from sandbox.apiserver.lifecycle import MetadataWriter
from sandbox.apiserver.refusals import expired
from sandbox.apiserver.routes import ListSelector
from sandbox.apiserver.strategy import Strategy

Change = Callable[[Object], Object]
"""Makes the new object of the stored one."""
_TRIES: Final = 8
"""For a generated name that is free, as the server makes."""
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_EVERYTHING: Final = ListSelector()
_FIRST: Final = 990
"""Just below a power of ten, so that a client that compares resource versions as strings fails early."""


class Objects:
    """Thread-safe. `changed` is notified after each change, and may be used to wait for one."""

    def __init__(self, catalogue: Catalogue, strategy: Strategy, registrar: MetadataWriter) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.catalogue = catalogue
        self.history = History()
        self._strategy = strategy
        self._registrar = registrar
        self._stored: dict[str, dict[tuple[str, str], Json]] = {kind.plural: {} for kind in catalogue.kinds()}

    def use(self, strategy: Strategy) -> None:
        """Judge new objects and changes by this strategy from now on."""
        self._strategy = strategy

    def get(self, kind: ServedKind, namespace: str, name: str) -> Json:
        """Return the object. Raises StatusError (404)."""
        with self.changed:
            found = self._stored[kind.plural].get((namespace, name))
        if found is None:
            raise refusals.not_found(kind, name)
        return found

    def list(self, kind: ServedKind, namespace: str = "", chosen: ListSelector = _EVERYTHING) -> tuple[list[Json], int]:
        """Return the objects by namespace and name (namespace "": of all), and the version this is the state of."""
        with self.changed:
            stored, version = sorted(self._stored[kind.plural].items()), self.history.version
        found = [each for (space, _), each in stored if not namespace or space == namespace]
        return [each for each in found if chosen.everything or chosen.matches(kind, each)], version

    def create(self, kind: ServedKind, namespace: str, resource: Object, *, dry_run: bool = False) -> Json:
        """Store a new object. Raises StatusError."""
        metadata = resource.get("metadata") or {}
        if metadata.get("resourceVersion"):
            raise refusals.internal("resourceVersion should not be set on objects to be created")
        with self.changed:
            new = self._strategy.created(kind, resource, now=self._registrar.now(), admin=self._admin(namespace))
            name = self._free_name(kind, namespace, new["metadata"])
            if (namespace, name) in self._stored[kind.plural]:
                raise refusals.exists(kind, name)
            return self._keep(kind, self._registrar.born(kind, new, name, namespace), None, dry_run)

    def update(
        self, kind: ServedKind, namespace: str, name: str, change: Change, *, part: str = "", dry_run: bool = False
    ) -> Json:
        """Replace an object. `part`: "status" for that alone. Raises StatusError."""
        with self.changed:
            old = self.get(kind, namespace, name)
            wanted = change(old)
            self._check_update(kind, old, wanted)
            admin = self._admin(namespace)
            if part == "status":
                new = self._strategy.status_updated(kind, wanted, old, admin=admin)
            else:
                new = self._strategy.updated(kind, wanted, old, now=self._registrar.now(), admin=admin)
            named = self._registrar.changed(kind, new, old)
            if lifecycle.over(named):
                last = self._remove(kind, named, old, dry_run)
                return _numbered(last, old["metadata"]["resourceVersion"])  # so the server answers
            return self._keep(kind, named, old, dry_run)

    def delete(self, kind: ServedKind, namespace: str, name: str, options: Object, *, dry_run: bool = False) -> Json:
        """Delete, or mark as deleted; return the object as it was last. Raises StatusError (404, 409)."""
        with self.changed:
            old = self.get(kind, namespace, name)
            decided = lifecycle.decided(kind, old, options)
            last = old
            if decided.grace is not None:
                mark = {"deletionTimestamp": self._registrar.now(decided.grace)}
                metadata = {**old["metadata"], **mark, "deletionGracePeriodSeconds": decided.grace}
                last = self._keep(kind, {**old, "metadata": metadata}, old, dry_run)
            return self._remove(kind, last, last, dry_run) if decided.now else last

    def _admin(self, namespace: str) -> bool:
        labels = self._stored["namespaces"].get(("", namespace), {}).get("metadata", {}).get("labels", {})
        return bool(labels.get(_ADMIN_LABEL) == "true")

    def _free_name(self, kind: ServedKind, namespace: str, metadata: Object) -> str:
        name = ""
        for _ in range(_TRIES):
            name = self._registrar.name(metadata)
            if metadata.get("name") or (namespace, name) not in self._stored[kind.plural]:
                break
        return name

    def _check_update(self, kind: ServedKind, old: Object, wanted: Object) -> None:
        """The object must be the one that was read: its version and its uid, if they are given."""
        own, asked = old["metadata"], wanted.get("metadata") or {}
        if asked.get("uid") and asked["uid"] != own["uid"]:
            place = "/".join(filter(None, (kind.plural, *_key(old))))
            fault = (
                f"StorageError: invalid object, Code: 4, Key: /registry/{place}, "
                "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
                f"UID in precondition: {asked['uid']}, UID in object meta: {own['uid']}"
            )
            raise refusals.conflict(kind, own["name"], fault)
        version = asked.get("resourceVersion") or ""
        if not (version.isascii() and version.isdigit()) and version:
            raise refusals.internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if version and asked["resourceVersion"] != own["resourceVersion"]:
            raise refusals.modified(kind, own["name"])

    def _keep(self, kind: ServedKind, new: Json, old: Json | None, dry_run: bool) -> Json:
        """Put a new value in its place, unless it says nothing new."""
        if old is not None and _numbered(new, old["metadata"]["resourceVersion"]) == old:
            return old
        if dry_run:
            return new
        change = "ADDED" if old is None else "MODIFIED"
        stored = self._noted(kind, change, new, old)
        self._stored[kind.plural][_key(stored)] = stored
        return stored

    def _remove(self, kind: ServedKind, last: Json, old: Json, dry_run: bool) -> Json:
        if dry_run:
            return last
        del self._stored[kind.plural][_key(old)]
        return self._noted(kind, "DELETED", last, old)

    def _noted(self, kind: ServedKind, change: str, new: Json, old: Json | None) -> Json:
        version = self.history.next()
        numbered = _numbered(new, str(version))
        self.history.append(StoredChange(version, change, kind, numbered, old))
        self.changed.notify_all()
        return numbered


def _numbered(resource: Object, version: str) -> Json:
    return {**resource, "metadata": {**resource["metadata"], "resourceVersion": version}}


def _key(resource: Object) -> tuple[str, str]:
    metadata = resource["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


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
        begin = bisect_right(self._events, version, key=attrgetter("version"))
        return [event for event in self._events[begin:] if event.kind is kind]
