"""The objects as other actors see and change them: a person, the scheduler, another controller.

Their calls use no HTTP, meet no injected faults and are not in the request log; otherwise the same rules apply.
Arguments and results are copies.
"""

from __future__ import annotations

import json

from sandbox.apiserver.bodies import MERGE, patched
from sandbox.apiserver.kinds import Json, Object, ServedKind
from sandbox.apiserver.objects import Objects
from sandbox.apiserver.routes import selector

_DEFAULT_NAMESPACE = "default"


class Store:
    """Thread-safe. Kinds are named by their plural, objects are in v1; `namespace` counts for namespaced kinds alone.

    All raise StatusError where the server would refuse, and KeyError for an unknown plural.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    @property
    def version(self) -> int:
        """The resource version of the last change."""
        return self._objects.history.version

    def create(self, plural: str, resource: Object) -> Json:
        """Store a new object; its namespace is its own, "default" if it has none."""
        kind = self._kind(plural)
        namespace = (resource.get("metadata") or {}).get("namespace", _DEFAULT_NAMESPACE)
        return _copy(self._objects.create(kind, self._space(kind, namespace), _named(kind, resource)))

    def replace(self, plural: str, resource: Object, *, part: str = "") -> Json:
        """Replace the object with its name; `part` "status": its status alone."""
        kind, metadata = self._kind(plural), resource["metadata"]
        space = self._space(kind, metadata.get("namespace", _DEFAULT_NAMESPACE))
        new = _named(kind, resource)
        return _copy(self._objects.update(kind, space, metadata["name"], lambda _: new, part=part))

    def patch(
        self, plural: str, name: str, patch: Object, *, namespace: str = _DEFAULT_NAMESPACE, part: str = ""
    ) -> Json:
        """Change an object by a JSON merge patch."""
        kind, change = self._kind(plural), _copy(patch)
        space = self._space(kind, namespace)
        return _copy(self._objects.update(kind, space, name, lambda old: patched(old, change, MERGE), part=part))

    def delete(
        self, plural: str, name: str, *, namespace: str = _DEFAULT_NAMESPACE, options: Object | None = None
    ) -> Json:
        """Delete an object; `options`: DeleteOptions."""
        kind = self._kind(plural)
        return _copy(self._objects.delete(kind, self._space(kind, namespace), name, options or {}))

    def get(self, plural: str, name: str, *, namespace: str = _DEFAULT_NAMESPACE) -> Json:
        """Return an object."""
        kind = self._kind(plural)
        return _copy(self._objects.get(kind, self._space(kind, namespace), name))

    def list(self, plural: str, *, namespace: str = "", labels: str = "", fields: str = "") -> list[Json]:
        """Return the objects that selectors choose, by namespace and name; `namespace` "": of all."""
        kind = self._kind(plural)
        found, _ = self._objects.list(kind, self._space(kind, namespace), selector(kind, labels, fields))
        return [_copy(each) for each in found]

    def wait(self, version: int, seconds: float) -> int:
        """Wait until there is a change after `version`, no longer than `seconds`; return the version then."""
        with self._objects.changed:
            self._objects.changed.wait_for(lambda: self.version > version, seconds)
            return self.version

    def _kind(self, plural: str) -> ServedKind:
        return self._objects.catalogue.by_plural(plural)

    def _space(self, kind: ServedKind, namespace: str) -> str:
        return namespace if kind.namespaced else ""


def _named(kind: ServedKind, resource: Object) -> Json:
    return {"metadata": {}, **_copy(resource), "apiVersion": kind.api_version("v1"), "kind": kind.name}


def _copy(resource: Object) -> Json:
    copy: Json = json.loads(json.dumps(resource))
    return copy
