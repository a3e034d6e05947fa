"""What an explanation found, as facts: where the claims fit, and what is in the way elsewhere.

Invariants: the groups name every node once, those that fit first, then the nearest; whatever is in ``obstacles`` and
``remedies`` was checked with the allocator on that node. The nodes of a group are alike in everything but names; the
finding is that of its first node.

Findings of many nodes are shown as few: equal ones as one group, and nearly equal ones where there would be too many
(``Grain``). ``FindingGroup.exact`` says whether the finding holds to the letter for all nodes of its group.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, StrEnum

from scheduling.explain.obstacles import (
    NAMES,
    CapacityExhausted,
    CapacityUnfit,
    Competing,
    ConditionFalse,
    CounterExhausted,
    NodeOutside,
    NodeRefused,
    NoDevices,
    NotTogether,
    Obstacle,
    ReadValue,
    SearchEnded,
)


class NodeOutcome(StrEnum):
    """How it is on a node, nearest to fitting first."""

    FITS = "fits"
    BLOCKED = "blocked"
    """The allocator finds no devices."""
    ERROR = "error"
    """The allocator refuses the whole pod because of this node or of the request itself."""
    REFUSED = "refused"
    """The pod does not go to this node, whatever its devices."""
    UNKNOWN = "unknown"
    """The search was ended by its limit."""


@dataclass(frozen=True, slots=True)
class PlacedDevice:
    """A device that a request would get. ``shared``: others may use it at the same time; ``consumed``: of it by name.

    ``network``: it does not belong to this node alone. ``conditions``: what must become true before the pod starts.
    """

    claim: str
    request: str
    driver: str
    pool: str = field(metadata=NAMES)
    device: str = field(metadata=NAMES)
    admin: bool = False
    shared: bool = False
    network: bool = False
    consumed: tuple[ReadValue, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedAttributes:
    """Attributes with the same value on all devices that a claim gets."""

    claim: str
    values: tuple[ReadValue, ...] = field(metadata=NAMES)


@dataclass(frozen=True, slots=True)
class RequestFinding:
    """One request, or one alternative of it (``gpu/large``).

    ``wanted`` None: all that suit. ``suitable``: devices of ``total`` for this node that the selectors and the rules of
    capacities let through; ``usable``: those of them that are available now. ``obstacles``: the most telling first.
    """

    claim: str
    request: str
    wanted: int | None
    total: int
    suitable: int
    usable: int
    obstacles: tuple[Obstacle, ...] = ()


class RemedyKind(StrEnum):
    """A change that would make the claims fit on a node."""

    FREE = "free"
    """Nothing held by others."""
    TOLERATE = "tolerate"
    """The taints that are shown tolerated; with ``Remedy.what``, all taints in every request."""
    FREE_AND_TOLERATE = "free-and-tolerate"
    FEWER = "fewer"
    """A smaller count; ``Remedy.count``."""
    NO_CONSTRAINT = "no-constraint"
    """One constraint less."""
    NO_SELECTOR = "no-selector"
    """One selector less."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the allocator finds devices on this node; ``what`` names in words what is changed.

    ``claim``, ``request``, ``index``: the same for programs; ``index`` is the place of the constraint or selector.
    """

    change: RemedyKind
    what: str = ""
    count: int = 0
    claim: str = ""
    request: str = ""
    index: int | None = None


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """What holds for one node. ``remarks``: what the scheduler does not look at, though a person should."""

    node: str = field(metadata=NAMES)
    outcome: NodeOutcome
    placements: tuple[PlacedDevice, ...] = ()
    shared: tuple[SharedAttributes, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    requests: tuple[RequestFinding, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Nodes on which it is the same; ``finding`` is that of the first.

    ``exact`` False: names, or values and numbers where nodes are many, are those of the first node.
    """

    nodes: tuple[str, ...]
    finding: NodeFinding
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer. ``title`` names what was asked for, such as ``claim team/gpu (pod team/train-0)``.

    ``settled``: a sentence if there is nothing to allocate (no claims, or all have their devices already). ``stops``:
    reasons for which the scheduler gives up the pod as a whole, even with nodes on which it would fit. ``notes``: what
    limits the answer, such as objects that could not be read or a cluster of another version. ``claims``: those to
    allocate.
    """

    title: str
    groups: tuple[FindingGroup, ...] = ()
    stops: tuple[Obstacle, ...] = ()
    settled: str = ""
    notes: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """How many nodes were judged."""
        return sum(len(group.nodes) for group in self.groups)

    @property
    def fitting(self) -> int:
        """On how many nodes the claims fit."""
        return sum(len(group.nodes) for group in self.groups if group.finding.outcome is NodeOutcome.FITS)

    @property
    def fits(self) -> bool:
        """Whether the scheduler finds a node."""
        return bool(self.settled) or (self.fitting > 0 and not self.stops)


class Grain(Enum):
    """How alike facts must be to be shown as one, the finest first."""

    FINE = "all but names"
    NO_VALUES = "all but names and the values that were read"
    KINDS = "what stands in the way, whatever the names, values and numbers"


def gist(fact: object, grain: Grain = Grain.FINE) -> Hashable:
    """What a fact says at a grain; equal for facts that are shown as one."""
    if isinstance(fact, tuple):
        items = [gist(item, grain) for item in fact]
        return tuple(dict.fromkeys(items)) if grain is Grain.KINDS else tuple(items)
    if isinstance(fact, int) and not isinstance(fact, bool) and grain is Grain.KINDS:
        return "number"
    if not is_dataclass(fact):
        assert isinstance(fact, Hashable)
        return fact
    if grain is not Grain.FINE and isinstance(fact, ReadValue):
        return fact.path
    if grain is Grain.KINDS and isinstance(fact, CounterExhausted | CapacityExhausted):
        return fact.kind
    kept = [gist(getattr(fact, each.name), grain) for each in fields(fact) if not each.metadata.get("names")]
    return (type(fact).__name__, *kept)


def shows_names(fact: Obstacle) -> bool:
    """Whether its words hold names or values that differ from node to node."""
    return not isinstance(fact, _WITHOUT_NAMES) or (isinstance(fact, NotTogether) and bool(fact.users))


_WITHOUT_NAMES = (
    ConditionFalse,
    CapacityUnfit,
    NoDevices,
    NodeRefused,
    NodeOutside,
    NotTogether,
    Competing,
    SearchEnded,
)
MANY = 12
"""Groups that a person reads through; beyond, coarser ones are made."""

_NEAR = {outcome: number for number, outcome in enumerate(NodeOutcome)}


@dataclass(frozen=True, slots=True)
class SeenFinding:
    """A finding with the node it is of. ``lumped``: found on another node, whose values it shows."""

    node: str
    finding: NodeFinding
    lumped: bool = False


def grouped(seen: Sequence[SeenFinding]) -> tuple[FindingGroup, ...]:
    """All nodes in groups, the nearest to fitting first; coarser groups only where finer ones are too many."""
    ranked = sorted(seen, key=lambda each: nearness(each.finding))
    groups: list[FindingGroup] = []
    for grain in Grain:
        groups = _gathered(ranked, grain)
        if len(groups) <= MANY:
            break
    return tuple(groups)


def _gathered(ranked: Sequence[SeenFinding], grain: Grain) -> list[FindingGroup]:
    found: dict[Hashable, list[SeenFinding]] = {}
    gists: dict[tuple[int, ...], Hashable] = {}
    for each in ranked:
        finding = each.finding
        # Nodes of one situation share the parts of their finding, so that it is worked out once for all of them.
        parts = (id(finding.obstacles), id(finding.requests), id(finding.placements), id(finding.remarks))
        if parts not in gists:
            gists[parts] = gist(finding, grain)
        found.setdefault(gists[parts], []).append(each)
    return [_group(members, grain) for members in found.values()]


def _group(members: Sequence[SeenFinding], grain: Grain) -> FindingGroup:
    # A finding shows its own node's names and values, so that node leads.
    lead = next((each for each in members if each.finding.node == each.node), members[0])
    nodes = (lead.node, *(each.node for each in members if each is not lead))
    finding = lead.finding
    obstacles = (*finding.obstacles, *(obstacle for request in finding.requests for obstacle in request.obstacles))
    exact = grain is Grain.FINE and not any(each.lumped for each in members) and not any(map(shows_names, obstacles))
    return FindingGroup(nodes, finding, exact or len(nodes) == 1)


def nearness(finding: NodeFinding) -> tuple[int, int, int]:
    """Less is nearer: the outcome, devices that are missing, devices that suit."""
    missing = sum(max(0, (each.wanted or 1) - each.usable) for each in finding.requests)
    suitable = sum(each.suitable for each in finding.requests)
    return (_NEAR[finding.outcome], missing if finding.requests else 1 << 30, -suitable)
