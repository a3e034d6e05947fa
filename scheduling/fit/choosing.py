"""On which node the next pod of a kind goes.

A node is judged once for all pods of a kind, and again only when something on it has changed. Nodes in one situation
share a verdict. Placing only ever takes away, so a node on which a kind does not fit is not asked again; a verdict
that is an error is, because what fails may be asked no more once it is in use.

Like the scheduler, a pod is given up on all nodes where the allocator refuses one of them. That is looked for on every
node that its own pods have changed; where nodes share a pool, only when the pod's turn comes to go there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count

from kube.bodies import JsonObject, object_at
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.reading import FatalError, GaveUp, NodeError, Object
from scheduling.explain.cluster import Cluster
from scheduling.explain.extended import asks_of
from scheduling.explain.nodes import hindrances
from scheduling.explain.situations import Situations
from scheduling.explain.state import Objects
from scheduling.explain.subject import ExplainSubject
from scheduling.explain.survey import reach_of
from scheduling.fit.room import Needs
from scheduling.fit.supply import NodePlace


class PlaceVerdict(Enum):
    """How a node is for a kind of pods."""

    FITS = "fits"
    FULL = "full"
    """Not now, and never again."""
    ERROR = "error"
    """The allocator refuses the pod as a whole."""


@dataclass(frozen=True, slots=True)
class GivenPlace:
    """A node, and an allocation for each claim to allocate, in the names of the node that was asked about."""

    place: NodePlace
    claims: Objects
    results: Sequence[Object]


class ClusterViews:
    """What is known of nodes for all kinds of pods together: their situations, and which pods they let run.

    Situations have one reader for each cluster, made for all claims.
    """

    def __init__(self, claims: Objects, clusters: Sequence[Cluster]) -> None:
        """Raises ``FatalError`` for claims that cannot be read."""
        self._readers = {id(cluster): Situations(claims, cluster) for cluster in clusters}
        self._known: dict[int, tuple[tuple[int, ...], int]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._hindered: dict[str, dict[int, bool]] = {}

    def hindered(self, subject: ExplainSubject) -> Callable[[NodePlace], bool]:
        """Whether a place keeps these pods away, apart from what is left; asked once for pods that say the same."""
        pod = subject.pod
        if pod is None:
            return lambda _: False
        known = self._hindered.setdefault(_selection(pod, subject), {})

        def ask(place: NodePlace) -> bool:
            answer = known.get(place.number)
            if answer is None:
                found = hindrances(pod, place.node, subject.extended)
                answer = known[place.number] = any(each.blocking for each in found)
            return answer

        return ask

    def of(self, place: NodePlace) -> int:
        """A number, equal for places in the same situation."""
        version = place.version
        known = self._known.get(place.number)
        if known is None or known[0] != version:
            situation = self._read(place)
            known = (version, self._numbers.setdefault(situation, len(self._numbers)))
            self._known[place.number] = known
        return known[1]

    def _read(self, place: NodePlace) -> Hashable:
        key = id(place.cluster)
        try:
            situation = self._readers[key].of(place.asked, place.allocated)
        except FatalError:
            # A device that cannot be read: only the node itself tells.
            situation = (place.name, place.version)
        return (key, situation, place.shared_version)


class KindChooser:
    """Chooses nodes for one kind of pods, with some of its shared claims allocated and the others not."""

    def __init__(
        self,
        subject: ExplainSubject,
        needs: Needs,
        allocated: Objects,
        *,
        places: Sequence[NodePlace],
        views: ClusterViews,
        new_share: Callable[[], str],
    ) -> None:
        """``subject``: with the claims that are to be allocated; ``allocated``: those that are; ``places`` may grow."""
        self._subject = subject
        self._needs = needs
        self._hinders = views.hindered(subject)
        self._reach = [reach_of(claim)[0] for claim in allocated]
        self._places = places
        self._views = views
        self._new_share = new_share
        self._known: dict[Hashable, PlaceVerdict] = {}
        self._verdicts: list[tuple[PlaceVerdict, tuple[int, ...]]] = []
        self._failing: set[int] = set()
        self._first = 0

    def look(self, changed: Sequence[int]) -> None:
        """Judge the places that are new, and again those that have changed."""
        for number in range(len(self._verdicts), len(self._places)):
            self._verdicts.append((PlaceVerdict.FULL, ()))
            self._judge(number)
        for number in changed:
            verdict, version = self._verdicts[number]
            if verdict is not PlaceVerdict.FULL and version != self._places[number].version:
                self._judge(number)

    def wants(self, number: int) -> bool:
        """Whether a DaemonSet makes a pod for this place: whether the pod may run there, apart from what is left."""
        return not self._is_hindered(self._places[number])

    def choose(self, *, spread: bool, only: int | None = None) -> GivenPlace | None:
        """The place for the next pod, None where there is none; ``only``: look at this place alone."""
        for failing in [each for each in self._failing if self._places[each].room.lacks(self._needs)]:
            # The scheduler does not come to the devices of a node that lacks something else.
            self._note(failing, PlaceVerdict.FULL)
        if self._failing:
            return None
        while (number := self._candidate(spread=spread, only=only)) is not None:
            place = self._places[number]
            claims = self._claims_on(place)
            results, verdict = self._ask(place, claims)
            if results is not None:
                return GivenPlace(place, claims, results)
            # A pool that other nodes have a part in has changed, or the place differs from those that it was like.
            self._note(number, verdict)
            if self._failing:
                return None
        return None

    def _candidate(self, *, spread: bool, only: int | None) -> int | None:
        if only is not None:
            return only if self._is_free(only) else None
        while self._first < len(self._verdicts) and not self._is_free(self._first):
            self._first += 1
        if self._first == len(self._verdicts):
            return None
        if not spread:
            return self._first
        free = (number for number in range(self._first, len(self._verdicts)) if self._is_free(number))
        return min(free, key=lambda number: (self._places[number].pods, number))

    def _is_free(self, number: int) -> bool:
        if self._verdicts[number][0] is not PlaceVerdict.FITS:
            return False
        return not self._places[number].room.lacks(self._needs)

    def _judge(self, number: int) -> None:
        self._note(number, self._verdict(self._places[number]))

    def _note(self, number: int, verdict: PlaceVerdict) -> None:
        self._verdicts[number] = (verdict, self._places[number].version)
        if verdict is PlaceVerdict.ERROR:
            self._failing.add(number)
        else:
            self._failing.discard(number)
        if verdict is PlaceVerdict.FITS:
            self._first = min(self._first, number)

    def _verdict(self, place: NodePlace) -> PlaceVerdict:
        if place.room.lacks(self._needs) or self._is_hindered(place):
            return PlaceVerdict.FULL
        claims = self._claims_on(place)
        if not claims:
            return PlaceVerdict.FITS
        asked = repr([object_at(claim, "spec") for claim in claims]) if self._subject.extended else ""
        key = (asked, self._views.of(place))
        verdict = self._known.get(key)
        if verdict is None:
            verdict = self._known[key] = self._ask(place, claims)[1]
        return verdict

    def _is_hindered(self, place: NodePlace) -> bool:
        return self._hinders(place) or not all(is_inside(place.node) for is_inside in self._reach)

    def _claims_on(self, place: NodePlace) -> Objects:
        return self._subject.claims_on(place.node)

    def _ask(self, place: NodePlace, claims: Objects) -> tuple[Sequence[Object] | None, PlaceVerdict]:
        """The allocator's results, and what they mean for the place."""
        if not claims:
            return (), PlaceVerdict.FITS
        cluster = place.cluster
        give_up = None if cluster.patience is None else cluster.patience(False)
        try:
            allocator = Allocator(
                claims,
                place.allocated,
                cluster.classes,
                cluster.index,
                cluster.features,
                give_up=give_up,
                new_share=self._new_share,
            )
            results = allocator.allocate(place.asked)
        except FatalError:
            return None, PlaceVerdict.ERROR
        except (NodeError, GaveUp):
            return None, PlaceVerdict.FULL
        return results, PlaceVerdict.FULL if results is None else PlaceVerdict.FITS


def share_names() -> Callable[[], str]:
    """Makes ids of shares, the same in every run."""
    numbers = count(1)
    return lambda: f"share-{next(numbers)}"


def _selection(pod: JsonObject, subject: ExplainSubject) -> str:
    """Everything of a pod that decides which nodes keep it away."""
    spec = object_at(pod, "spec")
    parts = [spec.get("nodeName"), spec.get("nodeSelector"), spec.get("affinity"), spec.get("tolerations")]
    return json.dumps([*parts, [[ask.resource, ask.count] for ask in asks_of(pod)], sorted(subject.extended)])
