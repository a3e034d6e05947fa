"""The objects in requests and answers: converted between versions, checked for unknown fields, and patched.

Objects are stored in v1. Unknown fields are dropped silently, or refused where the client asks for that, as kubectl
does (`fieldValidation=Strict`). Only objects of `resource.k8s.io` have shapes here; of the others everything is taken.

JSON merge patches and JSON patches are carried out. A strategic merge patch is treated as a merge patch, except that
lists of conditions are merged by type: no client here sends more. Server-side apply is refused rather than guessed at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from sandbox.apiserver.kinds import Json, Object
from sandbox.apiserver.refusals import StatusError, bad_request, unreadable
from sandbox.apiserver.routes import ApiRoute
from scheduling.api.validation.shapes import BY_KIND, ListOf, MapOf, Shape, Type
from scheduling.api.versions import VersionError, from_v1, to_v1

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
KNOWN: Final = (JSON_PATCH, MERGE, STRATEGIC)


def patched(resource: Object, patch: object, content_type: str = MERGE) -> Object:
    """Return the object with the patch applied; the input stays. Raises StatusError (400, 415, 422)."""
    if content_type == JSON_PATCH:
        return _operated(resource, patch)
    if content_type not in (MERGE, STRATEGIC):
        raise StatusError(415, f"415: Unsupported Media Type: use one of {', '.join(KNOWN)}", details={})
    if not isinstance(patch, dict):
        raise bad_request("a patch must be a JSON object")
    merged = _merged(resource, patch, by_type=content_type == STRATEGIC)
    return merged if isinstance(merged, dict) else {}


def _merged(value: Any, patch: Any, *, by_type: bool, field: str = "") -> Any:
    """RFC 7386: null removes."""
    if by_type and field == "conditions" and isinstance(patch, list) and isinstance(value, list):
        conditions = {str(each.get("type")): each for each in value}
        for each in patch:
            if not isinstance(each, dict):
                raise bad_request(f"a condition must be a mapping, is {each!r}")
            conditions[str(each.get("type"))] = {**conditions.get(str(each.get("type")), {}), **each}
        return list(conditions.values())
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), change, by_type=by_type, field=key)
    return merged


def _operated(resource: Object, patch: object) -> Object:
    """RFC 6902, without move and copy."""
    if not isinstance(patch, list):
        raise bad_request("a JSON patch must be a list of operations")
    changed = deepcopy(dict(resource))
    for operation in patch:
        try:
            _operate(changed, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            text = f"the server rejected our request due to an error in our request: {operation!r} does not apply"
            raise StatusError(422, text, details={}) from error
    return changed


def _operate(root: Any, operation: Any) -> None:
    *path, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    holder = root
    for part in path:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    name = operation["op"]
    is_list = isinstance(holder, list)
    key = len(holder) if is_list and last == "-" else int(last) if is_list else last
    if name == "test":
        if holder[key] != operation["value"]:
            raise ValueError(f"{operation['path']} is {holder[key]!r}")
    elif name == "add" and is_list:
        if not isinstance(key, int) or key > len(holder):
            raise IndexError(operation["path"])
        holder.insert(key, operation.get("value"))
    elif name == "add":
        holder[key] = operation.get("value")
    elif name == "replace":
        _ = holder[key]
        holder[key] = operation.get("value")
    elif name == "remove":
        del holder[key]
    else:
        raise ValueError(f"operation {name!r} must be one of add, replace, remove, test")


def incoming(route: ApiRoute, resource: object) -> Json:
    """Return the object of a request in v1. Raises StatusError (400) for another kind, version, name or namespace."""
    if not isinstance(resource, dict):
        raise unreadable(route.kind, route.version, "it must be a JSON object")
    kind, version = resource.get("kind") or route.kind.name, resource.get("apiVersion") or route.api_version
    if kind != route.kind.name:
        text = f'{kind} in version "{route.version}" cannot be handled as a {route.kind.name}: unknown conversion'
        raise bad_request(text)
    if version != route.api_version:
        text = f"the API version in the data ({version}) does not match the expected API version ({route.api_version})"
        raise bad_request(text)
    metadata = resource.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise unreadable(route.kind, route.version, "metadata must be a JSON object")
    for field in ("uid", "resourceVersion"):
        # Compared with what is stored before anything else is judged.
        if not isinstance((metadata or {}).get(field) or "", str):
            raise unreadable(route.kind, route.version, f"metadata.{field}: must be a string")
    named = {**resource, "kind": kind, "apiVersion": version, "metadata": metadata or {}}
    _check_place(route, named["metadata"])
    if not route.kind.judged:
        return named
    try:
        wanted = to_v1(named)
    except VersionError as error:
        raise unreadable(route.kind, route.version, str(error)) from error
    check_fields(route, wanted)
    return wanted


def outgoing(route: ApiRoute, resource: Object) -> Json:
    """Return a stored object in the version of the request."""
    if not route.kind.judged or route.version == "v1":
        return dict(resource)
    return from_v1(resource, route.version)


def _check_place(route: ApiRoute, metadata: Object) -> None:
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if route.name and not name:
        text = f"the name of the object ({route.name} based on URL) was undeterminable: name must be provided"
        raise bad_request(text)
    if route.name and name != route.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({route.name})")
    if route.kind.namespaced and namespace and namespace != route.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def check_fields(route: ApiRoute, resource: Object) -> None:
    """Raise StatusError (400) for unknown fields of a v1 object, if the client asks for that."""
    if route.query.get("fieldValidation") != "Strict":
        return
    found = [f'unknown field "{path}"' for path in unknown_fields(resource, BY_KIND[route.kind.name])]
    if found:
        raise unreadable(route.kind, route.version, f"strict decoding error: {', '.join(found)}")


def unknown_fields(value: object, shape: Type, path: str = "") -> Iterator[str]:
    """Paths of fields that a shape lacks; values of wrong types are others' to tell."""
    if isinstance(shape, ListOf):
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            yield from unknown_fields(entry, shape.item, f"{path}[{index}]")
    elif isinstance(shape, MapOf) and isinstance(value, Mapping):
        for name, entry in value.items():
            yield from unknown_fields(entry, shape.item, f"{path}.{name}")
    elif isinstance(shape, Shape) and isinstance(value, Mapping):
        for name, entry in value.items():
            inner = f"{path}.{name}" if path else str(name)
            if name in shape.fields:
                yield from unknown_fields(entry, shape.fields[name].type, inner)
            elif path or name not in ("apiVersion", "kind"):
                yield inner
