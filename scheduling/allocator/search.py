"""The search: depth first over claims, requests and devices; the first full solution wins.

The order is upstream's, and so is the choice: claims and requests as they are written, alternatives by preference,
devices in the order of their pools. A request takes combinations, not permutations: its next device stands behind its
last one. Mode All has no choice. Nothing is scored.

A search that goes on for long gets help from `pruning`, which only ever leaves out what cannot succeed and cannot fail
with an error either, so that neither choice nor verdict change. The steps of the search are generators on a stack of
their own: thousands of devices need no deep recursion.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from enum import Enum
from typing import Final

from scheduling.allocator.claims import RESULTS_MAX
from scheduling.allocator.errors import GaveUp
from scheduling.allocator.placement import Placement
from scheduling.allocator.problem import Plan, Problem
from scheduling.allocator.pruning import Pruning, can_be_pruned


class Outcome(Enum):
    """How a part of the search ended."""

    DONE = "everything from here on is placed"
    FAILED = "no combination of devices fits"
    LIMIT = "the claim would hold more devices than a claim can; other devices would not help, fewer might"


_Step = Generator["_Step", Outcome, Outcome]

PRUNE_AFTER: Final = 400
"""Steps after which pruning begins. An ordinary claim needs fewer, and pruning costs about 100 of them to set up."""

PRUNE_AFTER_EACH: Final = 4
"""Further steps for each request: many of them are many steps even where nothing is ever taken back."""

REFUSALS_PER_STEP: Final = 50
"""Devices that cannot be placed count as a step, so many of them: a step may look through thousands."""

_ASK_EVERY: Final = 256
"""Steps between two questions whether to give up."""


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
        self._pruning: Pruning[Outcome] | None = None

    def run(self) -> Outcome:
        """Place everything. After DONE `placement` and `chosen` (alternatives) hold the solution.

        LIMIT is only the answer if the first claim cannot stay within its limit. Raises `FatalError` and `GaveUp`.
        """
        stack = [self._claim(0)]
        answer: Outcome | None = None
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
                self._pruning = Pruning(self._problem, self.placement, Outcome.FAILED)
        if self._give_up is not None and self.steps % _ASK_EVERY == 0 and self._give_up():
            first = self._problem.claims[0].claim.reference
            raise GaveUp(first, "", f"no answer for node {self._problem.node} after {self.steps} steps of the search")

    def _claim(self, index: int) -> _Step:
        if index == len(self._problem.claims):
            self._count_step()
            return Outcome.DONE
        return (yield self._request(index, 0))

    def _request(self, index: int, number: int) -> _Step:
        plans = self._problem.claims[index].plans
        if number == len(plans):
            self._count_step()
            outcome = yield self._claim(index + 1)
            return Outcome.FAILED if outcome is Outcome.LIMIT else outcome
        alternatives = plans[number]
        if not alternatives[0].request.parent:
            return (yield self._devices(index, number, alternatives[0], 0, 0))
        self._count_step()
        only_limits = True
        for choice, plan in enumerate(alternatives):
            outcome = yield self._devices(index, number, plan, 0, 0)
            if outcome is Outcome.DONE:
                self.chosen[index][number] = choice
                return outcome
            only_limits = only_limits and outcome is Outcome.LIMIT
        return Outcome.LIMIT if only_limits else Outcome.FAILED

    def _devices(self, index: int, number: int, plan: Plan, count: int, start: int) -> _Step:
        """Place the devices of a plan from the `count`-th on, on positions from `start` on, and all that follows."""
        self._count_step()
        if plan.devices is not None and not plan.devices:
            return Outcome.FAILED
        if count >= plan.wanted:
            return (yield self._request(index, number + 1))
        if plan.wanted - count > RESULTS_MAX - len(self.placement.placed[index]):
            return Outcome.LIMIT
        pruning = self._pruning
        if pruning is None or (plan.devices is not None and count):
            return (yield self._place(index, number, plan, count, start))
        situation = pruning.situation(index, number, plan, count, start)
        known = pruning.answer(situation)
        if known is not None:
            return known
        outcome = yield self._place(index, number, plan, count, start)
        if outcome is not Outcome.DONE:
            pruning.learn(situation, outcome)
        return outcome

    def _place(self, index: int, number: int, plan: Plan, count: int, start: int) -> _Step:
        if plan.devices is not None:
            return self._place_one_of_all(index, number, plan, count)
        return self._place_any(index, number, plan, count, start)

    def _place_one_of_all(self, index: int, number: int, plan: Plan, count: int) -> _Step:
        assert plan.devices is not None
        position = plan.devices[count]
        placement = self.placement
        claim = self._problem.claims[index].claim
        shared_by_admin = plan.request.admin_access and self._problem.shareable(position)
        if not shared_by_admin and placement.busy(index, plan) >> position & 1:
            return Outcome.FAILED
        amounts = self._problem.amounts(plan, claim, position)
        if amounts is None or not placement.place(index, plan, position, amounts):
            return Outcome.FAILED
        outcome = yield self._devices(index, number, plan, count + 1, 0)
        if outcome is not Outcome.DONE:
            placement.undo(index)
        return outcome

    def _place_any(self, index: int, number: int, plan: Plan, count: int, start: int) -> _Step:
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
            if outcome is Outcome.DONE:
                return outcome
            placement.undo(index)
            if outcome is Outcome.LIMIT:
                return outcome
            if self._pruning is not None:
                failing |= self._pruning.failing_with(index, number, plan, position)
        return Outcome.FAILED
