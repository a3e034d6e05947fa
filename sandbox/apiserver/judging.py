"""What the server makes of an object it is sent: refused by the rules, or as it will be stored.

Objects of `resource.k8s.io` are judged by `scheduling.api.validation`, by the feature gates of this server, others by
`plain`. Status and the rest are written apart, each by its own requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.apiserver import plain, refusals
from sandbox.apiserver.kinds import Json, Object, ServedKind
from scheduling.api.validation.cause import TYPE_INVALID, Cause
from scheduling.api.validation.objects import VALIDATORS, validate_claim_status, validate_taint_rule_status
from scheduling.api.validation.shapes import Gates
from scheduling.api.validation.storing import as_stored, status_as_stored

_ADMIN_KINDS = ("ResourceClaim", "ResourceClaimTemplate")


@dataclass(frozen=True, slots=True)
class Strategy:
    """`gates`: optional features of the server."""

    gates: Gates

    def created(self, kind: ServedKind, resource: Object, *, now: str, admin: bool) -> Json:
        """Return the new object as it will be stored. `admin`: its namespace allows admin access. Raises StatusError."""
        if not kind.judged:
            return plain.created(kind, resource)
        causes = VALIDATORS[kind.name](resource, None, self.gates, **_admin(kind, admin))
        _refuse(kind, resource, causes)
        return as_stored(resource, self.gates, now=now)

    def updated(self, kind: ServedKind, resource: Object, old: Object, *, now: str, admin: bool) -> Json:
        """Return what takes the place of `old`; its status stays. Raises StatusError."""
        if not kind.judged:
            plain.changed(kind, resource)
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
            plain.changed(kind, resource)
        return _with(old, status=resource.get("status"))


def _admin(kind: ServedKind, admin: bool) -> dict[str, bool]:
    return {"admin_namespace": admin} if kind.name in _ADMIN_KINDS else {}


def _refuse(kind: ServedKind, resource: Object, causes: list[Cause]) -> None:
    if not causes:
        return
    if causes[0].reason == TYPE_INVALID and len(causes) == 1:
        raise refusals.unreadable(kind, "v1", str(causes[0]))
    metadata = resource.get("metadata", {})
    raise refusals.invalid(kind, metadata.get("name", ""), causes)


def _with(resource: Object, *, status: object) -> Json:
    rest = {key: value for key, value in resource.items() if key != "status"}
    return rest if status is None else {**rest, "status": status}
