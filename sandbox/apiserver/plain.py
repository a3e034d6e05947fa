"""Nodes, pods, namespaces and events: as much of their rules as others here build on.

Types and names, so that no object can be stored that lists, selectors or watches stumble over; the defaults of a pod
that a scheduler and a kubelet read. The rest is taken as it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sandbox.apiserver import refusals
from sandbox.apiserver.kinds import Json, Object, ServedKind
from scheduling.api.labels import subdomain_faults
from scheduling.api.validation.cause import Cause, each_invalid, required

_TEXTS: Final = ("name", "generateName", "namespace", "uid", "resourceVersion")
_MAPPINGS: Final = ("labels", "annotations")
_POD_DEFAULTS: Final = {
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}


def created(kind: ServedKind, resource: Object) -> Json:
    """Return the new object as it will be stored. Raises StatusError (400, 422)."""
    changed(kind, resource)
    if kind.name == "Pod":
        return {**resource, "spec": _POD_DEFAULTS | resource.get("spec", {}), "status": {"phase": "Pending"}}
    if kind.name == "Namespace":
        return {**resource, "status": {"phase": "Active"}}
    return dict(resource)


def changed(kind: ServedKind, resource: Object) -> None:
    """Judge an object that is to be stored. Raises StatusError (400, 422)."""
    for fault in _wrong_types(resource):
        raise refusals.unreadable(kind, "v1", fault)
    metadata = resource.get("metadata", {})
    causes = list(_names(metadata))
    if causes:
        raise refusals.invalid(kind, metadata.get("name", ""), causes)


def _wrong_types(resource: Object) -> Iterator[str]:
    for field in ("spec", "status"):
        if not isinstance(resource.get(field, {}), dict):
            yield f"{field}: must be a mapping"
    metadata = resource.get("metadata", {})
    for field in _TEXTS:
        if not isinstance(metadata.get(field, ""), str):
            yield f"metadata.{field}: must be a text"
    for field in _MAPPINGS:
        if not _is_texts(metadata.get(field) or {}):
            yield f"metadata.{field}: must be a mapping of texts"
    yield from _wrong_spec(resource)
    owners = metadata.get("ownerReferences") or []
    if not (isinstance(owners, list) and all(_is_texts(_owner_texts(each)) for each in owners)):
        yield "metadata.ownerReferences: must be a list of mappings with apiVersion, kind, name and uid as texts"
    finalizers = metadata.get("finalizers") or []
    if not (isinstance(finalizers, list) and all(isinstance(each, str) for each in finalizers)):
        yield "metadata.finalizers: must be a list of texts"


def _wrong_spec(resource: Object) -> Iterator[str]:
    """What lists, deletions and others' status updates read of it."""
    spec, status = resource.get("spec") or {}, resource.get("status") or {}
    if not isinstance(spec, dict) or not isinstance(status, dict):
        return
    if not isinstance(spec.get("nodeName") or "", str):
        yield "spec.nodeName: must be a text"
    grace = spec.get("terminationGracePeriodSeconds") or 0
    if not isinstance(grace, int) or isinstance(grace, bool):
        yield "spec.terminationGracePeriodSeconds: must be a whole number"
    conditions = status.get("conditions") or []
    if not (isinstance(conditions, list) and all(_is_condition(each) for each in conditions)):
        yield "status.conditions: must be a list of mappings with a type each"


def _is_condition(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _owner_texts(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: value.get(name, "") for name in ("apiVersion", "kind", "name", "uid")}


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def _names(metadata: Object) -> Iterator[Cause]:
    name = metadata.get("name", "")
    if name:
        yield from each_invalid("metadata.name", name, subdomain_faults(name))
    elif not metadata.get("generateName"):
        yield required("metadata.name", "needs a name, or a generateName to make one from")
