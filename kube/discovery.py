"""What an API server serves: its release, and in which versions of an API group each collection is found.

A group may be served in a version that lacks some of its collections, so the group's own list of versions decides
nothing: each version is looked into, newest first, until all that is needed is found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kube.bodies import Json, JsonObject, object_at, path_of, text_at
from kube.errors import Forbidden, NotFound


class ObjectGetter(Protocol):
    """A client as far as it reads objects."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        """Read one object or a list."""


@dataclass(frozen=True, slots=True)
class Served:
    """``versions`` of a group, and of those that were looked into the collections (plural)."""

    has_group: bool
    versions: frozenset[str] = frozenset()
    found: Mapping[str, frozenset[str]] = field(default_factory=dict)


def server_version(client: ObjectGetter) -> str:
    """Such as ``v1.37.0``; empty where the server does not let us know. Raises ``RequestError``."""
    try:
        return text_at(client.get("/version"), "gitVersion")
    except (Forbidden, NotFound):
        return ""


def served(client: ObjectGetter, group: str, preferred: Sequence[str], needed: Collection[str] = ()) -> Served:
    """Look into those versions of a group that are ``preferred``, in that order; raises ``RequestError``.

    Where ``needed`` is given, not further than to the first version that has all of these.
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
            # It went between the two requests.
            continue
        if needed and found[version].issuperset(needed):
            break
    return Served(True, versions, found)


def _texts(body: Json, items: str, key: str) -> list[str]:
    found = object_at(body).get(items)
    return [text_at(item, key) for item in found] if isinstance(found, list) else []
