"""One allocation on one node, prepared: the devices of the node and the plans of the requests.

Everything that makes an allocation impossible on every node, and can be seen without a search, is found here: features
that are off, classes that are missing, kinds of selectors and constraints that the allocator does not know, more
devices than a claim can hold.

The problem is fixed while the search runs. Whether a device suits a request is computed when first asked for: an answer
that no search needs cannot fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count

from scheduling.allocator.allocated import Availability
from scheduling.allocator.capacity import CapacityFault, consumption
from scheduling.allocator.claims import RESULTS_MAX, Claim, ClassLister, DeviceClass, DeviceRequest, RequestChoice
from scheduling.allocator.constraints import Constraint, constraints_of, covering
from scheduling.allocator.node_selection import Labels
from scheduling.allocator.pools import Features, ResourcePool
from scheduling.allocator.reading import FatalError, MissingClass
from scheduling.allocator.selectors import Selectors
from scheduling.allocator.slices import SliceDevice
from scheduling.api.quantities import Quantity

Amounts = Mapping[str, Quantity]
"""What an allocation takes of each capacity of a device."""

_NOTHING: Amounts = {}


@dataclass(frozen=True, eq=False)
class RequestPlan:
    """What one alternative of a request wants. `devices`: the positions of all its devices in mode All, else None."""

    number: int  # counts the plans of a problem
    request: DeviceRequest
    device_class: DeviceClass
    wanted: int
    devices: tuple[int, ...] | None
    constraints: tuple[int, ...]  # those of the claim's constraints that cover it


@dataclass(frozen=True, eq=False)
class PlannedClaim:
    """A claim with the plans of its requests, alternatives in their order."""

    claim: Claim
    plans: tuple[tuple[RequestPlan, ...], ...]
    constraints: tuple[Constraint, ...]


class Problem:
    """The claims to allocate and the devices of the node."""

    def __init__(
        self,
        node: str,
        labels: Labels,
        pools: Sequence[ResourcePool],
        *,
        availability: Availability,
        selectors: Selectors,
        features: Features,
    ) -> None:
        """`pools` as gathered for the node. Claims are added with `claims`, in the order in which they are placed."""
        self.node = node
        self.labels = labels
        self.pools = pools
        self.features = features
        self.allocated = availability.allocated
        self.availability = availability
        self.claims: list[PlannedClaim] = []
        self._selectors = selectors
        usable = [pool for pool in pools if pool.usable]
        self.devices: tuple[SliceDevice, ...] = (
            usable[0].devices if len(usable) == 1 else tuple(chain.from_iterable(pool.devices for pool in usable))
        )
        self.pool_of: list[ResourcePool] = [pool for pool in usable for _ in pool.devices]
        self._amounts: dict[tuple[int, int], Amounts | None] = {}

    @cached_property
    def held(self) -> int:
        """The devices in use whole by claims that are already allocated, as a bit mask of positions."""
        mask = shift = 0
        for pool in self.pools:
            mask |= self.availability.held(pool) << shift
            shift += len(pool.devices)
        return mask

    def shareable(self, position: int) -> bool:
        """Whether the device at this position allows several allocations."""
        return self.features.consumable_capacity and self.devices[position].allows_multiple

    def amounts(self, plan: RequestPlan, claim: Claim, position: int) -> Amounts | None:
        """What the request takes of the device's capacities; None if the device is not suitable at all.

        Raises `FatalError` if a selector fails or an amount cannot be computed.
        """
        key = (plan.number, position)
        try:
            return self._amounts[key]
        except KeyError:
            amounts = self._judge(plan, claim, self.devices[position])
            self._amounts[key] = amounts
            return amounts

    def known_amounts(self, plan: RequestPlan, position: int) -> Amounts | None:
        """What was found when it was asked for last; None as well if that was never or failed."""
        return self._amounts.get((plan.number, position))

    def _judge(self, plan: RequestPlan, claim: Claim, device: SliceDevice) -> Amounts | None:
        request = plan.request
        if not self._selectors.select(device, claim, request, plan.device_class):
            return None
        if device.slice.per_device is True and not device.selects(self.node, self.labels):
            return None
        if not self.features.consumable_capacity or not (device.capacity or request.capacities):
            return _NOTHING
        try:
            taken = consumption(request.capacities, device.capacity, self.features.fractional_capacity_range)
        except CapacityFault as fault:
            path = f"{request.path}.capacity"
            raise FatalError(claim.reference, path, f"on device {device.id}: {fault}") from fault
        return None if isinstance(taken, tuple) else taken


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
        plans: list[tuple[RequestPlan, ...]] = []
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

    def _plan(self, problem: Problem, claim: Claim, request: DeviceRequest, number: int) -> RequestPlan:
        self._check_request(claim, request)
        constraints = covering(self._constraints_of(claim), request)
        plan = RequestPlan(number, request, self._class(claim, request), request.count, None, constraints)
        match request.mode:
            case "ExactCount":
                return plan
            case "All":
                devices = _all_devices(problem, claim, plan)
                return replace(plan, wanted=len(devices), devices=devices)
            case _:
                message = f'"{request.mode}" is not one of ExactCount, All'
                raise FatalError(claim.reference, f"{request.path}.allocationMode", message)

    def _check_request(self, claim: Claim, request: DeviceRequest) -> None:
        if request.derives_attributes:
            message = "derived attributes need the feature DRADerivedAttributes"
            raise FatalError(claim.reference, f"{request.path}.derivedAttributes", message)
        if None in request.selectors:
            path = f"{request.path}.selectors[{request.selectors.index(None)}]"
            raise FatalError(claim.reference, path, "the selector is not CEL; no other kind is supported")
        if request.asks_admin_access and not self._features.admin_access:
            message = "admin access needs the feature DRAAdminAccess"
            raise FatalError(claim.reference, f"{request.path}.adminAccess", message)

    def _class(self, claim: Claim, request: DeviceRequest) -> DeviceClass:
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


def _all_devices(problem: Problem, claim: Claim, plan: RequestPlan) -> tuple[int, ...]:
    """The positions of all devices of the node that suit a plan, in use or not."""
    for pool in problem.pools:
        if not pool.usable:
            state = pool.invalid_reason or f"incomplete: {pool.present} of {pool.expected} slices exist"
            message = f"mode All needs every pool, but pool {pool.id} is not usable: {state}"
            raise FatalError(claim.reference, f"{plan.request.path}.allocationMode", message)
    positions = []
    for position, device in enumerate(problem.devices):
        amounts = problem.amounts(plan, claim, position)
        if amounts is None:
            continue
        if all(amount.nanos <= device.capacity[name].value.nanos for name, amount in amounts.items()):
            positions.append(position)
    return tuple(positions)
