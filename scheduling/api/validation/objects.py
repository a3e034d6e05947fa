"""Judges whole objects, as the API server does on creation and update.

Each function takes an object of resource.k8s.io/v1 as read from JSON and the stored object that it replaces, if any,
and returns the faults; the list is empty if the server would accept the object. The steps before the rules are the
server's: types, defaults, fields of features that are off. An object that the server could not decode has one cause,
`FieldValueTypeInvalid`.

Not judged, because it needs more than the object: quota, authorization of who writes a status, conflicts of
resourceVersion and uid. Objects of other versions go through `scheduling.api.versions` before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from scheduling.api.labels import label_key_faults
from scheduling.api.validation import metadata
from scheduling.api.validation.cause import TYPE_INVALID, StatusCause, invalid, listed
from scheduling.api.validation.claims import admin_request, admin_result, claim_spec, claim_status
from scheduling.api.validation.decoding import Undecodable, decoded, same
from scheduling.api.validation.parts import (
    conditions,
    configuration,
    driver,
    label,
    pool,
    selectors,
    taint,
    taint_label,
)
from scheduling.api.validation.shapes import BY_KIND, CLASS_CONFIG, DEFAULT, SELECTORS, Gates
from scheduling.api.validation.slices import slice_spec
from scheduling.api.validation.storing import prepared, prepared_status, requests_of

Object = Mapping[str, Any]
_CLASS_CONFIGS: Final = 32
_QUOTA_PREFIX: Final = "requests."
"""Before the name of an extended resource in a ResourceQuota; the whole must be a label key, too."""
_NAMESPACED: Final = ("ResourceClaim", "ResourceClaimTemplate")
"""Their specs never change."""


def class_spec(spec: Object, old: Object | None, gates: Gates) -> Iterator[StatusCause]:
    """The spec of a class. Selectors and configuration that stay as in `old` are judged as stored ones."""
    chosen, configs = spec.get("selectors", []), spec.get("config", [])
    stored = old is not None and same(chosen, old.get("selectors", []), SELECTORS)
    yield from selectors(chosen, "spec.selectors", gates, stored=stored)
    kept = old is not None and same(configs, old.get("config", []), CLASS_CONFIG)

    def config(entry: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
        yield from configuration(entry, path, stored=kept)

    yield from listed(configs, _CLASS_CONFIGS, "spec.config", config)
    if "extendedResourceName" in spec:
        yield from _extended_resource(spec["extendedResourceName"], "spec.extendedResourceName")


def _extended_resource(name: str, path: str) -> Iterator[StatusCause]:
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        yield invalid(path, name, "must be '<domain>/<name>' outside kubernetes.io")
    elif faults := label_key_faults(_QUOTA_PREFIX + name):
        yield invalid(path, name, faults[0])


def taint_rule_spec(spec: Object, old: Object | None) -> Iterator[StatusCause]:
    """Which devices, and the taint. An effect that stays as in `old` is not judged again."""
    chosen = spec.get("deviceSelector", {})
    for field, rule in (("driver", driver), ("pool", pool), ("device", label)):
        if field in chosen:
            yield from rule(chosen[field], f"spec.deviceSelector.{field}")
    entry = spec.get("taint", {})
    same_effect = old is not None and old.get("taint", {}).get("effect", "") == entry.get("effect", "")
    yield from (taint_label if same_effect else taint)(entry, "spec.taint")


def _judged(new: Object, before: Object | None, gates: Gates, admin_namespace: bool) -> Iterator[StatusCause]:
    """Judge decoded objects: the metadata, then the spec by the rules of its kind."""
    kind, own, spec = new["kind"], new.get("metadata", {}), new.get("spec", {})
    namespaced, judge_prefix = kind in _NAMESPACED, kind != "DeviceClass"
    if before is None:
        yield from metadata.created(own, namespaced=namespaced, judge_prefix=judge_prefix)
    else:
        judged = {"judge_name": kind not in ("ResourceSlice", "DeviceTaintRule"), "judge_prefix": judge_prefix}
        yield from metadata.updated(own, before.get("metadata", {}), namespaced=namespaced, **judged)
    stored = None if before is None else before.get("spec", {})
    match kind:
        case "ResourceSlice":
            yield from slice_spec(spec, stored)
        case "DeviceClass":
            yield from class_spec(spec, stored, gates)
        case "DeviceTaintRule":
            yield from taint_rule_spec(spec, stored)
        case "ResourceClaim" if stored is None:
            yield from () if admin_namespace else admin_request(spec)
            yield from claim_spec(spec, "spec", gates)
        case "ResourceClaimTemplate":
            inner = spec.get("spec", {})
            yield from admin_request(inner) if stored is None and not admin_namespace else ()
            yield from metadata.template(spec.get("metadata", {}), "spec.metadata")
            yield from claim_spec(inner, "spec.spec", gates)
    if kind in _NAMESPACED and stored is not None and not same(spec, stored, BY_KIND[kind].fields["spec"].type):
        yield invalid("spec", "the new one", "must stay as it is; delete the object and make another")


def _validate(
    kind: str,
    resource: Object,
    old: Object | None = None,
    gates: Gates = DEFAULT,
    *,
    admin_namespace: bool = False,
) -> list[StatusCause]:
    """Judge an object without its status. `admin_namespace`: its namespace is labelled for admin access."""
    try:
        before = None if old is None else prepared(old, kind, None, gates=None)
        new = prepared(resource, kind, before, gates=gates)
    except Undecodable as fault:
        return [_of(fault)]
    return list(_judged(new, before, gates, admin_namespace))


def _of(fault: Undecodable) -> StatusCause:
    return StatusCause(fault.field, TYPE_INVALID, fault.message)


validate_slice = partial(_validate, "ResourceSlice")
validate_claim = partial(_validate, "ResourceClaim")
validate_template = partial(_validate, "ResourceClaimTemplate")
validate_class = partial(_validate, "DeviceClass")
validate_taint_rule = partial(_validate, "DeviceTaintRule")

VALIDATORS: Final[Mapping[str, partial[list[StatusCause]]]] = {
    "ResourceSlice": validate_slice,
    "ResourceClaim": validate_claim,
    "ResourceClaimTemplate": validate_template,
    "DeviceClass": validate_class,
    "DeviceTaintRule": validate_taint_rule,
}
"""The function for each kind; all take (resource, old, gates, admin_namespace=…)."""


def validate_claim_status(
    resource: Object, old: Object, gates: Gates = DEFAULT, *, admin_namespace: bool = False
) -> list[StatusCause]:
    """Judge the status of a ResourceClaim that is to replace that of `old`; its spec counts for nothing."""
    try:
        new, before = prepared_status(resource, old, gates)
    except Undecodable as fault:
        return [_of(fault)]
    causes = [*metadata.unchanged(new.get("metadata", {}), before.get("metadata", {}), namespaced=True)]
    if not admin_namespace:
        causes += admin_result(new, before)
    deleted = "deletionTimestamp" in before.get("metadata", {})
    requests = requests_of(before.get("spec", {}))
    return causes + [*claim_status(new.get("status", {}), before.get("status", {}), requests, deleted=deleted)]


def validate_taint_rule_status(resource: Object, old: Object) -> list[StatusCause]:
    """Judge the status of a DeviceTaintRule that is to replace that of `old`."""
    try:
        new, before = decoded(resource, "DeviceTaintRule"), decoded(old, "DeviceTaintRule")
    except Undecodable as fault:
        return [_of(fault)]
    causes = [*metadata.unchanged(new.get("metadata", {}), before.get("metadata", {}), namespaced=False)]
    return causes + [*conditions(new.get("status", {}).get("conditions", []), "status.conditions")]
