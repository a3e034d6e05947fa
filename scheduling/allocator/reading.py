"""Reads the fields of objects that come from YAML or JSON, and defines the errors of an allocation.

Objects from an API server always have the right shape; those from a file may have any. Every reader here either returns
what the API promises or raises `InvalidObject`, which names object, field, value and the type that belongs there.

`FatalError` concerns the claims, their classes or a device as such: no other node can help, and the scheduler gives the
pod up until something changes. `NodeError` concerns one node. `GaveUp` says that the caller's patience ended before the
search. "Does not fit" is not an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from scheduling.api import quantities
from scheduling.api.excerpts import shown
from scheduling.api.int64 import is_int64
from scheduling.api.quantities import Quantity, QuantityError

_T = TypeVar("_T")
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


class Part:
    """An object or a part of one, with the object's reference and the part's path for messages.

    Every method reads a field; null is as absent. Raises `InvalidObject` where the field is of another type.
    """

    __slots__ = ("object", "owner", "path")

    def __init__(self, owner: ObjectReference, obj: Object, path: str = "") -> None:
        """`path` leads from the owner to this part; it is empty for the whole object."""
        self.owner = owner
        self.object = obj
        self.path = path

    @staticmethod
    def whole(kind: str, obj: Object) -> Part:
        """An object of this kind."""
        return Part(reference(kind, obj), obj)

    def at(self, field: str) -> str:
        """The path of a field."""
        return f"{self.path}.{field}" if self.path else field

    def has(self, field: str) -> bool:
        """Whether the field is there."""
        return self.object.get(field) is not None

    def mapping(self, field: str) -> Object:
        """A field that holds an object; absent is empty."""
        value = self.object.get(field)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.wrong(field, value, "an object")
        return value

    def part(self, field: str) -> Part:
        """The same, to read on."""
        return Part(self.owner, self.mapping(field), self.at(field))

    def named(self, field: str) -> dict[str, Part]:
        """A field that holds objects by name; absent is empty."""
        path, found = self.at(field), {}
        for key, each in self.mapping(field).items():
            if not isinstance(key, str):
                raise wrong(self.owner, f"{path}[{shown(key)}]", key, "a name (in quotes, if it looks like a number)")
            if not isinstance(each, Mapping):
                raise wrong(self.owner, f"{path}[{key}]", each, "an object")
            found[key] = Part(self.owner, each, f"{path}[{key}]")
        return found

    def parts(self, field: str) -> list[Part]:
        """A field that holds a list of objects; absent is empty."""
        path, found = self.at(field), []
        for index, each in enumerate(self._list(field, "a list")):
            if not isinstance(each, Mapping):
                raise wrong(self.owner, f"{path}[{index}]", each, "an object")
            found.append(Part(self.owner, each, f"{path}[{index}]"))
        return found

    def strings(self, field: str) -> Sequence[str]:
        """A field that holds a list of strings; absent is empty."""
        values = self._list(field, "a list of strings")
        for index, each in enumerate(values):
            if not isinstance(each, str):
                raise wrong(self.owner, f"{self.at(field)}[{index}]", each, "a string")
        return values

    def string(self, field: str) -> str:
        """A field that holds a string; absent is empty."""
        return self._value(field, str, "", "a string (in quotes, if it looks like a number or like true or false)")

    def boolean(self, field: str) -> bool:
        """A field that holds true or false; absent is false."""
        return self._value(field, bool, False, "true or false")

    def integer(self, field: str) -> int:
        """A field that holds a whole number; absent is 0."""
        value = self._value(field, int, 0, "a whole number")
        if isinstance(value, bool):
            raise self.wrong(field, value, "a whole number")
        if not is_int64(value):
            raise self.wrong(field, value, "a whole number of 64 bits")
        return value

    def quantity(self, field: str) -> Quantity:
        """A field that holds a quantity; absent is 0."""
        return quantity(self.owner, self.object.get(field), self.at(field))

    def quantities(self, field: str) -> dict[str, Quantity]:
        """A field that holds quantities by name; absent is empty."""
        path = self.at(field)
        return {key: quantity(self.owner, value, f"{path}[{key}]") for key, value in self.mapping(field).items()}

    def wrong(self, field: str, value: object, wanted: str) -> InvalidObject:
        """The error for a field whose value is of another type."""
        return wrong(self.owner, self.at(field), value, wanted)

    def _value(self, field: str, type_: type[_T], empty: _T, wanted: str) -> _T:
        value = self.object.get(field)
        if value is None:
            return empty
        if not isinstance(value, type_):
            raise self.wrong(field, value, wanted)
        return value

    def _list(self, field: str, wanted: str) -> Sequence[Any]:
        value = self.object.get(field)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self.wrong(field, value, wanted)
        return value


def reference(kind: str, obj: Object) -> ObjectReference:
    """What an object is called in messages; tolerates one without metadata. Raises `InvalidObject` for no object."""
    if not isinstance(obj, Mapping):
        raise wrong(ObjectReference(kind, ""), "", obj, "an object")
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        return ObjectReference(kind, "")
    return ObjectReference(kind, _called(metadata.get("name")), _called(metadata.get("namespace")))


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
