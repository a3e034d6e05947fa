from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.api.quantities import ZERO, Format, QuantityError, QuantityFault, from_int, from_milli, of_json, parse
from tests.making.recorded_cases import cases_in, files_in

VECTORS = Path(__file__).parents[2] / "vectors"

numbers = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=6)
suffixes = st.sampled_from(
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2"]
)
texts = st.builds(lambda number, suffix: f"{number:f}{suffix}", numbers, suffixes)
whole = st.builds(
    lambda number, suffix: f"{number}{suffix}", st.integers(-(10**15), 10**15), st.sampled_from(["", "m", "k"])
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("+", "0"),
        (".", "0"),
        ("1", "1"),
        ("01", "01"),
        ("+1Ki", "+1Ki"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1000", "1k"),
        ("1.500k", "1.500k"),
        (".5", "500m"),
        ("1000e3", "1e6"),
        ("12e6", "12e6"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("16Ei", "9223372036854775807"),
        ("-16Ei", "-9223372036854775807"),
        ("100E", "100E"),
        ("1e4294967296", "1e4294967296"),
        ("1000000E", "1"),
    ],
)
def test_a_quantity_is_written_as_an_api_server_stores_it(text: str, canonical: str) -> None:
    assert parse(text).text == canonical


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", QuantityFault.SHAPE),
        ("1 Gi", QuantityFault.SHAPE),
        ("1gi", QuantityFault.SHAPE),
        ("1Kib", QuantityFault.SHAPE),
        ("1_000", QuantityFault.SHAPE),
        ("\u0661", QuantityFault.SHAPE),
        ("1\n", QuantityFault.SHAPE),
        ("--1", QuantityFault.SUFFIX),
        ("1e", QuantityFault.SUFFIX),
        ("1Kii", QuantityFault.SUFFIX),
        ("1e9223372036854775808", QuantityFault.SUFFIX),
        (".Pi", QuantityFault.NUMBER),
        ("1e10001", QuantityFault.EXPONENT),
        ("1234567890123456789e10001", QuantityFault.EXPONENT),
        pytest.param("1" + "0" * 10_000, QuantityFault.LENGTH, id="whole"),
        pytest.param("1." + "0" * 10_000, QuantityFault.LENGTH, id="fraction"),
    ],
)
def test_what_is_no_quantity_is_refused_with_its_reason(text: str, fault: QuantityFault) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert caught.value.fault is fault
    shown = text if len(text) <= 80 else text[:77] + "..."
    assert str(caught.value) == f'"{shown}" is not a quantity: {fault.value}'


def test_a_long_text_is_shortened_in_the_message() -> None:
    with pytest.raises(QuantityError) as caught:
        parse("x" * 1000)
    assert '"' + "x" * 77 + '..." is not a quantity' in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(" 1Gi\n", "1Gi"), (5, "5"), (1.5, "1500m"), (1e16, "10e15"), (None, "0"), (10**30, "1")],
)
def test_a_json_value_is_read(value: object, text: str) -> None:
    assert of_json(value).text == text


def nested(depth: int) -> list[object]:
    outer: list[object] = []
    for _ in range(depth):
        outer = [outer]
    return outer


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, '"True" is not a quantity: it must be a number'),
        ({}, '"a dict" is not a quantity'),
        (nested(200_000), '"a list" is not a quantity'),
        (float("inf"), '"inf" is not a quantity'),
        (float("nan"), '"nan" is not a quantity'),
        (10**10_000, "it has more than 10000 digits"),
        (1 << 10_000_000, '"a whole number" is not a quantity: it has more than 10000 digits'),
    ],
    ids=lambda given: type(given).__name__,
)
def test_another_json_value_is_refused(value: object, text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        of_json(value)
    assert text in str(caught.value)


@pytest.mark.parametrize("head", ["", "-", "1", "0.", "1e", "1Ki"])
@pytest.mark.parametrize("tail", ["", "x", ".", "e", "Ki", "-"])
@pytest.mark.parametrize("filling", ["0", "9", "E", " "])
def test_a_huge_text_is_judged_in_no_time(head: str, filling: str, tail: str) -> None:
    with suppress(QuantityError):
        parse(head + filling * 100_000 + tail)


def test_a_quantity_of_the_largest_size_is_written_in_no_time() -> None:
    largest = parse("1234567890123456789e9990")
    assert (largest - parse("1n") + parse("1n")).text == "1234567890123456789e9990"
    assert (parse("12300e3000") + parse("1" + "0" * 9_999)).text.startswith("1000")
    assert of_json(10**9_999).nanos == 10**10_008


@pytest.mark.parametrize(
    ("text", "integer"),
    [
        ("5", 5),
        ("2Gi", 2**31),
        ("1E", 10**18),
        ("1e3", 1000),
        ("10E", None),  # beyond 64 bits
        ("1e30", None),
        ("1Ei", None),  # kept wide
        ("9223372036854775807", None),  # kept wide
        ("0.5", None),
        ("1000m", None),
    ],
)
def test_only_the_narrow_form_is_an_integer(text: str, integer: int | None) -> None:
    assert parse(text).as_int64() == integer
    assert parse(text).is_integer == (integer is not None)


def test_whole_and_milli_values_are_rounded_up() -> None:
    assert (parse("1500m").value(), parse("1001u").milli_value()) == (2, 2)
    assert parse("-1500m").value() == -2
    assert parse("1.5Ki").value() == 1536
    assert parse("12345678901234567890").value() == 12345678901234567890 - 2**64
    assert parse("10E").value() == 0
    assert parse("10000000000G").value() == 10**19 - 2**64


def test_whole_values_of_the_wide_form_are_computed_as_kubernetes_does() -> None:
    assert parse("16Ei").value() == 2**63 - 1
    assert parse("16Ei").milli_value() == -1000  # the lowest 64 bits
    assert parse("1234567890123456789").scaled(20) == 1
    assert parse("-1234567890123456789.5").value() == -7888470988
    assert from_int(-(2**80)).scaled(60) == 0
    assert from_int(2**80).scaled(60) == 1
    assert parse("1").scaled(100_000) == 1


@pytest.mark.parametrize("power", range(1, 11))
def test_an_overflow_keeps_the_lowest_bits_for_some_powers_and_nothing_for_others(power: int) -> None:
    number = 922337203685477599
    lowest = (number * 10**power + 2**63) % 2**64 - 2**63
    expected = lowest if power in (1, 2, 3, 6, 9) else 0
    assert parse(str(number)).scaled(-power) == expected


def test_a_zero_may_have_any_exponent() -> None:
    for text in ("0e200000", "0e-200000", "0.0000000000"):
        assert (parse(text).text, (parse(text) + parse("1k")).text, parse(text) == ZERO) == ("0", "1k", True)


def test_a_sum_keeps_the_format_of_its_first_part() -> None:
    assert (parse("1Gi") + parse("1k")).text == "1073742824"
    assert (parse("1Gi") + parse("1Mi")).text == "1025Mi"
    assert (parse("1k") + parse("1Ki")).text == "2024"
    assert (ZERO + parse("1Ki")).text == "1Ki"
    assert (parse("1Ki") - parse("1Ki") + parse("2k")).text == "2k"


def test_a_sum_beyond_64_bits_is_exact() -> None:
    total = parse("9E") + parse("9E")
    assert (total.nanos, total.text, total.is_integer) == (18 * 10**27, "18E", False)


def test_a_long_number_is_exact() -> None:
    digits = "1" * 6000
    assert parse(digits).text == digits


def test_the_float_is_a_product_of_two_rounded_factors() -> None:
    assert parse("100m").as_approximate_float() == 0.1
    assert parse("0e-999").as_approximate_float() == 0.0
    assert parse("1e33").as_approximate_float() == 1e32 * 10 != 1e33
    assert parse("1e9999").as_approximate_float() == float("inf")
    assert parse("-" + "9" * 400).as_approximate_float() == float("-inf")
    assert parse("9" * 400).as_approximate_float() == float("inf")
    assert str(parse("9" * 400)) == "9" * 400


def test_numbers_are_made_without_text() -> None:
    assert from_int(1024, Format.BINARY_SI).text == "1Ki"
    assert from_milli(1500).text == "1500m"
    assert from_int(2**70).as_int64() is None
    assert [from_milli(value).wide for value in (-(2**63) - 1, -(2**63), 2**63 - 1, 2**63)] == [
        True,
        False,
        False,
        True,
    ]


@given(texts)
def test_the_canonical_text_means_the_same_quantity(text: str) -> None:
    quantity = parse(text)
    if abs(quantity.nanos) < 10**30:  # above, a sum or a decimal number may have no suffix
        assert parse(quantity.text) == quantity


@given(texts, texts)
def test_addition_and_subtraction_are_inverse(left: str, right: str) -> None:
    one, other = parse(left), parse(right)
    assert one + other - other == one
    assert (one + other).nanos == (other + one).nanos == one.nanos + other.nanos
    assert one - other == -(other - one)


@given(texts, texts)
def test_order_equality_and_hash_agree(left: str, right: str) -> None:
    one, other = parse(left), parse(right)
    order = one.compare(other)
    assert (one < other, one == other, one > other) == (order < 0, order == 0, order > 0)
    assert (one <= other, one >= other) == (order <= 0, order >= 0)
    assert one != other or hash(one) == hash(other)
    assert one.sign == one.compare(ZERO)
    assert bool(one) == (one != ZERO)


@given(whole)
def test_the_whole_value_is_the_next_integer_away_from_zero(text: str) -> None:
    quantity = parse(text)
    magnitude = -(-abs(quantity.nanos) // 10**9)
    assert quantity.value() == (magnitude if quantity.sign >= 0 else -magnitude)


def _leaves(given: Any, stored: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[object, str]]:
    """Pairs of a quantity as it was sent and as it was stored."""
    if isinstance(given, dict) and isinstance(stored, dict):
        for key in given.keys() & stored.keys():
            yield from _leaves(given[key], stored[key], (*keys, key))
    elif isinstance(given, list) and isinstance(stored, list):
        for one, other in zip(given, stored, strict=False):
            yield from _leaves(one, other, keys)
    elif isinstance(stored, str) and {"capacity", "counters"} & set(keys) and keys[-1] not in {"name", "counterSet"}:
        yield given, stored


def _stored() -> list[tuple[object, str]]:
    pairs: list[tuple[object, str]] = []
    for file in files_in(VECTORS / "validation", "*.jsonl"):
        for case in cases_in(file):
            pairs += _leaves(case["object"], case.get("stored"))
    return sorted(set(pairs), key=str)


def test_quantities_are_stored_as_the_api_server_stored_them() -> None:
    pairs = _stored()
    assert len(pairs) >= 3
    assert {given: of_json(given).text for given, _ in pairs} == dict(pairs)


def test_subtracting_the_least_integer_wraps_as_in_kubernetes_as_long_as_the_result_fits() -> None:
    least = from_int(-(2**63))
    assert (parse("5") - least).nanos == (5 - 2**63) * 10**9
    assert (parse("-5") - least).nanos == (2**63 - 5) * 10**9
