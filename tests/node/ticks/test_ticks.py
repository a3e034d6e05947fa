"""Common times for what is looked at every few seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.clocks import AHEAD, is_ahead, until_ahead, until_tick

TIMES = st.integers(0, 10**9).map(lambda count: count / 1024)


@given(st.sampled_from([0.5, 1.0, 2.5, 5.0, 10.0, 30.0]), TIMES)
def test_the_next_tick_is_never_now_and_never_later_than_an_interval(interval: float, now: float) -> None:
    assert 0 < until_tick(interval, now) <= interval


@given(TIMES)
def test_who_looks_every_second_time_wakes_with_who_looks_each_time(now: float) -> None:
    assert until_tick(10.0, now) % 5.0 - until_tick(5.0, now) % 5.0 == 0


@given(TIMES)
def test_without_an_interval_nobody_waits(now: float) -> None:
    assert until_tick(0.0, now) == 0


@given(st.sampled_from([0.5, 1.0, 2.5, 5.0, 10.0, 30.0]), TIMES)
def test_who_looks_ahead_looks_shortly_before_a_tick(interval: float, now: float) -> None:
    at = now + until_ahead(interval, now)
    assert now < at <= now + interval
    assert abs(until_tick(interval, at) - AHEAD) < 1e-6
    assert is_ahead(interval, at + AHEAD / 2)
    assert not is_ahead(interval, at + 2 * AHEAD)


def test_without_an_interval_nothing_is_ahead() -> None:
    assert not is_ahead(0.0, 1.0)
