"""What can go wrong in an allocation, apart from "does not fit".

`FatalError` concerns the claims, their classes or a device as such: no other node can help, the scheduler gives the pod
up until something changes. `NodeError` concerns one node. `GaveUp` says that the caller's patience ended before the
search. Each names the object and the field at fault, so that a caller can tell its owner.
"""

from __future__ import annotations

from dataclasses import dataclass


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
