"""Asks the allocator about one node: with the claims as they are, or with claims made smaller or easier.

Whether something fits is never decided by explain itself: every "fits", "does not fit" and "would fit if" is an answer
of the allocator, which decides as the scheduler does.

Functions that change claims give new claims (v1 objects as plain dicts) that share what was not changed. A request or
constraint is named by its ``Part``: the claim's place in the list, and its own place in the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kube.bodies import Json, JsonObject, object_at, text_at
from scheduling.allocator.allocated import AllocatedState, CounterKey
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import ResourcePool, gather_pools
from scheduling.allocator.reading import AllocationError, FatalError, GaveUp, NodeError, Object
from scheduling.allocator.slices import PoolID
from scheduling.explain.amounts import SharedCounters
from scheduling.explain.cluster import Cluster
from scheduling.explain.obstacles import Usage
from scheduling.explain.state import objects_at, texts_at

Part = tuple[int, int]
Claims = Sequence[JsonObject]


def requests_of(claims: Claims) -> list[Part]:
    """Every request."""
    return [(i, j) for i, claim in enumerate(claims) for j in range(len(_requests(claim)))]


def constraints_of(claims: Claims) -> list[Part]:
    """Every constraint."""
    return [(i, j) for i, claim in enumerate(claims) for j in range(len(_constraints(claim)))]


def reduced(claims: Claims, requests: Collection[Part], constraints: Collection[Part]) -> list[JsonObject]:
    """The claims with these requests and constraints alone; a claim without requests is left out.

    Constraints forget requests that are gone; one that named only such requests is gone with them.
    """
    made: list[JsonObject] = []
    for i, claim in enumerate(claims):
        kept = [request for j, request in enumerate(_requests(claim)) if (i, j) in requests]
        if not kept:
            continue
        names = {text_at(request, "name") for request in kept}
        rules = [rule for j, rule in enumerate(_constraints(claim)) if (i, j) in constraints]
        narrowed = [one for rule in rules if (one := _narrowed(rule, names)) is not None]
        made.append(_with(claim, {"requests": list(kept), "constraints": list(narrowed)}))
    return made


def tolerant(claims: Claims) -> list[JsonObject]:
    """The claims with every taint tolerated."""
    everything: JsonObject = {"operator": "Exists"}
    return [_each_request(claim, lambda one: {**one, "tolerations": [everything]}) for claim in claims]


def tolerating(claims: Claims, part: Part, more: Sequence[Sequence[Mapping[str, str]]]) -> list[JsonObject]:
    """The claims with more tolerations in one request: those for each of its alternatives, in their order."""
    rest = iter(more)

    def tolerant_one(one: JsonObject) -> JsonObject:
        added: list[Json] = [dict(toleration) for toleration in next(rest, ())]
        return {**one, "tolerations": [*objects_at(one, "tolerations"), *added]}

    return _changed(claims, part, tolerant_one)


def with_count(claims: Claims, part: Part, count: int) -> list[JsonObject]:
    """The claims with another count in one request, which then is no longer for all devices."""
    return _changed(claims, part, lambda one: {**one, "allocationMode": "ExactCount", "count": count})


def without_selector(claims: Claims, part: Part, index: int) -> list[JsonObject]:
    """The claims with one selector of one request left out (of every alternative that has that many)."""

    def lighter(one: JsonObject) -> JsonObject:
        selectors = objects_at(one, "selectors")
        return {**one, "selectors": [each for number, each in enumerate(selectors) if number != index]}

    return _changed(claims, part, lighter)


def only_alternative(claims: Claims, part: Part, index: int) -> list[JsonObject]:
    """The claims with one request reduced to one of its alternatives; an exact request has only the first."""
    made = list(claims)
    requests = list(_requests(made[part[0]]))
    alternatives = objects_at(requests[part[1]], "firstAvailable")
    if alternatives:
        requests[part[1]] = {**requests[part[1]], "firstAvailable": [alternatives[index]]}
        made[part[0]] = _with(made[part[0]], {"requests": list(requests)})
    return made


def _narrowed(rule: JsonObject, names: Collection[str]) -> JsonObject | None:
    covered = texts_at(rule, "requests")
    if not covered:
        return rule
    left: list[Json] = [name for name in covered if name.partition("/")[0] in names]
    return {**rule, "requests": left} if left else None


def _changed(claims: Claims, part: Part, change: Callable[[JsonObject], JsonObject]) -> list[JsonObject]:
    made = list(claims)
    claim = made[part[0]]
    made[part[0]] = _each_request(claim, change, only=part[1])
    return made


def _each_request(claim: JsonObject, change: Callable[[JsonObject], JsonObject], only: int | None = None) -> JsonObject:
    requests = [
        _alternatives(request, change) if only is None or only == number else request
        for number, request in enumerate(_requests(claim))
    ]
    return _with(claim, {"requests": list(requests)})


def _alternatives(request: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    made = dict(request)
    if isinstance(request.get("exactly"), dict):
        made["exactly"] = change(object_at(request, "exactly"))
    if request.get("firstAvailable"):
        made["firstAvailable"] = [change(one) for one in objects_at(request, "firstAvailable")]
    return made


def _with(claim: JsonObject, devices: JsonObject) -> JsonObject:
    """The claim with other parts of ``spec.devices``, without configuration, which decides nothing."""
    kept = {key: value for key, value in object_at(claim, "spec", "devices").items() if key != "config"}
    return {**claim, "spec": {**object_at(claim, "spec"), "devices": {**kept, **devices}}}


def _requests(claim: JsonObject) -> tuple[JsonObject, ...]:
    return objects_at(claim, "spec", "devices", "requests")


def _constraints(claim: JsonObject) -> tuple[JsonObject, ...]:
    return objects_at(claim, "spec", "devices", "constraints")


@dataclass(frozen=True, slots=True)
class AllocatorAnswer:
    """``results``: an allocation for each claim, None if there is none; ``error`` where the allocator ended so."""

    results: Sequence[Object] | None
    error: AllocationError | None = None

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None if the search gave up, or if the allocator refuses the claims on every node."""
        if self.results is not None:
            return True
        return None if isinstance(self.error, FatalError | GaveUp) else False

    @property
    def hopeless(self) -> bool:
        """Whether the claims certainly get nothing: they do not fit, or the allocator ends with an error."""
        return self.results is None and not isinstance(self.error, GaveUp)


class NodeJudge:
    """The allocator for one node."""

    def __init__(self, node: JsonObject, cluster: Cluster) -> None:
        """``node``: a v1 Node."""
        self.node = node
        self._cluster = cluster
        self._counters = SharedCounters(cluster)
        self.calls = 0

    def ask(self, claims: Claims, allocated: AllocatedState | None = None) -> AllocatorAnswer:
        """The allocator's answer for these claims, with other devices in use where ``allocated`` is given."""
        cluster = self._cluster
        give_up = None if cluster.patience is None else cluster.patience(self.calls > 0)
        self.calls += 1
        allocator = Allocator(
            claims,
            cluster.allocated if allocated is None else allocated,
            cluster.classes,
            cluster.index,
            cluster.features,
            give_up=give_up,
        )
        try:
            return AllocatorAnswer(allocator.allocate(self.node))
        except (FatalError, NodeError, GaveUp) as error:
            return AllocatorAnswer(None, error)

    def possible(self, claims: Claims) -> bool | None:
        """Whether these claims fit."""
        return self.ask(claims).fits

    def most(self, claims: Claims, part: Part, limit: int) -> int:
        """The largest count of one request, up to ``limit``, with which the claims fit."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.possible(with_count(claims, part, middle)):
                low = middle
            else:
                high = middle - 1
        return low

    def in_use(self) -> bool:
        """Whether others have anything of the node's pools, so that it matters what is in use."""
        used = self._cluster.allocated.anyhow
        parts = (one for pool in self._pools() for one in (*pool.slices, *pool.elsewhere)) if used else ()
        return any(device.id in used for part in parts for device in part.devices)

    def left(self, pool: PoolID) -> Mapping[CounterKey, int]:
        """The rest of a pool's shared counters, in billionths."""
        found = self._pool(pool)
        return {} if found is None else self._counters.left(found)

    def users(self, pool: PoolID, counter: CounterKey) -> tuple[Usage, ...]:
        """Who draws on a pool's shared counter already."""
        found = self._pool(pool)
        return () if found is None else self._counters.users(found, counter)

    def _pool(self, pool: PoolID) -> ResourcePool | None:
        return next((each for each in self._pools() if each.id == pool), None)

    def _pools(self) -> Sequence[ResourcePool]:
        return gather_pools(self.node, self._cluster.index, self._cluster.features)
