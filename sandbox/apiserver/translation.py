"""Objects between the version of a request and v1, in which they are stored."""

from __future__ import annotations

from sandbox.apiserver.kinds import Json, Object
from sandbox.apiserver.refusals import bad_request, unreadable
from sandbox.apiserver.routes import Route
from sandbox.apiserver.strictness import check_fields
from scheduling.api.versions import VersionError, from_v1, to_v1


def incoming(route: Route, resource: object) -> Json:
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
            raise unreadable(route.kind, route.version, f"metadata.{field}: must be a text")
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


def outgoing(route: Route, resource: Object) -> Json:
    """Return a stored object in the version of the request."""
    if not route.kind.judged or route.version == "v1":
        return dict(resource)
    return from_v1(resource, route.version)


def _check_place(route: Route, metadata: Object) -> None:
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if route.name and not name:
        text = f"the name of the object ({route.name} based on URL) was undeterminable: name must be provided"
        raise bad_request(text)
    if route.name and name != route.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({route.name})")
    if route.kind.namespaced and namespace and namespace != route.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
