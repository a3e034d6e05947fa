"""The answer for all nodes: each situation examined once, equal findings as one group, the nearest to a way first.

Two nodes are in one situation if the search and the reasons cannot tell them apart but by names: their devices are in
equal pools, in equal use, belong to the same classes, and have equal values of the attributes that matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.constraints import attributes_read
from scheduling.pools.diagnosis import NeedFinding, PoolFinding, PoolOutcome, diagnose, invalid_needs
from scheduling.pools.matching import candidate_classes
from scheduling.pools.obstacles import gist
from scheduling.pools.published import PublishedDevice, PublishedPool
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.questions import Claims, PoolJudge, places_of
from scheduling.pools.reading import title_of
from scheduling.pools.remedies import PoolRemedy, remedies
from scheduling.pools.search import MOST_STEPS_IN_ALL
from scheduling.pools.ways import SearchSteps

MOST_GROUPS = 12
"""Groups for which it is found out what would help; a person reads no more."""
NETWORK = "the network"
"""Stands for a node where no pool is on any."""


@dataclass(frozen=True, slots=True)
class PoolFindingGroup:
    """Nodes on which it is the same but for names; `finding` is that of the first."""

    nodes: tuple[str, ...]
    finding: PoolFinding
    remedies: tuple[PoolRemedy, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolExplanation:
    """The answer. `stops`: needs that no node can judge. `claims`: names of those asked about."""

    claims: tuple[str, ...]
    groups: tuple[PoolFindingGroup, ...] = ()
    stops: tuple[NeedFinding, ...] = ()

    @property
    def nodes(self) -> int:
        """How many nodes were looked at."""
        return sum(len(each.nodes) for each in self.groups)

    @property
    def fitting(self) -> int:
        """On how many nodes all claims have a way together."""
        return sum(len(each.nodes) for each in self.groups if each.finding.outcome is PoolOutcome.FITS)


def survey_pools(
    claims: Claims,
    pools: Sequence[PublishedPool],
    classes: ClusterClasses,
    nodes: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> PoolExplanation:
    """The answer about these nodes, or about all that have pools. `progress`: nodes done, nodes in all."""
    titles = tuple(title_of(each) for each in claims)
    stops = tuple(invalid_needs(claims, classes))
    if stops:
        return PoolExplanation(titles, stops=stops)
    by_node = pools_by_node(pools)
    chosen = list(dict.fromkeys(nodes)) or list(by_node)
    situations = _Situations(claims, classes)
    judges: dict[str, PoolJudge] = {}
    steps = SearchSteps(MOST_STEPS_IN_ALL)
    known: dict[Hashable, PoolFinding] = {}
    found: list[PoolFinding] = []
    for number, name in enumerate(chosen):
        progress(number, len(chosen))
        at_node = by_node[name]
        situation = situations.of(at_node)
        finding = known.get(situation)
        if finding is None:
            judges[name] = PoolJudge(at_node, classes, part_of=steps)
            finding = known[situation] = diagnose(claims, name, judges[name])
        found.append(replace(finding, node=name))
    return PoolExplanation(titles, tuple(_grouped(claims, found, judges)))


def pools_by_node(pools: Sequence[PublishedPool]) -> dict[str, list[PublishedPool]]:
    """The pools that each node can use, by name; all of them at `NETWORK` where no node is known."""
    ordered = sorted(pools, key=lambda each: each.document.metadata.name)
    names = sorted({name for each in pools for name in each.nodes})
    if not names:
        return {NETWORK: ordered}
    found: dict[str, list[PublishedPool]] = {name: [] for name in names}
    for each in ordered:
        for name in each.nodes:
            found[name].append(each)
    return found


def _grouped(claims: Claims, found: Sequence[PoolFinding], judges: dict[str, PoolJudge]) -> list[PoolFindingGroup]:
    """Findings that say the same; the finding of a group is one that was made on its own node."""
    groups: dict[Hashable, list[PoolFinding]] = {}
    for each in sorted(found, key=_nearness):
        groups.setdefault(gist(each), []).append(each)
    made = []
    for number, same in enumerate(groups.values()):
        first = next(each for each in same if each.node in judges)
        names = (first.node, *(each.node for each in same if each is not first))
        helpful = remedies(claims, first, judges[first.node]) if number < MOST_GROUPS else ()
        made.append(PoolFindingGroup(names, first, tuple(helpful)))
    return made


def _nearness(finding: PoolFinding) -> tuple[int, int, int]:
    """Smaller for what is nearer to a way: fewer devices are missing, then fewer that suit."""
    outcome = list(PoolOutcome).index(finding.outcome)
    missing = sum(max(0, each.wanted - each.usable) for each in finding.needs)
    unsuitable = sum(max(0, each.wanted - each.suitable) for each in finding.needs)
    return outcome, missing, unsuitable


class _Situations:
    """Tells nodes apart by what matters to some claims."""

    def __init__(self, claims: Claims, classes: ClusterClasses) -> None:
        self._classes = classes
        details = [each.detail for each in places_of(claims)]
        candidates = {one.metadata.name: one for each in details for one in candidate_classes(each, classes.documents)}
        self._of_cluster = sorted(name for name in candidates if classes.is_of_cluster(name))
        texts = [each.constraints for each in details] + [each.spec.constraints for each in candidates.values()]
        reads = [attributes_read(text) for text in texts if text]
        matched = {name for each in details for name in each.match_attributes} | _across(claims)
        self._names = None if None in reads else matched.union(*(each for each in reads if each is not None))

    def of(self, pools: Sequence[PublishedPool]) -> Hashable:
        """Equal for nodes in one situation."""
        return tuple(
            (each.driver, each.fault, each.resources, tuple(self._device(one, each) for one in each.devices))
            for each in pools
        )

    def _device(self, device: PublishedDevice, pool: PublishedPool) -> Hashable:
        document = device.document
        shared = {each.name: each for each in pool.document.spec.attributes}
        facts = {**shared, **{each.name: each for each in document.attributes}}
        names = sorted(facts) if self._names is None else sorted(self._names & facts.keys())
        return (
            device.name,
            device.state,
            tuple((user.admin, user.amounts) for user in device.users),
            device.amounts,
            device.taints,
            device.shareable,
            frozenset(document.requests.items()),
            tuple((name, facts[name].kind, facts[name].value) for name in names),
            tuple(
                self._classes.signature(name, (pool.document.metadata.name, device.name)) for name in self._of_cluster
            ),
        )


def _across(claims: Sequence[DeviceClaim]) -> set[str]:
    return {name for each in claims for name in each.spec.match_attributes}
