"""When a reflector asks again: waits, and when it lists instead of watching."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.scale.audit import busiest_second, spread
from bench.scale.figures import SPREAD
from kube.backoff import BackoffPolicy
from kube.errors import BadAnswer, Forbidden, Gone, RequestError, ServerFault, TooManyRequests, Unreachable, refusal
from kube.pace import AGENTS, ALONE, Herd, WatchPace, is_too_old
from kube.reflector import POLICY

LONG, SHORT = 60.0, 0.1
BROKEN = Unreachable("GET", "/x", "broken", sent=True)


def error(status: int, message: str = "", retry_after: float | None = None) -> RequestError:
    return refusal("GET", "/x", status, "", message, retry_after=retry_after)


def pace(random: float = 0.0, herd: Herd = ALONE) -> WatchPace:
    return WatchPace(BackoffPolicy(first=1.0, most=30.0), lambda: random, 5.0, herd)


@pytest.mark.parametrize("fault", [None, BROKEN])
def test_a_watch_that_lived_for_a_while_is_begun_anew_at_once(fault: Exception | None) -> None:
    asks = pace()
    assert [(n.wait, n.list_first) for n in (asks.after(fault, LONG) for _ in range(20))] == [(0.0, False)] * 20


@pytest.mark.parametrize("fault", [None, BROKEN, error(429), error(500), error(503)])
def test_whatever_ends_soon_waits_longer_each_time(fault: Exception | None) -> None:
    asks = pace()
    assert [asks.after(fault, SHORT).wait for _ in range(8)] == [0.5, 1, 2, 4, 8, 15, 15, 15]


def test_after_a_watch_that_worked_waits_are_short_again() -> None:
    asks = pace()
    for _ in range(5):
        asks.after(BROKEN, 0.0)
    asks.after(None, LONG)
    assert asks.after(BROKEN, 0.0).wait == 0.5


def test_a_version_that_is_too_old_is_listed_at_once_but_not_again_and_again() -> None:
    asks = pace()
    got = [asks.after(error(410), SHORT) for _ in range(4)]
    assert [(n.wait, n.list_first) for n in got] == [(0.0, True), (0.5, True), (1.0, True), (2.0, True)]
    asks.after(None, LONG)
    assert asks.after(error(410), 0.0).wait == 0.0


def test_a_version_from_before_a_restored_server_is_listed_anew() -> None:
    fault = error(504, "Too large resource version: 900, current: 20")
    assert is_too_old(fault)
    assert pace().after(fault, 0.0).list_first
    assert not is_too_old(error(504, "timeout"))


@pytest.mark.parametrize("fault", [None, BROKEN])
@pytest.mark.parametrize(("lived", "heard", "lists"), [(300, False, True), (300, True, False), (60, False, False)])
def test_a_watch_that_never_said_a_word_is_followed_by_a_list(
    fault: Exception | None, lived: float, heard: bool, lists: bool
) -> None:
    following = pace().after(fault, lived, heard=heard)
    assert (following.wait, following.list_first) == (0.0, lists)


@pytest.mark.parametrize("fault", [BROKEN, error(429)])
def test_an_outage_ends_without_a_list(fault: Exception) -> None:
    asks = pace()
    assert not any(asks.after(fault, 0.0).list_first for _ in range(50))


@pytest.mark.parametrize("fault", [None, error(500), error(503)])
def test_a_server_that_lets_nobody_watch_is_listed_now_and_then(fault: Exception | None) -> None:
    asks = pace()
    assert [asks.after(fault, SHORT).list_first for _ in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("fault", [error(400), error(401), error(403), error(404), ValueError("x")])
@pytest.mark.parametrize("lived", [SHORT, LONG])
def test_what_watching_cannot_mend_is_listed_anew_after_a_wait(fault: Exception, lived: float) -> None:
    following = pace().after(fault, lived)
    assert following.list_first
    assert following.wait == 0.5


def test_what_the_server_asks_for_is_added() -> None:
    assert pace().after(error(429, retry_after=7.0), 0.0).wait == 7.5


FAULTS = st.sampled_from(
    [
        None,
        BROKEN,
        Gone("GET", "/x", 410, "", ""),
        TooManyRequests("GET", "/x", 429, "", "", retry_after=2.0),
        ServerFault("GET", "/x", 500, "", ""),
        Forbidden("GET", "/x", 403, "", ""),
        BadAnswer("GET", "/x", 200, "", ""),
        ValueError("x"),
    ]
)


@given(st.lists(FAULTS, min_size=2, max_size=40), st.floats(0, 0.999))
def test_no_row_of_short_watches_asks_more_than_once_without_a_wait(faults: list[Exception | None], by: float) -> None:
    asks = WatchPace(POLICY, lambda: by, 5.0)
    waits = [asks.after(fault, SHORT).wait for fault in faults]
    assert waits.count(0.0) <= 1
    assert all(wait >= 0.4 for wait in waits if wait)
    assert max(waits) <= 32.0


@pytest.mark.parametrize("fault", [None, BROKEN])
def test_agents_whose_watches_end_before_their_time_do_not_come_back_at_the_same_moment(
    fault: Exception | None,
) -> None:
    waits = [pace(chance / 10, AGENTS).after(fault, LONG, early=True).wait for chance in range(10)]
    assert waits == pytest.approx([0.5 * tenth for tenth in range(10)])
    assert pace(0.9, AGENTS).after(fault, LONG, early=False).wait == 0.0
    assert pace(0.9).after(fault, LONG, early=True).wait == 0.0


@pytest.mark.parametrize("fault", [BROKEN, error(429)])
def test_agents_that_find_no_server_come_back_over_half_a_minute(fault: Exception) -> None:
    waits = []
    for chance in range(20):
        asks = pace(chance / 20, AGENTS)
        asks.after(BROKEN, LONG, early=True)
        waits.append(asks.after(fault, 0.0).wait)
    assert waits[18] - waits[1] >= 30.0
    assert max(waits) <= AGENTS.spread


AGENTS_OF_A_CLUSTER, WATCHES = 1000, 2


def returns(seed: int, away: float) -> list[float]:
    """When the watches of a cluster's agents come back, in seconds after the server did."""
    draw = random.Random(seed).random
    found = []
    for _ in range(AGENTS_OF_A_CLUSTER * WATCHES):
        asks = WatchPace(POLICY, draw, 5.0, AGENTS)
        at = asks.after(BROKEN, LONG, early=True).wait
        while at < away:
            at += asks.after(BROKEN, 0.0).wait
        found.append(at - away)
    return found


@pytest.mark.parametrize("away", [6.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 300.0, 3600.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_thousand_agents_come_back_over_half_a_minute_however_long_the_server_was_away(
    seed: int, away: float
) -> None:
    found = returns(seed, away)
    # A starting server refuses some of them for a moment, which the simulation leaves out.
    assert spread(found) >= 1.1 * SPREAD
    assert max(found) <= AGENTS.spread
    # All at once would be 2,000; evenly over the time, 44.
    assert busiest_second(found) <= 90


def test_an_agent_whose_return_is_refused_by_a_busy_server_chooses_another_moment() -> None:
    asks = pace(0.2, AGENTS)
    asks.after(BROKEN, LONG, early=True)
    waits = [asks.after(fault, 0.0).wait for fault in (BROKEN, BROKEN, error(429), BROKEN)]
    assert waits == pytest.approx([9.0, 44.1, 9.0, 44.1])


def test_an_agent_that_starts_does_not_wait_for_the_others() -> None:
    assert [pace(0.9, AGENTS).after(BROKEN, 0.0).wait, pace(0.9).after(BROKEN, 0.0).wait] == [0.95, 0.95]


def test_a_server_that_is_away_for_long_is_asked_a_few_times_a_minute() -> None:
    draws = itertools.cycle((0.1, 0.9, 0.5))
    asks = WatchPace(POLICY, lambda: next(draws), 5.0, AGENTS)
    asks.after(BROKEN, LONG, early=True)
    waits = [asks.after(BROKEN, 0.0).wait for _ in range(60)]
    assert sum(waits) / len(waits) >= 40.0
