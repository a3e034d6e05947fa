"""What cannot be had together: a smallest set of requests and constraints that no choice of devices satisfies.

Smallest means that the set can be satisfied as soon as any one member is left out; there may be other such sets.
It is found by leaving out one member after the other and asking the allocator: a member without which it still
cannot be satisfied is not needed. That takes one call for each member, and calls are limited: where the limit ends the
work, the set is right but perhaps not smallest, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from scheduling.explain.diagnosis.reduction import Claims, Part, constraints_of, reduced, requests_of

MOST_CALLS = 100
"""Questions for one set; claims have at most 32 requests and 32 constraints."""

Possible = Callable[[Claims], bool | None]
"""Whether the allocator finds devices for these claims; None where it gives up or refuses them."""


@dataclass(frozen=True, slots=True)
class Core:
    """``minimal``: no member can be left out."""

    requests: tuple[Part, ...]
    constraints: tuple[Part, ...]
    minimal: bool


def smallest(claims: Claims, possible: Possible, most_calls: int = MOST_CALLS) -> Core:
    """A smallest part of these claims, which cannot be satisfied as they are."""
    requests, constraints = requests_of(claims), constraints_of(claims)
    calls, minimal = 0, True

    def still_impossible(kept_requests: Collection[Part], kept_constraints: Collection[Part]) -> bool:
        nonlocal calls, minimal
        if calls >= most_calls:
            minimal = False
            return False
        calls += 1
        answer = possible(reduced(claims, kept_requests, kept_constraints))
        minimal = minimal and answer is not None
        return answer is False

    # Requests first: without its request a constraint often means nothing, and fewer questions are left. The last of
    # them are tried first, so that what remains is what a reader of the claim meets first.
    for part in reversed(list(requests)):
        rest = [each for each in requests if each != part]
        if rest and still_impossible(rest, constraints):
            requests = rest
    for part in reversed(list(constraints)):
        rest = [each for each in constraints if each != part]
        if still_impossible(requests, rest):
            constraints = rest
    return Core(tuple(requests), tuple(constraints), minimal)
