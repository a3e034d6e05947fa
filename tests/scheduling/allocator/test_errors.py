"""Errors say which field of which object is wrong."""

from __future__ import annotations

import pytest

from scheduling.allocator.reading import (
    AllocationError,
    FatalError,
    GaveUp,
    InvalidObject,
    MissingClass,
    NodeError,
    ObjectReference,
)


def test_object_is_written_with_its_namespace_if_it_has_one() -> None:
    assert str(ObjectReference("ResourceClaim", "gpu", "team")) == "ResourceClaim team/gpu"
    assert str(ObjectReference("DeviceClass", "gpu.example.com")) == "DeviceClass gpu.example.com"


def test_error_names_object_field_and_what_is_wrong() -> None:
    error = FatalError(ObjectReference("ResourceClaim", "gpu", "team"), "spec.devices", "is empty")
    assert str(error) == "ResourceClaim team/gpu: spec.devices: is empty"
    assert (error.object.name, error.field, error.message) == ("gpu", "spec.devices", "is empty")


def test_error_without_a_field_names_the_object() -> None:
    assert str(NodeError(ObjectReference("Node", "node-1"), "", "is full")) == "Node node-1: is full"


def test_missing_class_is_named() -> None:
    error = MissingClass(ObjectReference("ResourceClaim", "gpu"), "spec.x", "big")
    assert str(error) == 'ResourceClaim gpu: spec.x: there is no DeviceClass "big"'
    assert error.name == "big"


@pytest.mark.parametrize("kind", [InvalidObject, MissingClass])
def test_what_is_wrong_on_every_node_is_fatal(kind: type[AllocationError]) -> None:
    assert issubclass(kind, FatalError)


@pytest.mark.parametrize("kind", [NodeError, GaveUp])
def test_what_another_node_or_more_patience_may_mend_is_not_fatal(kind: type[AllocationError]) -> None:
    assert issubclass(kind, AllocationError)
    assert not issubclass(kind, FatalError)
