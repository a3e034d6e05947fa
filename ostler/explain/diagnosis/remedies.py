"""What would have to change for the claims to fit on a node, each proved by the allocator.

Only changes that bear on what was found are tried, the cheapest for people first: waiting for others, tolerating
taints, asking for fewer, then giving up a constraint or a selector. As soon as something helps, what costs more is
not tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from driver.structured.allocated import AllocatedState
from driver.structured.claims import Claim, Request
from ostler.explain.diagnosis.cores import Core
from ostler.explain.diagnosis.judge import Judge
from ostler.explain.diagnosis.obstacles import (
    CapacityExhausted,
    ConditionFalse,
    CounterExhausted,
    Held,
    Obstacle,
    Tainted,
)
from ostler.explain.diagnosis.reduction import (
    Claims,
    Part,
    constraints_of,
    reduced,
    requests_of,
    tolerant,
    with_count,
    without_selector,
)
from ostler.explain.diagnosis.screening import Screened
from ostler.explain.diagnosis.verdict import Change, Remedy

Screenings = Mapping[Part, Sequence[tuple[Request, Screened]]]
_NOTHING = AllocatedState()


def remedies(claims: Claims, screened: Screenings, core: Core | None, judge: Judge) -> Iterator[Remedy]:
    """Changes that help, in the order in which they are to be thought of."""
    found = [each for seen in screened.values() for _, one in seen for each in one.obstacles]
    found_any = False
    for remedy in (*_waiting(claims, found, judge), *_fewer(claims, screened, judge)):
        found_any = True
        yield remedy
    if found_any:
        return
    yield from _without_constraint(claims, core, judge)
    yield from _without_selector(claims, screened, judge)


def _waiting(claims: Claims, found: Sequence[Obstacle], judge: Judge) -> Iterator[Remedy]:
    in_use = any(isinstance(each, Held | CounterExhausted | CapacityExhausted) for each in found)
    tainted = any(isinstance(each, Tainted) for each in found)
    free = in_use and judge.ask(claims, allocated=_NOTHING).fits
    tolerated = tainted and judge.possible(tolerant(claims))
    if free:
        yield Remedy(Change.FREE)
    if tolerated:
        yield Remedy(Change.TOLERATE)
    if in_use and tainted and not free and not tolerated and judge.ask(tolerant(claims), allocated=_NOTHING).fits:
        yield Remedy(Change.FREE_AND_TOLERATE)


def _fewer(claims: Claims, screened: Screenings, judge: Judge) -> Iterator[Remedy]:
    """A smaller count in one request; a request in alternatives has no count of its own."""
    for part, seen in screened.items():
        request, one = seen[0]
        if len(seen) > 1 or request.mode == "All" or request.count < 2 or not one.usable:
            continue
        low, high = 0, min(request.count - 1, len(one.usable))
        while low < high:
            middle = (low + high + 1) // 2
            if judge.possible(with_count(claims, part, middle)):
                low = middle
            else:
                high = middle - 1
        if low:
            yield Remedy(Change.FEWER, f'request "{request.name}"', low)


def _without_constraint(claims: Claims, core: Core | None, judge: Judge) -> Iterator[Remedy]:
    if core is None:
        return
    for part in core.constraints:
        rest = [each for each in constraints_of(claims) if each != part]
        if judge.possible(reduced(claims, requests_of(claims), rest)):
            rule = Claim(claims[part[0]]).constraints[part[1]]
            kind = "matchAttribute" if rule.match_attribute is not None else "distinctAttribute"
            name = rule.match_attribute or rule.distinct_attribute
            yield Remedy(Change.NO_CONSTRAINT, f"constraint {part[1] + 1} ({kind} {name})")


def _without_selector(claims: Claims, screened: Screenings, judge: Judge) -> Iterator[Remedy]:
    """One of a request's own selectors; a class is often not the asker's to change."""
    for part, seen in screened.items():
        request, one = seen[0]
        if len(seen) > 1:
            continue
        failing = {
            each.source.index
            for each in one.obstacles
            if isinstance(each, ConditionFalse) and each.source.kind == "request"
        }
        for index in sorted(failing):
            if judge.possible(without_selector(claims, part, index)):
                yield Remedy(Change.NO_SELECTOR, f'selector {index + 1} of request "{request.name}"')
