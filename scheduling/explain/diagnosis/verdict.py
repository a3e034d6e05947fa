"""What an explanation found, as facts: where the claims fit, and what is in the way elsewhere.

Invariants: the groups name every node once, those that fit first, then the nearest; whatever is in ``obstacles`` and
``remedies`` was held against the allocator on that node. The nodes of a group are alike in everything but names; the
finding is that of its first node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from scheduling.explain.diagnosis.obstacles import NAMES, Obstacle, Value


class Outcome(StrEnum):
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
class Placement:
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
    consumed: tuple[Value, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shared:
    """Attributes with the same value on all devices that a claim gets."""

    claim: str
    values: tuple[Value, ...] = field(metadata=NAMES)


@dataclass(frozen=True, slots=True)
class RequestFinding:
    """One request, or one alternative of it (``gpu/large``).

    ``wanted`` None: all that suit. ``suitable``: devices of ``total`` for this node that the selectors and the rules of
    capacities let through; ``usable``: those of them that could be had now. ``obstacles``: the most telling first.
    """

    claim: str
    request: str
    wanted: int | None
    total: int
    suitable: int
    usable: int
    obstacles: tuple[Obstacle, ...] = ()


class Change(StrEnum):
    """A change that would make the claims fit on a node."""

    FREE = "free"
    """Nothing held by others."""
    TOLERATE = "tolerate"
    """The taints that are told tolerated; with ``Remedy.what``, all taints in every request."""
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

    change: Change
    what: str = ""
    count: int = 0
    claim: str = ""
    request: str = ""
    index: int | None = None


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """What holds for one node. ``remarks``: what the scheduler does not look at, though a person should."""

    node: str = field(metadata=NAMES)
    outcome: Outcome
    placements: tuple[Placement, ...] = ()
    shared: tuple[Shared, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    requests: tuple[RequestFinding, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes on which it is the same; ``finding`` is that of the first.

    ``exact`` False: names, or values and numbers where nodes are many, are those of the first node.
    """

    nodes: tuple[str, ...]
    finding: NodeFinding
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. ``title`` names what was asked for, such as ``claim team/gpu (pod team/train-0)``.

    ``settled``: a sentence where nothing is left to be allocated (no claims, or all have their devices already).
    ``stops``: reasons for which the scheduler gives up the pod as a whole, even with nodes on which it would fit.
    ``notes``: what limits the answer, such as objects that could not be read or a cluster of another version.
    ``claims``: those that are to be allocated.
    """

    title: str
    groups: tuple[Group, ...] = ()
    stops: tuple[Obstacle, ...] = ()
    settled: str = ""
    notes: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """How many nodes were looked at."""
        return sum(len(group.nodes) for group in self.groups)

    @property
    def fitting(self) -> int:
        """On how many nodes the claims fit."""
        return sum(len(group.nodes) for group in self.groups if group.finding.outcome is Outcome.FITS)

    @property
    def fits(self) -> bool:
        """Whether the scheduler finds a node."""
        return bool(self.settled) or (self.fitting > 0 and not self.stops)
