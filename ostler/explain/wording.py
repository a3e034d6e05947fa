"""Each obstacle in words: one line or two, and the fix behind an arrow."""

from __future__ import annotations

import json
from itertools import groupby
from operator import itemgetter

from ostler.drawing.text import number
from ostler.explain.page import (
    Ink,
    Line,
    TextPiece,
    code,
    holder,
    joined,
    line,
    quoted,
    some,
    source,
    taint,
    value,
    values,
)
from scheduling.explain import obstacles as kinds
from scheduling.explain.obstacles import Obstacle

HOLDERS = 3
"""Holders shown one by one."""
TIMES = "\N{MULTIPLICATION SIGN}"
AROUND = 60
"""Characters of an expression shown on either side of a mistake."""
MOST_NAMES = 8
"""Requests that compete, by name."""
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def obstacle_lines(obstacle: Obstacle, depth: int, *, claims: bool = False) -> list[Line]:
    """The lines for any reason; ``claims``: there are several, so requests and constraints need their claims' names."""
    if isinstance(obstacle, kinds.OfDevices):
        return device_lines(obstacle, depth)
    if isinstance(obstacle, kinds.ConstraintUnsatisfiable | kinds.Competing | kinds.NotTogether):
        return _of_several(obstacle, depth, claims=claims)
    return _of_the_request(obstacle, depth) or _of_the_node(obstacle, depth)


def _of_the_request(obstacle: Obstacle, depth: int) -> list[Line]:
    """The lines for a reason that is the same on every node; none for another."""
    match obstacle:
        case kinds.ClassMissing():
            there = f"there are: {', '.join(obstacle.near)}" if obstacle.near else "there are none"
            said = line(depth, "there is no DeviceClass ", value(quoted(obstacle.name)))
            return [said, advice(depth + 1, f"create it, or correct deviceClassName; {there}")]
        case kinds.SelectorUnreadable():
            said = line(depth, f"{source(obstacle.source)} does not compile: {obstacle.message}")
            return [said, *_place(obstacle.expression, obstacle.line, obstacle.column, depth + 1)]
        case kinds.SelectorBroken():
            return _broken(obstacle, depth)
        case kinds.Waiting():
            return [line(depth, obstacle.what)]
        case kinds.AllNeedsPools():
            names = joined([quoted(name) for name in obstacle.requests])
            return [line(depth, f"request {names} wants all devices, so every pool of a node must be usable")]
        case kinds.TooMany():
            most = f"a claim gets {obstacle.limit} at most"
            return [
                line(depth, f"{obstacle.wanted} devices wanted in all; {most}"),
                advice(depth + 1, "ask for fewer, or use several claims"),
            ]
        case kinds.FeatureOff():
            of = f": {some(obstacle.devices)}" if obstacle.devices else ""
            return [line(depth, f"{obstacle.path} needs {obstacle.feature}, which this cluster does not have{of}")]
        case kinds.ObjectRefused():
            where = " ".join(part for part in (obstacle.object, obstacle.path) if part)
            return [line(depth, f"{where}: {obstacle.message}" if where else obstacle.message)]
        case _:
            return []


def _broken(obstacle: kinds.SelectorBroken, depth: int) -> list[Line]:
    on = f" on {some(obstacle.devices)}" if obstacle.devices else ""
    said = line(depth, f"{source(obstacle.source)} fails with an error{on}: ", value(obstacle.message))
    lines = [said]
    if obstacle.condition:
        lines.append(line(depth + 1, "in ", code(obstacle.condition)))
    if "no such key" in obstacle.message and "orValue" not in obstacle.message:
        cure = "not every device has it: test it with has(…) first, or read it as .?NAME.orValue(…)"
        lines.append(advice(depth + 1, cure))
    return lines


def _place(expression: str, row: int, column: int, depth: int) -> list[Line]:
    """The line of an expression with a mark under the place; all of it on one line if the place is unknown."""
    rows = expression.splitlines()
    if not 1 <= row <= len(rows) or column < 1:
        return [line(depth, code(expression))]
    text = rows[row - 1]
    first = max(0, column - 1 - AROUND)
    shown = text[first : column - 1 + AROUND].replace("\t", " ")
    before, after = "…" if first else "", "…" if column - 1 + AROUND < len(text) else ""
    at = len(before) + column - 1 - first
    return [
        Line(depth, (TextPiece(before + shown + after, code("").ink, whole=True),)),
        Line(depth, (TextPiece(" " * at + "^", whole=True),)),
    ]


def _of_several(obstacle: Obstacle, depth: int, *, claims: bool) -> list[Line]:
    match obstacle:
        case kinds.ConstraintUnsatisfiable():
            return _constraint(obstacle, depth, claims=claims)
        case kinds.Competing():
            named = claims or len({claim for claim, _ in obstacle.requests}) > 1
            names = [f"{claim} {quoted(name)}" if named else quoted(name) for claim, name in obstacle.requests]
            under = f" under {joined(obstacle.constraints)}" if obstacle.constraints else ""
            if len(names) > MOST_NAMES:
                names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
            if len(names) == 1:
                together = " together" if len(obstacle.constraints) > 1 else ""
                return [line(depth, f"request {names[0]} can be met, but not{under}{together}")]
            return [line(depth, f"requests {joined(names)} can each be met, but not together{under}")]
        case kinds.NotTogether():
            shared = f": they share {joined(obstacle.counters)}" if obstacle.counters else ""
            said = line(depth, f"at most {obstacle.possible} of them are available at the same time{shared}")
            return [said, *used_lines(obstacle.users, depth + 1)]
        case _:
            raise TypeError(f"no words for {obstacle!r}")


def _constraint(obstacle: kinds.ConstraintUnsatisfiable, depth: int, *, claims: bool) -> list[Line]:
    over = f" over {joined([quoted(name) for name in obstacle.requests])}" if obstacle.requests else ""
    of = f"claim {obstacle.claim}, " if claims else ""
    equal = obstacle.rule == "matchAttribute"
    wanted = f"{obstacle.wanted} wanted with {'one value' if equal else 'different values'}"
    best = (
        ""
        if obstacle.best is None
        else f", at most {obstacle.best} found"
        if equal
        else f", {number(obstacle.best, 'value')} found"
    )
    lines = [
        line(
            depth,
            f"{of}constraint {obstacle.index + 1}, ",
            code(f"{obstacle.rule}: {obstacle.attribute}"),
            f"{over}: {wanted}{best}",
        )
    ]
    if obstacle.values:
        shown = [_bearers(each, 1 < len(obstacle.requests) <= 3) for each in obstacle.values]
        lines.append(line(depth + 1, "values: ", value(some(shown, 6))))
    return lines


def _bearers(each: kinds.Bearers, by_request: bool) -> str:
    said = f"{'absent' if each.value is None else each.value} {TIMES} {each.count}"
    of = " + ".join(f"{count} {name}" for name, count in each.requests if count)
    return f"{said} ({of})" if by_request and of else said


def _of_the_node(obstacle: Obstacle, depth: int) -> list[Line]:
    match obstacle:
        case kinds.NodeRefused():
            return [line(depth, f"the pod cannot run there: {reason}") for reason in obstacle.reasons]
        case kinds.NodeOutside():
            where = some(obstacle.nodes) if obstacle.nodes else "other nodes"
            return [line(depth, f"claim {obstacle.claim} already has its devices, for {where}")]
        case kinds.NoDevices():
            there = f" (drivers with devices elsewhere: {some(obstacle.drivers)})" if obstacle.drivers else ""
            return [
                line(depth, f"no ResourceSlice offers devices here{there}"),
                advice(depth + 1, "check whether the driver's pod runs on the node"),
            ]
        case kinds.PoolIncomplete():
            return _incomplete(obstacle, depth)
        case kinds.PoolOutdated():
            ages = f"generation {obstacle.generation}, the pool is at {obstacle.newest}"
            return [line(depth, f"pool {obstacle.pool} of {obstacle.driver}: the slices for this node are of {ages}")]
        case kinds.PoolInvalid():
            return [
                line(depth, f"pool {obstacle.pool} of {obstacle.driver} is invalid: {obstacle.reason}"),
                advice(depth + 1, f"the driver publishes its slices: check {obstacle.driver}"),
            ]
        case kinds.SearchEnded():
            return [line(depth, f"no answer: {obstacle.message}")]
        case _:
            raise TypeError(f"no words for {obstacle!r}")


def _incomplete(obstacle: kinds.PoolIncomplete, depth: int) -> list[Line]:
    there = f" ({some(obstacle.slices)})" if obstacle.slices else ""
    found = f"{obstacle.found} of {number(obstacle.wanted, 'slice')} of generation {obstacle.generation}"
    return [
        line(
            depth,
            f"pool {obstacle.pool} of {obstacle.driver} is incomplete: {found}{there}; unused until all are there",
        ),
        advice(depth + 1, f"wait for the driver, or see why {obstacle.driver} publishes no more"),
    ]


def device_lines(obstacle: kinds.OfDevices, depth: int) -> list[Line]:
    """The lines for a reason that concerns devices."""
    match obstacle:
        case kinds.ConditionFalse():
            return _condition_false(obstacle, depth)
        case kinds.Held():
            return _held(obstacle, depth)
        case kinds.Tainted():
            return _tainted(obstacle, depth)
        case kinds.CounterExhausted():
            return _counter(obstacle, depth)
        case kinds.CapacityExhausted():
            return _capacity(obstacle, depth)
        case kinds.CapacityUnfit():
            asked = f"{obstacle.capacity}: {obstacle.asked} asked, " if obstacle.asked else f"{obstacle.capacity}: "
            return [line(depth, _times(obstacle), asked if obstacle.capacity else "", value(obstacle.reason))]
        case _:
            raise TypeError(f"no words for {obstacle!r}")


def advice(depth: int, *pieces: TextPiece | str) -> Line:
    """The fix."""
    return line(depth, TextPiece("→ ", Ink.GOOD), *pieces)


def _times(obstacle: kinds.OfDevices) -> TextPiece:
    return TextPiece(f"{obstacle.count} {TIMES} ", Ink.HEADING)


def _condition_false(obstacle: kinds.ConditionFalse, depth: int) -> list[Line]:
    pieces: list[TextPiece | str] = [
        _times(obstacle),
        f"{source(obstacle.source)}: ",
        code(obstacle.condition),
        " is false",
    ]
    if obstacle.values:
        pieces += [": ", value(values(obstacle.values))]
    if obstacle.others:
        pieces.append(f" (and {number(obstacle.others, 'other condition')})")
    return [line(depth, *pieces)]


def _held(obstacle: kinds.Held, depth: int) -> list[Line]:
    held = sorted(zip(obstacle.devices, obstacle.holders, strict=True), key=lambda pair: (pair[1].claim, pair[1].pods))
    groups = [(who, [device for device, _ in each]) for who, each in groupby(held, key=itemgetter(1))]
    groups.sort(key=lambda group: obstacle.devices.index(group[1][0]))
    shown = groups if len(groups) <= HOLDERS + 1 else groups[:HOLDERS]
    lines = [line(depth, f"{some(devices)} held by {holder(who)}") for who, devices in shown]
    rest = groups[len(shown) :]
    if rest:
        more = sum(len(devices) for _, devices in rest)
        lines.append(line(depth, f"{more} more held by {number(len(rest), 'other claim')}"))
    return lines


def _tainted(obstacle: kinds.Tainted, depth: int) -> list[Line]:
    shown = taint(obstacle.key, obstacle.value, obstacle.effect)
    by = f"by DeviceTaintRule {obstacle.rule}" if obstacle.rule else "by the driver"
    said = line(depth, _times(obstacle), "tainted ", value(shown), f" {by}: {some(obstacle.devices)}")
    cure = "fix the cause on the device, or add a toleration to the request:"
    if obstacle.rule:
        cure = f"delete DeviceTaintRule {obstacle.rule}, or add a toleration to the request:"
    manifest = f"tolerations: [{_flow(obstacle.toleration)}]"
    return [said, advice(depth + 1, cure), line(depth + 2, TextPiece(manifest, Ink.CODE, whole=True))]


def _flow(mapping: dict[str, str]) -> str:
    """A mapping as YAML's flow style writes it; texts that YAML would read as something else are quoted."""
    return "{" + ", ".join(f"{key}: {_scalar(text)}" for key, text in mapping.items()) + "}"


def _scalar(text: str) -> str:
    bare = text and text[0].isalpha() and all(c.isalnum() or c in "-_./" for c in text)
    return text if bare and text.lower() not in _WORDS else json.dumps(text)


def _counter(obstacle: kinds.CounterExhausted, depth: int) -> list[Line]:
    where = f'counter "{obstacle.counter}" of "{obstacle.set}" (pool {obstacle.pool}): '
    amounts = f"{obstacle.needed} needed, {obstacle.free} of {obstacle.total} free"
    if obstacle.free.startswith("-"):
        # Then nothing of the pool that draws on a counter is available, whatever it needs.
        amounts = f"overdrawn, {obstacle.free.removeprefix('-')} more than its {obstacle.total} are in use"
    return [line(depth, _times(obstacle), where, value(amounts)), *used_lines(obstacle.users, depth + 1)]


def _capacity(obstacle: kinds.CapacityExhausted, depth: int) -> list[Line]:
    amounts = f"{obstacle.needed} needed, {obstacle.free} of {obstacle.total} free"
    said = line(
        depth, _times(obstacle), f"capacity {obstacle.capacity}: ", value(amounts), f": {some(obstacle.devices)}"
    )
    return [said, *used_lines(obstacle.users, depth + 1)]


def used_lines(users: tuple[kinds.Usage, ...], depth: int) -> list[Line]:
    """The holders of a shared amount, with their parts."""
    shown = users if len(users) <= HOLDERS + 1 else users[:HOLDERS]
    lines = [line(depth, f"{each.amount} used by {each.device}, held by {holder(each.holder)}") for each in shown]
    if len(shown) < len(users):
        lines.append(line(depth, f"and by {number(len(users) - len(shown), 'other allocation')}"))
    return lines
