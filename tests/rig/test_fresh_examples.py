"""Hypothesis makes each example anew: see ``tests.making.fresh_examples``."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = 50


def test_no_example_is_a_variant_of_the_one_before() -> None:
    made: list[tuple[int, ...]] = []

    @given(st.tuples(*[st.integers(0, 2**60)] * 8))
    @settings(max_examples=EXAMPLES, derandomize=True, database=None)
    def note(example: tuple[int, ...]) -> None:
        made.append(example)

    note()
    variants = sum(sum(map(int.__eq__, one, other)) >= 6 for one, other in itertools.pairwise(made))
    assert len(made) >= EXAMPLES
    assert variants < EXAMPLES // 5
