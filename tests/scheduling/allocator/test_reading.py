"""Fields of objects that may have any shape; errors name the object and the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduling.allocator.reading import (
    AllocationError,
    FatalError,
    GaveUp,
    InvalidObject,
    MissingClass,
    NodeError,
    ObjectReference,
    Part,
    reference,
)

OWNER = ObjectReference("ResourceSlice", "one")
Reader = Callable[[Part, str], object]

DEEP: list[Any] = []
for _ in range(5_000):
    DEEP = [DEEP]
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("reader", "empty"),
    [
        (Part.mapping, {}),
        (Part.named, {}),
        (Part.parts, []),
        (Part.strings, ()),
        (Part.string, ""),
        (Part.boolean, False),
        (Part.integer, 0),
    ],
)
def test_absent_and_null_are_empty(reader: Reader, empty: object) -> None:
    assert reader(Part(OWNER, {}, "spec"), "field") == empty
    assert reader(Part(OWNER, {"field": None}, "spec"), "field") == empty


@pytest.mark.parametrize(
    ("reader", "value", "message"),
    [
        (Part.mapping, [1], "spec.field: [1] is not an object"),
        (Part.mapping, "x", "spec.field: 'x' is not an object"),
        (Part.named, {"a": 1}, "spec.field[a]: 1 is not an object"),
        (Part.named, {1: {}}, "spec.field[1]: 1 is not a name (in quotes, if it looks like a number)"),
        (Part.parts, {"a": 1}, "spec.field: {'a': 1} is not a list"),
        (Part.parts, [{}, 2], "spec.field[1]: 2 is not an object"),
        (Part.strings, "abc", "spec.field: 'abc' is not a list of strings"),
        (Part.strings, ["a", None], "spec.field[1]: None is not a string"),
        (
            Part.string,
            1,
            "spec.field: 1 is not a string (in quotes, if it looks like a number or like true or false)",
        ),
        (Part.boolean, "yes", "spec.field: 'yes' is not true or false"),
        (Part.boolean, 1, "spec.field: 1 is not true or false"),
        (Part.integer, "1", "spec.field: '1' is not a whole number"),
        (Part.integer, 1.0, "spec.field: 1.0 is not a whole number"),
        (Part.integer, True, "spec.field: True is not a whole number"),
        (Part.integer, 2**63, "spec.field: 9223372036854775808 is not a whole number of 64 bits"),
        pytest.param(
            Part.integer,
            10**5_000,
            "spec.field: a number of 16610 bits is not a whole number of 64 bits",
            id="more digits than Python writes",
        ),
    ],
)
def test_value_of_another_type_is_named_with_its_field(reader: Reader, value: object, message: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        reader(Part(OWNER, {"field": value}, "spec"), "field")
    assert str(caught.value) == f"ResourceSlice one: {message}"
    assert caught.value.object is OWNER


@pytest.mark.parametrize("limit", [-(2**63), 2**63 - 1])
def test_whole_numbers_have_64_bits(limit: int) -> None:
    assert Part(OWNER, {"field": limit}, "spec").integer("field") == limit


@pytest.mark.parametrize(
    "value", [DEEP, ENDLESS, ["x" * 10_000], list(range(10_000))], ids=["deep", "endless", "long text", "long list"]
)
def test_long_or_deep_value_is_shown_in_short(value: object) -> None:
    with pytest.raises(InvalidObject) as caught:
        Part(OWNER, {"field": value}, "spec").string("field")
    assert len(str(caught.value)) < 250


def test_quantity_is_a_text_or_a_number_and_absent_is_zero() -> None:
    assert Part(OWNER, {"field": "1Gi"}, "spec").quantity("field").nanos == 2**30 * 10**9
    assert Part(OWNER, {"field": 5}, "spec").quantity("field").nanos == 5 * 10**9
    assert Part(OWNER, {"field": None}, "spec").quantity("field").nanos == 0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, 'spec.field: True is not a quantity like "80Gi"'),
        (["1"], "spec.field: ['1'] is not a quantity like "),
        ("80 Gb", 'spec.field: "80 Gb" is not a quantity: '),
        (float("nan"), 'spec.field: "nan" is not a quantity: '),
    ],
)
def test_what_is_no_quantity_is_named(value: object, message: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        Part(OWNER, {"field": value}, "spec").quantity("field")
    assert str(caught.value).startswith(f"ResourceSlice one: {message}")


@pytest.mark.parametrize(
    ("obj", "called"),
    [
        ({"metadata": {"name": "a", "namespace": "b"}}, "Claim b/a"),
        ({"metadata": {"name": "a"}}, "Claim a"),
        ({"metadata": {"name": None}}, "Claim "),
        ({"metadata": {"name": 5}}, "Claim 5"),
        ({"metadata": "x"}, "Claim "),
        ({}, "Claim "),
    ],
)
def test_object_is_called_by_what_its_metadata_say_if_they_say_anything(obj: dict[str, Any], called: str) -> None:
    assert str(reference("Claim", obj)) == called


def test_object_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidObject, match=r"^Claim : \['a'\] is not an object$"):
        reference("Claim", ["a"])  # type: ignore[arg-type]


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
