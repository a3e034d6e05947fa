"""GetPreferredAllocation: kept what must be kept, one NUMA node preferred, never an error."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugin.preferred import prefer
from tests.plugin.making import offered

EIGHT = {f"g{index}": offered(f"g{index}", index // 4) for index in range(8)}


def test_one_numa_node_is_preferred() -> None:
    assert prefer(EIGHT, ["g2", "g5", "g3", "g4", "g6", "g7"], [], 4) == ["g4", "g5", "g6", "g7"]


def test_the_node_that_is_left_most_tightly_filled_is_taken() -> None:
    assert prefer(EIGHT, ["g0", "g1", "g2", "g4", "g5"], [], 2) == ["g4", "g5"]


def test_what_must_be_included_comes_first_and_its_node_is_followed() -> None:
    assert prefer(EIGHT, list(EIGHT), ["g6"], 3) == ["g6", "g4", "g5"]


def test_two_nodes_are_used_when_one_is_not_enough() -> None:
    assert prefer(EIGHT, list(EIGHT), [], 6) == ["g0", "g1", "g2", "g3", "g4", "g5"]


def test_unhealthy_devices_come_last() -> None:
    devices = {"a": offered("a", 0, healthy=False), "b": offered("b", 0), "c": offered("c", 0)}
    assert prefer(devices, ["a", "b", "c"], [], 2) == ["b", "c"]


def test_odd_requests_get_the_best_there_is() -> None:
    assert prefer(EIGHT, ["g0"], [], 5) == ["g0"]
    assert prefer(EIGHT, [], [], 2) == []
    assert prefer(EIGHT, list(EIGHT), ["g1", "g2", "g3"], 2) == ["g1", "g2"]
    assert prefer(EIGHT, list(EIGHT), [], -1) == []
    assert prefer({}, ["x", "y"], [], 1) == ["x"]


ids = st.sampled_from([*EIGHT, "unknown-1", "unknown-2"])


@given(st.lists(ids), st.lists(ids), st.integers(-3, 12))
def test_an_answer_is_always_possible_and_right(available: list[str], required: list[str], size: int) -> None:
    chosen = prefer(EIGHT, available, required, size)
    assert chosen == prefer(EIGHT, list(reversed(available)), required, size), (
        "the order of the request decides nothing"
    )
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(available) | set(required)
    wanted = min(max(size, 0), len(set(available) | set(required)))
    assert len(chosen) == wanted
    assert set(dict.fromkeys(required).keys()) <= set(chosen) or len(set(required)) > size
