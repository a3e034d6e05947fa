"""The slices in the API as far as we know them: the watch's reports, overlaid with our own writes.

The watch lags: without the overlay a slice just created would look missing and be created a second time, and a slice
just deleted would be deleted again. Every entry has a resource version, which the API server numbers in order
(KEP-5504), so an older report never replaces a newer one. A creation of ours that the watch has not confirmed counts
for a limited time only, because the slice may have been created and deleted unseen between two lists. A list or
bookmark of a later version without the slice settles the question at once; after the time limit, the reader has to list
the slices again (upstream's controller forgets them instead, and creates them twice if the watch hangs).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from kube.bodies import Json, JsonObject, object_at, text_at
from node.clocks import Clocks
from node.values import Record, Value, record, replace, value


@record
class _Entry(Record):
    slice: StoredSlice
    version: int
    until: float | None
    """Monotonic seconds until which our own creation counts without confirmation; None: confirmed."""


class SliceStore:
    """Thread-safe. ``ttl`` in seconds. ``pool``: the only pool to keep, empty for all."""

    def __init__(self, ttl: float, clocks: Clocks, pool: str = "") -> None:
        self._ttl = ttl
        self._monotonic = clocks.monotonic
        self._pool = pool
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._gone: dict[str, float] = {}
        """Uids of deleted slices, and until when old reports about them are ignored."""

    def replaced(self, objects: Sequence[JsonObject], version: str) -> set[str]:
        """Take a list; returns the pools in which something differs from what was known."""
        as_of = _number(version)
        with self._lock:
            listed = {each.name: each for each in self._read(objects)}
            pools = {name for each in listed.values() for name in self._take(each)}
            for name, entry in [*self._entries.items()]:
                if name not in listed and entry.version <= as_of:
                    pools.add(self._entries.pop(name).slice.pool)
            return pools

    def applied(self, body: JsonObject) -> set[str]:
        """Take a new or changed slice; returns the pools that it changes, none if it was known."""
        with self._lock:
            return {name for each in self._read([body]) for name in self._take(each)}

    def deleted(self, body: JsonObject) -> set[str]:
        """Take the deletion of a slice; returns its pool, unless it was known."""
        gone = StoredSlice.of(body)
        with self._lock:
            known = gone.uid in self._gone
            # The answer to a write of ours, even to a creation, may come after the report of the deletion.
            self._gone[gone.uid] = self._monotonic() + self._ttl
            entry = self._entries.get(gone.name)
            if entry is not None and entry.slice.uid == gone.uid:
                del self._entries[gone.name]
                return {entry.slice.pool}
            return set() if known or (self._pool and gone.pool != self._pool) else {gone.pool}

    def bookmark(self, version: str) -> set[str]:
        """Everything up to that version is reported; returns the pools whose unconfirmed creations that settles."""
        as_of = _number(version)
        with self._lock:
            lost = [name for name, entry in self._entries.items() if entry.until is not None and entry.version <= as_of]
            return {self._entries.pop(name).slice.pool for name in lost}

    def wrote(self, body: JsonObject) -> StoredSlice:
        """Remember the server's answer to a creation or update of ours."""
        ours = StoredSlice.of(body)
        with self._lock:
            if ours.uid in self._gone:
                return ours
            entry = self._entries.get(ours.name)
            version = _number(ours.resource_version)
            if entry is None or entry.slice.uid != ours.uid:
                self._entries[ours.name] = _Entry(ours, version, self._monotonic() + self._ttl)
            elif version > entry.version:
                self._entries[ours.name] = _Entry(ours, version, entry.until)
        return ours

    def removed(self, slice_: StoredSlice) -> None:
        """Remember a deletion of ours; a finalizer may hold the object for any length of time."""
        with self._lock:
            entry = self._entries.get(slice_.name)
            if entry is None or entry.slice.uid != slice_.uid:
                return
            if _held(slice_):
                # The watch may have reported the object's new state meanwhile.
                entry.slice = replace(entry.slice, leaving=True)
                return
            del self._entries[slice_.name]
            self._gone[slice_.uid] = self._monotonic() + self._ttl

    def lost(self, slice_: StoredSlice) -> None:
        """Remember that the server has no such slice; if it has one after all, the watch will report it."""
        with self._lock:
            entry = self._entries.get(slice_.name)
            if entry is not None and entry.slice.uid == slice_.uid:
                del self._entries[slice_.name]

    def in_pool(self, pool: str) -> tuple[StoredSlice, ...]:
        """The slices of a pool, by name."""
        with self._lock:
            found = [entry.slice for entry in self._entries.values() if entry.slice.pool == pool]
        return tuple(sorted(found, key=attrgetter("name")))

    def doubtful(self, pool: str) -> bool:
        """Whether a creation of ours in that pool has been unconfirmed for too long."""
        now = self._monotonic()
        with self._lock:
            return any(
                entry.until is not None and entry.until <= now and entry.slice.pool == pool
                for entry in self._entries.values()
            )

    def refreshed(self, objects: Sequence[JsonObject], before: Mapping[str, str]) -> set[str]:
        """Take a list that was requested when the store had the versions ``before``; see ``replaced``.

        Later reports of the watch are newer than the list and stay.
        """
        with self._lock:
            listed = {each.name: each for each in self._read(objects)}
            pools = {name for each in listed.values() for name in self._take(each)}
            for name, entry in [*self._entries.items()]:
                if name not in listed and before.get(name) == entry.slice.resource_version:
                    pools.add(self._entries.pop(name).slice.pool)
            return pools

    def pools(self) -> frozenset[str]:
        """The names of all pools that have slices."""
        with self._lock:
            return frozenset([entry.slice.pool for entry in self._entries.values()])

    def versions(self) -> Mapping[str, str]:
        """Resource versions by name of slice."""
        with self._lock:
            return {name: entry.slice.resource_version for name, entry in self._entries.items()}

    def _read(self, objects: Iterable[JsonObject]) -> list[StoredSlice]:
        now = self._monotonic()
        self._gone = {uid: until for uid, until in self._gone.items() if until > now}
        found = [StoredSlice.of(body) for body in objects]
        return [each for each in found if each.uid not in self._gone and (not self._pool or each.pool == self._pool)]

    def _take(self, news: StoredSlice) -> set[str]:
        """Take one report from outside unless it is outdated; returns the pools that it changes."""
        entry = self._entries.get(news.name)
        version = _number(news.resource_version)
        if entry is not None and entry.slice.uid == news.uid and version <= entry.version:
            entry.until = None
            return set()
        self._entries[news.name] = _Entry(news, version, None)
        return {news.pool} | ({entry.slice.pool} if entry is not None else set())


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() else 0


def _held(slice_: StoredSlice) -> bool:
    metadata: Json = slice_.body.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("finalizers"))


_WITHDRAWING = ("NoSchedule", "NoExecute")


@value
class StoredSlice(Value):
    """``body`` is the v1 object; ``leaving``: it was deleted, but a finalizer still holds it."""

    name: str
    uid: str
    pool: str
    generation: int
    body: JsonObject
    leaving: bool = False

    @staticmethod
    def of(body: JsonObject) -> StoredSlice:
        """Read a v1 object."""
        pool = object_at(body, "spec", "pool")
        return StoredSlice(
            name=text_at(body, "metadata", "name"),
            uid=text_at(body, "metadata", "uid"),
            pool=text_at(pool, "name"),
            generation=_integer(pool.get("generation")),
            body=body,
            leaving=bool(text_at(body, "metadata", "deletionTimestamp")),
        )

    @property
    def spec(self) -> JsonObject:
        """The object's spec."""
        return object_at(self.body, "spec")

    @property
    def devices(self) -> tuple[JsonObject, ...]:
        """The slice's devices."""
        return objects_in(self.spec, "devices")

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names of its devices, in their order."""
        return tuple([text_at(device, "name") for device in self.devices])

    @property
    def free_names(self) -> tuple[str, ...]:
        """The names of its devices without a taint that keeps new claims away."""
        return tuple([text_at(device, "name") for device in self.devices if not _is_withdrawn(device)])

    @property
    def resource_version(self) -> str:
        """The object's resource version."""
        return text_at(self.body, "metadata", "resourceVersion")


def objects_in(spec: JsonObject, field: str) -> tuple[JsonObject, ...]:
    """The objects of a list in a spec."""
    found = spec.get(field)
    return tuple([each for each in found if isinstance(each, dict)]) if isinstance(found, list) else ()


def _is_withdrawn(device: JsonObject) -> bool:
    return any(text_at(taint, "effect") in _WITHDRAWING for taint in objects_in(device, "taints"))


def _integer(found: Json) -> int:
    return found if isinstance(found, int) and not isinstance(found, bool) else 0
