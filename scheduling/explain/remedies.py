"""What would have to change for the claims to fit on a node, each proved by the allocator.

Only changes that bear on what was found are tried, the cheapest for people first: waiting for others, tolerating
taints, asking for fewer, then giving up a constraint or a selector. As soon as something helps, what costs more is
not tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.claims import Claim
from scheduling.explain.judge import (
    Claims,
    NodeJudge,
    Part,
    constraints_of,
    reduced,
    requests_of,
    tolerant,
    tolerating,
    without_selector,
)
from scheduling.explain.obstacles import ConditionFalse, Tainted
from scheduling.explain.placing import title_of
from scheduling.explain.together import Core, Screenings
from scheduling.explain.verdict import Remedy, RemedyKind

_NOTHING = AllocatedState()
EVERY_REQUEST = "every request"


def remedies(claims: Claims, screened: Screenings, core: Core | None, judge: NodeJudge) -> Iterator[Remedy]:
    """Changes that help, in the order in which to consider them."""
    found = [*_waiting(claims, screened, judge), *_fewer(claims, screened, judge)]
    yield from found or (*_without_constraint(claims, core, judge), *_without_selector(claims, screened, judge))


def _waiting(claims: Claims, screened: Screenings, judge: NodeJudge) -> Iterator[Remedy]:
    """Others end, or taints are tolerated: those shown, or if that is not enough all taints, in every request."""
    in_use = judge.in_use()
    free = in_use and judge.ask(claims, allocated=_NOTHING).fits
    if free:
        yield Remedy(RemedyKind.FREE)
    shown = _shown_tolerations(claims, screened)
    if shown is None:
        return
    ways = ((shown, ""), (tolerant(claims), EVERY_REQUEST))
    for changed, what in ways:
        if judge.possible(changed):
            yield Remedy(RemedyKind.TOLERATE, what)
            return
    for changed, what in ways if in_use and not free else ():
        if judge.ask(changed, allocated=_NOTHING).fits:
            yield Remedy(RemedyKind.FREE_AND_TOLERATE, what)
            return


def _shown_tolerations(claims: Claims, screened: Screenings) -> Claims | None:
    """The claims with the tolerations that are shown, None if no taint is in the way."""
    shown = {
        part: [[each.toleration for each in one.obstacles if isinstance(each, Tainted)] for _, one in seen]
        for part, seen in screened.items()
    }
    if not any(any(more) for more in shown.values()):
        return None
    for part, more in shown.items():
        claims = tolerating(claims, part, more)
    return claims


def _fewer(claims: Claims, screened: Screenings, judge: NodeJudge) -> Iterator[Remedy]:
    """A smaller count in one request; a request in alternatives has no count of its own."""
    for part, seen in screened.items():
        request, one = seen[0]
        if len(seen) > 1 or request.mode == "All" or request.count < 2 or not one.usable:
            continue
        count = judge.most(claims, part, min(request.count - 1, len(one.usable)))
        if count:
            what = f'request "{request.name}"{_of_claim(claims, part)}'
            yield Remedy(RemedyKind.FEWER, what, count, title_of(claims[part[0]]), request.name)


def _without_constraint(claims: Claims, core: Core | None, judge: NodeJudge) -> Iterator[Remedy]:
    if core is None:
        return
    for part in core.constraints:
        rest = [each for each in constraints_of(claims) if each != part]
        if judge.possible(reduced(claims, requests_of(claims), rest)):
            rule = Claim(claims[part[0]]).constraints[part[1]]
            what = f"constraint {part[1] + 1} ({rule.rule} {rule.attribute}){_of_claim(claims, part)}"
            yield Remedy(RemedyKind.NO_CONSTRAINT, what, claim=title_of(claims[part[0]]), index=part[1])


def _without_selector(claims: Claims, screened: Screenings, judge: NodeJudge) -> Iterator[Remedy]:
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
                what = f'selector {index + 1} of request "{request.name}"{_of_claim(claims, part)}'
                yield Remedy(RemedyKind.NO_SELECTOR, what, 0, title_of(claims[part[0]]), request.name, index)


def _of_claim(claims: Claims, part: Part) -> str:
    """Whose request or constraint it is, where there are several claims."""
    return f" of claim {title_of(claims[part[0]])}" if len(claims) > 1 else ""
