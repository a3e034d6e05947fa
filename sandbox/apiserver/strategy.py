"""Validates an object before it is stored, and completes it.

Objects of `resource.k8s.io` are validated by `scheduling.api.validation`, under the feature gates of this server. Of
nodes, pods, namespaces and events only types and names are checked, so that no stored object breaks lists, selectors or
watches; pods get the defaults that a scheduler and a kubelet read. Status and the rest are written by requests of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sandbox.apiserver import refusals
from sandbox.apiserver.kinds import Json, Object, ServedKind
from scheduling.api.labels import subdomain_faults
from scheduling.api.validation.cause import TYPE_INVALID, StatusCause, each_invalid, required
from scheduling.api.validation.objects import VALIDATORS, validate_claim_status, validate_taint_rule_status
from scheduling.api.validation.shapes import Gates
from scheduling.api.validation.storing import as_stored, status_as_stored

_TEXTS: Final = ("name", "generateName", "namespace", "uid", "resourceVersion")
_MAPPINGS: Final = ("labels", "annotations")
_POD_DEFAULTS: Final = {
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_ADMIN_KINDS = ("ResourceClaim", "ResourceClaimTemplate")


@dataclass(frozen=True, slots=True)
class Strategy:
    """`gates`: optional features of the server."""

    gates: Gates

    def created(self, kind: ServedKind, resource: Object, *, now: str, admin: bool) -> Json:
        """Return the new object as it is stored; `admin`: its namespace allows admin access. Raises StatusError."""
        if not kind.judged:
            return _created_core(kind, resource)
        causes = VALIDATORS[kind.name](resource, None, self.gates, **_admin(kind, admin))
        _refuse(kind, resource, causes)
        return as_stored(resource, self.gates, now=now)

    def updated(self, kind: ServedKind, resource: Object, old: Object, *, now: str, admin: bool) -> Json:
        """Return what takes the place of `old`; its status stays. Raises StatusError."""
        if not kind.judged:
            _check_core(kind, resource)
            return _with(resource, status=old.get("status")) if kind.status else dict(resource)
        causes = VALIDATORS[kind.name](resource, old, self.gates, **_admin(kind, admin))
        _refuse(kind, resource, causes)
        stored = as_stored(resource, self.gates, old=old, now=now)
        return _with(stored, status=old.get("status")) if kind.status else stored

    def status_updated(self, kind: ServedKind, resource: Object, old: Object, *, admin: bool) -> Json:
        """Return `old` with the status of `resource`. Raises StatusError."""
        if kind.name == "ResourceClaim":
            causes = validate_claim_status(resource, old, self.gates, admin_namespace=admin)
            _refuse(kind, resource, causes)
            return status_as_stored(resource, old, self.gates)
        if kind.name == "DeviceTaintRule":
            _refuse(kind, resource, validate_taint_rule_status(resource, old))
        else:
            _check_core(kind, resource)
        return _with({**old, **_metadata(kind, resource)}, status=resource.get("status"))


def _admin(kind: ServedKind, admin: bool) -> dict[str, bool]:
    return {"admin_namespace": admin} if kind.name in _ADMIN_KINDS else {}


def _refuse(kind: ServedKind, resource: Object, causes: list[StatusCause]) -> None:
    if not causes:
        return
    if causes[0].reason == TYPE_INVALID and len(causes) == 1:
        raise refusals.unreadable(kind, "v1", str(causes[0]))
    metadata = resource.get("metadata", {})
    raise refusals.invalid(kind, metadata.get("name", ""), causes)


def _metadata(kind: ServedKind, resource: Object) -> Json:
    """Metadata that a write of the status changes as well: of pods and nodes, such as annotations."""
    return {"metadata": resource["metadata"]} if kind.name in ("Pod", "Node") else {}


def _with(resource: Object, *, status: object) -> Json:
    rest = {key: value for key, value in resource.items() if key != "status"}
    return rest if status is None else {**rest, "status": status}


def _created_core(kind: ServedKind, resource: Object) -> Json:
    """Return the new node, pod, namespace or event as it will be stored. Raises StatusError (400, 422)."""
    _check_core(kind, resource)
    if kind.name == "Pod":
        return {**resource, "spec": _POD_DEFAULTS | resource.get("spec", {}), "status": {"phase": "Pending"}}
    if kind.name == "Namespace":
        return {**resource, "status": {"phase": "Active"}}
    return dict(resource)


def _check_core(kind: ServedKind, resource: Object) -> None:
    """Check types and names of a node, pod, namespace or event. Raises StatusError (400, 422)."""
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
            yield f"metadata.{field}: must be a string"
    for field in _MAPPINGS:
        if not _is_texts(metadata.get(field) or {}):
            yield f"metadata.{field}: must be a mapping of strings"
    yield from _wrong_spec(resource)
    owners = metadata.get("ownerReferences") or []
    if not (isinstance(owners, list) and all(_is_texts(_owner_texts(each)) for each in owners)):
        yield "metadata.ownerReferences: must be a list of mappings with apiVersion, kind, name and uid as strings"
    finalizers = metadata.get("finalizers") or []
    if not (isinstance(finalizers, list) and all(isinstance(each, str) for each in finalizers)):
        yield "metadata.finalizers: must be a list of strings"


def _wrong_spec(resource: Object) -> Iterator[str]:
    """Check the fields that lists, deletions and others' status updates read."""
    spec, status = resource.get("spec") or {}, resource.get("status") or {}
    if not isinstance(spec, dict) or not isinstance(status, dict):
        return
    if not isinstance(spec.get("nodeName") or "", str):
        yield "spec.nodeName: must be a string"
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


def _names(metadata: Object) -> Iterator[StatusCause]:
    name = metadata.get("name", "")
    if name:
        yield from each_invalid("metadata.name", name, subdomain_faults(name))
    elif not metadata.get("generateName"):
        yield required("metadata.name", "needs a name, or a generateName to make one from")
