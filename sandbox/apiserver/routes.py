"""What a request asks for: verb, kind, version, namespace and name; its selectors; and discovery, which lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from sandbox.apiserver.kinds import RESOURCE_GROUP, Catalogue, Json, Object, ServedKind
from sandbox.apiserver.refusals import bad_request, no_such_resource, not_allowed
from scheduling.api.labels import label_value_faults

_OF_ONE: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_MANY: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_FALSE: Final = ("0", "false")
"""Values that switch a parameter off, in small letters; every other value switches it on, as on the server."""
_MOST: Final = (1 << 63) - 1
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_CORE_PARTS: Final = 2
_GROUP_PARTS: Final = 3
_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_PART_VERBS: Final = {"status": ["get", "patch", "update"], "binding": ["create"]}
_HEALTH: Final = (("healthz",), ("livez",), ("readyz",))
_SET: Final = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_PAIR: Final = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*")
_KEY: Final = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*")
_ESCAPED: Final = re.compile(r"\\([\\,=])")


@dataclass(frozen=True, slots=True)
class ApiRoute:
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
            raise bad_request(f'invalid query parameter {name}: "{text[:100]}" is not a 64-bit number')
        return int(text)


def split(target: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the parts of a request's path, unescaped, and its query."""
    url = urlsplit(target)
    parts = tuple(unquote(part) for part in url.path.split("/") if part)
    return parts, dict(parse_qsl(url.query, keep_blank_values=True))


def route(catalogue: Catalogue, method: str, parts: tuple[str, ...], query: Mapping[str, str]) -> ApiRoute | None:
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
    return ApiRoute(_verb(method, name, part, query), kind, version, namespace, name, part, query)


def _verb(method: str, name: str, part: str, query: Mapping[str, str]) -> str:
    if part == "binding" and method == "POST":
        return "create"
    verb = (_OF_ONE if name else _OF_MANY).get(method)
    if verb is None or (part and verb in ("delete", "create")) or part == "binding":
        raise not_allowed()
    if verb == "list" and query.get("watch", "false").lower() not in _FALSE:
        return "watch"
    return verb


def described(catalogue: Catalogue, parts: tuple[str, ...]) -> Json | str | None:
    """Return what the path shows: an object, a text, or None if there is nothing."""
    if parts in _HEALTH:
        return "ok"
    match parts:
        case ("version",):
            return _version(catalogue.minor)
        case ("api",):
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ("apis",):
            groups = [_group(catalogue)] if catalogue.versions else []
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ("apis", group) if group == RESOURCE_GROUP and catalogue.versions:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(catalogue)}
        case ("api", version):
            return _resources(catalogue, "", version)
        case ("apis", group, version):
            return _resources(catalogue, group, version)
    return None


def _version(minor: int) -> Json:
    return {"major": "1", "minor": str(minor), "gitVersion": f"v1.{minor}.0+sandbox", "platform": "linux/amd64"}


def _group(catalogue: Catalogue) -> Json:
    versions = [{"groupVersion": f"{RESOURCE_GROUP}/{each}", "version": each} for each in catalogue.versions]
    return {"name": RESOURCE_GROUP, "versions": versions, "preferredVersion": versions[0]}


def _resources(catalogue: Catalogue, group: str, version: str) -> Json | None:
    kinds = catalogue.served(group, version)
    if not kinds:
        return None
    name = f"{group}/{version}" if group else version
    listed = [entry for kind in kinds for entry in _entries(kind)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed}


def _entries(kind: ServedKind) -> list[Json]:
    whole: Json = {"name": kind.plural, "singularName": kind.name.lower(), "namespaced": kind.namespaced}
    entries = [whole | {"kind": kind.name, "verbs": _VERBS}]
    for part in kind.subresources:
        shown = "Binding" if part == "binding" else kind.name
        entries.append(whole | {"name": f"{kind.plural}/{part}", "kind": shown, "verbs": _PART_VERBS[part]})
    return entries


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: the value at `key` is (`among`), or is not, one of `values`; None: it is there at all."""

    key: str
    among: bool
    values: frozenset[str] | None

    def holds(self, value: str | None) -> bool:
        """Whether the term holds for a value; None: there is no value."""
        if self.values is None:
            return (value is not None) == self.among
        return (value in self.values) == self.among


@dataclass(frozen=True, slots=True)
class ListSelector:
    """Which objects are meant: all conditions hold."""

    labels: tuple[Term, ...] = ()
    fields: tuple[Term, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether it leaves nothing out."""
        return not self.labels and not self.fields

    def matches(self, kind: ServedKind, resource: Object) -> bool:
        """Tell whether an object of `kind` is meant."""
        labels = resource.get("metadata", {}).get("labels") or {}
        return all(term.holds(labels.get(term.key)) for term in self.labels) and all(
            term.holds(_at(resource, kind.fields[term.key])) for term in self.fields
        )


def selector(kind: ServedKind, labels: str = "", fields: str = "") -> ListSelector:
    """Read both texts. Raises StatusError (400) for what cannot be read, and for fields that cannot be selected by."""
    return ListSelector(tuple(_label_terms(labels)), tuple(_field_terms(kind, fields)))


def _label_terms(text: str) -> Iterator[Term]:
    position = 0
    while position < len(text):
        if found := _SET.match(text, position):
            key, operator, values = found.groups()
            yield Term(key, operator == "in", frozenset(_value(value.strip()) for value in values.split(",")))
        elif found := _PAIR.match(text, position):
            key, operator, value = found.groups()
            yield Term(key, operator != "!=", frozenset({_value(value)}))
        elif found := _KEY.match(text, position):
            yield Term(found[2], not found[1], None)
        else:
            raise bad_request(f"unable to parse requirement: {text[position:]!r}")
        position = found.end()
        if text[position:] == "," or text[position : position + 1] not in ("", ","):
            raise bad_request(f"unable to parse requirement: found {text[position:]!r}, expected: ',' and another one")
        position += 1


def _value(text: str) -> str:
    """A label's value, as it may be; raises StatusError (400)."""
    for fault in label_value_faults(text):
        raise bad_request(f"values: Invalid value: {text!r}: {fault}")
    return text


def _field_terms(kind: ServedKind, text: str) -> Iterator[Term]:
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        found = re.fullmatch(r"((?:[^!=\\]|\\.)*)(!=|==|=)(.*)", part, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        key, operator, value = found.groups()
        if key not in kind.fields:
            raise bad_request(f"field label not supported for {kind.api_version('v1')}, Kind={kind.name}: {key}")
        yield Term(key, operator != "!=", frozenset({_ESCAPED.sub(r"\1", value)}))


def _at(resource: Object, path: tuple[str, ...]) -> str:
    """The value as text; absent is empty, as the server judges."""
    value: Any = resource
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
