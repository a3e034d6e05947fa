"""The type of every field from which an answer is made.

Code that reasons about objects relies on their types, as a server's client may: a count that is a text would end in a
traceback far from its line. So files are checked here, once, before anything uses them. Rules beyond types (lengths,
names, numbers of items) belong to ``scheduling.api.validation``. Unlisted fields are ignored. A quantity that is
written as a number becomes a text in place, which is the only form the API server knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from kube.bodies import Json, JsonObject
from ostler.explain.yaml_objects import FieldPath
from scheduling.explain.state import Kind

Shape = object
"""A type (str, int, bool), ``QuantityShape``, ``Required`` or ``MappingOf`` a shape, a list with the one shape of its
items, or a dict of the shapes of known fields."""


class QuantityShape:
    """A text, or a number."""


@dataclass(frozen=True, slots=True)
class Required:
    """A required field that must not be empty."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class MappingOf:
    """A mapping with any keys, whose values all have one shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Misfit:
    """A field without its type: ``path`` from the object's top."""

    path: FieldPath
    problem: str
    fix: str


def _texts(names: str) -> dict[str, Shape]:
    """Several fields that hold texts."""
    return dict.fromkeys(names.split(), str)


def _needed(names: str) -> dict[str, Shape]:
    """Several texts that must be there."""
    return dict.fromkeys(names.split(), Required(str))


_LABELS = MappingOf(str)
_META = Required({**_texts("name namespace uid generateName"), "labels": _LABELS, "annotations": _LABELS})
_REQUIREMENTS = [{**_needed("key operator"), "values": [str]}]
_NODE_SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}]}
_NODES = {"nodeName": str, "nodeSelector": _NODE_SELECTOR, "allNodes": bool}
_TAINT = _texts("key value effect timeAdded")
_TOLERATION = {**_texts("key value effect operator"), "tolerationSeconds": int}
_CONDITION = _texts("type status reason message")
_BINDING: dict[str, Shape] = {"bindingConditions": [str], "bindingFailureConditions": [str]}
_ATTRIBUTE = {
    "int": int, "bool": bool, "string": str, "version": str,
    "ints": [int], "bools": [bool], "strings": [str], "versions": [str],
}  # fmt: skip
_POLICY = {
    "default": QuantityShape,
    "validValues": [QuantityShape],
    "validRange": dict.fromkeys(("min", "max", "step"), QuantityShape),
}
_COUNTERS = MappingOf({"value": QuantityShape})
_DEVICE = {
    "name": Required(str),
    "attributes": MappingOf(_ATTRIBUTE),
    "capacity": MappingOf({"value": QuantityShape, "requestPolicy": _POLICY}),
    "consumesCounters": [{"counterSet": Required(str), "counters": _COUNTERS, "compatibilityGroups": [str]}],
    **_NODES,
    "taints": [_TAINT],
    "bindsToNode": bool,
    **_BINDING,
    "allowMultipleAllocations": bool,
}
_SLICE = {
    "driver": Required(str),
    "pool": Required({"name": Required(str), "generation": int, "resourceSliceCount": int}),
    **_NODES,
    "perDeviceNodeSelection": bool,
    "devices": [_DEVICE],
    "sharedCounters": [{"name": Required(str), "counters": _COUNTERS}],
}
_SELECTORS = [{"cel": {"expression": str}}]
_SUB_REQUEST = {
    **_texts("name deviceClassName"),
    "selectors": _SELECTORS,
    "allocationMode": str,
    "count": int,
    "tolerations": [_TOLERATION],
    "capacity": {"requests": MappingOf(QuantityShape)},
}
_OPAQUE = {"driver": str}
_DEVICE_CLAIM = {
    "requests": [
        {"name": Required(str), "exactly": {**_SUB_REQUEST, "adminAccess": bool}, "firstAvailable": [_SUB_REQUEST]}
    ],
    "constraints": [{"requests": [str], **_texts("matchAttribute distinctAttribute")}],
    "config": [{"requests": [str], "opaque": _OPAQUE}],
}
_RESULT = {
    **_needed("request driver pool device"),
    "adminAccess": bool,
    "tolerations": [_TOLERATION],
    "shareID": str,
    "consumedCapacity": MappingOf(QuantityShape),
    **_BINDING,
}
_CLAIM_STATUS = {
    "allocation": {"devices": {"results": [_RESULT]}, "nodeSelector": _NODE_SELECTOR},
    "reservedFor": [_texts("resource name uid apiGroup")],
    "devices": [{**_texts("driver pool device shareID"), "conditions": [_CONDITION]}],
}
_CONTAINERS = [
    {"name": Required(str), "resources": {"requests": MappingOf(QuantityShape), "limits": MappingOf(QuantityShape)}}
]
_POD_SPEC = {
    "nodeName": str,
    "nodeSelector": _LABELS,
    "schedulerName": str,
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _NODE_SELECTOR}},
    "tolerations": [_TOLERATION],
    "containers": _CONTAINERS,
    "initContainers": _CONTAINERS,
    "resourceClaims": [{"name": Required(str), **_texts("resourceClaimName resourceClaimTemplateName")}],
}
_POD_STATUS = {
    "phase": str,
    "conditions": [_CONDITION],
    "resourceClaimStatuses": [{"name": Required(str), "resourceClaimName": str}],
    "extendedResourceClaimStatus": {"resourceClaimName": str},
}
SHAPES: Mapping[Kind, Mapping[str, Shape]] = {
    Kind.SLICE: {"metadata": _META, "spec": Required(_SLICE)},
    Kind.CLAIM: {"metadata": _META, "spec": Required({"devices": _DEVICE_CLAIM}), "status": _CLAIM_STATUS},
    Kind.TEMPLATE: {"metadata": _META, "spec": Required({"spec": Required({"devices": _DEVICE_CLAIM})})},
    Kind.CLASS: {
        "metadata": _META,
        "spec": {"selectors": _SELECTORS, "config": [{"opaque": _OPAQUE}], "extendedResourceName": str},
    },
    Kind.TAINT_RULE: {
        "metadata": _META,
        "spec": Required({"deviceSelector": _texts("driver pool device"), "taint": Required(_TAINT)}),
    },
    Kind.NODE: {
        "metadata": _META,
        "spec": {"taints": [_TAINT], "unschedulable": bool},
        "status": {"conditions": [_CONDITION], "allocatable": MappingOf(QuantityShape)},
    },
    Kind.POD: {"metadata": _META, "spec": Required(_POD_SPEC), "status": _POD_STATUS},
}

_WORDS = {str: "a string", int: "a whole number", bool: "true or false", QuantityShape: "a quantity such as 40Gi"}


def misfits(kind: Kind, body: JsonObject) -> Iterator[Misfit]:
    """Every part of an object with a wrong type; quantities become texts in passing."""
    # Nearly all objects fit, and that alone is known in half the time.
    if not _fitting(kind)(body):
        yield from _fields(SHAPES[kind], body, ())


_Fitting = Callable[[Json], bool]
"""Whether a value has a shape, and all its quantities are texts."""


@cache
def _fitting(kind: Kind) -> _Fitting:
    return _fitting_shape(SHAPES[kind])


def _fitting_shape(shape: Shape) -> _Fitting:
    if isinstance(shape, type):
        wanted = str if shape is QuantityShape else shape
        return lambda value: type(value) is wanted
    if isinstance(shape, MappingOf):
        fits_value = _fitting_shape(shape.shape)
        return lambda value: type(value) is dict and all(map(fits_value, value.values()))
    if isinstance(shape, list):
        fits_item = _fitting_shape(shape[0])
        return lambda value: type(value) is list and all(map(fits_item, value))
    assert isinstance(shape, dict)
    return _fitting_fields(shape)


def _fitting_fields(shape: Mapping[str, Shape]) -> _Fitting:
    needed = [key for key, inner in shape.items() if isinstance(inner, Required)]
    known = {key: _fitting_shape(inner.shape if isinstance(inner, Required) else inner) for key, inner in shape.items()}

    def fits(value: Json) -> bool:
        if type(value) is not dict:
            return False
        for key in needed:
            if value.get(key) in (None, ""):
                return False
        for key, inner in value.items():
            fits_field = known.get(key)
            if fits_field is not None and inner is not None and not fits_field(inner):
                return False
        return True

    return fits


def _fields(shape: Mapping[str, Shape], body: JsonObject, path: FieldPath) -> Iterator[Misfit]:
    for key, inner in shape.items():
        value = body.get(key)
        if isinstance(inner, Required):
            if value is None or value == "":
                yield Misfit((*path, key), "is missing", f"give {_wanted(inner.shape)}")
                continue
            inner = inner.shape  # noqa: PLW2901 - the shape that is needed
        if value is not None:
            yield from _value(inner, value, body, key, path)


def _value(shape: Shape, value: Json, holder: Json, key: str | int, path: FieldPath) -> Iterator[Misfit]:
    if isinstance(shape, type):
        if type(value) is shape:
            return
        if shape is QuantityShape and type(value) in (str, int, float):
            if not isinstance(value, str):
                holder[key] = str(value)  # type: ignore[index]  # what holds a value has its key
            return
    elif isinstance(shape, MappingOf):
        if isinstance(value, dict):
            for name, one in value.items():
                yield from _value(shape.shape, one, value, name, (*path, key))
            return
    elif isinstance(shape, dict):
        if isinstance(value, dict):
            yield from _fields(shape, value, (*path, key))
            return
    elif isinstance(shape, list) and isinstance(value, list):
        for number, one in enumerate(value):
            yield from _value(shape[0], one, value, number, (*path, key))
        return
    yield Misfit((*path, key), f"must be {_wanted(shape)}, but is {_found(value)}", f"write {_example(shape, value)}")


def _wanted(shape: Shape) -> str:
    if isinstance(shape, type):
        return _WORDS[shape]
    return "a list" if isinstance(shape, list) else "a mapping"


def _found(value: Json) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    return "a list" if isinstance(value, list) else "a mapping"


def _example(shape: Shape, value: Json) -> str:
    if shape is str and isinstance(value, (bool, int, float)):
        return "it in quotes"
    if shape in (int, bool) and isinstance(value, str):
        return "it without quotes" if value.lstrip("-").isdigit() or value in ("true", "false") else _wanted(shape)
    if isinstance(shape, list):
        return "its items, each after '- '"
    return "'key: value' lines below it" if not isinstance(shape, type) else _wanted(shape)
