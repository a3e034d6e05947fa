"""An explanation as text for people and as plain data for programs.

The text has the answer in the first line, then nodes, the nearest first, then what to do. Its reader was woken up by
the problem. So each reason is given once, however many nodes have it; names are given as far as they help, and the rest
is counted; if a claim fits, the nodes on which it does not are one line.

The data has the facts of ``verdict`` and ``obstacles`` in the API's spelling. Within one number of the ``SCHEMA``,
members and kinds of obstacles are only added: readers ignore the ones they do not know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Protocol

from ostler import __version__
from ostler.drawing.text import number
from ostler.explain.page import GROUPS, Ink, Line, TextPiece, brief, hidden_nodes, line, page, quoted, some, value
from ostler.explain.wording import advice, obstacle_lines
from scheduling.explain.obstacles import Held, Obstacle
from scheduling.explain.verdict import (
    Explanation,
    FindingGroup,
    NodeFinding,
    NodeOutcome,
    PlacedDevice,
    Remedy,
    RemedyKind,
    RequestFinding,
    gist,
)

MOST = 12
"""Requests that say the same, shown one by one."""


ALIKE = 3
"""Requests shown of several that say the same."""


SCHEMA = "ostler.dev/explain/v1"
"""Name of the form of the data; a member that changes its meaning gets a new number."""


def draw(verdict: Explanation, *, width: int | None, colour: bool, all_nodes: bool = False) -> str:
    """The text; ``all_nodes``: every node by name, and why the others do not fit even if some do."""
    stops = {gist(obstacle) for obstacle in verdict.stops}
    lines = [_answer(verdict), *_stops(verdict, stops)]
    left_out = shown = 0
    for group in verdict.groups:
        if verdict.fitting and group.finding.outcome is not NodeOutcome.FITS and not all_nodes:
            left_out += len(group.nodes)
        elif all_nodes or not _only_stopped(group, stops):
            shown += 1
            if shown > GROUPS and not all_nodes:
                continue
            lines += [line(0), *_group(group, stops, all_nodes, len(verdict.claims) > 1)]
    lines += hidden_nodes(0 if all_nodes else shown - GROUPS, left_out)
    if verdict.notes:
        lines += [line(0), *(line(0, TextPiece("note: ", Ink.VALUE), note) for note in verdict.notes)]
    return page(lines, width, colour=colour)


def _only_stopped(group: FindingGroup, stops: set[object]) -> bool:
    """Whether the stops at the top already say everything about these nodes."""
    finding = group.finding
    return finding.outcome is NodeOutcome.ERROR and all(gist(obstacle) in stops for obstacle in finding.obstacles)


def _stops(verdict: Explanation, stops: set[object]) -> Iterator[Line]:
    if not verdict.stops:
        return
    met = [name for group in verdict.groups if _only_stopped(group, stops) for name in group.nodes]
    where = f" (seen on {some(met)})" if 0 < len(met) < verdict.nodes else ""
    yield line(0)
    yield line(0, f"this stops the scheduler on every node{where}:")
    for obstacle in verdict.stops:
        yield from obstacle_lines(obstacle, 1)


def _answer(verdict: Explanation) -> Line:
    title = TextPiece(verdict.title, Ink.HEADING)
    if verdict.settled:
        return line(0, title, " ", TextPiece(verdict.settled, Ink.GOOD))
    if not verdict.nodes:
        why = "cannot be scheduled on any node" if verdict.stops else "has no node to go to: no nodes are known"
        return line(0, title, " ", TextPiece(why, Ink.BAD))
    if not verdict.fitting:
        if verdict.nodes == 1:
            return line(0, title, " ", TextPiece(f"does not fit on {verdict.groups[0].nodes[0]}", Ink.BAD))
        return line(0, title, " ", TextPiece(f"fits on none of {verdict.nodes} nodes", Ink.BAD))
    if verdict.nodes == 1:
        said = f"fits on {verdict.groups[0].nodes[0]}"
    else:
        said = f"fits on {verdict.fitting} of {verdict.nodes} nodes"
    if verdict.stops:
        return line(0, title, " ", TextPiece(f"{said}, but is not scheduled", Ink.BAD))
    return line(0, title, " ", TextPiece(said, Ink.GOOD))


def _group(group: FindingGroup, stops: set[object], all_nodes: bool, claims: bool) -> Iterator[Line]:
    finding = group.finding
    count = len(group.nodes)
    if finding.outcome is NodeOutcome.FITS:
        yield line(0, TextPiece(finding.node, Ink.HEADING))
        yield from _placements(finding, claims)
        yield from (line(1, TextPiece("note: ", Ink.VALUE), remark) for remark in finding.remarks)
        if count > 1:
            names = ", ".join(group.nodes[1:]) if all_nodes else some(group.nodes[1:])
            yield line(1, TextPiece(f"{number(count - 1, 'more node')} alike: {names}", Ink.FAINT))
        return
    names = ", ".join(group.nodes) if all_nodes else some(group.nodes, 2)
    shown = "" if group.exact else f", shown: {finding.node}"
    heading = f"{number(count, 'node')} ({names}){shown}" if count > 1 else finding.node
    yield line(0, TextPiece(heading, Ink.HEADING))
    yield from _reasons(finding, stops, claims)


def _placements(finding: NodeFinding, several: bool) -> Iterator[Line]:
    if not finding.placements:
        yield line(1, "no more devices to allocate here")
    several = several or len({placement.claim for placement in finding.placements}) > 1
    for (claim, request), placed in groupby(finding.placements, key=attrgetter("claim", "request")):
        yield line(1, _request_name(claim, request, several), ": ", *_devices(list(placed)))
        # What they share belongs to the claim; it follows the last request.
        last = [each for each in finding.placements if each.claim == claim][-1]
        if last.request == request:
            for shared in finding.shared:
                if shared.claim == claim:
                    yield line(2, "they share: ", value(", ".join(f"{brief(v.path)} {v.value}" for v in shared.values)))


def _devices(placed: Sequence[PlacedDevice]) -> Iterator[TextPiece | str]:
    """``gpu-0, gpu-1 of gpu.example.com, pool node-a``, and what is special about them."""
    first = True
    for (driver, pool), group in groupby(placed, key=attrgetter("driver", "pool")):
        devices = list(group)
        yield "" if first else "; "
        first = False
        yield value(", ".join(_device(each) for each in devices))
        yield f" of {driver}, pool {pool}"
        if devices[0].network:
            yield " (not bound to this node)"
    conditions = list(dict.fromkeys(condition for each in placed for condition in each.conditions))
    if conditions:
        yield f"; the pod waits for {', '.join(conditions)}"


def _device(placement: PlacedDevice) -> str:
    remarks = []
    if placement.admin:
        remarks.append("admin access")
    if placement.shared:
        amounts = ", ".join(f"{each.value} {each.path}" for each in placement.consumed)
        remarks.append(f"a share{': ' + amounts if amounts else ''}")
    return f"{placement.device} ({'; '.join(remarks)})" if remarks else placement.device


def _reasons(finding: NodeFinding, stops: set[object], several: bool) -> Iterator[Line]:
    others = [obstacle for obstacle in finding.obstacles if gist(obstacle) not in stops]
    several = several or len({each.claim for each in finding.requests}) > 1
    for obstacle in others:
        yield from obstacle_lines(obstacle, 1, claims=several)
    if len(others) < len(finding.obstacles):
        # Said once, at the top.
        yield line(1, "the error above occurs here")
    # An obstacle already says that there are no devices.
    shown_requests = [request for request in finding.requests if request.total or not finding.obstacles]
    for _, same in groupby(shown_requests, key=lambda each: (_counts(each), gist(each.obstacles))):
        alike = list(same)
        shown = alike if len(alike) <= MOST else alike[:ALIKE]
        for request in shown:
            yield line(1, _request_name(request.claim, request.request, several), ": ", _counts(request))
            for obstacle in request.obstacles:
                yield from obstacle_lines(obstacle, 2)
        if len(shown) < len(alike):
            yield line(1, f"{len(alike) - len(shown)} more requests: the same")
    for remedy in finding.remedies:
        yield advice(1, _remedy(remedy))
    yield from (line(1, TextPiece("note: ", Ink.VALUE), remark) for remark in finding.remarks)


def _request_name(claim: str, request: str, with_claim: bool) -> str:
    return f"claim {claim}, request {quoted(request)}" if with_claim else f"request {quoted(request)}"


def _counts(request: RequestFinding) -> str:
    wanted = "all wanted" if request.wanted is None else f"{request.wanted} wanted"
    verb = "suits" if 1 in (request.suitable, request.total) else "suit"
    suit = f"{request.suitable} of {number(request.total, 'device')} {verb}"
    if request.suitable in (0, request.usable):
        return f"{suit}, {wanted}"
    held = sum(each.count for each in request.obstacles if isinstance(each, Held))
    if request.usable == 0 and held == request.suitable:
        return f"{suit}, {'all held' if held > 1 else 'and is held'}, {wanted}"
    return f"{suit}, {request.usable} available, {wanted}"


def _remedy(remedy: Remedy) -> str:
    match remedy.change:
        case RemedyKind.FREE:
            return "it would fit here if nothing were held by others"
        case RemedyKind.TOLERATE:
            return f"it would fit here with {_taints(remedy)}"
        case RemedyKind.FREE_AND_TOLERATE:
            return f"it would fit here if nothing were held by others and with {_taints(remedy)}"
        case RemedyKind.FEWER:
            return f"it would fit here with count: {remedy.count} in {remedy.what}"
        case RemedyKind.NO_CONSTRAINT | RemedyKind.NO_SELECTOR:
            return f"it would fit here without {remedy.what}"


def _taints(remedy: Remedy) -> str:
    return f"all taints tolerated in {remedy.what}" if remedy.what else "the taints tolerated"


def document(verdict: Explanation) -> dict[str, object]:
    """The verdict as plain data."""
    return {
        "schema": SCHEMA,
        "version": __version__,
        "title": verdict.title,
        "claims": list(verdict.claims),
        "fits": verdict.fits,
        "nodes": verdict.nodes,
        "fitting": verdict.fitting,
        "settled": verdict.settled,
        "stops": _plain(verdict.stops),
        "groups": [_plain_group(group) for group in verdict.groups],
        "notes": list(verdict.notes),
    }


def _plain_group(group: FindingGroup) -> dict[str, object]:
    members = _plain(group.finding)
    assert isinstance(members, dict)
    members.pop("node")
    return {"nodes": list(group.nodes), "exact": group.exact, **members}


def _plain(fact: object) -> object:
    return plain_data(fact, Obstacle)


class Reason(Protocol):
    """A fact with the name of its kind."""

    @property
    def kind(self) -> str:
        """The name in the data."""


def plain_data(
    fact: object, reasons: type[Reason], left_out: Mapping[type, Collection[str]] = MappingProxyType({})
) -> object:
    """A fact as plain data, its fields in the API's spelling; those of ``reasons`` begin with their ``kind``.

    ``left_out``: by type of fact, fields that do not appear.
    """
    if isinstance(fact, tuple):
        return [plain_data(item, reasons, left_out) for item in fact]
    if isinstance(fact, StrEnum):
        return str(fact)
    members: dict[str, object] = {"kind": fact.kind} if isinstance(fact, reasons) else {}
    if not is_dataclass(fact):
        return fact
    for each in fields(fact):
        if each.name not in left_out.get(type(fact), ()):
            members[member_name(each.name)] = plain_data(getattr(fact, each.name), reasons, left_out)
    return members


def member_name(name: str) -> str:
    """A field's name in the API's spelling, such as ``newestGeneration``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
