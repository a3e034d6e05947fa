"""What was found out about pods that are to fit: where each went, and the first that went nowhere, as facts."""

from __future__ import annotations

from dataclasses import dataclass

from kube.bodies import JsonObject
from scheduling.explain.state import objects_at
from scheduling.explain.verdict import Explanation


@dataclass(frozen=True, slots=True)
class PlacedClaim:
    """A claim and its allocation there; ``name`` as it will begin where the scheduler or a controller names it."""

    namespace: str
    name: str
    allocation: JsonObject

    @property
    def devices(self) -> tuple[tuple[str, str, str], ...]:
        """Driver, pool and device of each result."""
        results = objects_at(self.allocation, "devices", "results")
        return tuple((str(one["driver"]), str(one["pool"]), str(one["device"])) for one in results)


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod, the source that it is of, and the claims that are allocated with it (not those that others brought)."""

    name: str
    source: str
    node: str
    claims: tuple[PlacedClaim, ...]


@dataclass(frozen=True, slots=True)
class FilledNode:
    """A node with the pods placed on it. ``template``: of which it is a copy, empty for a node that exists.

    ``devices``: all that are there for claims; ``in_use``: held by anybody afterwards, whole or in part.
    """

    name: str
    pods: tuple[PlacedPod, ...]
    devices: int
    in_use: int
    template: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Pods of one source that fit nowhere: the first of them, and how many."""

    source: str
    first: str
    count: int


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """``wanted``: pods; ``None`` where as many copies as possible were asked for, then ``copies`` counts whole ones.

    ``nodes``: every node, in the order in which they were tried; those of a template only where pods are on them.
    ``leftovers``: in the order in which they failed. ``why``: about the first of all, at the moment at which it failed.
    ``endless``: nothing limits the copies. ``cut``: the count ended at its limit, more may fit.
    """

    wanted: int | None
    nodes: tuple[FilledNode, ...]
    leftovers: tuple[Leftover, ...] = ()
    why: Explanation | None = None
    copies: int | None = None
    endless: bool = False
    cut: bool = False
    notes: tuple[str, ...] = ()

    @property
    def placed(self) -> int:
        """Pods that have a node."""
        return sum(len(node.pods) for node in self.nodes)

    @property
    def fits(self) -> bool:
        """Whether everything that was asked for fits; of as many copies as possible at least one."""
        if self.wanted is None:
            return self.endless or bool(self.copies)
        return not self.leftovers

    @property
    def added(self) -> int:
        """Nodes of the template with pods on them."""
        return sum(bool(node.template and node.pods) for node in self.nodes)
