"""The types of resource.k8s.io/v1 in Kubernetes 1.36, with the parts of core and meta that they are made of.

A type says what the API server's decoder accepts, what it writes back, and when two values are the same. Fields that
came later are unknown here, as they are to an API server of that version. Types are data, not classes, so that one
small walker each serves reading, writing and comparing (`decoding`).

Invariants: a decoded object is a tree of plain dicts and lists in which absent fields and nulls are missing, unknown
fields are gone, and quantities are `Quantity`; a written empty list or mapping stays, because some rules distinguish it
from none.

The gates say which optional features of the API server are on: they decide which fields it keeps and which rules apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True)
class Gates:
    """Feature gates by their upstream names; the defaults are those of Kubernetes 1.36."""

    device_taints: bool = True  # DRADeviceTaints, KEP-5055
    partitionable_devices: bool = True  # DRAPartitionableDevices, KEP-4815
    consumable_capacity: bool = True  # DRAConsumableCapacity, KEP-5075
    binding_conditions: bool = True  # DRADeviceBindingConditions, KEP-5007
    prioritized_list: bool = True  # DRAPrioritizedList, KEP-4816
    admin_access: bool = True  # DRAAdminAccess, KEP-5018
    extended_resource: bool = True  # DRAExtendedResource, KEP-5004
    device_status: bool = True  # DRAResourceClaimDeviceStatus, KEP-4817
    list_attributes: bool = False  # DRAListTypeAttributes, KEP-5491
    node_allocatable_resources: bool = False  # DRANodeAllocatableResources, KEP-5517


DEFAULT = Gates()


class Scalar(Enum):
    """A type without parts; the value says in words what is accepted."""

    TEXT = "a string"
    INTEGER = "a whole number of 64 bits"
    FLAG = "true or false"
    QUANTITY = "a quantity such as 500m or 8Gi"
    TIME = "a time in the form of RFC 3339, such as 2026-01-31T12:00:00Z"
    RAW = "plain JSON: no dates, no not-a-number, no loops, at most 200 levels deep"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list."""

    item: Type


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with names of the user's choice."""

    item: Type


@dataclass(frozen=True, slots=True)
class Shape:
    """A mapping with fixed fields."""

    fields: Mapping[str, Field]


Type = Scalar | ListOf | MapOf | Shape


class Written(Enum):
    """When the API server writes a field."""

    ALWAYS = "always"  # absence is written as the zero value: "", 0, null for lists and pointers
    FILLED = "filled"  # unless it holds the zero value, or nothing
    SET = "set"  # if it was set, whatever it holds


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a shape. A pointer tells "absent" from the zero value."""

    type: Type
    written: Written
    pointer: bool = False


TEXT, INTEGER, FLAG = Scalar.TEXT, Scalar.INTEGER, Scalar.FLAG
TEXT, INTEGER, FLAG = Scalar.TEXT, Scalar.INTEGER, Scalar.FLAG
TEXT, INTEGER, FLAG = Scalar.TEXT, Scalar.INTEGER, Scalar.FLAG
QUANTITY, TIME, RAW = Scalar.QUANTITY, Scalar.TIME, Scalar.RAW
QUANTITY, TIME, RAW = Scalar.QUANTITY, Scalar.TIME, Scalar.RAW
QUANTITY, TIME, RAW = Scalar.QUANTITY, Scalar.TIME, Scalar.RAW


def always(type_: Type) -> Field:
    """A field that is written even if it holds nothing."""
    return Field(type_, Written.ALWAYS)


def filled(type_: Type) -> Field:
    """A field that is written if it holds something."""
    return Field(type_, Written.FILLED)


def pointer(type_: Type) -> Field:
    """A field that is written if it was set."""
    return Field(type_, Written.SET, pointer=True)


def zero(type_: Type) -> object:
    """What an absent value of a type is: "", 0, false, no entries; None where there is none."""
    if isinstance(type_, Shape | MapOf):
        return {}
    if isinstance(type_, ListOf):
        return []
    return {TEXT: "", INTEGER: 0, FLAG: False}.get(type_)


API_VERSION: Final = "resource.k8s.io/v1"


def _fields(make: Callable[[Type], Field], type_: Type, names: str) -> dict[str, Field]:
    """Several fields of one type that are written alike."""
    return dict.fromkeys(names.split(), make(type_))


def _object(spec: Shape, status: Shape | None = None) -> Shape:
    top = {**_fields(filled, TEXT, "apiVersion kind"), "metadata": always(METADATA), "spec": always(spec)}
    return Shape(top if status is None else {**top, "status": always(status)})


_TEXTS: Final = ListOf(TEXT)
_OWNER: Final = Shape(
    {**_fields(always, TEXT, "apiVersion kind name uid"), **_fields(pointer, FLAG, "controller blockOwnerDeletion")}
)
METADATA: Final = Shape(
    {
        **_fields(filled, TEXT, "name generateName namespace selfLink uid resourceVersion"),
        "generation": filled(INTEGER),
        **_fields(pointer, TIME, "creationTimestamp deletionTimestamp"),
        "deletionGracePeriodSeconds": pointer(INTEGER),
        **_fields(filled, MapOf(TEXT), "labels annotations"),
        "ownerReferences": filled(ListOf(_OWNER)),
        "finalizers": filled(_TEXTS),
        "managedFields": filled(ListOf(Shape(_fields(filled, TEXT, "manager operation")))),
    }
)

_REQUIREMENT: Final = Shape({**_fields(always, TEXT, "key operator"), "values": filled(_TEXTS)})
_TERM: Final = Shape(_fields(filled, ListOf(_REQUIREMENT), "matchExpressions matchFields"))
NODE_SELECTOR: Final = Shape({"nodeSelectorTerms": always(ListOf(_TERM))})

CONDITION: Final = Shape(
    {
        **_fields(always, TEXT, "type status"),
        "observedGeneration": filled(INTEGER),
        "lastTransitionTime": always(TIME),
        **_fields(always, TEXT, "reason message"),
    }
)

_TAINT: Final = Shape({"key": always(TEXT), "value": filled(TEXT), "effect": always(TEXT), "timeAdded": pointer(TIME)})
_TOLERATION: Final = Shape(
    {**_fields(filled, TEXT, "key operator value effect"), "tolerationSeconds": pointer(INTEGER)}
)

_COUNTERS: Final = filled(MapOf(Shape({"value": always(QUANTITY)})))
_ATTRIBUTE: Final = Shape(
    {
        "int": pointer(INTEGER),
        "bool": pointer(FLAG),
        **_fields(pointer, TEXT, "string version"),
        "ints": filled(ListOf(INTEGER)),
        "bools": filled(ListOf(FLAG)),
        **_fields(filled, _TEXTS, "strings versions"),
    }
)
_POLICY: Final = Shape(
    {
        "default": Field(QUANTITY, Written.ALWAYS, pointer=True),
        "validValues": filled(ListOf(QUANTITY)),
        "validRange": pointer(Shape(_fields(pointer, QUANTITY, "min max step"))),
    }
)
_NODES: Final = {"nodeName": pointer(TEXT), "nodeSelector": pointer(NODE_SELECTOR), "allNodes": pointer(FLAG)}
_BINDING: Final = _fields(filled, _TEXTS, "bindingConditions bindingFailureConditions")
DEVICE: Final = Shape(
    {
        "name": always(TEXT),
        "attributes": filled(MapOf(_ATTRIBUTE)),
        "capacity": filled(MapOf(Shape({"value": always(QUANTITY), "requestPolicy": pointer(_POLICY)}))),
        "consumesCounters": filled(ListOf(Shape({"counterSet": always(TEXT), "counters": _COUNTERS}))),
        **_NODES,
        "taints": filled(ListOf(_TAINT)),
        "bindsToNode": pointer(FLAG),
        **_BINDING,
        "allowMultipleAllocations": pointer(FLAG),
        "nodeAllocatableResourceMappings": filled(
            MapOf(Shape({"capacityKey": pointer(TEXT), "allocationMultiplier": pointer(QUANTITY)}))
        ),
    }
)
SLICE_SPEC: Final = Shape(
    {
        "driver": always(TEXT),
        "pool": always(Shape({"name": always(TEXT), **_fields(always, INTEGER, "generation resourceSliceCount")})),
        **_NODES,
        "devices": filled(ListOf(DEVICE)),
        "perDeviceNodeSelection": pointer(FLAG),
        "sharedCounters": filled(ListOf(Shape({"name": always(TEXT), "counters": _COUNTERS}))),
    }
)

SELECTORS: Final = ListOf(Shape({"cel": pointer(Shape({"expression": always(TEXT)}))}))
_OPAQUE: Final = pointer(Shape({"driver": always(TEXT), "parameters": always(RAW)}))
_EXACT: Final = {
    "deviceClassName": always(TEXT),
    "selectors": filled(SELECTORS),
    "allocationMode": filled(TEXT),
    "count": filled(INTEGER),
    "tolerations": filled(ListOf(_TOLERATION)),
    "capacity": pointer(Shape({"requests": filled(MapOf(QUANTITY))})),
}
_REQUEST: Final = Shape(
    {
        "name": always(TEXT),
        "exactly": pointer(Shape({**_EXACT, "adminAccess": pointer(FLAG)})),
        "firstAvailable": filled(ListOf(Shape({"name": always(TEXT), **_EXACT}))),
    }
)
_CONSTRAINT: Final = Shape({"requests": filled(_TEXTS), **_fields(pointer, TEXT, "matchAttribute distinctAttribute")})
_CLAIM_DEVICES: Final = Shape(
    {
        "requests": always(ListOf(_REQUEST)),
        "constraints": filled(ListOf(_CONSTRAINT)),
        "config": filled(ListOf(Shape({"requests": filled(_TEXTS), "opaque": _OPAQUE}))),
    }
)
CLAIM_SPEC: Final = Shape({"devices": always(_CLAIM_DEVICES)})

_RESULT: Final = Shape(
    {
        **_fields(always, TEXT, "request driver pool device"),
        "adminAccess": pointer(FLAG),
        "tolerations": filled(ListOf(_TOLERATION)),
        **_BINDING,
        "shareID": pointer(TEXT),
        "consumedCapacity": filled(MapOf(QUANTITY)),
    }
)
_RESULT_CONFIG: Final = Shape({"source": always(TEXT), "requests": filled(_TEXTS), "opaque": _OPAQUE})
ALLOCATION: Final = Shape(
    {
        "devices": always(Shape({"results": filled(ListOf(_RESULT)), "config": filled(ListOf(_RESULT_CONFIG))})),
        "nodeSelector": pointer(NODE_SELECTOR),
        "allocationTimestamp": pointer(TIME),
    }
)
_DEVICE_STATUS: Final = Shape(
    {
        **_fields(always, TEXT, "driver pool device"),
        "shareID": pointer(TEXT),
        "conditions": always(ListOf(CONDITION)),
        "data": pointer(RAW),
        "networkData": pointer(
            Shape({"interfaceName": filled(TEXT), "ips": filled(_TEXTS), "hardwareAddress": filled(TEXT)})
        ),
    }
)
_CONSUMER: Final = Shape({"apiGroup": filled(TEXT), **_fields(always, TEXT, "resource name uid")})
CLAIM_STATUS: Final = Shape(
    {
        "allocation": pointer(ALLOCATION),
        "reservedFor": filled(ListOf(_CONSUMER)),
        "devices": filled(ListOf(_DEVICE_STATUS)),
    }
)

CLASS_CONFIG: Final = ListOf(Shape({"opaque": _OPAQUE}))
CLASS_SPEC: Final = Shape(
    {"selectors": filled(SELECTORS), "config": filled(CLASS_CONFIG), "extendedResourceName": pointer(TEXT)}
)
TAINT_RULE_SPEC: Final = Shape(
    {"deviceSelector": pointer(Shape(_fields(pointer, TEXT, "driver pool device"))), "taint": always(_TAINT)}
)

BY_KIND: Final = {
    "ResourceSlice": _object(SLICE_SPEC),
    "ResourceClaim": _object(CLAIM_SPEC, CLAIM_STATUS),
    "ResourceClaimTemplate": _object(Shape({"metadata": always(METADATA), "spec": always(CLAIM_SPEC)})),
    "DeviceClass": _object(CLASS_SPEC),
    "DeviceTaintRule": _object(TAINT_RULE_SPEC, Shape({"conditions": filled(ListOf(CONDITION))})),
}
