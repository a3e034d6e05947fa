"""From a request's line to what it asks for: verb, kind, version, place, name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from sandbox.apiserver.kinds import Catalogue, ServedKind
from sandbox.apiserver.refusals import bad_request, no_such_resource, not_allowed

_OF_ONE: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_MANY: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_FALSE: Final = ("0", "false")
"""What switches a parameter off, in small letters; everything else switches it on, as the server reads it."""
_MOST: Final = (1 << 63) - 1
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_CORE_PARTS: Final = 2
_GROUP_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class Route:
    """`verb`: as in rights (get, list, watch, create, update, patch, delete, deletecollection).

    `part`: subresource or ""; `namespace` "": all, or none; `name` "": of a collection.
    """

    verb: str
    kind: ServedKind
    version: str
    namespace: str
    name: str
    part: str
    query: Mapping[str, str]

    @property
    def api_version(self) -> str:
        """The apiVersion of objects in this request."""
        return self.kind.api_version(self.version)

    def flag(self, name: str) -> bool:
        """Whether a parameter of the query is on."""
        return name in self.query and self.query[name].lower() not in _FALSE

    def number(self, name: str) -> int | None:
        """A number of the query, of 64 bits with its sign; None if it is not given. Raises StatusError (400)."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not _NUMBER.fullmatch(text) or abs(int(text)) > _MOST:
            raise bad_request(f'invalid query parameter {name}: "{text[:100]}" is no number of 64 bits')
        return int(text)


def split(target: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the parts of a request's path, unescaped, and its query."""
    url = urlsplit(target)
    parts = tuple(unquote(part) for part in url.path.split("/") if part)
    return parts, dict(parse_qsl(url.query, keep_blank_values=True))


def route(catalogue: Catalogue, method: str, parts: tuple[str, ...], query: Mapping[str, str]) -> Route | None:
    """Return what is asked for; None where the path is not about objects. Raises StatusError (404, 405)."""
    if parts[:1] == ("api",) and len(parts) > _CORE_PARTS:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ("apis",) and len(parts) > _GROUP_PARTS:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    served = {kind.plural: kind for kind in catalogue.served(group, version)}
    if not served:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > _CORE_PARTS:
        namespace, rest = rest[1], rest[2:]
    kind = served.get(rest[0])
    name, part = (*rest[1:], "", "")[:2]
    if kind is None or len(rest) > _GROUP_PARTS or (part and part not in kind.subresources):
        raise no_such_resource()
    if kind.namespaced != bool(namespace) and (name or namespace):
        raise no_such_resource()
    if kind.namespaced and not namespace and method != "GET":
        raise not_allowed()
    return Route(_verb(method, name, part, query), kind, version, namespace, name, part, query)


def _verb(method: str, name: str, part: str, query: Mapping[str, str]) -> str:
    if part == "binding" and method == "POST":
        return "create"
    verb = (_OF_ONE if name else _OF_MANY).get(method)
    if verb is None or (part and verb in ("delete", "create")) or part == "binding":
        raise not_allowed()
    if verb == "list" and query.get("watch", "false").lower() not in _FALSE:
        return "watch"
    return verb
