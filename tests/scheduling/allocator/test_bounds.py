"""Demands that a common stock can or cannot meet."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from scheduling.allocator.bounds import Demand, can_be_met

PLACES = 6
demands = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**PLACES - 1)), max_size=4)
rooms = st.dictionaries(st.integers(0, PLACES - 1), st.integers(0, 3), max_size=3)


def by_trying(wanted: list[Demand], left: list[int]) -> bool:
    """Whether there is a way, found by trying all."""
    if not wanted:
        return True
    count, places = wanted[0]
    possible = [place for place in range(PLACES) if places >> place & 1 and left[place] > 0]
    return any(
        by_trying(wanted[1:], [free - (place in chosen) for place, free in enumerate(left)])
        for chosen in combinations(possible, count)
    )


@given(demands, rooms)
def test_answer_is_that_of_trying_everything(wanted: list[Demand], room: dict[int, int]) -> None:
    left = [room.get(place, 1) for place in range(PLACES)]
    assert can_be_met(wanted, room) is by_trying(wanted, left)


def test_overlapping_choices_of_too_few_places_cannot_be_met() -> None:
    crossing = [(1, 0b011), (1, 0b110), (1, 0b101)]
    assert can_be_met(crossing, {})
    assert not can_be_met([*crossing, (1, 0b011)], {})


def test_place_with_room_serves_several_demands_but_each_only_once() -> None:
    assert can_be_met([(1, 0b1), (1, 0b1)], {0: 2})
    assert not can_be_met([(2, 0b1)], {0: 2})
    assert not can_be_met([(1, 0b1)], {0: 0})


def test_thousands_of_places_are_not_looked_at_one_by_one() -> None:
    everything = (1 << 5_000) - 1
    assert can_be_met([(2_500, everything), (2_500, everything)], {})
    assert not can_be_met([(2_500, everything), (2_501, everything)], {})
    assert can_be_met([(1, everything)] * 2, dict.fromkeys(range(5_000), 1))
