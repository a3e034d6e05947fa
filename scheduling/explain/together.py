"""What several devices or requests do to each other, in facts: constraints, competition, shared counters.

The core is a smallest set of requests and constraints that no choice of devices satisfies. Smallest means that the set
can be satisfied as soon as any one member is left out; there may be other such sets. It is found by leaving out one
member after the other and asking the allocator: a member without which it still cannot be satisfied is not needed. That
takes one call for each member, and calls are limited: where the limit ends the work, the set is right but perhaps not
smallest, and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduling.allocator.allocated import CounterKey
from scheduling.allocator.claims import Claim, ConstraintFacts, DeviceRequest
from scheduling.allocator.slices import DeviceID, PoolID, SliceDevice
from scheduling.explain.judge import Claims, NodeJudge, Part, constraints_of, reduced, requests_of
from scheduling.explain.obstacles import Bearers, Competing, ConstraintUnsatisfiable, NotTogether, Obstacle
from scheduling.explain.placing import title_of_reference, value_of
from scheduling.explain.screening import Screened

MOST_CALLS = 100
"""Questions for one set; claims have at most 32 requests and 32 constraints."""

Possible = Callable[[Claims], bool | None]
"""Whether the allocator finds devices for these claims; None where it gives up or refuses them."""


@dataclass(frozen=True, slots=True)
class Core:
    """``minimal``: no member can be left out."""

    requests: tuple[Part, ...]
    constraints: tuple[Part, ...]
    minimal: bool


def smallest(claims: Claims, possible: Possible, most_calls: int = MOST_CALLS) -> Core:
    """A smallest part of these claims, which cannot be satisfied as they are."""
    requests, constraints = requests_of(claims), constraints_of(claims)
    calls, minimal = 0, True

    def still_impossible(kept_requests: Collection[Part], kept_constraints: Collection[Part]) -> bool:
        nonlocal calls, minimal
        if calls >= most_calls:
            minimal = False
            return False
        calls += 1
        answer = possible(reduced(claims, kept_requests, kept_constraints))
        minimal = minimal and answer is not None
        return answer is False

    # Requests first: without its request a constraint often means nothing, and fewer questions are left. The last of
    # them are tried first, so that what remains is what a reader of the claim meets first.
    for part in reversed(list(requests)):
        rest = [each for each in requests if each != part]
        if rest and still_impossible(rest, constraints):
            requests = rest
    for part in reversed(list(constraints)):
        rest = [each for each in constraints if each != part]
        if still_impossible(requests, rest):
            constraints = rest
    return Core(tuple(requests), tuple(constraints), minimal)


Screenings = Mapping[Part, Sequence[tuple[DeviceRequest, Screened]]]
"""What was found for every alternative of a request."""


def of_core(facts: Sequence[Claim], core: Core, screened: Screenings) -> Iterator[Obstacle]:
    """A core in facts: who competes under which constraints, then each constraint with its values."""
    rules = [(part, facts[part[0]].constraints[part[1]]) for part in core.constraints]
    explained = len(rules) == 1 and all(_covers(rules[0], part, screened[part]) for part in core.requests)
    if not explained:
        requests = tuple((title_of_reference(facts[i].reference), facts[i].requests[j].name) for i, j in core.requests)
        yield Competing(requests, tuple(f"{rule.rule} {rule.attribute}" for _, rule in rules), core.minimal)
    for part, rule in rules:
        yield _unsatisfiable(facts, part, rule, core, screened)


def refused_by(facts: Sequence[Claim], constraint: Part, screened: Screenings) -> Obstacle:
    """One constraint in facts, over all requests that it is about."""
    rule = facts[constraint[0]].constraints[constraint[1]]
    covered = tuple(part for part, seen in screened.items() if _covers((constraint, rule), part, seen))
    return _unsatisfiable(facts, constraint, rule, Core(covered, (constraint,), True), screened)


def _covers(
    rule: tuple[Part, ConstraintFacts], request: Part, screened: Sequence[tuple[DeviceRequest, Screened]]
) -> bool:
    return rule[0][0] == request[0] and any(rule[1].covers(alternative) for alternative, _ in screened)


def _unsatisfiable(
    facts: Sequence[Claim], part: Part, rule: ConstraintFacts, core: Core, screened: Screenings
) -> ConstraintUnsatisfiable:
    attribute = rule.attribute
    covered = [each for each in core.requests if _covers((part, rule), each, screened[each])]
    wanted: list[tuple[str, int, Counter[str | None]]] = []
    found: dict[DeviceID, str | None] = {}
    for i, j in covered:
        alternatives = [(one, seen) for one, seen in screened[(i, j)] if rule.covers(one)]
        count = min(len(seen.suitable) if one.mode == "All" else one.count for one, seen in alternatives)
        own = {device.id: value_of(device, attribute) for _, seen in alternatives for device in seen.usable}
        found |= own
        wanted.append((facts[i].requests[j].name, count, Counter(own.values())))
    values = Counter(found.values())
    equal = rule.match_attribute is not None
    return ConstraintUnsatisfiable(
        claim=title_of_reference(facts[part[0]].reference),
        index=part[1],
        rule=rule.rule,
        attribute=attribute,
        requests=tuple(name for name, _, _ in wanted),
        wanted=sum(count for _, count, _ in wanted),
        best=_best(wanted, values) if equal else _different(values),
        values=tuple(
            Bearers(text, count, tuple((name, own[text]) for name, _, own in wanted))
            for text, count in sorted(values.items(), key=_frequent_first)
        ),
    )


def _frequent_first(entry: tuple[str | None, int]) -> tuple[bool, int, str]:
    return entry[0] is None, -entry[1], entry[0] or ""


def _best(wanted: Sequence[tuple[str, int, Counter[str | None]]], values: Counter[str | None]) -> int | None:
    """The most devices with one value that the requests can have together; None where values are lists."""
    if any(text is not None and text.startswith("[") for text in values):
        return None
    sums = {
        text: min(sum(min(count, own[text]) for _, count, own in wanted), values[text])
        for text in values
        if text is not None
    }
    return max(sums.values(), default=0)


def _different(values: Counter[str | None]) -> int | None:
    if any(text is not None and text.startswith("[") for text in values):
        return None
    return sum(text is not None for text in values)


def not_together(alone: Claims, seen: Screened, wanted: int, judge: NodeJudge) -> Obstacle:
    """How many devices of one request are available at a time, though more of them are usable one by one.

    ``alone``: a claim with nothing but this request, in one alternative.
    """
    most = judge.most(alone, (0, 0), min(wanted, len(seen.usable)) - 1)
    short = list(_short(seen.usable, judge))
    users = dict.fromkeys(one for pool, counter in short for one in judge.users(pool, counter))
    names = dict.fromkeys(f'counter "{counter}" of "{counter_set}"' for _, (counter_set, counter) in short)
    return NotTogether(wanted, most, tuple(names), tuple(users))


def _short(usable: Sequence[SliceDevice], judge: NodeJudge) -> Iterator[tuple[PoolID, CounterKey]]:
    """The counters with less left than all usable devices would take."""
    by_pool: dict[PoolID, list[SliceDevice]] = {}
    for device in usable:
        by_pool.setdefault(device.slice.pool, []).append(device)
    for pool, devices in by_pool.items():
        needed: Counter[CounterKey] = Counter()
        for device in devices:
            needed.update(device.consumed)
        # If no available device draws on counters, nothing has checked whether they are declared.
        left = judge.left(pool) if needed else {}
        yield from ((pool, counter) for counter, amount in sorted(needed.items()) if amount > left.get(counter, 0))
