"""Prepares an object as the API server does before it judges it, and as it stores it.

In this order: types are checked and unknown fields dropped, defaults set, fields dropped that a client cannot set
(status on creation) or whose feature is off. A feature that the stored object uses stays on for that object, so that an
unrelated change takes nothing away. Nothing is stored here: the caller gives a name for generateName, uid and times.

Functions change typed data in place; each object they get is their caller's own copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from scheduling.api.quantities import Quantity, of_json
from scheduling.api.validation.decoding import Undecodable, decoded, written
from scheduling.api.validation.parts import NODE_FIELDS
from scheduling.api.validation.shapes import API_VERSION, BY_KIND, DEFAULT, Gates
from scheduling.api.validation.slices import LISTS
from scheduling.api.versions import with_defaults

Object = Mapping[str, Any]
Typed = dict[str, Any]
_BINDING: Final = ("bindingConditions", "bindingFailureConditions", "bindsToNode")


def devices_of(slice_: Mapping[str, Any] | None) -> list[Typed]:
    """Return the devices of a slice."""
    return slice_.get("spec", {}).get("devices", []) if slice_ else []


def requests_of(spec: Mapping[str, Any]) -> list[Typed]:
    """Return the requests of a claim's spec."""
    requests: list[Typed] = spec.get("devices", {}).get("requests", [])
    return requests


def results_of(claim: Mapping[str, Any]) -> list[Typed]:
    """Return the allocated devices of a claim."""
    results: list[Typed] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return results


def _drop(holders: Iterable[Typed], *fields: str) -> None:
    for holder in holders:
        for field in fields:
            holder.pop(field, None)


def _used(holders: Iterable[Typed], *fields: str) -> bool:
    return any(field in holder for holder in holders for field in fields)


def _filled(holders: Iterable[Typed], *fields: str) -> bool:
    return any(holder.get(field) for holder in holders for field in fields)


def _values(devices: Iterable[Typed], field: str) -> Iterator[Typed]:
    for device in devices:
        yield from device.get(field, {}).values()


def drop_from_slice(slice_: Typed, old: Typed | None, gates: Gates) -> None:
    """Drop what belongs to features that are off and that `old` does not use."""
    devices, before = devices_of(slice_), devices_of(old)
    if not (gates.device_taints or _filled(before, "taints")):
        _drop(devices, "taints")
    if not (gates.partitionable_devices or _partitioned(old, before)):
        _drop([slice_.get("spec", {})], "sharedCounters", "perDeviceNodeSelection")
        _drop(devices, "consumesCounters", *NODE_FIELDS)
    if not ((gates.binding_conditions and gates.device_status) or _binds(before)):
        _drop(devices, *_BINDING)
    if not (gates.consumable_capacity or _shared(before)):
        _drop(devices, "allowMultipleAllocations")
        _drop(_values(devices, "capacity"), "requestPolicy")
    if not (gates.node_allocatable_resources or _filled(before, "nodeAllocatableResourceMappings")):
        _drop(devices, "nodeAllocatableResourceMappings")
    if not (gates.list_attributes or _used(_values(before, "attributes"), *LISTS)):
        _drop(_values(devices, "attributes"), *LISTS)


def _partitioned(old: Typed | None, devices: list[Typed]) -> bool:
    spec = old.get("spec", {}) if old else {}
    in_spec = bool(spec.get("sharedCounters")) or "perDeviceNodeSelection" in spec
    return in_spec or _filled(devices, "consumesCounters") or _used(devices, *NODE_FIELDS)


def _binds(devices: list[Typed]) -> bool:
    return _filled(devices, "bindingConditions", "bindingFailureConditions") or _used(devices, "bindsToNode")


def _shared(devices: list[Typed]) -> bool:
    return _used(devices, "allowMultipleAllocations") or _used(_values(devices, "capacity"), "requestPolicy")


def _alternatives(spec: Typed) -> list[Typed]:
    return [alternative for request in requests_of(spec) for alternative in request.get("firstAvailable", [])]


def _exact(spec: Typed) -> list[Typed]:
    return [request["exactly"] for request in requests_of(spec) if "exactly" in request]


def _both(spec: Typed) -> list[Typed]:
    return _exact(spec) + _alternatives(spec)


def drop_from_claim_spec(spec: Typed, old: Typed | None, gates: Gates) -> None:
    """Drop what belongs to features that are off and that the `old` spec does not use."""
    before = old or {}
    if not (gates.prioritized_list or _filled(requests_of(before), "firstAvailable")):
        _drop(requests_of(spec), "firstAvailable")
    if not (gates.device_taints or _filled(_both(before), "tolerations")):
        _drop(_both(spec), "tolerations")
    if not (gates.admin_access or _used(_exact(before), "adminAccess")):
        _drop(_exact(spec), "adminAccess")
    if not (gates.consumable_capacity or _claims_capacity(before)):
        _drop(spec.get("devices", {}).get("constraints", []), "distinctAttribute")
        _drop(_both(spec), "capacity")


def _claims_capacity(spec: Typed) -> bool:
    constraints = spec.get("devices", {}).get("constraints", [])
    return _used(constraints, "distinctAttribute") or _used(_both(spec), "capacity")


def drop_from_claim_status(claim: Typed, old: Typed, gates: Gates) -> None:
    """Drop what belongs to features that are off and that `old` does not use; then the state of devices given back."""
    status, before = claim.get("status", {}), old.get("status", {})
    keep_devices = gates.device_status or bool(before.get("devices"))
    if not keep_devices:
        status.pop("devices", None)
    spec, results = old.get("spec", {}), results_of(old)
    if not (gates.admin_access or _used(_exact(spec), "adminAccess") or _used(results, "adminAccess")):
        _drop(results_of(claim), "adminAccess")
    shared = _claims_capacity(spec) or _used(results, "shareID", "consumedCapacity")
    if not (gates.consumable_capacity or shared or _used(before.get("devices", []), "shareID")):
        _drop(results_of(claim), "shareID", "consumedCapacity")
        _drop(status.get("devices", []), "shareID")
    if not (gates.binding_conditions or _used(results, *_BINDING)):
        _drop(results_of(claim), "bindingConditions", "bindingFailureConditions")
    if keep_devices and "devices" in status:
        gone = {identity(result) for result in results} - {identity(result) for result in results_of(claim)}
        status["devices"] = [device for device in status["devices"] if identity(device) not in gone]


def identity(device: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return driver, pool, device and share of an allocation's result, or of a device's state in a claim."""
    return (device.get("driver", ""), device.get("pool", ""), device.get("device", ""), device.get("shareID", ""))


def drop_from_class(class_: Typed, old: Typed | None, gates: Gates) -> None:
    """Drop what belongs to features that are off and that `old` does not use."""
    if not (gates.extended_resource or (old and "extendedResourceName" in old.get("spec", {}))):
        class_.get("spec", {}).pop("extendedResourceName", None)


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
