"""Carries out a routed request: verbs on objects, in the version of the request, and long lists page by page.

What ``limit`` leaves out of a list is kept as it was until the client asks for it. The real server keeps only the
resource version and reads the old state from etcd.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from sandbox.apiserver.bodies import MERGE, incoming, outgoing, patched
from sandbox.apiserver.kinds import Json, Object
from sandbox.apiserver.lifecycle import options_of
from sandbox.apiserver.objects import Change, Objects
from sandbox.apiserver.refusals import (
    StatusError,
    bad_request,
    conflict,
    expired,
    invalid_options,
    not_allowed,
    too_large_version,
)
from sandbox.apiserver.routes import ApiRoute, ListSelector, selector
from sandbox.apiserver.watching import Watch, Watches
from scheduling.api.validation.cause import forbidden, not_supported

_MATCHES = ("Exact", "NotOlderThan")
_OPTIONS = {"create": "CreateOptions", "patch": "PatchOptions", "delete": "DeleteOptions"}
_MARK: Final = "rest-"
_MOST: Final = 100
"""Rests that are remembered; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`body`: an object, or a text; `stream`: events, in place of a body; None among them: nothing for now."""

    code: int = HTTPStatus.OK
    body: Json | str | None = None
    stream: Iterable[Json | None] | None = None
    headers: tuple[tuple[str, str], ...] = field(default=())


class Answers:
    """All raise StatusError."""

    def __init__(self, objects: Objects, watches: Watches) -> None:
        self._objects = objects
        self._watches = watches
        self.pages = Pages()

    def answer(self, route: ApiRoute, body: object, content_type: str) -> Reply:
        """Carry out a request."""
        match route.verb:
            case "get":
                self._check_version(route)
                return self._one(route, self._objects.get(route.kind, route.namespace, route.name))
            case "list":
                return self._list(route)
            case "watch":
                return Reply(stream=Watch(self._objects, route, self._chosen(route), self._watches))
            case "create":
                return self._bind(route, body) if route.part == "binding" else self._create(route, body)
            case "update":
                return self._changed(route, lambda _: incoming(route, body))
            case "patch":
                return self._patch(route, body, content_type)
            case "delete":
                return self._delete(route, body)
            case "deletecollection":
                return self._delete_all(route, body)
        raise not_allowed()

    def _one(self, route: ApiRoute, resource: Object, code: int = HTTPStatus.OK) -> Reply:
        return Reply(code, outgoing(route, resource))

    def _chosen(self, route: ApiRoute) -> ListSelector:
        return selector(route.kind, route.query.get("labelSelector", ""), route.query.get("fieldSelector", ""))

    def _check_version(self, route: ApiRoute) -> None:
        wanted, current = route.number("resourceVersion"), self._objects.history.version
        if wanted is not None and wanted < 0:
            raise bad_request(f"Invalid value: {wanted}: resourceVersion cannot be negative")
        if wanted is not None and wanted > current:
            raise too_large_version(wanted, current)
        if _match(route) == "Exact" and wanted != current:
            # The state of then is not kept; a server that has compacted its history says the same.
            raise expired("The resourceVersion for the provided list is too old.")

    def _list(self, route: ApiRoute) -> Reply:
        token, chosen = route.query.get("continue", ""), self._chosen(route)
        self._check_version(route)
        if token:
            items, version = self.pages.rest(token)
        else:
            items, version = self._objects.list(route.kind, route.namespace, chosen)
        page, rest = self.pages.cut(items, version, route.number("limit"))
        metadata: Json = {"resourceVersion": str(version)}
        if rest:
            metadata["continue"] = rest
            if chosen.everything:
                metadata["remainingItemCount"] = len(items) - len(page)
        return Reply(body=self._listed(route, page, metadata))

    def _listed(self, route: ApiRoute, items: list[Json], metadata: Json) -> Json:
        named = {"kind": f"{route.kind.name}List", "apiVersion": route.api_version, "metadata": metadata}
        return {**named, "items": [_without_kind(outgoing(route, each)) for each in items]}

    def _create(self, route: ApiRoute, body: object) -> Reply:
        resource = incoming(route, body)
        new = self._objects.create(route.kind, route.namespace, resource, dry_run=_dry_run(route))
        return self._one(route, new, HTTPStatus.CREATED)

    def _changed(self, route: ApiRoute, change: Change) -> Reply:
        new = self._objects.update(
            route.kind, route.namespace, route.name, change, part=route.part, dry_run=_dry_run(route)
        )
        return self._one(route, new)

    def _patch(self, route: ApiRoute, body: object, content_type: str) -> Reply:
        def change(stored: Object) -> Object:
            return incoming(route, patched(outgoing(route, stored), body, content_type))

        return self._changed(route, change)

    def _delete(self, route: ApiRoute, body: object) -> Reply:
        options, dry_run = _delete_options(route, body)
        last = self._objects.delete(route.kind, route.namespace, route.name, options, dry_run=dry_run)
        return self._one(route, last)

    def _delete_all(self, route: ApiRoute, body: object) -> Reply:
        options, dry_run = _delete_options(route, body)
        items, version = self._objects.list(route.kind, route.namespace, self._chosen(route))
        for each in items:
            own = each["metadata"]
            try:
                self._objects.delete(route.kind, own.get("namespace", ""), own["name"], options, dry_run=dry_run)
            except StatusError as refusal:
                if refusal.code != HTTPStatus.NOT_FOUND:  # another client was faster
                    raise
        return Reply(body=self._listed(route, items, {"resourceVersion": str(version)}))

    def _bind(self, route: ApiRoute, body: object) -> Reply:
        target = body.get("target") if isinstance(body, dict) else None
        node = target.get("name") if isinstance(target, dict) else None
        if not node:
            raise bad_request("a Binding must name its node in target.name")

        def change(pod: Object) -> Object:
            taken = pod.get("spec", {}).get("nodeName")
            if taken:
                fault = f'pod {route.name} is already assigned to node "{taken}"'
                raise conflict(route.kind, route.name, fault, "pods/binding")
            return patched(pod, {"spec": {"nodeName": node}}, MERGE)

        self._objects.update(route.kind, route.namespace, route.name, change, dry_run=_dry_run(route))
        return Reply(
            HTTPStatus.CREATED, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        )


def _without_kind(resource: Object) -> Json:
    """As the server writes the items of a list: what they are, the list says."""
    return {key: value for key, value in resource.items() if key not in ("kind", "apiVersion")}


def _match(route: ApiRoute) -> str:
    """The resourceVersionMatch of a list, empty if there is none. Raises StatusError (422)."""
    wanted = route.query.get("resourceVersionMatch", "")
    if not wanted or route.verb != "list":
        return ""
    if wanted not in _MATCHES:
        raise invalid_options("ListOptions", not_supported("resourceVersionMatch", wanted, _MATCHES))
    version = route.query.get("resourceVersion", "")
    if not version or (wanted == "Exact" and version == "0"):
        fault = "is forbidden unless resourceVersion is provided, and Exact for the resourceVersion 0"
        raise invalid_options("ListOptions", forbidden("resourceVersionMatch", fault))
    return wanted


def _dry_run(route: ApiRoute) -> bool:
    asked = route.query.get("dryRun", "")
    if asked not in ("", "All"):
        cause = not_supported("dryRun", [asked], ["All"])
        raise invalid_options(_OPTIONS.get(route.verb, "UpdateOptions"), cause)
    return bool(asked)


def _delete_options(route: ApiRoute, body: object) -> tuple[Json, bool]:
    """DeleteOptions, of which the query may have a part, and whether this is a dry run."""
    options = options_of(body)
    grace = route.number("gracePeriodSeconds")
    dry_run = _dry_run(route) or bool(options.get("dryRun"))
    return (options if grace is None else {**options, "gracePeriodSeconds": grace}), dry_run


class Pages:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rests: OrderedDict[str, tuple[list[Json], int]] = OrderedDict()
        self._made = 0

    def rest(self, token: str) -> tuple[list[Json], int]:
        """Return the page of the token: objects and their version. Raises StatusError (400, 410)."""
        with self._lock:
            if not token.startswith(_MARK):
                raise bad_request(f"invalid continue token: this server did not make {token!r}")
            if token not in self._rests:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            return self._rests[token]

    def cut(self, items: list[Json], version: int, limit: int | None) -> tuple[list[Json], str]:
        """Return the first page, and the token for the rest ("" if there is none)."""
        if limit is None or limit <= 0 or len(items) <= limit:
            return items, ""
        with self._lock:
            self._made += 1
            token = f"{_MARK}{version}-{self._made}"
            self._rests[token] = (items[limit:], version)
            if len(self._rests) > _MOST:
                self._rests.popitem(last=False)
        return items[:limit], token

    def forget(self) -> None:
        """Let no token count any more."""
        with self._lock:
            self._rests.clear()
