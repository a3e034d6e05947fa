"""What would have to change for claims to have a way on a node, each proved by the search.

The cheapest for people comes first: waiting for others, asking for less, then giving up an attribute that must match or
a constraint. As soon as something helps, what costs more is not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from scheduling.api.quantities import Quantity, from_int, parse
from scheduling.pools.claim_documents import DeviceClaim, DeviceClaimDetail
from scheduling.pools.diagnosis import NeedFinding, PoolFinding, PoolOutcome
from scheduling.pools.documents import COUNT
from scheduling.pools.obstacles import AmountShort
from scheduling.pools.questions import Claims, NeedPlace, PoolJudge, places_of
from scheduling.pools.reading import title_of


class PoolRemedyKind(StrEnum):
    """A change after which there is a way."""

    FREE = "free"
    """Nothing in use by others."""
    FEWER = "fewer"
    """A smaller count; `PoolRemedy.value`."""
    LESS = "less"
    """A smaller amount; `PoolRemedy.value` of `PoolRemedy.what`."""
    MORE_DEVICES = "more-devices"
    """A larger `limits.count`; `PoolRemedy.value`."""
    NO_MATCH = "no-match"
    """Without a matching attribute; `PoolRemedy.what`."""
    NO_CONSTRAINT = "no-constraint"
    """Without the need's own constraint."""


@dataclass(frozen=True, slots=True)
class PoolRemedy:
    """One change. `claim` and `need` say where; the need is empty for something of the whole claim."""

    change: PoolRemedyKind
    claim: str = ""
    need: str = ""
    what: str = ""
    value: str = ""


def remedies(claims: Claims, finding: PoolFinding, judge: PoolJudge) -> Iterator[PoolRemedy]:
    """Changes after which there is a way on this node, the cheapest first; none for one that has a way."""
    if finding.outcome is not PoolOutcome.BLOCKED:
        return
    found = [*_waiting(claims, judge), *_smaller(claims, finding, judge)]
    yield from found or _without(claims, finding, judge)


def _waiting(claims: Claims, judge: PoolJudge) -> Iterator[PoolRemedy]:
    if any(each.users for pool in judge.pools for each in pool.devices) and judge.possible(claims, unused=True):
        yield PoolRemedy(PoolRemedyKind.FREE)


def _changed(claims: Claims, place: NeedPlace, detail: DeviceClaimDetail) -> list[DeviceClaim]:
    """The claims with another detail in the place of a need."""
    claim = claims[place.claim]
    instance = claim.spec.claims[place.instance]
    details = list(instance.one_of if place.alternative else instance.all_of)
    details[place.position] = detail
    changed = (
        replace(instance, one_of=tuple(details)) if place.alternative else replace(instance, all_of=tuple(details))
    )
    instances = list(claim.spec.claims)
    instances[place.instance] = changed
    found = list(claims)
    found[place.claim] = replace(claim, spec=replace(claim.spec, claims=tuple(instances)))
    return found


def _blocking(claims: Claims, finding: PoolFinding) -> list[NeedPlace]:
    """The needs in the way; those of one `oneOf` with others are left to their author."""
    named = {(each.claim, each.need) for each in finding.needs}
    return [each for each in places_of(claims) if (each.title, each.path) in named]


def _smaller(claims: Claims, finding: PoolFinding, judge: PoolJudge) -> Iterator[PoolRemedy]:
    """A smaller count or amount, or a larger limit, in one need."""
    found = {(each.claim, each.need): each for each in finding.needs}
    for place in _blocking(claims, finding):
        yield from _less_of(_NeedChange(claims, place, judge), found[place.title, place.path])


def _less_of(change: _NeedChange, need: NeedFinding) -> Iterator[PoolRemedy]:
    at = (need.claim, need.need)
    fewer = _greatest(need.wanted - 1, lambda count: change.helps({COUNT: from_int(count)}, max(count, need.most)))
    if fewer:
        yield PoolRemedy(PoolRemedyKind.FEWER, *at, value=str(fewer))
    for obstacle in need.obstacles:
        if not isinstance(obstacle, AmountShort):
            continue
        for goal in obstacle.goals:
            amount = parse(goal.best)
            if amount.nanos and change.helps({goal.resource: amount}, need.most):
                yield PoolRemedy(PoolRemedyKind.LESS, *at, goal.resource, goal.best)
        if need.usable > need.most and change.helps({}, need.usable):
            more = _least(need.most + 1, need.usable, lambda count: change.helps({}, count))
            yield PoolRemedy(PoolRemedyKind.MORE_DEVICES, *at, value=str(more))


@dataclass(frozen=True, slots=True)
class _NeedChange:
    """One need, to be asked about with other amounts."""

    claims: Claims
    place: NeedPlace
    judge: PoolJudge

    def helps(self, requests: Mapping[str, Quantity], limit: int) -> bool:
        """True if there is a way with these requests and this limit of devices instead."""
        detail = self.place.detail
        limits = {**detail.limits, COUNT: from_int(limit)}
        changed = replace(detail, requests={**detail.requests, **requests}, limits=limits)
        return self.judge.possible(_changed(self.claims, self.place, changed)) is True


def _greatest(most: int, holds: Callable[[int], bool]) -> int:
    """The greatest number from 1 to `most` for which something holds that holds for all smaller ones too, 0 if none."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _least(least: int, most: int, holds: Callable[[int], bool]) -> int:
    """The least number for which something holds that holds for `most` and for all greater ones."""
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if holds(middle) else (middle + 1, most)
    return least


def _without(claims: Claims, finding: PoolFinding, judge: PoolJudge) -> Iterator[PoolRemedy]:
    """Without one matching attribute, or without one need's own constraint."""
    for number, claim in enumerate(claims):
        for name in claim.spec.match_attributes:
            rest = tuple(each for each in claim.spec.match_attributes if each != name)
            changed = [
                *claims[:number],
                replace(claim, spec=replace(claim.spec, match_attributes=rest)),
                *claims[number + 1 :],
            ]
            if judge.possible(changed):
                yield PoolRemedy(PoolRemedyKind.NO_MATCH, title_of(claim), what=name)
    for place in _blocking(claims, finding):
        detail = place.detail
        for name in detail.match_attributes:
            rest = tuple(each for each in detail.match_attributes if each != name)
            if judge.possible(_changed(claims, place, replace(detail, match_attributes=rest))):
                yield PoolRemedy(PoolRemedyKind.NO_MATCH, place.title, place.path, name)
        if detail.constraints and judge.possible(_changed(claims, place, replace(detail, constraints=None))):
            yield PoolRemedy(PoolRemedyKind.NO_CONSTRAINT, place.title, place.path, detail.constraints)
