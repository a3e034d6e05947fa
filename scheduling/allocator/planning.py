"""From claims to plans: what is checked before anything is searched.

Everything that makes an allocation impossible on every node, and can be seen without trying, is found here: features
that are off, classes that are missing, kinds of selectors and constraints that nobody knows, more devices than a claim
can hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from scheduling.allocator.claims import RESULTS_MAX, Claim, Request, RequestChoice
from scheduling.allocator.classes import ClassLister, DeviceClass
from scheduling.allocator.constraints import Constraint, constraints_of, covering
from scheduling.allocator.errors import FatalError, MissingClass
from scheduling.allocator.features import Features
from scheduling.allocator.problem import Plan, PlannedClaim, Problem


class Planner:
    """Makes the plans for a set of claims, node by node; classes and constraints are read once."""

    def __init__(self, claims: Sequence[Claim], classes: ClassLister, features: Features) -> None:
        """Nothing is read or checked yet."""
        self._claims = claims
        self._lister = classes
        self._features = features
        self._classes: dict[str, DeviceClass] = {}
        self._constraints: dict[Claim, tuple[Constraint, ...]] = {}

    def plan(self, problem: Problem) -> list[PlannedClaim]:
        """The claims with the plans of their requests for the problem's node. Raises `FatalError`."""
        numbers = count()
        return [self._planned(problem, claim, numbers) for claim in self._claims]

    def _planned(self, problem: Problem, claim: Claim, numbers: Iterator[int]) -> PlannedClaim:
        constraints = self._constraints_of(claim)
        least = 0
        plans: list[tuple[Plan, ...]] = []
        for choice in claim.requests:
            self._check_choice(claim, choice)
            own = tuple(self._plan(problem, claim, request, next(numbers)) for request in choice.alternatives)
            wanted = min(plan.wanted for plan in own)
            if wanted > RESULTS_MAX - least:
                message = f"{wanted} devices, after {least} for other requests: a claim can hold {RESULTS_MAX}"
                raise FatalError(claim.reference, choice.path, message)
            least += wanted
            plans.append(own)
        return PlannedClaim(claim, tuple(plans), constraints)

    def _constraints_of(self, claim: Claim) -> tuple[Constraint, ...]:
        known = self._constraints.get(claim)
        if known is None:
            known = self._constraints[claim] = constraints_of(claim, self._features.list_attributes)
        return known

    def _check_choice(self, claim: Claim, choice: RequestChoice) -> None:
        if choice.prioritized and not self._features.prioritized_list:
            raise FatalError(claim.reference, choice.path, "firstAvailable needs the feature DRAPrioritizedList")
        for request in choice.alternatives:
            if request.asks_capacity and not self._features.consumable_capacity:
                message = "requests for capacity need the feature DRAConsumableCapacity"
                raise FatalError(claim.reference, f"{request.path}.capacity", message)

    def _plan(self, problem: Problem, claim: Claim, request: Request, number: int) -> Plan:
        self._check_request(claim, request)
        constraints = covering(self._constraints_of(claim), request)
        plan = Plan(number, request, self._class(claim, request), request.count, None, constraints)
        match request.mode:
            case "ExactCount":
                return plan
            case "All":
                devices = _all_devices(problem, claim, plan)
                return replace(plan, wanted=len(devices), devices=devices)
            case _:
                message = f'"{request.mode}" is not one of ExactCount, All'
                raise FatalError(claim.reference, f"{request.path}.allocationMode", message)

    def _check_request(self, claim: Claim, request: Request) -> None:
        if request.derives_attributes:
            message = "derived attributes need the feature DRADerivedAttributes"
            raise FatalError(claim.reference, f"{request.path}.derivedAttributes", message)
        if None in request.selectors:
            path = f"{request.path}.selectors[{request.selectors.index(None)}]"
            raise FatalError(claim.reference, path, "the selector is not CEL; no other kind is known")
        if request.asks_admin_access and not self._features.admin_access:
            message = "admin access needs the feature DRAAdminAccess"
            raise FatalError(claim.reference, f"{request.path}.adminAccess", message)

    def _class(self, claim: Claim, request: Request) -> DeviceClass:
        path = f"{request.path}.deviceClassName"
        if not request.class_name:
            raise FatalError(claim.reference, path, "no device class is named")
        known = self._classes.get(request.class_name)
        if known is None:
            found = self._lister.get(request.class_name)
            if found is None:
                raise MissingClass(claim.reference, path, request.class_name)
            known = self._classes[request.class_name] = DeviceClass(found)
        return known


def _all_devices(problem: Problem, claim: Claim, plan: Plan) -> tuple[int, ...]:
    """The positions of all devices of the node that suit a plan, in use or not."""
    for pool in problem.pools:
        if not pool.usable:
            state = pool.invalid_reason or f"incomplete: {pool.present} of {pool.expected} slices are there"
            message = f"mode All must know all devices, but pool {pool.id} is not usable now: {state}"
            raise FatalError(claim.reference, f"{plan.request.path}.allocationMode", message)
    positions = []
    for position, device in enumerate(problem.devices):
        amounts = problem.amounts(plan, claim, position)
        if amounts is None:
            continue
        if all(amount.nanos <= device.capacity[name].value.nanos for name, amount in amounts.items()):
            positions.append(position)
    return tuple(positions)
