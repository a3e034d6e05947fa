"""What an API server serves: its release, and in which versions of an API group each collection exists.

A group may be served in a version that lacks some of its collections, so the group's own list of versions is not
enough: ostler reads each version, newest first, until it has found everything it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kube.bodies import Json, JsonObject, object_at, path_of, text_at
from kube.errors import Forbidden, NotFound


class ObjectGetter(Protocol):
    """What discovery needs of a client."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        """Read one object or a list."""


@dataclass(frozen=True, slots=True)
class Served:
    """The ``versions`` of a group, and the collections (plural names) of each version that was read."""

    has_group: bool
    versions: frozenset[str] = frozenset()
    found: Mapping[str, frozenset[str]] = field(default_factory=dict)


def server_version(client: ObjectGetter) -> str:
    """The server's release, such as ``v1.37.0``; empty if the server refuses to say. Raises ``RequestError``."""
    try:
        return text_at(client.get("/version"), "gitVersion")
    except (Forbidden, NotFound):
        return ""


def served(client: ObjectGetter, group: str, preferred: Sequence[str], needed: Collection[str] = ()) -> Served:
    """Read the ``preferred`` versions of a group, in that order; raises ``RequestError``.

    If ``needed`` is given, stop at the first version that has all of these.
    """
    try:
        body = client.get(path_of("apis", group))
    except NotFound:
        return Served(False)
    versions = frozenset(_texts(body, "versions", "version"))
    found: dict[str, frozenset[str]] = {}
    for version in (version for version in preferred if version in versions):
        try:
            found[version] = frozenset(_texts(client.get(path_of("apis", group, version)), "resources", "name"))
        except NotFound:
            # It was removed between the two requests.
            continue
        if needed and found[version].issuperset(needed):
            break
    return Served(True, versions, found)


def _texts(body: Json, items: str, key: str) -> list[str]:
    found = object_at(body).get(items)
    return [text_at(item, key) for item in found] if isinstance(found, list) else []
