"""Why claims fit on a node or do not: the allocator's verdict, and the reasons behind it.

Pure: cluster, claims and node in, a finding out. The most telling reasons come first: pools of the node that are not
used, then what cannot be had together (constraints, requests against each other), then request by request what its
devices lack: held, tainted, capacity, counters (these go away by themselves or by a pod's end), then selectors, where
least is missing first. A request is explained only if it is in the way: if it cannot be met even alone, or belongs to a
smallest set of requests and constraints that cannot be met together.

Errors of the allocator become obstacles too: with the expression and its place, the class, or the object and its field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from kube.bodies import JsonObject, text_at
from scheduling.allocator.claims import RESULTS_MAX, Claim, DeviceRequest, RequestChoice
from scheduling.allocator.node_selection import Labels
from scheduling.allocator.pools import ResourcePool, gather_pools, node_identity
from scheduling.allocator.reading import AllocationError, FatalError, GaveUp
from scheduling.allocator.selectors import SelectorError
from scheduling.allocator.slices import PoolID, SliceDevice
from scheduling.cel.compiler import compile as compile_expression
from scheduling.cel.environment import CelFeatures
from scheduling.cel.errors import CompileError, EvaluationError
from scheduling.cel.library.regex import MissingLibrary
from scheduling.explain import obstacles as kinds
from scheduling.explain.cluster import Cluster
from scheduling.explain.judge import Claims, NodeJudge, Part, constraints_of, only_alternative, reduced, requests_of
from scheduling.explain.obstacles import Obstacle
from scheduling.explain.placing import placements, shared, title_of, title_of_reference
from scheduling.explain.remedies import remedies
from scheduling.explain.screening import Screened, broken, devices_for, refusal, screen, unreadable
from scheduling.explain.state import ExplainError
from scheduling.explain.together import Core, not_together, of_core, refused_by, smallest
from scheduling.explain.verdict import NodeFinding, NodeOutcome, Remedy, RequestFinding

Cures = Callable[[], tuple[Remedy, ...]]
"""Finds the changes that help."""


@dataclass(frozen=True, slots=True)
class NodeSupply:
    """A node, and what of the cluster is there for it."""

    name: str
    labels: Labels
    pools: Sequence[ResourcePool]
    devices: tuple[SliceDevice, ...]


def examine(claims: Claims, node: JsonObject, cluster: Cluster) -> tuple[NodeFinding, Cures]:
    """What holds for these claims on this node, and how to find changes that help, which takes as long again.

    Never raises for what is wrong with the objects.
    """
    name, labels = node_identity(node)
    judge = NodeJudge(node, cluster)
    answer = judge.ask(claims)
    try:
        pools = gather_pools(node, cluster.index, cluster.features)
        if answer.results is not None:
            devices = {device.id: device for pool in pools for device in pool.devices}
            placed = tuple(placements(claims, answer.results, devices))
            return NodeFinding(name, NodeOutcome.FITS, placed, tuple(shared(claims, placed, devices))), _none
        supply = NodeSupply(name, labels, pools, devices_for(name, labels, pools))
        if isinstance(answer.error, FatalError):
            return _refused(claims, supply, cluster, answer.error), _none
        return _Blocked(claims, supply, cluster, judge).finding(answer.error)
    except FatalError as error:
        return NodeFinding(
            name, NodeOutcome.ERROR, obstacles=(obstacle_of(error, claims, cluster.cel_features),)
        ), _none


def _none() -> tuple[Remedy, ...]:
    return ()


def _refused(claims: Claims, supply: NodeSupply, cluster: Cluster, error: FatalError) -> NodeFinding:
    """The allocator refuses the claims. If it cannot give "all devices", the pools at fault are named."""
    obstacles: tuple[Obstacle, ...] = (obstacle_of(error, claims, cluster.cel_features),)
    facts = [Claim(claim) for claim in claims]
    requests = [one for fact in facts for choice in fact.requests for one in choice.alternatives]
    if any(request.mode == "All" for request in requests):
        if error.field.endswith("allocationMode"):
            names = tuple(request.name for request in requests if request.mode == "All")
            faults = tuple(fault for _, fault in faulty(supply.pools, supply.name, supply.labels, cluster))
            obstacles = (kinds.AllNeedsPools(names), *faults) if faults else obstacles
        elif found := _CONSTRAINT.fullmatch(error.field):
            number = next((i for i, fact in enumerate(facts) if fact.reference == error.object), 0)
            screened = {
                (number, j): [(one, screen(one, supply.devices, supply.pools, cluster)) for one in choice.alternatives]
                for j, choice in enumerate(facts[number].requests)
            }
            obstacles = (refused_by(facts, (number, int(found.group(1))), screened),)
    return NodeFinding(supply.name, NodeOutcome.ERROR, obstacles=obstacles)


class _Blocked:
    """A node on which the allocator found nothing."""

    def __init__(self, claims: Claims, supply: NodeSupply, cluster: Cluster, judge: NodeJudge) -> None:
        self._claims = claims
        self._facts = [Claim(claim) for claim in claims]
        self._supply = supply
        self._cluster = cluster
        self._judge = judge

    def finding(self, error: AllocationError | None) -> tuple[NodeFinding, Cures]:
        """All that is in the way, and what would help."""
        name = self._supply.name
        parts = requests_of(self._claims)
        alone = self._impossible_alone(parts, known=not isinstance(error, GaveUp))
        if isinstance(error, GaveUp) and not alone:
            return NodeFinding(name, NodeOutcome.UNKNOWN, obstacles=(kinds.SearchEnded(error.message),)), _none
        core = None if alone else smallest(self._claims, self._judge.possible)
        blamed = alone or list(core.requests if core is not None else parts)
        screened = {part: self._screened(part) for part in blamed}
        together = [] if core is None else list(of_core(self._facts, core, screened))
        faults = self._faults([self._choice(part) for part in blamed])
        requests = tuple(each for part in blamed for each in self._requests(part, screened[part], core))
        blocked = NodeFinding(name, NodeOutcome.BLOCKED, obstacles=(*faults, *together), requests=requests)
        return blocked, lambda: tuple(remedies(self._claims, screened, core, self._judge))

    def _impossible_alone(self, parts: Sequence[Part], *, known: bool) -> list[Part]:
        """The requests that cannot be met even alone; ``known``: it is proved that they cannot be met together."""
        if known and len(parts) == 1 and not constraints_of(self._claims):
            return list(parts)
        return [part for part in parts if self._judge.ask(reduced(self._claims, [part], ())).hopeless]

    def _choice(self, part: Part) -> RequestChoice:
        return self._facts[part[0]].requests[part[1]]

    def _screened(self, part: Part) -> list[tuple[DeviceRequest, Screened]]:
        supply = self._supply
        alternatives = self._choice(part).alternatives
        return [(one, screen(one, supply.devices, supply.pools, self._cluster)) for one in alternatives]

    def _requests(
        self, part: Part, screened: Sequence[tuple[DeviceRequest, Screened]], core: Core | None
    ) -> Iterator[RequestFinding]:
        for number, (request, seen) in enumerate(screened):
            wanted = None if request.mode == "All" else request.count
            found = list(seen.obstacles)
            enough = len(seen.suitable) if wanted is None else wanted
            if core is None and enough and len(seen.usable) >= enough:
                # One by one enough devices are free: what they share is in the way.
                alone = only_alternative(reduced(self._claims, [part], ()), (0, 0), number)
                found = [not_together(alone, seen, enough, self._judge), *found]
            if core is not None:
                found = [each for each in found if not isinstance(each, kinds.ConditionFalse)]
            yield RequestFinding(
                claim=title_of(self._claims[part[0]]),
                request=request.name,
                wanted=wanted,
                total=len(seen.devices),
                suitable=len(seen.suitable),
                usable=len(seen.usable),
                obstacles=tuple(found),
            )

    def _faults(self, blamed: Sequence[RequestChoice]) -> Iterator[Obstacle]:
        """The pools that are not used and could matter to these requests, or that there are no devices at all."""
        supply, cluster = self._supply, self._cluster
        any_pool = bool(supply.pools)
        requests = [request for choice in blamed for request in choice.alternatives]
        for pool, fault in faulty(supply.pools, supply.name, supply.labels, cluster):
            any_pool = True
            there = present(pool, supply.name, supply.labels, cluster)
            if not there or any(self._could_serve(one, request) for one in there for request in requests):
                yield fault
        if not any_pool or not supply.devices:
            drivers = sorted({each.pool.driver for each in cluster.index.all})
            if not any_pool:
                yield kinds.NoDevices(tuple(drivers))

    def _could_serve(self, device: SliceDevice, request: DeviceRequest) -> bool:
        against = refusal(request, device, device.name, self._cluster)
        return against is None or not against.foreign


def limit_of(claims: Claims) -> Iterator[Obstacle]:
    """Claims that ask for more devices than a claim can get, whatever there is."""
    for claim in claims:
        wanted = 0
        for choice in Claim(claim).requests:
            counts = [0 if request.mode == "All" else request.count for request in choice.alternatives]
            wanted += min(counts, default=0)
        if wanted > RESULTS_MAX:
            yield kinds.TooMany(wanted, RESULTS_MAX)


NEAR = 5
"""Names of classes that are offered."""
_LIBRARY = str(MissingLibrary())
_DEFAULT_FEATURES = CelFeatures()
_INDEX = re.compile(r"selectors\[(\d+)\]")
_REQUEST = re.compile(r"spec\.devices\.requests\[(\d+)\](?:\.firstAvailable\[(\d+)\])?")
_CONSTRAINT = re.compile(r"spec\.devices\.constraints\[(\d+)\]")


def faulty(
    pools: Sequence[ResourcePool], name: str, labels: Labels, cluster: Cluster
) -> Iterator[tuple[PoolID, Obstacle]]:
    """Every pool of the node that is not used, with the reason. ``pools``: what was gathered for the node."""
    for pool in pools:
        if pool.is_incomplete:
            there = [each for each in cluster.index.of_pool(pool.id) if each.generation == newest(pool.id, cluster)]
            names = tuple(sorted(each.name for each in there))
            generation = newest(pool.id, cluster)
            counts = (generation, pool.present, pool.expected)
            yield pool.id, kinds.PoolIncomplete(pool.id.driver, pool.id.pool, *counts, names)
        elif pool.is_invalid:
            yield pool.id, kinds.PoolInvalid(pool.id.driver, pool.id.pool, pool.invalid_reason)
    gathered = {pool.id for pool in pools}
    dropped: dict[PoolID, int] = {}
    for each in cluster.index.for_node(name):
        if each.pool not in gathered and each.selects(name, labels):
            dropped[each.pool] = max(each.generation, dropped.get(each.pool, 0))
    for pool_id, generation in dropped.items():
        if newest(pool_id, cluster) > generation:
            yield pool_id, kinds.PoolOutdated(pool_id.driver, pool_id.pool, generation, newest(pool_id, cluster))


def newest(pool: PoolID, cluster: Cluster) -> int:
    """The newest generation of a pool."""
    return max((each.generation for each in cluster.index.of_pool(pool)), default=0)


def present(pool: PoolID, name: str, labels: Labels, cluster: Cluster) -> list[SliceDevice]:
    """The devices for this node in the slices that exist of a pool's newest generation."""
    generation = newest(pool, cluster)
    slices = [one for one in cluster.index.of_pool(pool) if one.generation == generation and one.selects(name, labels)]
    return [one for each in slices for one in each.devices if each.per_device is not True or one.selects(name, labels)]


def obstacle_of(
    error: AllocationError, claims: Sequence[JsonObject], features: CelFeatures = _DEFAULT_FEATURES
) -> Obstacle:
    """The error in facts; ``claims``: those that were to be allocated.

    Raises ``ExplainError`` where it is not the cluster that is at fault, but a library that is missing here.
    """
    if isinstance(error, SelectorError):
        if error.cause.message == _LIBRARY:
            raise ExplainError(_LIBRARY)
        return _selector(error, claims, features)
    return kinds.ObjectRefused(str(error.object), error.field, error.message)


def _selector(error: SelectorError, claims: Sequence[JsonObject], features: CelFeatures) -> Obstacle:
    found = _INDEX.search(error.field)
    index = int(found.group(1)) if found else 0
    if error.object.kind == "DeviceClass":
        source = kinds.SelectorSource("class", error.object.name, index)
    else:
        claim = title_of_reference(error.object) if len(claims) > 1 else ""
        source = kinds.SelectorSource("request", _request_name(error, claims), index, claim)
    cause = error.cause
    if isinstance(cause, CompileError):
        return unreadable(source, cause)
    assert isinstance(cause, EvaluationError)
    if error.device is None:
        return broken(source, cause, (), "")
    program = compile_expression(cause.expression, features)
    return broken(source, cause, program.account(error.device.cel), error.device.name)


def _request_name(error: AllocationError, claims: Sequence[JsonObject]) -> str:
    """The request at the error's path, as results name it."""
    found = _REQUEST.match(error.field)
    named = (one for one in claims if text_at(one, "metadata", "name") == error.object.name)
    claim = next(named, None)
    if found is None or claim is None:
        return error.field
    choice = Claim(claim).requests[int(found.group(1))]
    return choice.alternatives[int(found.group(2) or 0)].name


def class_missing(name: str, cluster: Cluster) -> kinds.ClassMissing:
    """No class has this name; what there is instead."""
    names = sorted(cluster.classes)
    near = get_close_matches(name, names, NEAR) or names[:NEAR]
    return kinds.ClassMissing(name, tuple(near))
