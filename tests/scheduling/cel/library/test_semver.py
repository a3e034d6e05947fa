from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.cel.library.semver import Semver, SemverError, normalize, parse
from scheduling.cel.values import CelFault
from tests.making.cel import CALLS

identifiers = st.one_of(st.integers(0, 2**64 - 1), st.from_regex(r"[0-9]*[A-Za-z-][0-9A-Za-z-]*", fullmatch=True))
versions = st.builds(
    Semver,
    st.integers(0, 2**64 - 1),
    st.integers(0, 99),
    st.integers(0, 99),
    st.lists(identifiers, max_size=3).map(tuple),
    st.lists(st.from_regex(r"[0-9A-Za-z-]+", fullmatch=True), max_size=2).map(tuple),
)


@given(versions)
def test_a_version_is_read_as_it_is_written(version: Semver) -> None:
    read = parse(str(version))
    assert (read, read.build) == (version, version.build)


@given(versions, versions)
def test_order_and_equality_agree(one: Semver, other: Semver) -> None:
    assert one.compare(other) == -other.compare(one)
    assert (one == other) == (one.compare(other) == 0)
    assert one != other or hash(one) == hash(other)


def test_precedence_is_that_of_the_specification() -> None:
    prereleases = [f"1.0.0-{each}" for each in ("1", "2", "10", "a", "a.1", "a.b", "b")]
    order = [*prereleases, "1.0.0", "1.0.1", "1.1.0", "2.0.0"]
    assert all(parse(one).compare(parse(other)) == -1 for one, other in pairwise(order))


def test_build_metadata_has_no_part_in_equality() -> None:
    assert parse("1.0.0+a") == parse("1.0.0+b.2")
    assert parse("1.0.0+a").cel_equal(parse("1.0.0+b.2"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it must have the form MAJOR.MINOR.PATCH"),
        ("1.2", "it must have the form MAJOR.MINOR.PATCH"),
        ("v1.2.3", 'its major number "v1" must be digits'),
        ("1..2", 'its minor number "" must be digits'),
        ("01.2.3", 'its major number "01" must not begin with a zero'),
        ("1.2.03", 'its patch number "03" must not begin with a zero'),
        ("1.2.3-01", 'its prerelease number "01" must not begin with a zero'),
        ("1.2.3-", '"" in its prerelease must be letters, digits or hyphens'),
        ("1.2.3-a_b", '"a_b" in its prerelease must be letters, digits or hyphens'),
        ("1.2.3+", '"" in its build metadata must be letters, digits or hyphens'),
        ("1.2.3+a..b", '"" in its build metadata must be letters, digits or hyphens'),
        ("1.2.\u0663", 'its patch number "\u0663" must be digits'),
        ("18446744073709551616.0.0", "its major number must be below 2**64"),
        ("1.0.0-99999999999999999999999", "its prerelease number must be below 2**64"),
    ],
)
def test_what_is_no_version_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(SemverError) as caught:
        parse(text)
    assert str(caught.value) == f'"{text}" is not a semantic version: {reason}'


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1", "1.0.0"),
        ("1.2", "1.2.0"),
        ("v01.002.03", "1.2.3"),
        ("1.2.00", "1.2.0"),
        ("1.2.00-rc.01a", "1.2.0-rc.01a"),
        ("1.2.3-rc+b", "1.2.3-rc+b"),
    ],
)
def test_normalisation_forgives_a_prefix_zeros_and_missing_numbers(text: str, version: str) -> None:
    assert str(normalize(text)) == version


@pytest.mark.parametrize("text", ["", "v", "V1.2.3", " 1.2.3", "vv1", "1.2-rc", "1-rc", "1+b", "1.2.3.4"])
def test_normalisation_does_not_forgive_everything(text: str) -> None:
    with pytest.raises(SemverError):
        normalize(text)


def test_numbers_beyond_an_int_wrap_around() -> None:
    assert CALLS["semver_major"](parse("18446744073709551615.0.0")) == -1
    assert CALLS["semver_minor"](parse("1.2.3")) == 2
    assert CALLS["semver_patch"](parse("1.2.3")) == 3


def test_functions_read_and_compare() -> None:
    one, other = CALLS["string_to_semver"]("1.2.3"), CALLS["string_bool_to_semver"]("v1.3", True)
    assert CALLS["semver_compare_to"](one, other) == -1
    assert CALLS["semver_is_less_than"](one, other) is True
    assert CALLS["semver_is_greater_than"](one, other) is False
    assert CALLS["is_semver_string"]("1.3") is False
    assert CALLS["is_semver_string_bool"]("1.3", True) is True
    with pytest.raises(CelFault, match='"x" is not a semantic version'):
        CALLS["string_to_semver"]("x")


def test_comparing_with_another_type_is_an_error() -> None:
    with pytest.raises(CelFault, match="no such overload"):
        parse("1.0.0").cel_equal("1.0.0")
