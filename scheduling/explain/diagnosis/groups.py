"""Findings of many nodes told as few: equal ones as one group, and nearly equal ones where there would be too many.

Of a group the first node is shown; ``Group.exact`` tells whether what is said holds to the letter for all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from scheduling.explain.diagnosis.alike import Grain, gist, shows_names
from scheduling.explain.diagnosis.verdict import Group, NodeFinding, Outcome

MANY = 12
"""Groups that a person reads through; beyond, coarser ones are made."""

_NEAR = {outcome: number for number, outcome in enumerate(Outcome)}


@dataclass(frozen=True, slots=True)
class Seen:
    """A finding with the node it is of. ``lumped``: found on another node, whose values it shows."""

    node: str
    finding: NodeFinding
    lumped: bool = False


def grouped(seen: Sequence[Seen]) -> tuple[Group, ...]:
    """All nodes in groups, the nearest to fitting first; coarser groups only where finer ones are too many."""
    ranked = sorted(seen, key=lambda each: nearness(each.finding))
    groups: list[Group] = []
    for grain in Grain:
        groups = _gathered(ranked, grain)
        if len(groups) <= MANY:
            break
    return tuple(groups)


def _gathered(ranked: Sequence[Seen], grain: Grain) -> list[Group]:
    found: dict[Hashable, list[Seen]] = {}
    gists: dict[tuple[int, ...], Hashable] = {}
    for each in ranked:
        finding = each.finding
        # Nodes of one situation share the parts of their finding, so that it is worked out once for all of them.
        parts = (id(finding.obstacles), id(finding.requests), id(finding.placements), id(finding.remarks))
        if parts not in gists:
            gists[parts] = gist(finding, grain)
        found.setdefault(gists[parts], []).append(each)
    return [_group(members, grain) for members in found.values()]


def _group(members: Sequence[Seen], grain: Grain) -> Group:
    # A finding shows its own node's names and values, so that node leads.
    lead = next((each for each in members if each.finding.node == each.node), members[0])
    nodes = (lead.node, *(each.node for each in members if each is not lead))
    finding = lead.finding
    told = (*finding.obstacles, *(obstacle for request in finding.requests for obstacle in request.obstacles))
    exact = grain is Grain.FINE and not any(each.lumped for each in members) and not any(map(shows_names, told))
    return Group(nodes, finding, exact or len(nodes) == 1)


def nearness(finding: NodeFinding) -> tuple[int, int, int]:
    """Less is nearer: the outcome, devices that are missing, devices that suit."""
    missing = sum(max(0, (each.wanted or 1) - each.usable) for each in finding.requests)
    suitable = sum(each.suitable for each in finding.requests)
    return (_NEAR[finding.outcome], missing if finding.requests else 1 << 30, -suitable)
