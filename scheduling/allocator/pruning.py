"""Leaving out parts of a search that cannot succeed.

Three means, all sound with respect to the choice, the verdict and the errors of the plain search:

- *Learned conflicts.* A part of the search that failed fails again in every situation that differs only by what makes
  no difference (`interchange`).
- *Equal devices.* Where a device failed, later ones of its kind are not tried.
- *Looking ahead.* Counting shows that what is still to be placed cannot be (`lookahead`).

A part that failed was searched to its end and met no error; one that looks the same would meet none either. There is
one exception: where the limit of devices ends a part early, devices were left unasked that may fail with an error. So
nothing is learned where both limit and errors are possible.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from scheduling.allocator.claims import RESULTS_MAX
from scheduling.allocator.interchange import Interchange
from scheduling.allocator.lookahead import LookAhead
from scheduling.allocator.placement import Placement
from scheduling.allocator.problem import Plan, Problem
from scheduling.allocator.suitability import Suitability

_Outcome = TypeVar("_Outcome")

_LEARNED_MAX = 100_000
"""Situations that one search remembers, about a kilobyte each."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A point of the search, as far as its future depends on it."""

    index: int
    number: int
    plan: Plan
    count: int
    start: int
    picture: Hashable


def can_be_pruned(problem: Problem) -> bool:
    """Whether placing only ever takes away, as everything here assumes: no device gives to a counter."""
    return not any(amount < 0 for device in problem.devices for amount in device.consumed.values())


class Pruning(Generic[_Outcome]):
    """What one search has learned so far, and its view of what lies ahead."""

    def __init__(self, problem: Problem, placement: Placement, failed: _Outcome) -> None:
        """`failed` is the outcome of a part that looking ahead rules out."""
        self._placement = placement
        self._failed = failed
        self._learned: dict[Situation, _Outcome] = {}
        suitability = Suitability(problem)
        limited = any(
            sum(max(0, *(plan.wanted for plan in plans)) for plans in claim.plans) > RESULTS_MAX
            for claim in problem.claims
        )
        self._learns = not (limited and suitability.fallible)
        self._interchange = Interchange(problem, suitability, limited)
        self._ahead = LookAhead(problem, placement, suitability, self._interchange.kinds)

    def situation(self, index: int, number: int, plan: Plan, count: int, start: int) -> Situation:
        """The present situation, about to place the `count`-th device of a plan on positions from `start` on."""
        picture = self._interchange.picture(self._placement, index, number, start)
        return Situation(index, number, plan, count, start, picture)

    def answer(self, situation: Situation) -> _Outcome | None:
        """How the search goes on from here, if that is known without going on."""
        known = self._learned.get(situation)
        if known is not None:
            return known
        if self._ahead.hopeless(situation.index, situation.number, situation.plan, situation.count, situation.start):
            return self._failed
        return None

    def failing_with(self, index: int, number: int, plan: Plan, position: int) -> int:
        """The devices that fail in a request's place because this one did, as a mask.

        A later device of its kind could only succeed with devices behind it; with those the earlier one would have.
        Not so with admin access, which may find one of them held by another claim and the other not.
        """
        if not self._learns or plan.request.admin_access:
            return 0
        return self._interchange.mates(index, number, position)

    def learn(self, situation: Situation, outcome: _Outcome) -> None:
        """Remember that the search from this situation on failed, and how."""
        if self._learns and len(self._learned) < _LEARNED_MAX:
            self._learned[situation] = outcome
