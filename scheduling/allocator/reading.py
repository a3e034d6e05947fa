"""Reads the fields of objects that come from YAML or JSON, and defines the errors of an allocation.

Objects from an API server always have the right shape; those from a file may have any. Every reader here either returns
what the API promises or raises `InvalidObject`, which names object, field, value and the type that belongs there.

`FatalError` concerns the claims, their classes or a device as such: no other node can help, and the scheduler gives the
pod up until something changes. `NodeError` concerns one node. `GaveUp` says that the caller's patience ended before the
search. "Does not fit" is no error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduling.api import quantities
from scheduling.api.excerpts import shown
from scheduling.api.quantities import Quantity, QuantityError

Object = Mapping[str, Any]
"""A Kubernetes object or a part of one, as plain data."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """A Kubernetes object; `namespace` is empty for those that have none."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """`ResourceClaim team/gpu`, `DeviceClass gpu.example.com`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class AllocationError(Exception):
    """An allocation that could not be tried, or not to its end."""

    def __init__(self, object: ObjectReference, field: str, message: str) -> None:  # noqa: A002 - the field's term
        """Say what is wrong with which field (a path as in the object, or empty) of which object."""
        super().__init__(f"{object}: {field}: {message}" if field else f"{object}: {message}")
        self.object = object
        self.field = field
        self.message = message


class FatalError(AllocationError):
    """Wrong on every node: invalid input, a class that is missing, a selector that fails."""


class InvalidObject(FatalError):
    """An object is not of the shape that its API has: a list where there must be a string, an unreadable quantity."""


class MissingClass(FatalError):
    """A request names a DeviceClass that does not exist."""

    def __init__(self, object: ObjectReference, field: str, name: str) -> None:  # noqa: A002 - the field's term
        super().__init__(object, field, f'there is no DeviceClass "{name}"')
        self.name = name


class NodeError(AllocationError):
    """Wrong on this node only: nothing was allocated and one of its pools is invalid."""


class GaveUp(AllocationError):
    """The caller's patience ended before the search did: neither a solution nor a proof that there is none."""


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
