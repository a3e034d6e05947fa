"""Conversion of resource.k8s.io objects between the API versions v1, v1beta2 and v1beta1, and v1's defaults.

Why: clusters of different ages serve different versions; everything else here knows v1 alone. The versions differ in
little: v1beta1 keeps a device's facts under `basic`, writes the fields of `exactly` into the request itself, and says
"no node name" with an empty string; v1beta2 has v1's shape; v1alpha3 is left with DeviceTaintRule, and with the slices
of Kubernetes 1.31, which can be read but not written.

Invariants: objects are plain dicts as read from JSON or YAML. The input is never changed; what does not differ is
shared with the result, so treat both as read-only. A part of another type than expected (a device that is a string)
is carried over as it stands: refusing it is the business of `scheduling.api.validation`. Fields that neither version
knows are kept where no version could take them for a known one; a known field in another version's place is dropped, as
the API server drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from scheduling.api.excerpts import shown

Object = Mapping[str, object]
_Convert = Callable[[Mapping[str, object]], dict[str, object]]
_ConvertPart = Callable[[Mapping[str, object]], object]

_GROUP: Final = "resource.k8s.io"
_LIST: Final = "List"
_COMMON: Final = ("v1", "v1beta2", "v1beta1")
_WRITTEN: Final[Mapping[str, tuple[str, ...]]] = {
    "ResourceSlice": _COMMON,
    "ResourceClaim": _COMMON,
    "ResourceClaimTemplate": _COMMON,
    "DeviceClass": _COMMON,
    "DeviceTaintRule": ("v1", "v1beta2", "v1alpha3"),
}
_READ_ONLY: Final[Mapping[str, tuple[str, ...]]] = {"ResourceSlice": ("v1alpha3",)}

# Fields of v1's ExactDeviceRequest; v1beta1 has them in the request itself.
_EXACT_FIELDS: Final = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)
_REQUEST_FIELDS: Final = frozenset({"name", "exactly", "firstAvailable"})
# Fields of v1's Device beside its name; v1beta1 has them under `basic`.
_DEVICE_FIELDS: Final = frozenset(
    {
        "attributes",
        "capacity",
        "consumesCounters",
        "nodeName",
        "nodeSelector",
        "allNodes",
        "taints",
        "bindsToNode",
        "bindingConditions",
        "bindingFailureConditions",
        "allowMultipleAllocations",
        "nodeAllocatableResourceMappings",
        "nodeAllocatableResources",
    }
)


class VersionError(Exception):
    """An object cannot be converted. `kind` and `version` are as the object or the caller wrote them ("" if absent).

    `possible` says what can be done: the versions of this kind, or what the object lacks.
    """

    def __init__(self, kind: str, version: str, possible: str) -> None:
        super().__init__(f"kind {shown(kind)} in version {shown(version)} cannot be converted: {possible}")
        self.kind = kind
        self.version = version
        self.possible = possible


def to_v1(resource: Object) -> dict[str, Any]:
    """Return the object, or list of objects, in resource.k8s.io/v1. Raises VersionError.

    An item of a list may lack apiVersion and kind, as the API server writes lists; it then has the list's.
    """
    kind, version = _identity(resource, _READ_ONLY)
    converter: _Convert = dict
    if version == "v1beta1":
        converter = _FROM_V1BETA1[kind]
    elif version == "v1alpha3" and kind == "ResourceSlice":
        converter = _FROM_V1ALPHA3[kind]
    return _converted(resource, "v1", converter, to_v1)


def from_v1(resource: Object, version: str) -> dict[str, Any]:
    """Return the v1 object, or list of v1 objects, in `version` ("v1", "v1beta2", …). Raises VersionError."""
    kind, own = _identity(resource, {})
    if own != "v1":
        raise VersionError(kind, own, "only v1 is converted to other versions; convert it to v1 first")
    if version not in _WRITTEN[kind]:
        raise VersionError(kind, version, f"write one of {', '.join(_WRITTEN[kind])}")
    converter = _TO_V1BETA1[kind] if version == "v1beta1" else dict
    return _converted(resource, version, converter, lambda item: from_v1(item, version))


def with_defaults(resource: Object, now: str | None = None) -> dict[str, Any]:
    """Return the v1 object, or list of v1 objects, with what the API server adds to one when it is created.

    Requests get allocationMode ExactCount and count 1, tolerations the operator Equal, mappings of node resources the
    multiplier 1. Taints get `now` (RFC 3339) as timeAdded only if it is given: this module has no clock.
    Raises VersionError for other versions.
    """
    kind, version = _identity(resource, {})
    if version != "v1":
        raise VersionError(kind, version, "defaults are set on v1; convert it to v1 first")
    setters: Mapping[str, _Convert] = {
        "ResourceSlice": lambda slice_: _at(slice_, ("spec",), lambda spec: _slice_defaults(spec, now)),
        "DeviceTaintRule": lambda rule: _at(rule, ("spec", "taint"), lambda taint: _dated(taint, now)),
        "ResourceClaim": _claim_defaults,
        "ResourceClaimTemplate": lambda template: _at(template, ("spec", "spec"), _claim_spec_defaults),
    }
    return _converted(resource, "v1", setters.get(kind, dict), lambda item: with_defaults(item, now))


def _identity(resource: Object, read_only: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    """Return the kind (of the items, for a list) and the version."""
    if not isinstance(resource, Mapping):
        raise VersionError("", "", f"an object must be a mapping, this is {type(resource).__name__}")
    written, api_version = resource.get("kind"), resource.get("apiVersion")
    if not isinstance(written, str) or not isinstance(api_version, str):
        missing = "kind" if not isinstance(written, str) else "apiVersion"
        raise VersionError(_if_text(written), _if_text(api_version), f"the object must have a string as {missing}")
    group, _, version = api_version.rpartition("/")
    kind = written.removesuffix(_LIST)
    if group != _GROUP or kind not in _WRITTEN:
        kinds = ", ".join(_WRITTEN)
        raise VersionError(written, api_version, f"the kind must be one of {kinds} of {_GROUP}, or a list of them")
    possible = _WRITTEN[kind] + read_only.get(kind, ())
    if version not in possible:
        raise VersionError(written, version, f"write one of {', '.join(possible)}")
    return kind, version


def _if_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _converted(resource: Object, version: str, converter: _Convert, whole: _Convert) -> dict[str, object]:
    """Return the object converted and named `version`; of a list its items, those with a name of their own by it."""
    kind = str(resource["kind"])
    if not kind.endswith(_LIST):
        return {**converter(resource), "apiVersion": f"{_GROUP}/{version}"}

    def item(entry: Mapping[str, object]) -> dict[str, object]:
        own = {name: entry[name] for name in ("apiVersion", "kind") if entry.get(name) is not None}
        if not own:
            return converter(entry)
        return whole({**entry, "apiVersion": resource["apiVersion"], "kind": kind.removesuffix(_LIST), **own})

    return {**_each(resource, "items", item), "apiVersion": f"{_GROUP}/{version}"}


def _at(parent: Object, path: tuple[str, ...], convert: _ConvertPart) -> dict[str, object]:
    """Return `parent` with the mapping at `path` converted; unchanged if there is none."""
    child = parent.get(path[0])
    if not isinstance(child, Mapping):
        return dict(parent)
    return {**parent, path[0]: _at(child, path[1:], convert) if path[1:] else convert(child)}


def _each(parent: Object, field: str, convert: _ConvertPart) -> dict[str, object]:
    """Return `parent` with each mapping in its list `field` converted; unchanged if there is no such list."""
    entries = parent.get(field)
    if not isinstance(entries, list) or not entries:
        return dict(parent)
    return {**parent, field: [convert(entry) if isinstance(entry, Mapping) else entry for entry in entries]}


def _unset(parent: Object, *fields: str) -> dict[str, object]:
    """Return `parent` without those of `fields` that hold nothing ("" or false)."""
    return {key: value for key, value in parent.items() if key not in fields or not (value == "" or value is False)}


def _device_to_v1(device: Object) -> object:
    """Take the facts out of `basic`; facts beside it have no meaning in v1beta1.

    A `basic` of a wrong type takes the place of its device, for the rules to refuse.
    """
    basic = device.get("basic")
    outer = {key: value for key, value in device.items() if key != "basic" and key not in _DEVICE_FIELDS}
    if basic is None:
        return outer
    if not isinstance(basic, Mapping):
        return basic
    return {**{key: value for key, value in basic.items() if key != "name"}, **outer}


def _device_to_v1beta1(device: Object) -> dict[str, object]:
    named = {"name": device["name"]} if "name" in device else {}
    return {**named, "basic": {key: value for key, value in device.items() if key not in ("name", "basic")}}


def _device_of_1_31(device: Object) -> object:
    """v1alpha3 of Kubernetes 1.31: as v1beta1, but a capacity is a bare quantity."""

    def capacities(capacity: Object) -> dict[str, object]:
        return {name: value if isinstance(value, Mapping) else {"value": value} for name, value in capacity.items()}

    flat = _device_to_v1(device)
    return _at(flat, ("capacity",), capacities) if isinstance(flat, Mapping) else flat


def _request_to_v1(request: Object) -> dict[str, object]:
    """Gather the fields of an exact request; there is one if any of them holds something, as the API server judges."""
    exact = any(request.get(field) not in (None, "") for field in _EXACT_FIELDS if field != "count")
    exact = exact or request.get("count") not in (None, 0)
    if not exact:
        return {key: value for key, value in request.items() if key not in _EXACT_FIELDS and key != "exactly"}
    outer = {key: value for key, value in request.items() if key in ("name", "firstAvailable")}
    return {**outer, "exactly": {key: value for key, value in request.items() if key not in _REQUEST_FIELDS}}


def _request_to_v1beta1(request: Object) -> dict[str, object]:
    """Spread an exact request over the request itself; the API server writes a class for others too, an empty one."""
    exactly = request.get("exactly")
    named = {"name": request["name"]} if "name" in request else {}
    others = {key: value for key, value in request.items() if key not in _EXACT_FIELDS and key != "exactly"}
    spread = exactly if isinstance(exactly, Mapping) else {"deviceClassName": ""}
    return {**named, **{key: value for key, value in spread.items() if key not in _REQUEST_FIELDS}, **others}


def _converters(device: _ConvertPart, request: _ConvertPart) -> Mapping[str, _Convert]:
    """The conversion of each kind, by those of a device and of a request."""

    def slice_spec(spec: Object) -> object:
        return _each(_unset(spec, "nodeName", "allNodes"), "devices", device)

    def claim_spec(spec: Object) -> object:
        return _at(spec, ("devices",), lambda devices: _each(devices, "requests", request))

    return {
        "ResourceSlice": lambda slice_: _at(slice_, ("spec",), slice_spec),
        "ResourceClaim": lambda claim: _at(claim, ("spec",), claim_spec),
        "ResourceClaimTemplate": lambda template: _at(template, ("spec", "spec"), claim_spec),
        "DeviceClass": dict,
    }


_FROM_V1BETA1: Final = _converters(_device_to_v1, _request_to_v1)
_TO_V1BETA1: Final = _converters(_device_to_v1beta1, _request_to_v1beta1)
_FROM_V1ALPHA3: Final = _converters(_device_of_1_31, _request_to_v1)


def _claim_defaults(claim: Object) -> dict[str, object]:
    with_spec = _at(claim, ("spec",), _claim_spec_defaults)
    return _at(with_spec, ("status", "allocation", "devices"), lambda devices: _each(devices, "results", _tolerant))


def _claim_spec_defaults(spec: Object) -> dict[str, object]:
    return _at(spec, ("devices",), lambda devices: _each(devices, "requests", _request_defaults))


def _request_defaults(request: Object) -> dict[str, object]:
    return _each(_at(request, ("exactly",), _one_of_a_kind), "firstAvailable", _one_of_a_kind)


def _one_of_a_kind(request: Object) -> dict[str, object]:
    """Defaults of an exact request and of an alternative: mode and count."""
    filled = _tolerant(request)
    if filled.get("allocationMode") in (None, ""):
        filled["allocationMode"] = "ExactCount"
    if filled["allocationMode"] == "ExactCount" and filled.get("count") in (None, 0):
        filled["count"] = 1
    return filled


def _tolerant(holder: Object) -> dict[str, object]:
    """Defaults of the tolerations of a request or a result."""
    return _each(holder, "tolerations", lambda entry: _filled(entry, "operator", "Equal"))


def _filled(parent: Object, field: str, value: str) -> dict[str, object]:
    return {**parent, field: value} if parent.get(field) in (None, "") else dict(parent)


def _dated(taint: Object, now: str | None) -> dict[str, object]:
    return dict(taint) if now is None else _filled(taint, "timeAdded", now)


def _slice_defaults(spec: Object, now: str | None) -> dict[str, object]:
    def mappings(resources: Object) -> dict[str, object]:
        return {
            name: _filled(mapping, "allocationMultiplier", "1") if isinstance(mapping, Mapping) else mapping
            for name, mapping in resources.items()
        }

    def device(entry: Object) -> Object:
        if "nodeAllocatableResourceMappings" not in entry and "taints" not in entry:
            return entry
        mapped = _at(entry, ("nodeAllocatableResourceMappings",), mappings)
        return _each(mapped, "taints", lambda taint: _dated(taint, now))

    return _each(spec, "devices", device)
