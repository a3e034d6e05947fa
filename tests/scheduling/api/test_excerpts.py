"""Excerpts of values: short ones are whole, and long or deep ones end in bounded time."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.api.excerpts import excerpt, shown


def nested(depth: int) -> Any:
    inner: Any = {}
    for _ in range(depth):
        inner = {"a": [inner]}
    return inner


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("short", "'short'"),
        ("x" * 10**6, "'" + "x" * 37 + "..." + "x" * 38 + "'"),
        (True, "True"),
        (2**64, "18446744073709551616"),
        (1 << 200_000, "a number of 200001 bits"),
        ([10**5000], "[a number of 16610 bits]"),
        (nested(100_000), "{'a': [{'a': [...]}]}"),
        (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]"),
        ({"a": None}, "{'a': None}"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_value_is_shown_in_a_line(value: Any, text: str) -> None:
    assert shown(value) == text


def test_wide_value_is_cut() -> None:
    text = shown({f"{at}": ["x" * 100] * 100 for at in range(100)})
    assert len(text) == 200
    assert text.endswith("...")


@pytest.mark.parametrize("text", ["device.a == 1", "a" * 200])
def test_a_text_that_is_short_enough_is_its_own_excerpt(text: str) -> None:
    assert excerpt(text) == text


def test_the_excerpt_of_a_text_is_one_line_with_its_ends() -> None:
    assert excerpt(" a\n  b ") == "a b"
    assert excerpt(f"begin {'x' * 5_000} end") == f"begin {'x' * 94} ... {'x' * 46} end"
