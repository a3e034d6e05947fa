"""Why claims are met on a node or not: the search's answer, and the reasons behind it.

Pure: claims, classes and the pools of one node in, a finding out. Claims have a way if and only if the finding has no
obstacles. A need is explained only if it is in the way: if it cannot be met even alone, or belongs to a smallest set of
needs and matching attributes that cannot be met together. Of a need with enough available devices, a smallest set of
its own conditions is explained: attributes that must match, and amounts.

What would help is proved by the search as well: every remedy names a change after which there is a way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from scheduling.pools.capacity import PoolLedger, quantity_of
from scheduling.pools.claim_documents import DeviceClaim, DeviceClaimInstance
from scheduling.pools.documents import COUNT
from scheduling.pools.matching import MatchingError, PooledDevice, candidate_classes
from scheduling.pools.obstacles import (
    PER_NODE,
    AmountGoal,
    AmountShort,
    AttributesDiffer,
    EqualDevices,
    NeedInvalid,
    NeedsCompete,
    NotAtOnce,
    PoolObstacle,
    StepsSpent,
    TooFewDevices,
)
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.questions import (
    Claims,
    NeedPlace,
    NeedQuestion,
    PoolJudge,
    places_of,
    smallest,
)
from scheduling.pools.screening import ScreenedNeed, screen, supply_of
from scheduling.pools.search import PoolSolution
from scheduling.pools.ways import SearchGaveUp


class PoolOutcome(StrEnum):
    """How it is on a node, nearest to a way first."""

    FITS = "fits"
    BLOCKED = "blocked"
    """There is no way."""
    ERROR = "error"
    """A constraint fails with an error at a device of the node."""
    UNKNOWN = "unknown"
    """The search took too many steps."""


@dataclass(frozen=True, slots=True)
class NeedFinding:
    """One need. `total`: devices of its drivers; `suitable`: let through by constraints; `usable`: available now."""

    claim: str
    need: str
    what: str
    wanted: int
    most: int
    total: int
    suitable: int
    usable: int
    obstacles: tuple[PoolObstacle, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolFinding:
    """What holds on one node. `obstacles`: of several needs together, or of the node."""

    node: str = field(metadata=PER_NODE)
    outcome: PoolOutcome
    solution: PoolSolution | None = field(default=None, metadata=PER_NODE)
    obstacles: tuple[PoolObstacle, ...] = ()
    needs: tuple[NeedFinding, ...] = ()

    def every_obstacle(self) -> list[PoolObstacle]:
        """All of them, those of needs included; none if and only if there is a way."""
        return [*self.obstacles, *(one for each in self.needs for one in each.obstacles)]


def invalid_needs(claims: Claims, classes: ClusterClasses) -> list[NeedFinding]:
    """The needs that no node can judge: their class is unknown or contradicts them."""
    found = []
    for place in places_of(claims):
        try:
            candidate_classes(place.detail, classes.documents)
        except MatchingError as error:
            invalid = (NeedInvalid(str(error)),)
            found.append(
                NeedFinding(
                    place.title, place.path, place.what, place.detail.least, place.detail.most, 0, 0, 0, invalid
                )
            )
    return found


def diagnose(claims: Claims, node: str, judge: PoolJudge) -> PoolFinding:
    """What holds for the claims with these pools. All needs are valid (`invalid_needs`)."""
    try:
        found = judge.ask(claims)
        if found is not None:
            return PoolFinding(node, PoolOutcome.FITS, found)
        gave_up = ""
    except MatchingError:
        return _broken(claims, node, judge)
    except SearchGaveUp as error:
        gave_up = str(error)
    return _Blocked(claims, node, judge).finding(gave_up)


def _broken(claims: Claims, node: str, judge: PoolJudge) -> PoolFinding:
    supply = supply_of(judge.pools, judge.ledger)
    obstacles = [one for place in places_of(claims) for one in screen(place.detail, judge.classes, supply).broken]
    return PoolFinding(node, PoolOutcome.ERROR, obstacles=tuple(dict.fromkeys(obstacles)))


class _Blocked:
    """A node on which there is no way."""

    def __init__(self, claims: Claims, node: str, judge: PoolJudge) -> None:
        self._claims = claims
        self._node = node
        self._judge = judge
        self._places = places_of(claims)
        supply = supply_of(judge.pools, judge.ledger)
        self._seen = [screen(each.detail, judge.classes, supply) for each in self._places]
        self._supply = supply

    def finding(self, gave_up: str) -> PoolFinding:
        """All that is in the way; `gave_up`: the search's message if it gave up."""
        slots = [[self._alone(number) for number in slot] for slot in self._slots()]
        alone = [each.finding for slot in slots if all(one.possible is False for one in slot) for each in slot]
        if alone:
            return PoolFinding(self._node, PoolOutcome.BLOCKED, needs=tuple(alone))
        if gave_up:
            return PoolFinding(self._node, PoolOutcome.UNKNOWN, obstacles=(StepsSpent(gave_up),))
        return self._together()

    def _slots(self) -> list[list[int]]:
        """The needs by number: of each list one must be met."""
        slots: dict[tuple[int, int, int], list[int]] = {}
        for number, place in enumerate(self._places):
            key = (place.claim, place.instance, -1 if place.alternative else place.position)
            slots.setdefault(key, []).append(number)
        return list(slots.values())

    def _alone(self, number: int) -> _Judged:
        """One need, as if it were all that is asked for; attributes that match across its claim still hold."""
        place, seen = self._places[number], self._seen[number]
        question = NeedQuestion(self._claims[place.claim], place.detail, self._judge.possible)
        possible = question.ask(question.conditions)
        obstacles: tuple[PoolObstacle, ...] = ()
        if possible is False:
            least = place.detail.least
            if len(seen.usable) < least:
                few = (TooFewDevices(least, len(seen.about)),) if 0 < len(seen.about) < least else ()
                obstacles = (*few, *seen.obstacles)
            else:
                obstacles = tuple(_shortages(question, seen, self._supply.ledger))
        return _Judged(possible, self._needed(number, obstacles))

    def _needed(self, number: int, obstacles: tuple[PoolObstacle, ...] = ()) -> NeedFinding:
        place, seen = self._places[number], self._seen[number]
        counts = (len(seen.about), len(seen.suitable), len(seen.usable))
        return NeedFinding(
            place.title, place.path, place.what, place.detail.least, place.detail.most, *counts, obstacles
        )

    def _together(self) -> PoolFinding:
        """Needs that can each be met alone: a smallest set of them that cannot be met together."""
        parts = [_Part(slot=tuple(each)) for each in self._slots()]
        parts += [
            _Part(number, name) for number, each in enumerate(self._claims) for name in each.spec.match_attributes
        ]
        core, minimal = smallest(parts, lambda kept: self._judge.possible(self._reduced(kept)))
        places = [self._places[each.slot[0]] for each in core if each.slot]
        named = [(each.title, each.path.partition(".oneOf")[0]) for each in places]
        attributes = tuple(dict.fromkeys(each.attribute for each in core if each.attribute))
        obstacle = NeedsCompete(tuple(named), attributes, minimal)
        shown = tuple(self._needed(number) for each in core for number in each.slot)
        return PoolFinding(self._node, PoolOutcome.BLOCKED, obstacles=(obstacle,), needs=shown)

    def _reduced(self, parts: Sequence[_Part]) -> list[DeviceClaim]:
        """The claims with these needs and matching attributes alone."""
        found = []
        slots = [[self._places[number] for number in each.slot] for each in parts if each.slot]
        for number, claim in enumerate(self._claims):
            instances = tuple(_instance(slot) for slot in slots if slot[0].claim == number)
            matched = tuple(each.attribute for each in parts if each.attribute and each.claim == number)
            if instances:
                found.append(replace(claim, spec=replace(claim.spec, claims=instances, match_attributes=matched)))
        return found


@dataclass(frozen=True, slots=True)
class _Part:
    """Needs by number of which one must be met, or an attribute that matches across a claim."""

    claim: int = 0
    attribute: str = ""
    slot: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Judged:
    """A need alone: whether it can be met (None: not known), and the finding."""

    possible: bool | None
    finding: NeedFinding


def _instance(slot: Sequence[NeedPlace]) -> DeviceClaimInstance:
    details = tuple(each.detail for each in slot)
    return DeviceClaimInstance(one_of=details) if slot[0].alternative else DeviceClaimInstance(all_of=details)


def _shortages(question: NeedQuestion, seen: ScreenedNeed, ledger: PoolLedger) -> Iterator[PoolObstacle]:
    """Why enough available devices are not enough: a smallest set of conditions that no choice of them meets."""
    least = question.detail.least
    if question.ask(()) is False:
        names = sorted({name for each in seen.usable for name in each.device.requests})
        yield NotAtOnce(least, question.most((), COUNT).nanos // 10**9, tuple(names))
        return
    core, _ = smallest(question.conditions, question.ask)
    attributes = tuple(dict.fromkeys(each.name for each in core if not each.amount))
    amounts = [each.name for each in core if each.amount]
    if attributes:
        values = Counter(tuple(_value(each, name) for name in attributes) for each in seen.usable)
        bearers = tuple(EqualDevices(each, count) for each, count in sorted(values.items(), key=_frequent_first))
        best = max((count for each, count in values.items() if None not in each), default=0)
        yield AttributesDiffer(attributes, least, best, bearers)
    if amounts:
        goals = tuple(
            AmountGoal(name, str(question.detail.requests[name]), str(question.most(core, name))) for name in amounts
        )
        in_all = sum(_left(each, amounts[0], ledger) for each in seen.usable)
        like = question.detail.requests[amounts[0]]
        yield AmountShort(goals, question.detail.most, str(quantity_of(in_all, like)), attributes)


def _frequent_first(entry: tuple[tuple[str | None, ...], int]) -> tuple[bool, int, tuple[str, ...]]:
    return None in entry[0], -entry[1], tuple(each or "" for each in entry[0])


def _value(device: PooledDevice, name: str) -> str | None:
    found = device.attribute(name)
    return None if found is None else str(found[1])


def _left(device: PooledDevice, resource: str, ledger: PoolLedger) -> int:
    return sum(
        ledger.left_of_device(device.name, each).nanos for each in device.device.resources if each.name == resource
    )
