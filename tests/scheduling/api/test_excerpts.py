""" """

from __future__ import annotations

from typing import Any

import pytest

from scheduling.api.excerpts import shown


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
