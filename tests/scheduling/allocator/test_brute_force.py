"""The allocator's answer is the first that a brute force finds, on clusters small enough to try everything."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings

from tests.judge.our_allocation import allocate
from tests.scheduling.allocator.brute_force import Pick, assignments, consumed, first_allocation
from tests.scheduling.allocator.worlds import CAPACITY, AllocatorWorld, case, worlds

MOST_ASSIGNMENTS = 2_000
"""Worlds with more are left out: trying them takes longer than it tells."""


@given(worlds())
@settings(max_examples=75)
def test_first_allocation_is_the_one_that_trying_everything_finds(world: AllocatorWorld) -> None:
    assume(assignments(world) <= MOST_ASSIGNMENTS)
    answer = allocate(case(world))
    assert answer["error"] is None
    assert picks_of(answer["results"]) == written(world, first_allocation(world))


def picks_of(results: list[dict[str, Any]] | None) -> list[list[dict[str, Any]]] | None:
    """Which devices an answer gives to whom, and how much of them."""
    if results is None:
        return None
    kept = ("request", "pool", "device", "consumedCapacity")
    return [
        [{key: each[key] for key in kept if key in each} for each in result["devices"].get("results", [])]
        for result in results
    ]


def written(world: AllocatorWorld, picks: tuple[Pick, ...] | None) -> list[list[dict[str, Any]]] | None:
    """The same of a brute force's picks."""
    if picks is None:
        return None
    results: list[list[dict[str, Any]]] = [[] for _ in world.claims]
    for pick in picks:
        entry: dict[str, Any] = {"request": pick.request, "pool": pick.device.pool, "device": pick.device.name}
        if pick.device.shared:
            entry["consumedCapacity"] = {CAPACITY: str(consumed(pick.wish, pick.device))}
        results[pick.claim].append(entry)
    return results
