"""Waits grow, stay bounded, and obey the server within reason."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube.backoff import Backoff, BackoffPolicy

POLICY = BackoffPolicy(first=0.5, most=8.0, longest=100.0)
CHANCES = st.floats(0, 1, exclude_max=True)


def test_waits_double_up_to_the_most_and_begin_anew() -> None:
    backoff = Backoff(POLICY, lambda: 0.0)
    assert [backoff.delay() for _ in range(7)] == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    backoff.reset()
    assert backoff.delay() == 0.25


@given(st.integers(0, 10**6), CHANCES)
def test_a_wait_is_between_half_and_all_of_its_step(attempt: int, chance: float) -> None:
    step = min(0.5 * 2 ** min(attempt, 60), 8.0)
    assert step / 2 <= POLICY.delay(attempt, chance) <= step


@given(st.integers(0, 100), CHANCES, st.floats(-1e9, 1e9))
def test_retry_after_is_a_lower_bound_up_to_the_longest(attempt: int, chance: float, asked: float) -> None:
    wait = POLICY.delay(attempt, chance, asked)
    assert min(max(asked, 0), 100.0) <= wait <= 108.0
