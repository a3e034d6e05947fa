"""AllocationResults (v1): what is written to a claim's status once its devices are chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scheduling.allocator.claims import Claim, Request
from scheduling.allocator.errors import FatalError
from scheduling.allocator.placement import Placed
from scheduling.allocator.problem import PlannedClaim, Problem
from scheduling.allocator.reading import Object, objects, strings

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


def _configuration(planned: PlannedClaim, chosen: Sequence[int], requests: Sequence[Request]) -> list[Result]:
    """Configuration of the classes, then of the claim; an entry for every request of the claim names none of them."""
    entries = _class_configuration(planned, chosen) + _claim_configuration(planned.claim, requests)
    for entry in entries:
        named = entry.get("requests", ())
        if named and all(_named(request, named) for request in requests):
            del entry["requests"]
    return entries


def _named(request: Request, names: Iterable[str]) -> bool:
    """Whether a request is meant by these names: by its own, or for an alternative by its request's."""
    return request.name in names or (bool(request.parent) and request.parent in names)


def _class_configuration(planned: PlannedClaim, chosen: Sequence[int]) -> list[Result]:
    """Each class once, for all requests that use it, in the order of the first of them."""
    users: dict[str, list[str]] = {}
    configs: dict[str, Sequence[Object]] = {}
    for plans, choice in zip(planned.plans, chosen, strict=True):
        plan = plans[choice]
        users.setdefault(plan.device_class.name, []).append(plan.request.name)
        configs.setdefault(plan.device_class.name, plan.device_class.config)
    return [
        {**entry, "source": "FromClass", "requests": list(users[name])}
        for name, entries in configs.items()
        for entry in entries
    ]


def _claim_configuration(claim: Claim, requests: Sequence[Request]) -> list[Result]:
    """The claim's entries that name no request, or at least one that is part of the allocation."""
    entries: list[Result] = []
    for index, entry in enumerate(claim.config):
        path = f"spec.devices.config[{index}].requests"
        named = strings(claim.reference, entry, "requests", path)
        if not named or any(_named(request, named) for request in requests):
            rest = {key: value for key, value in entry.items() if key != "requests"}
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
        part = device.path if device.slice.per_device is True else "spec"
        owner, path = device.slice.reference, f"{part}.nodeSelector.nodeSelectorTerms"
        terms = objects(owner, nodes.selector, "nodeSelectorTerms", path)
        if len(terms) > 1:
            raise FatalError(owner, path, f"{len(terms)} terms, but an allocation can only be bound to one")
        for term in terms:
            _add_new(fields, objects(owner, term, "matchFields", f"{path}[0].matchFields"))
            _add_new(expressions, objects(owner, term, "matchExpressions", f"{path}[0].matchExpressions"))
    term = {name: value for name, value in (("matchExpressions", expressions), ("matchFields", fields)) if value}
    return {"nodeSelectorTerms": [term]} if term else None


def _only(node: str) -> Result:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _add_new(into: list[Object], requirements: Iterable[Object]) -> None:
    for each in requirements:
        if not any(_same_requirement(each, other) for other in into):
            into.append(each)


def _same_requirement(one: Object, other: Object) -> bool:
    return (
        one.get("key") == other.get("key")
        and one.get("operator") == other.get("operator")
        and set(one.get("values") or ()) == set(other.get("values") or ())
    )
