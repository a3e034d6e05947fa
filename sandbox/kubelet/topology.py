"""The kubelet's topology manager: from which NUMA nodes a container's devices should come, and whom it refuses. Pure.

Behaves as in Kubernetes 1.36. Every provider offers hints per resource; the manager takes one hint of each list,
intersects their nodes and keeps the best combination. A kubelet walks the whole product of the lists. Here the lists
are folded one after the other and equal intermediate results are kept once, which gives the same best hint at a cost
that depends on the number of NUMA nodes and not on the number of lists.

Invariants: the order of providers, resources and hints never changes the result; policy ``none`` looks at nothing, not
even at its own settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sandbox.kubelet.errors import KubeletError

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES = ("container", "pod")
_MAX_NODES: Final = 8
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class TopologyHint:
    """NUMA nodes that suit a request (None: any node does), and whether fewer nodes would not be possible."""

    nodes: frozenset[int] | None = None
    preferred: bool = False


ProviderHints = Mapping[str, Sequence[TopologyHint] | None]
"""Resource -> hints of one provider; None: no preference, an empty sequence: no nodes can serve the request."""

NO_PREFERENCE: Final = TopologyHint(None, preferred=True)
_UNSATISFIABLE: Final = TopologyHint(None, preferred=False)


class TopologyConfigError(KubeletError):
    """The settings of the topology manager are invalid; the message is the kubelet's."""


class TopologyAffinityError(KubeletError):
    """The policy refuses a pod because of its hints."""

    def __init__(self) -> None:
        super().__init__("Resources cannot be allocated with Topology locality")


class TopologyManager:
    """The four policies and both scopes.

    ``numa_nodes`` are the machine's NUMA ids. ``distances`` is, per NUMA id, the machine's distance list, indexed by
    NUMA id; the option ``prefer-closest-numa-nodes`` needs it. ``options`` are the policy options as text. The
    constructor raises ``TopologyConfigError``.
    """

    def __init__(
        self,
        policy: str = "none",
        scope: str = "container",
        *,
        options: Mapping[str, str] | None = None,
        numa_nodes: Collection[int] = (0,),
        distances: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.policy = policy
        self.scope = scope
        self.numa_nodes = frozenset(numa_nodes)
        self._machine = _mask(self.numa_nodes)
        self._distances: Mapping[int, Sequence[int]] | None = None
        if policy == "none":
            return
        closest, limit = _read_options(options or {})
        if closest and not _is_complete(distances, self.numa_nodes):
            raise TopologyConfigError("cannot discover NUMA topology: error getting NUMA distances from cadvisor")
        if len(self.numa_nodes) > limit:
            raise TopologyConfigError(f"unsupported on machines with more than {limit} NUMA Nodes")
        if policy not in POLICIES:
            raise TopologyConfigError(f"unknown policy: {_quoted(policy)}")
        if scope not in SCOPES:
            raise TopologyConfigError(f"unknown scope: {_quoted(scope)}")
        if closest and policy != "single-numa-node":
            self._distances = distances

    @property
    def asks_for_hints(self) -> bool:
        """Whether the policy needs hints at all."""
        return self.policy != "none"

    def decide(self, providers: Iterable[ProviderHints]) -> TopologyHint:
        """The best hint; raises ``TopologyAffinityError`` if the policy refuses it."""
        hint = self.merge(providers)
        if not self.admits(hint):
            raise TopologyAffinityError
        return hint

    def admits(self, hint: TopologyHint) -> bool:
        """Whether the policy lets a pod with this merged hint in."""
        return hint.preferred or self.policy in ("none", "best-effort")

    def merge(self, providers: Iterable[ProviderHints]) -> TopologyHint:
        """The best combination of the providers' hints; one without hints has no preference."""
        if not self.asks_for_hints:
            return TopologyHint()
        lists = [_MaskList.of(hints) for provider in providers for hints in _hint_lists(provider)]
        if self.policy == "single-numa-node":
            lists = [hints.single_node() for hints in lists]
        best = self._best(lists)
        if self.policy == "single-numa-node" and best[0] == self._machine:
            return TopologyHint(None, best[1])
        return TopologyHint(_nodes(best[0]), best[1])

    def _best(self, lists: Sequence[_MaskList]) -> tuple[int, bool]:
        combinations = _combine(lists, self._machine)
        if not combinations:
            return self._machine, False
        # Without a preferred combination, the kubelet aims at the size that the most demanding list needs at least.
        aim = max((hints.smallest for hints in lists if hints.smallest is not None), default=0)

        def rank(combination: tuple[int, bool]) -> tuple[int, ...]:
            mask, preferred = combination
            size = mask.bit_count()
            if preferred:
                return 0, 0, size, self._distance(mask), mask
            side = 0 if size == aim else 1 if size < aim else 2
            return 1, side, -size if side == 1 else size, self._distance(mask), mask

        return min(combinations, key=rank)

    def _distance(self, mask: int) -> int:
        """The sum of all distances within ``mask``; for masks of one size it orders as the kubelet's average does."""
        if self._distances is None:
            return 0
        nodes = _nodes(mask)
        return sum(self._distances[one][other] for one in nodes for other in nodes)


@dataclass(frozen=True, slots=True)
class _MaskList:
    """The hints of one resource as (bit mask or None, preferred)."""

    hints: frozenset[tuple[int | None, bool]]

    @classmethod
    def of(cls, hints: Iterable[TopologyHint]) -> _MaskList:
        return cls(frozenset((None if hint.nodes is None else _mask(hint.nodes), hint.preferred) for hint in hints))

    @property
    def smallest(self) -> int | None:
        """The size of the smallest mask, None without any mask."""
        return min((mask.bit_count() for mask, _ in self.hints if mask is not None), default=None)

    def single_node(self) -> _MaskList:
        """The hints that policy single-numa-node considers; possibly none."""
        return _MaskList(
            frozenset(
                (mask, preferred)
                for mask, preferred in self.hints
                if preferred and (mask is None or mask.bit_count() == 1)
            )
        )


def _hint_lists(provider: ProviderHints) -> list[Sequence[TopologyHint]]:
    if not provider:
        return [(NO_PREFERENCE,)]
    return [(NO_PREFERENCE,) if hints is None else hints or (_UNSATISFIABLE,) for hints in provider.values()]


def _combine(lists: Iterable[_MaskList], machine: int) -> set[tuple[int, bool]]:
    """(Nodes, preferred) of every combination with at least one node.

    A combination is preferred if all its hints are and their masks are equal, so the common mask goes along as long as
    the combination is preferred.
    """
    combinations: set[tuple[int, int | None, bool]] = {(machine, None, True)}
    for hints in lists:
        combinations = {
            combined
            for mask, common, preferred in combinations
            for own, own_preferred in hints.hints
            if (combined := _join(mask, common, own, preferred=preferred and own_preferred))[0]
        }
    return {(mask, preferred) for mask, _, preferred in combinations if mask}


def _join(mask: int, common: int | None, own: int | None, *, preferred: bool) -> tuple[int, int | None, bool]:
    if own is not None:
        preferred = preferred and common in (None, own)
        mask, common = mask & own, own
    return mask, common if preferred else None, preferred


def _mask(nodes: Iterable[int]) -> int:
    return sum(1 << node for node in set(nodes))


def _nodes(mask: int) -> frozenset[int]:
    return frozenset(node for node in range(mask.bit_length()) if mask >> node & 1)


def _read_options(options: Mapping[str, str]) -> tuple[bool, int]:
    """Whether closest nodes are preferred, and how many nodes the machine may have."""
    closest, limit = False, _MAX_NODES
    for name, value in sorted(options.items()):
        if name == "prefer-closest-numa-nodes":
            if value not in _TRUE | _FALSE:
                raise TopologyConfigError(
                    f'bad value for option "{name}": strconv.ParseBool: parsing {_quoted(value)}: invalid syntax'
                )
            closest = value in _TRUE
        elif name == "max-allowable-numa-nodes":
            limit = _read_limit(name, value)
        else:
            raise TopologyConfigError(f"unknown Topology Manager Policy option: {_quoted(name)}")
    return closest, limit


def _read_limit(name: str, value: str) -> int:
    number = int(value) if re.fullmatch(r"[+-]?[0-9]{1,40}", value, re.ASCII) else None
    if number is None or number not in _INT64:
        fault = "invalid syntax" if number is None else "value out of range"
        raise TopologyConfigError(
            f'unable to convert policy option to integer "{name}": strconv.Atoi: parsing {_quoted(value)}: {fault}'
        )
    if number < _MAX_NODES:
        raise TopologyConfigError(f'the minimum value of "{name}" should not be less than {_MAX_NODES}')
    return number


def _is_complete(distances: Mapping[int, Sequence[int]] | None, nodes: Collection[int]) -> bool:
    return distances is not None and all(len(distances.get(node, ())) > max(nodes) for node in nodes)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
