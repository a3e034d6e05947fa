"""Values behave as frozen, slotted dataclasses do."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from inspect import signature

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.values import Record, Value, quick, record, remembers, value


@value
class Point(Value):
    x: int
    y: int = 0
    tags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


@value
class Other(Value):
    x: int
    y: int = 0
    tags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


@quick
@value
class Quick(Value):
    x: int
    y: int = 0
    tags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


@value
class _Nothing(Value):
    pass


@dataclass(frozen=True, slots=True)
class _Reference:
    x: int
    y: int = 0
    tags: tuple[str, ...] = ()


def test_defaults_are_those_of_the_class_and_factories_run_each_time() -> None:
    first, second = Point(1), Point(1)
    assert (first.x, first.y, first.tags, first.notes) == (1, 0, (), [])
    assert first.notes is not second.notes
    assert Point(1, notes=["a"]).notes == ["a"]


def test_nothing_can_be_changed_added_or_deleted() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'z'"):
        point.z = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_a_class_tells_its_parameters_before_the_first_value_is_made() -> None:
    @value
    class Fresh(Value):
        """Documented."""

        x: int
        y: int = 0

        @property
        def double(self) -> int:
            return 2 * self.x

    assert str(signature(Fresh)) == "(x, y=0)"
    assert (Fresh.__doc__, Fresh.__name__, Fresh.__module__) == ("Documented.", "Fresh", __name__)
    assert Fresh(x=4).double == 8
    assert is_dataclass(Fresh)


def test_values_of_different_classes_are_not_equal() -> None:
    assert Point(1) != Other(1)
    assert Point(1) != (1, 0, (), [])
    assert _Nothing() == _Nothing()
    assert hash(_Nothing()) == hash(_Nothing())


def test_arguments_that_do_not_fit_are_errors_that_name_them() -> None:
    with pytest.raises(TypeError, match="Point: missing a required argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Point: got an unexpected keyword argument 'z'"):
        Point(1, z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Point: multiple values for argument 'x'"):
        Point(1, x=2)  # type: ignore[misc]
    with pytest.raises(TypeError, match="Point: too many positional arguments"):
        Point(1, 2, (), [], 5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Nothing: too many positional arguments"):
        _Nothing(*(1,))


def test_fields_replace_and_print_work_as_with_dataclasses() -> None:
    assert [each.name for each in fields(Point)] == ["x", "y", "tags", "notes"]
    assert replace(Point(1, tags=("a",)), y=5) == Point(1, 5, ("a",))
    assert repr(Point(1, 2)) == "Point(x=1, y=2, tags=(), notes=[])"


triples = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([(), ("a",)]))


@given(triples, triples)
def test_equality_and_hash_agree_with_dataclasses(
    one: tuple[int, int, tuple[str, ...]], two: tuple[int, int, tuple[str, ...]]
) -> None:
    assert (Point(*one) == Point(*two)) == (_Reference(*one) == _Reference(*two))
    hashed = [(triple[0], triple[1], triple[2]) for triple in (one, two)]
    same = hash(Point(*hashed[0], notes=())) == hash(Point(*hashed[1], notes=()))  # type: ignore[arg-type]
    assert same == (one == two)


@given(triples, st.booleans())
def test_a_quick_class_makes_the_same_values_by_place_and_by_name(
    triple: tuple[int, int, tuple[str, ...]], by_name: bool
) -> None:
    x, y, tags = triple
    made = Quick(tags=tags, y=y, x=x) if by_name else Quick(*triple)
    assert (made.x, made.y, made.tags, made.notes) == (x, y, tags, [])
    assert made == Quick(x, y, tags)
    assert replace(made, y=5) == Quick(x, 5, tags)
    assert made != Point(x, y, tags)


def test_a_quick_class_has_defaults_and_refuses_what_does_not_fit() -> None:
    first, second = Quick(1), Quick(1)
    assert first.notes is not second.notes
    assert Quick(1, notes=["a"]).notes == ["a"]
    assert str(signature(Quick)).startswith("(x, y=0, tags=()")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Quick(1, z=2)  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        first.x = 2  # type: ignore[misc]


def test_a_quick_record_can_be_changed() -> None:
    @quick
    @record
    class Counter(Record):
        count: int = 0

    counter = Counter()
    counter.count += 1
    assert (counter.count, Counter().count) == (1, 0)


def test_a_function_that_remembers_is_not_called_again_for_equal_arguments() -> None:
    asked: list[tuple[Point, int]] = []

    @remembers
    def moved(point: Point, by: int) -> Point:
        asked.append((point, by))
        return replace(point, x=point.x + by)

    first = moved(Point(1), 2)
    assert moved(Point(1), 2) is first
    assert moved(Point(1), 3) == Point(4)
    assert asked == [(Point(1), 2), (Point(1), 3)]
    for number in range(10, 14):
        moved(Point(number), 0)
    assert moved(Point(1), 2) == first
    assert len(asked) == 7
