"""Fields of objects as they come from YAML or JSON, with their type checked where it is relied on.

Objects from an API server always have the right shape; those from a file may have any. Every reader here either returns
what the API promises or raises `InvalidObject` with object, field, value and what belongs there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduling.allocator.errors import InvalidObject, ObjectReference
from scheduling.api import quantities
from scheduling.api.excerpts import shown
from scheduling.api.quantities import Quantity, QuantityError

Object = Mapping[str, Any]
"""A Kubernetes object or a part of one, as plain data."""


def reference(kind: str, obj: Object) -> ObjectReference:
    """What an object is called in messages; tolerates one without metadata. Raises `InvalidObject` for no object."""
    if not isinstance(obj, Mapping):
        raise wrong(ObjectReference(kind, ""), "", obj, "an object")
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        return ObjectReference(kind, "")
    return ObjectReference(kind, _called(metadata.get("name")), _called(metadata.get("namespace")))


def mapping(owner: ObjectReference, parent: Object, name: str, path: str) -> Object:
    """A field that holds an object; absent is empty."""
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong(owner, path, value, "an object")
    return value


def named(owner: ObjectReference, parent: Object, name: str, path: str) -> Mapping[str, Object]:
    """A field that holds objects by name; absent is empty."""
    value = mapping(owner, parent, name, path)
    for key, each in value.items():
        if not isinstance(key, str):
            raise wrong(owner, f"{path}[{shown(key)}]", key, "a name (in quotes, if it looks like a number)")
        if not isinstance(each, Mapping):
            raise wrong(owner, f"{path}[{key}]", each, "an object")
    return value


def objects(owner: ObjectReference, parent: Object, name: str, path: str) -> Sequence[Object]:
    """A field that holds a list of objects; absent is empty."""
    value = parent.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise wrong(owner, path, value, "a list")
    for index, each in enumerate(value):
        if not isinstance(each, Mapping):
            raise wrong(owner, f"{path}[{index}]", each, "an object")
    return value


def strings(owner: ObjectReference, parent: Object, name: str, path: str) -> Sequence[str]:
    """A field that holds a list of strings; absent is empty."""
    value = parent.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise wrong(owner, path, value, "a list of strings")
    for index, each in enumerate(value):
        if not isinstance(each, str):
            raise wrong(owner, f"{path}[{index}]", each, "a string")
    return value


def string(owner: ObjectReference, parent: Object, name: str, path: str) -> str:
    """A field that holds a string; absent is empty."""
    value = parent.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong(owner, path, value, "a string (in quotes, if it looks like a number or like true or false)")
    return value


def boolean(owner: ObjectReference, parent: Object, name: str, path: str) -> bool:
    """A field that holds true or false; absent is false."""
    value = parent.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise wrong(owner, path, value, "true or false")
    return value


def integer(owner: ObjectReference, parent: Object, name: str, path: str) -> int:
    """A field that holds a whole number; absent is 0."""
    value = parent.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(owner, path, value, "a whole number")
    if not -(2**63) <= value < 2**63:
        raise wrong(owner, path, value, "a whole number of 64 bits")
    return value


def quantity(owner: ObjectReference, value: object, path: str) -> Quantity:
    """A quantity, written as a string or as a bare number; absent is 0."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise wrong(owner, path, value, 'a quantity like "80Gi"')
    try:
        return quantities.of_json(value)
    except QuantityError as error:
        raise InvalidObject(owner, path, str(error)) from error


def wrong(owner: ObjectReference, path: str, value: object, wanted: str) -> InvalidObject:
    """The error for a value that is not what belongs there."""
    return InvalidObject(owner, path, f"{shown(value)} is not {wanted}")


def _called(name: object) -> str:
    return name if isinstance(name, str) else "" if name is None else shown(name)
