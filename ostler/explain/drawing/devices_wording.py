"""What stands in the way of devices, in words: each reason one line or two, what to do behind an arrow."""

from __future__ import annotations

import json
from itertools import groupby

from ostler.explain.drawing.names import holder, number, some, source, values
from ostler.explain.drawing.page import Ink, Line, Piece, code, line, value
from scheduling.explain.obstacles import (
    CapacityExhausted,
    CapacityUnfit,
    ConditionFalse,
    CounterExhausted,
    Held,
    OfDevices,
    Tainted,
    Usage,
)

HOLDERS = 3
"""Holders told one by one."""
TIMES = "\N{MULTIPLICATION SIGN}"


def device_lines(obstacle: OfDevices, depth: int) -> list[Line]:
    """The lines for a reason that concerns devices."""
    match obstacle:
        case ConditionFalse():
            return _condition_false(obstacle, depth)
        case Held():
            return _held(obstacle, depth)
        case Tainted():
            return _tainted(obstacle, depth)
        case CounterExhausted():
            return _counter(obstacle, depth)
        case CapacityExhausted():
            return _capacity(obstacle, depth)
        case CapacityUnfit():
            asked = f"{obstacle.capacity}: {obstacle.asked} asked, " if obstacle.asked else f"{obstacle.capacity}: "
            return [line(depth, _times(obstacle), asked if obstacle.capacity else "", value(obstacle.reason))]
        case _:
            raise TypeError(f"no words for {obstacle!r}")


def advice(depth: int, *pieces: Piece | str) -> Line:
    """What to do."""
    return line(depth, Piece("→ ", Ink.GOOD), *pieces)


def _times(obstacle: OfDevices) -> Piece:
    return Piece(f"{obstacle.count} {TIMES} ", Ink.HEADING)


def _condition_false(obstacle: ConditionFalse, depth: int) -> list[Line]:
    pieces: list[Piece | str] = [
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


def _held(obstacle: Held, depth: int) -> list[Line]:
    held = sorted(zip(obstacle.devices, obstacle.holders, strict=True), key=lambda pair: (pair[1].claim, pair[1].pods))
    groups = [(who, [device for device, _ in each]) for who, each in groupby(held, key=lambda pair: pair[1])]
    groups.sort(key=lambda group: obstacle.devices.index(group[1][0]))
    shown = groups if len(groups) <= HOLDERS + 1 else groups[:HOLDERS]
    lines = [line(depth, f"{some(devices)} held by {holder(who)}") for who, devices in shown]
    rest = groups[len(shown) :]
    if rest:
        more = sum(len(devices) for _, devices in rest)
        lines.append(line(depth, f"{more} more held by {number(len(rest), 'other claim')}"))
    return lines


def _tainted(obstacle: Tainted, depth: int) -> list[Line]:
    taint = (
        f"{obstacle.key}={obstacle.value}:{obstacle.effect}" if obstacle.value else f"{obstacle.key}:{obstacle.effect}"
    )
    by = f"by DeviceTaintRule {obstacle.rule}" if obstacle.rule else "by the driver"
    said = line(depth, _times(obstacle), "tainted ", value(taint), f" {by}: {some(obstacle.devices)}")
    cure = "end the cause in the device, or tolerate it in the request:"
    if obstacle.rule:
        cure = f"delete DeviceTaintRule {obstacle.rule}, or tolerate it in the request:"
    manifest = f"tolerations: [{_flow(obstacle.toleration)}]"
    return [said, advice(depth + 1, cure), line(depth + 2, Piece(manifest, Ink.CODE, whole=True))]


def _flow(mapping: dict[str, str]) -> str:
    """A mapping as YAML's flow style writes it; texts that YAML would read as something else are quoted."""
    return "{" + ", ".join(f"{key}: {_scalar(text)}" for key, text in mapping.items()) + "}"


def _scalar(text: str) -> str:
    bare = text and text[0].isalpha() and all(c.isalnum() or c in "-_./" for c in text)
    return text if bare and text.lower() not in _WORDS else json.dumps(text)


_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def _counter(obstacle: CounterExhausted, depth: int) -> list[Line]:
    where = f'counter "{obstacle.counter}" of "{obstacle.set}" (pool {obstacle.pool}): '
    amounts = f"{obstacle.needed} needed, {obstacle.free} of {obstacle.total} free"
    if obstacle.free.startswith("-"):
        # Then nothing of the pool that draws on a counter can be had, whatever it needs.
        amounts = f"overdrawn, {obstacle.free.removeprefix('-')} more than its {obstacle.total} are in use"
    return [line(depth, _times(obstacle), where, value(amounts)), *used_lines(obstacle.users, depth + 1)]


def _capacity(obstacle: CapacityExhausted, depth: int) -> list[Line]:
    amounts = f"{obstacle.needed} needed, {obstacle.free} of {obstacle.total} free"
    said = line(
        depth, _times(obstacle), f"capacity {obstacle.capacity}: ", value(amounts), f": {some(obstacle.devices)}"
    )
    return [said, *used_lines(obstacle.users, depth + 1)]


def used_lines(users: tuple[Usage, ...], depth: int) -> list[Line]:
    """Who has how much of something shared."""
    shown = users if len(users) <= HOLDERS + 1 else users[:HOLDERS]
    lines = [line(depth, f"{each.amount} used by {each.device}, held by {holder(each.holder)}") for each in shown]
    if len(shown) < len(users):
        lines.append(line(depth, f"and by {number(len(users) - len(shown), 'other allocation')}"))
    return lines
