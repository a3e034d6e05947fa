"""The search: depth first over claims, requests and devices; the first full solution wins.

The order is upstream's, and so is the choice: claims and requests as they are written, alternatives by preference,
devices in the order of their pools. A request takes combinations, not permutations: its next device comes after its
last one. Mode All has no choice. Nothing is scored. The steps of the search are generators on a stack of their own, so
that thousands of devices need no deep recursion.

A long search is pruned. Three means, all sound with respect to the choice, the verdict and the errors of the plain
search:

- *Learned conflicts.* A part of the search that failed fails again in every situation that differs only in details that
  make no difference (`interchange`).
- *Equal devices.* Where a device failed, later ones of its kind are not tried.
- *Looking ahead.* Counting shows that the rest cannot be placed (`lookahead`).

A part that failed was searched to its end and met no error; one that looks the same would meet none either. There is
one exception: where the limit of devices ends a part early, devices were left unasked that may fail with an error. So
nothing is learned where both limit and errors are possible.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from scheduling.allocator.claims import RESULTS_MAX
from scheduling.allocator.interchange import Interchange
from scheduling.allocator.lookahead import LookAhead
from scheduling.allocator.placement import Placement
from scheduling.allocator.problem import Problem, RequestPlan
from scheduling.allocator.reading import GaveUp
from scheduling.allocator.suitability import Suitability


class SearchOutcome(Enum):
    """How a part of the search ended."""

    DONE = "everything from here on is placed"
    FAILED = "no combination of devices fits"
    LIMIT = "the claim would hold more devices than a claim can; other devices would not help, fewer might"


_Step = Generator["_Step", SearchOutcome, SearchOutcome]

PRUNE_AFTER: Final = 400
"""Steps after which pruning begins. An ordinary claim needs fewer, and pruning costs about 100 of them to set up."""

PRUNE_AFTER_EACH: Final = 4
"""Further steps for each request: many of them are many steps even where nothing is ever taken back."""

REFUSALS_PER_STEP: Final = 50
"""Devices that cannot be placed count as a step, so many of them: a step may look through thousands."""

_ASK_EVERY: Final = 256
"""Steps between two questions whether to give up."""
_LEARNED_MAX = 100_000
"""Situations that one search remembers, about a kilobyte each."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A point of the search, reduced to what its future depends on."""

    index: int
    number: int
    plan: RequestPlan
    count: int
    start: int
    picture: Hashable


def can_be_pruned(problem: Problem) -> bool:
    """Whether placing only ever takes away, as everything here assumes: no device gives to a counter."""
    return not any(amount < 0 for device in problem.devices for amount in device.consumed.values())


class Pruning:
    """The failures that one search has learned, and its look ahead."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        """Look at every device for every plan once."""
        self._placement = placement
        self._learned: dict[Situation, SearchOutcome] = {}
        suitability = Suitability(problem)
        limited = any(
            sum(max(0, *(plan.wanted for plan in plans)) for plans in claim.plans) > RESULTS_MAX
            for claim in problem.claims
        )
        self._learns = not (limited and suitability.fallible)
        self._interchange = Interchange(problem, suitability, limited)
        self._ahead = LookAhead(problem, placement, suitability, self._interchange.kinds)

    def situation(self, index: int, number: int, plan: RequestPlan, count: int, start: int) -> Situation:
        """The present situation, about to place the `count`-th device of a plan on positions from `start` on."""
        picture = self._interchange.picture(self._placement, index, number, start)
        return Situation(index, number, plan, count, start, picture)

    def answer(self, situation: Situation) -> SearchOutcome | None:
        """How the search goes on from here, if that is known without going on."""
        known = self._learned.get(situation)
        if known is not None:
            return known
        if self._ahead.hopeless(situation.index, situation.number, situation.plan, situation.count, situation.start):
            return SearchOutcome.FAILED
        return None

    def failing_with(self, index: int, number: int, plan: RequestPlan, position: int) -> int:
        """The devices that fail in a request's place because this one did, as a mask.

        A later device of its kind could only succeed with devices behind it; with those the earlier one would have.
        Not so with admin access, which may find one of them held by another claim and the other not.
        """
        if not self._learns or plan.request.admin_access:
            return 0
        return self._interchange.mates(index, number, position)

    def learn(self, situation: Situation, outcome: SearchOutcome) -> None:
        """Remember that the search from this situation on failed, and how."""
        if self._learns and len(self._learned) < _LEARNED_MAX:
            self._learned[situation] = outcome


class Search:
    """One search. `steps` counts as upstream counts its calls, as long as nothing is pruned."""

    def __init__(
        self, problem: Problem, give_up: Callable[[], bool] | None = None, prune_after: int | None = None
    ) -> None:
        """`give_up` is asked from time to time whether the caller's patience has ended.

        `prune_after` is the number of steps after which pruning begins; it never changes the answer.
        """
        if prune_after is None:
            prune_after = PRUNE_AFTER + PRUNE_AFTER_EACH * sum(len(each.plans) for each in problem.claims)
        self.placement = Placement(problem)
        self.chosen: list[list[int]] = [[0] * len(each.plans) for each in problem.claims]
        self.steps = 0
        self._refused = 0  # devices that could not be placed
        self._problem = problem
        self._give_up = give_up
        self._prune_after = prune_after
        self._pruning: Pruning | None = None

    def run(self) -> SearchOutcome:
        """Place everything. After DONE `placement` and `chosen` (alternatives) hold the solution.

        LIMIT is only the answer if the first claim cannot stay within its limit. Raises `FatalError` and `GaveUp`.
        """
        stack = [self._claim(0)]
        answer: SearchOutcome | None = None
        while stack:
            try:
                stack.append(stack[-1].send(answer))  # type: ignore[arg-type] # None starts a generator
                answer = None
            except StopIteration as end:
                stack.pop()
                answer = end.value
        assert answer is not None
        return answer

    def _count_step(self) -> None:
        self.steps += 1
        if self.steps + self._refused // REFUSALS_PER_STEP > self._prune_after:
            self._prune_after = sys.maxsize  # once is enough
            if can_be_pruned(self._problem):
                self._pruning = Pruning(self._problem, self.placement)
        if self._give_up is not None and self.steps % _ASK_EVERY == 0 and self._give_up():
            first = self._problem.claims[0].claim.reference
            raise GaveUp(first, "", f"no answer for node {self._problem.node} after {self.steps} steps of the search")

    def _claim(self, index: int) -> _Step:
        if index == len(self._problem.claims):
            self._count_step()
            return SearchOutcome.DONE
        return (yield self._request(index, 0))

    def _request(self, index: int, number: int) -> _Step:
        plans = self._problem.claims[index].plans
        if number == len(plans):
            self._count_step()
            outcome = yield self._claim(index + 1)
            return SearchOutcome.FAILED if outcome is SearchOutcome.LIMIT else outcome
        alternatives = plans[number]
        if not alternatives[0].request.parent:
            return (yield self._devices(index, number, alternatives[0], 0, 0))
        self._count_step()
        only_limits = True
        for choice, plan in enumerate(alternatives):
            outcome = yield self._devices(index, number, plan, 0, 0)
            if outcome is SearchOutcome.DONE:
                self.chosen[index][number] = choice
                return outcome
            only_limits = only_limits and outcome is SearchOutcome.LIMIT
        return SearchOutcome.LIMIT if only_limits else SearchOutcome.FAILED

    def _devices(self, index: int, number: int, plan: RequestPlan, count: int, start: int) -> _Step:
        """Place the devices of a plan from the `count`-th on, on positions from `start` on, and all that follows."""
        self._count_step()
        if plan.devices is not None and not plan.devices:
            return SearchOutcome.FAILED
        if count >= plan.wanted:
            return (yield self._request(index, number + 1))
        if plan.wanted - count > RESULTS_MAX - len(self.placement.placed[index]):
            return SearchOutcome.LIMIT
        pruning = self._pruning
        if pruning is None or (plan.devices is not None and count):
            return (yield self._place(index, number, plan, count, start))
        situation = pruning.situation(index, number, plan, count, start)
        known = pruning.answer(situation)
        if known is not None:
            return known
        outcome = yield self._place(index, number, plan, count, start)
        if outcome is not SearchOutcome.DONE:
            pruning.learn(situation, outcome)
        return outcome

    def _place(self, index: int, number: int, plan: RequestPlan, count: int, start: int) -> _Step:
        if plan.devices is not None:
            return self._place_one_of_all(index, number, plan, count)
        return self._place_any(index, number, plan, count, start)

    def _place_one_of_all(self, index: int, number: int, plan: RequestPlan, count: int) -> _Step:
        assert plan.devices is not None
        position = plan.devices[count]
        placement = self.placement
        claim = self._problem.claims[index].claim
        shared_by_admin = plan.request.admin_access and self._problem.shareable(position)
        if not shared_by_admin and placement.busy(index, plan) >> position & 1:
            return SearchOutcome.FAILED
        amounts = self._problem.amounts(plan, claim, position)
        if amounts is None or not placement.place(index, plan, position, amounts):
            return SearchOutcome.FAILED
        outcome = yield self._devices(index, number, plan, count + 1, 0)
        if outcome is not SearchOutcome.DONE:
            placement.undo(index)
        return outcome

    def _place_any(self, index: int, number: int, plan: RequestPlan, count: int, start: int) -> _Step:
        problem, placement = self._problem, self.placement
        claim = problem.claims[index].claim
        failing = 0
        for position in range(start, len(problem.devices)):
            if (placement.busy(index, plan) | failing) >> position & 1:
                continue
            amounts = problem.amounts(plan, claim, position)
            if amounts is None:
                continue
            if not placement.place(index, plan, position, amounts):
                self._refused += 1
                continue
            outcome = yield self._devices(index, number, plan, count + 1, position + 1)
            if outcome is SearchOutcome.DONE:
                return outcome
            placement.undo(index)
            if outcome is SearchOutcome.LIMIT:
                return outcome
            if self._pruning is not None:
                failing |= self._pruning.failing_with(index, number, plan, position)
        return SearchOutcome.FAILED
