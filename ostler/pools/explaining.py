"""Why a need cannot be met, as text: the answer, then groups of like nodes with their reasons and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ostler.drawing.text import number
from ostler.explain.page import (
    GROUPS,
    Ink,
    Line,
    TextPiece,
    brief,
    code,
    hidden_nodes,
    joined,
    line,
    page,
    some,
    taint,
    value,
)
from ostler.explain.wording import TIMES, advice
from scheduling.api.excerpts import excerpt
from scheduling.pools import obstacles as kinds
from scheduling.pools.diagnosis import NeedFinding, PoolFinding, PoolOutcome
from scheduling.pools.obstacles import PoolObstacle
from scheduling.pools.published import DeviceUser
from scheduling.pools.questions import NeedPlace, places_of
from scheduling.pools.remedies import PoolRemedy, PoolRemedyKind
from scheduling.pools.search import MetNeed, PoolSolution
from scheduling.pools.survey import PoolExplanation, PoolFindingGroup

_USERS = 3


def draw_pools(answer: PoolExplanation, *, width: int | None, colour: bool, all_nodes: bool = False) -> str:
    """The text; `all_nodes`: every node by name, and why the others do not fit even if some do."""
    lines = [_answer(answer)]
    several = len(answer.claims) > 1
    for need in answer.stops:
        lines += [line(0), line(0, f"{_need(need.claim, need.need, several)} cannot be judged:")]
        lines += [text for each in need.obstacles for text in pool_lines(each, 1, several)]
    shown = left_out = 0
    for group in answer.groups:
        fits = group.finding.outcome is PoolOutcome.FITS
        if answer.fitting and not fits and not all_nodes:
            left_out += len(group.nodes)
            continue
        shown += 1
        if shown <= GROUPS or all_nodes:
            lines += [line(0), *_group(group, all_nodes, several)]
    lines += hidden_nodes(0 if all_nodes else shown - GROUPS, left_out)
    return page(lines, width, colour=colour)


def _answer(answer: PoolExplanation) -> Line:
    many = len(answer.claims) > 1
    title = TextPiece(f"{'claims' if many else 'claim'} {some(answer.claims, 8)}", Ink.HEADING)
    if answer.stops:
        return line(0, title, " ", TextPiece("cannot be met on any node", Ink.BAD))
    if answer.nodes == 1:
        verb = ("fit" if many else "fits") if answer.fitting else ("do not fit" if many else "does not fit")
        return line(0, title, " ", TextPiece(f"{verb} on {answer.groups[0].nodes[0]}", _ink(answer)))
    count = f"{answer.fitting} of {answer.nodes}" if answer.fitting else f"none of {answer.nodes}"
    together = " together" if many else ""
    return line(0, title, " ", TextPiece(f"{'fit' if many else 'fits'}{together} on {count} nodes", _ink(answer)))


def _ink(answer: PoolExplanation) -> Ink:
    return Ink.GOOD if answer.fitting else Ink.BAD


def _group(group: PoolFindingGroup, all_nodes: bool, several: bool) -> Iterator[Line]:
    finding, count = group.finding, len(group.nodes)
    if finding.solution is not None:
        yield line(0, TextPiece(finding.node, Ink.HEADING))
        yield from _solution(finding.solution, several)
        if count > 1:
            names = ", ".join(group.nodes[1:]) if all_nodes else some(group.nodes[1:])
            yield line(1, TextPiece(f"{number(count - 1, 'more node')} on which it fits: {names}", Ink.FAINT))
        return
    names = ", ".join(group.nodes) if all_nodes else some(group.nodes, 2)
    heading = f"{number(count, 'node')} ({names}), shown: {finding.node}" if count > 1 else finding.node
    yield line(0, TextPiece(heading, Ink.HEADING))
    yield from _reasons(finding, several)
    yield from (advice(1, _remedy(each, several)) for each in group.remedies)


def _solution(solution: PoolSolution, several: bool) -> Iterator[Line]:
    """Each need with its devices."""
    claims = list({id(each.claim): each.claim for each in solution.needs}.values())
    places = {_key(each): each for each in places_of(claims)}
    numbers: dict[tuple[int, int], int] = {}
    for need in solution.needs:
        owner = next(index for index, each in enumerate(claims) if each is need.claim)
        position = need.alternative
        if position is None:
            position = numbers.get((owner, need.instance), 0)
            numbers[owner, need.instance] = position + 1
        place = places[owner, need.instance, position, need.alternative is not None]
        yield line(1, f"{_need(place.title, place.path, several)} ({place.what}): ", *_devices(need))


def _key(place: NeedPlace) -> tuple[int, int, int, bool]:
    return place.claim, place.instance, place.position, place.alternative


def _devices(need: MetNeed) -> Iterator[TextPiece | str]:
    first = True
    for pool, group in groupby(need.devices, key=lambda each: each.device.name[0]):
        chosen = list(group)
        yield "" if first else "; "
        first = False
        names = []
        for each in chosen:
            amounts = ", ".join(f"{one.name} {one.allocation}" for one in each.amounts)
            remark = amounts or ("admin access" if each.admin_access else "")
            names.append(f"{each.device.device.name} ({remark})" if remark else each.device.device.name)
        yield value(", ".join(names))
        yield f" of pool {pool}"


def _reasons(finding: PoolFinding, several: bool) -> Iterator[Line]:
    for obstacle in finding.obstacles:
        yield from pool_lines(obstacle, 1, several)
    for need in finding.needs:
        yield line(1, f"{_need(need.claim, need.need, several)} ({need.what}): {_counts(need)}")
        for obstacle in need.obstacles:
            yield from pool_lines(obstacle, 2, several)


def _counts(need: NeedFinding) -> str:
    wanted = f"{need.wanted} to {need.most}" if need.most > need.wanted else str(need.wanted)
    if not need.total:
        return f"{wanted} wanted"
    suit = f"{need.suitable} of {number(need.total, 'device')} {'suits' if need.suitable == 1 else 'suit'}"
    available = f", {need.usable} available" if need.suitable else ""
    return f"{suit}{available}, {wanted} wanted"


def _need(claim: str, path: str, several: bool) -> str:
    return f"claim {claim}, {path}" if several else path


def pool_lines(obstacle: PoolObstacle, depth: int, several: bool = False) -> list[Line]:
    """The lines for any reason."""
    if isinstance(obstacle, kinds.OfPoolDevices):
        return _of_devices(obstacle, depth)
    match obstacle:
        case kinds.NeedInvalid() | kinds.StepsSpent():
            return [line(depth, obstacle.message)]
        case kinds.DriverElsewhere():
            here = f"pools here are of {joined(obstacle.present)}" if obstacle.present else "there are no devices here"
            return [line(depth, f"no device here is of {joined(obstacle.drivers)}; {here}")]
        case kinds.TooFewDevices():
            return [line(depth, f"there are {obstacle.there} in all, and {obstacle.wanted} are wanted")]
        case kinds.NotAtOnce():
            share = f": they share {joined(obstacle.resources)}" if obstacle.resources else ""
            return [line(depth, f"at most {obstacle.best} of them are available at the same time{share}")]
        case kinds.NeedsCompete():
            names = [_need(claim, path, several) for claim, path in obstacle.needs]
            equal = f" with {joined(obstacle.attributes)} equal on all devices" if obstacle.attributes else ""
            each = "each " if len(names) > 1 else ""
            return [line(depth, f"{joined(names)} can {each}be met, but not together{equal}")]
        case kinds.AttributesDiffer():
            return _differ(obstacle, depth)
        case kinds.AmountShort():
            return [line(depth, *_short(obstacle))]
        case _:
            raise TypeError(f"no words for {obstacle!r}")


def _differ(obstacle: kinds.AttributesDiffer, depth: int) -> list[Line]:
    names = code(f"matchAttributes: {', '.join(obstacle.attributes)}")
    found = f"at most {obstacle.best} found" if obstacle.best else "none found"
    wanted = f": {obstacle.wanted} wanted {'with it' if obstacle.wanted == 1 else 'with one value'}, {found}"
    # With enough of one value it is their amounts that are short; the next reason says so.
    said = line(depth, names, wanted if obstacle.best < obstacle.wanted else ": all devices must have one value")
    shown = [f"{', '.join(each or 'absent' for each in one.values)} {TIMES} {one.count}" for one in obstacle.values]
    return [said, line(depth + 1, "values: ", value(some(shown, 6)))]


def _short(obstacle: kinds.AmountShort) -> list[TextPiece | str]:
    equal = f" with equal {joined(obstacle.matching)}" if obstacle.matching else ""
    devices = f"{number(obstacle.devices, 'device')}{equal}"
    if len(obstacle.goals) == 1:
        (goal,) = obstacle.goals
        amounts = f"{goal.wanted} wanted, {devices} can give {goal.best} at most"
        return [f"{goal.resource}: ", value(amounts), f"; {obstacle.in_all} is available in all"]
    goals = [f"{each.resource} {each.wanted} (at most {each.best})" for each in obstacle.goals]
    return [value(joined(goals)), f" wanted together of {devices}"]


def _of_devices(obstacle: kinds.OfPoolDevices, depth: int) -> list[Line]:
    times = TextPiece(f"{obstacle.count} {TIMES} ", Ink.HEADING)
    names = some(obstacle.devices)
    match obstacle:
        case kinds.ConstraintUnmet():
            pieces: list[TextPiece | str] = [
                times,
                f"{obstacle.owner}: ",
                code(excerpt(obstacle.condition)),
                " is false",
            ]
            if obstacle.reads:
                reads = (
                    f"{brief(each.name)} is {'absent' if each.value is None else each.value}" for each in obstacle.reads
                )
                pieces += [": ", value(", ".join(reads))]
            if obstacle.others:
                pieces.append(f" (and {number(obstacle.others, 'other condition')})")
            return [line(depth, *pieces)]
        case kinds.ConstraintBroken():
            said = line(depth, f"{obstacle.owner} fails with an error on {names}: ", value(obstacle.message))
            return [said, line(depth + 1, "in ", code(excerpt(obstacle.constraint)))] if obstacle.constraint else [said]
        case kinds.DevicesTaken():
            return _taken(obstacle, depth)
        case kinds.AmountUsedUp():
            block = f", in blocks of {obstacle.block}" if obstacle.block else ""
            amounts = f"{obstacle.left} of {obstacle.capacity} left{block}"
            return [
                line(depth, times, f"{obstacle.resource}: ", value(amounts), f": {names}"),
                *_by(obstacle.users, depth),
            ]
        case kinds.PoolResourceShort():
            amounts = f"{obstacle.taken} needed, {obstacle.left} of {obstacle.capacity} left"
            where = f"{obstacle.resource} of pool {obstacle.pool}: "
            return [line(depth, times, where, value(amounts), f": {names}"), *_by(obstacle.users, depth)]
        case kinds.PoolDevicesTainted():
            shown = taint(obstacle.key, obstacle.value, obstacle.effect)
            cure = "fix the cause on the device, or ask with a ResourceClaim, which can tolerate it"
            return [line(depth, times, "tainted ", value(shown), f": {names}"), advice(depth + 1, cure)]
        case kinds.PoolUnusable():
            return [line(depth, times, f"pool {obstacle.pool} is unusable: {obstacle.fault}")]
        case _:
            raise TypeError(f"no words for {obstacle!r}")


def _taken(obstacle: kinds.DevicesTaken, depth: int) -> list[Line]:
    devices: dict[tuple[DeviceUser, ...], list[str]] = {}
    for name, users in zip(obstacle.devices, obstacle.users, strict=True):
        devices.setdefault(users, []).append(name)
    groups = list(devices.items())
    shown = groups if len(groups) <= _USERS + 1 else groups[:_USERS]
    lines = [line(depth, f"{some(names)} held by {joined([*map(_user, users)][:_USERS])}") for users, names in shown]
    if len(shown) < len(groups):
        more = sum(len(names) for _, names in groups[len(shown) :])
        lines.append(line(depth, f"{more} more held by {number(len(groups) - len(shown), 'other claim')}"))
    return lines


def _by(users: Sequence[DeviceUser], depth: int) -> list[Line]:
    return [line(depth + 1, f"used by {some([*map(_user, users)], _USERS)}")] if users else []


def _user(user: DeviceUser) -> str:
    if not user.pods:
        return f"claim {user.claim}"
    return f"claim {user.claim} ({'pod' if len(user.pods) == 1 else 'pods'} {some(user.pods, 2)})"


def _remedy(remedy: PoolRemedy, several: bool) -> str:
    where = _need(remedy.claim, remedy.need, several) if remedy.need else f"claim {remedy.claim}"
    match remedy.change:
        case PoolRemedyKind.FREE:
            return "it would fit here if nothing were held by others"
        case PoolRemedyKind.FEWER:
            return f"it would fit here with requests.count: {remedy.value} in {where}"
        case PoolRemedyKind.LESS:
            return f"it would fit here with requests.{remedy.what}: {remedy.value} in {where}"
        case PoolRemedyKind.MORE_DEVICES:
            return f"it would fit here with limits.count: {remedy.value} in {where}"
        case PoolRemedyKind.NO_MATCH:
            return f"it would fit here without {remedy.what} in matchAttributes of {where}"
        case PoolRemedyKind.NO_CONSTRAINT:
            return f"it would fit here without the constraints of {where}"
