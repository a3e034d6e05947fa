"""The structured allocator: which devices claims get on a node, and the AllocationResults (v1) that say so.

It answers as the scheduler of Kubernetes 1.37 does: the same devices in the same order, the same configuration, the
same refusals and errors. Between calls it holds nothing but facts that it read once, so one allocator serves any number
of nodes and threads. The caller writes the results to the claims.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scheduling.allocator.allocated import AllocatedState, Availability, ClaimLister
from scheduling.allocator.claims import RESULTS_MAX, Claim, ClassLister, DeviceRequest
from scheduling.allocator.placement import Placed
from scheduling.allocator.pools import Features, SliceIndex, gather_pools, node_identity
from scheduling.allocator.problem import PlannedClaim, Planner, Problem
from scheduling.allocator.reading import FatalError, NodeError, Object, ObjectReference, Part
from scheduling.allocator.search import Search, SearchOutcome
from scheduling.allocator.selectors import Selectors


class Allocator:
    """Allocates one set of claims. Safe to call from several threads.

    The counterpart of NewAllocator, Allocate and ClaimsToAllocate of k8s.io/dynamic-resource-allocation/structured.
    """

    def __init__(
        self,
        claims_to_allocate: Iterable[Object],
        claim_lister: ClaimLister | AllocatedState,
        class_lister: ClassLister,
        slices: Iterable[Object] | SliceIndex,
        features: Features = Features(),  # noqa: B008 - a frozen value
        *,
        give_up: Callable[[], bool] | None = None,
        new_share: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        """All objects are v1, as plain data, with the API's defaults filled in.

        `claim_lister` says what is in use, itself or by listing allocated claims; it is asked once. `slices` can be an
        index made once for several allocators. `give_up` is asked during long searches; when it says so, `GaveUp` is
        raised. `new_share` makes the ids of shares. Raises `FatalError`.
        """
        self._claims_to_allocate = tuple(claims_to_allocate)
        self._claims = tuple(Claim(each) for each in self._claims_to_allocate)
        self._index = slices if isinstance(slices, SliceIndex) else SliceIndex(slices)
        self._features = features
        self._give_up = give_up
        self._new_share = new_share
        if isinstance(claim_lister, AllocatedState):
            allocated = claim_lister
        else:
            allocated = AllocatedState.of_claims(claim_lister.list_all_allocated())
        self._availability = Availability(allocated)
        self._selectors = Selectors(features)
        self._planner = Planner(self._claims, class_lister, features)

    @property
    def claims_to_allocate(self) -> tuple[Object, ...]:
        """The claims that the allocator was made for, as they were given."""
        return self._claims_to_allocate

    def allocate(self, node: Object) -> list[Result] | None:
        """The allocation results (v1 AllocationResult) for the claims on this node, in their order.

        None says that they do not fit there now. The node is a v1 Node; only its metadata matters. Raises `FatalError`
        if something is wrong on every node, `NodeError` if this one cannot say, `GaveUp` if patience ended.
        """
        problem = self.problem(node)
        search = Search(problem, self._give_up)
        outcome = search.run()
        if outcome is SearchOutcome.DONE:
            solution = zip(problem.claims, search.chosen, search.placement.placed, strict=True)
            return [allocation_result(problem, claim, chosen, own, self._new_share) for claim, chosen, own in solution]
        if outcome is SearchOutcome.LIMIT:
            message = f"with every choice of alternatives the claim gets more than {RESULTS_MAX} devices"
            raise FatalError(self._claims[0].reference, "spec.devices.requests", message)
        invalid = [f"pool {pool.id}: {pool.invalid_reason}" for pool in problem.pools if pool.is_invalid]
        if invalid:
            raise NodeError(ObjectReference("Node", problem.node), "", f"invalid resource pools: {'; '.join(invalid)}")
        return None

    def problem(self, node: Object) -> Problem:
        """The devices of a node and the plans of the claims for it, before any search. Raises `FatalError`."""
        pools = gather_pools(node, self._index, self._features)
        name, labels = node_identity(node)
        problem = Problem(
            name, labels, pools, availability=self._availability, selectors=self._selectors, features=self._features
        )
        problem.claims.extend(self._planner.plan(problem))
        return problem


Result = dict[str, Any]
"""A v1 AllocationResult, or a part of one."""


def allocation_result(
    problem: Problem,
    planned: PlannedClaim,
    chosen: Sequence[int],
    placed: Sequence[Placed],
    new_share: Callable[[], str],
) -> Result:
    """The result for one claim. `chosen` are the alternatives of its requests. Raises `FatalError`."""
    requests = [plans[choice].request for plans, choice in zip(planned.plans, chosen, strict=True)]
    devices: Result = {}
    results = [_device_result(problem, each, new_share) for each in placed]
    if results:
        devices["results"] = results
    config = _configuration(planned, chosen, requests)
    if config:
        devices["config"] = config
    result: Result = {"devices": devices}
    selector = _node_selector(problem, placed)
    if selector is not None:
        result["nodeSelector"] = selector
    return result


def _device_result(problem: Problem, placed: Placed, new_share: Callable[[], str]) -> Result:
    device, request = placed.device, placed.plan.request
    result: Result = {
        "request": request.name,
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.device,
    }
    if request.admin_access:
        result["adminAccess"] = True
    if request.object.get("tolerations"):
        result["tolerations"] = [dict(each) for each in request.object["tolerations"]]
    if problem.features.binding_conditions:
        if device.binding_conditions:
            result["bindingConditions"] = list(device.binding_conditions)
        if device.binding_failure_conditions:
            result["bindingFailureConditions"] = list(device.binding_failure_conditions)
    if placed.amounts is not None:
        result["shareID"] = new_share()
        if placed.amounts:
            result["consumedCapacity"] = {name: amount.text for name, amount in placed.amounts.items()}
    return result


def _configuration(planned: PlannedClaim, chosen: Sequence[int], requests: Sequence[DeviceRequest]) -> list[Result]:
    """Configuration of the classes, then of the claim; an entry for every request of the claim names none of them."""
    entries = _class_configuration(planned, chosen) + _claim_configuration(planned.claim, requests)
    for entry in entries:
        named = entry.get("requests", ())
        if named and all(_named(request, named) for request in requests):
            del entry["requests"]
    return entries


def _named(request: DeviceRequest, names: Iterable[str]) -> bool:
    """Whether a request is meant by these names: by its own, or for an alternative by its request's."""
    return request.name in names or (bool(request.parent) and request.parent in names)


def _class_configuration(planned: PlannedClaim, chosen: Sequence[int]) -> list[Result]:
    """Each class once, for all requests that use it, in the order of the first of them."""
    users: dict[str, list[str]] = {}
    configs: dict[str, Sequence[Part]] = {}
    for plans, choice in zip(planned.plans, chosen, strict=True):
        plan = plans[choice]
        users.setdefault(plan.device_class.name, []).append(plan.request.name)
        configs.setdefault(plan.device_class.name, plan.device_class.config)
    return [
        {**entry.object, "source": "FromClass", "requests": list(users[name])}
        for name, entries in configs.items()
        for entry in entries
    ]


def _claim_configuration(claim: Claim, requests: Sequence[DeviceRequest]) -> list[Result]:
    """The claim's entries that name no request, or at least one that is part of the allocation."""
    entries: list[Result] = []
    for entry in claim.config:
        named = entry.strings("requests")
        if not named or any(_named(request, named) for request in requests):
            rest = {key: value for key, value in entry.object.items() if key != "requests"}
            entries.append({**rest, "source": "FromClaim", **({"requests": list(named)} if named else {})})
    return entries


def _node_selector(problem: Problem, placed: Sequence[Placed]) -> Result | None:
    """Where the allocation can be used: this node, the nodes that all slices select, or (None) everywhere."""
    expressions: list[Object] = []
    fields: list[Object] = []
    for each in placed:
        device = each.device
        nodes = device.nodes if device.slice.per_device is True else device.slice.nodes
        if nodes.name is not None or device.binds_to_node:
            return _only(problem.node)
        if nodes.selector is None:
            continue
        path = f"{device.path if device.slice.per_device is True else 'spec'}.nodeSelector"
        selector = Part(device.slice.reference, nodes.selector, path)
        terms = selector.parts("nodeSelectorTerms")
        if len(terms) > 1:
            message = f"{len(terms)} terms, but an allocation can only be bound to one"
            raise FatalError(selector.owner, selector.at("nodeSelectorTerms"), message)
        for term in terms:
            _add_new(fields, term.parts("matchFields"))
            _add_new(expressions, term.parts("matchExpressions"))
    only_term = {name: value for name, value in (("matchExpressions", expressions), ("matchFields", fields)) if value}
    return {"nodeSelectorTerms": [only_term]} if only_term else None


def _only(node: str) -> Result:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _add_new(into: list[Object], requirements: Iterable[Part]) -> None:
    for each in requirements:
        if not any(_same_requirement(each.object, other) for other in into):
            into.append(each.object)


def _same_requirement(one: Object, other: Object) -> bool:
    return (
        one.get("key") == other.get("key")
        and one.get("operator") == other.get("operator")
        and set(one.get("values") or ()) == set(other.get("values") or ())
    )
