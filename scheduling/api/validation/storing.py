"""What the API server makes of an object before it judges it, and what it stores.

In this order: types are checked and unknown fields dropped, defaults set, fields dropped that a client cannot set
(status on creation) or whose feature is off. Nothing is stored here: a name from generateName, uid and times are the
caller's to give.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.api.quantities import Quantity, of_json
from scheduling.api.validation.decoding import Undecodable, decoded, written
from scheduling.api.validation.features import (
    Typed,
    devices_of,
    drop_from_claim_spec,
    drop_from_claim_status,
    drop_from_class,
    drop_from_slice,
)
from scheduling.api.validation.gates import DEFAULT, Gates
from scheduling.api.validation.shapes import API_VERSION, BY_KIND
from scheduling.api.versions import with_defaults

Object = Mapping[str, Any]


def as_stored(
    resource: Object, gates: Gates = DEFAULT, *, old: Object | None = None, now: str | None = None
) -> dict[str, Any]:
    """Return the v1 object as the API server would store it, in place of `old` if there is one.

    `now`: time for taints that have none (RFC 3339). Raises `Undecodable`.
    """
    kind = _kind(resource)
    before = None if old is None else prepared(old, kind, None, gates=None)
    return _written(prepared(resource, kind, before, gates=gates, now=now), kind)


def status_as_stored(resource: Object, old: Object, gates: Gates = DEFAULT) -> dict[str, Any]:
    """Return the ResourceClaim `old` with the status of `resource`, as the API server would store it."""
    return _written(prepared_status(resource, old, gates)[0], "ResourceClaim")


def prepared(resource: Object, kind: str, old: Typed | None, *, gates: Gates | None, now: str | None = None) -> Typed:
    """Return the object of `kind` as typed data that the rules judge. Raises Undecodable.

    `old`: typed data of the object it replaces. `gates` None: it is stored already and keeps what it has.
    """
    new = _with_defaults(decoded(resource, kind), kind, now)
    if gates is None:
        return new
    if "status" in BY_KIND[kind].fields:
        new["status"] = (old or {}).get("status", {})
    if kind == "ResourceSlice":
        drop_from_slice(new, old, gates)
    elif kind == "ResourceClaim":
        drop_from_claim_spec(new.get("spec", {}), (old or {}).get("spec"), gates)
    elif kind == "ResourceClaimTemplate":
        drop_from_claim_spec(new.get("spec", {}).get("spec", {}), (old or {}).get("spec", {}).get("spec"), gates)
    elif kind == "DeviceClass":
        drop_from_class(new, old, gates)
    elif old is not None and now is not None:
        _date_effect(new, old, now)
    return new


def _date_effect(rule: Typed, old: Typed, now: str) -> None:
    """The time of a taint rule is that of its effect, unless a client changes it."""
    taint, before = (each.get("spec", {}).get("taint", {}) for each in (rule, old))
    if taint.get("effect") != before.get("effect") and taint.get("timeAdded") == before.get("timeAdded"):
        taint["timeAdded"] = now


def prepared_status(resource: Object, old: Object, gates: Gates) -> tuple[Typed, Typed]:
    """Return the typed data of a claim with a new status, and of the claim it replaces. Raises Undecodable."""
    before = prepared(old, "ResourceClaim", None, gates=None)
    new = _with_defaults(decoded(resource, "ResourceClaim"), "ResourceClaim", None)
    new["spec"] = before.get("spec", {})
    kept = {"labels", "annotations", "finalizers", "ownerReferences"}
    own = {field: value for field, value in new.get("metadata", {}).items() if field not in kept}
    stored = {field: value for field, value in before.get("metadata", {}).items() if field in kept}
    new["metadata"] = {**own, **stored}
    drop_from_claim_status(new, before, gates)
    return new, before


def _kind(resource: object) -> str:
    kind = resource.get("kind") if isinstance(resource, Mapping) else None
    if not isinstance(kind, str) or kind not in BY_KIND:
        raise Undecodable("kind", f"one of {', '.join(BY_KIND)}", kind)
    return kind


def _with_defaults(typed: Typed, kind: str, now: str | None) -> Typed:
    named = {**typed, "apiVersion": API_VERSION, "kind": kind}
    if "ownerReferences" in typed.get("metadata", {}):
        owners = typed["metadata"]["ownerReferences"]
        typed["metadata"]["ownerReferences"] = list({tuple(sorted(each.items())): each for each in owners}.values())
    typed = with_defaults(named, now)
    if kind == "ResourceSlice":
        for device in devices_of(typed):
            for mapping in device.get("nodeAllocatableResourceMappings", {}).values():
                mapping["allocationMultiplier"] = _typed_quantity(mapping["allocationMultiplier"])
    return typed


def _typed_quantity(value: Quantity | str) -> Quantity:
    """Return the default of `scheduling.api.versions`, which knows no types, as typed data."""
    return value if isinstance(value, Quantity) else of_json(value)


def _written(typed: Typed, kind: str) -> dict[str, Any]:
    shape = BY_KIND[kind]
    result: dict[str, Any] = written(typed, shape)
    return result
