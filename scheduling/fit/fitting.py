"""How many pods fit: one after the other, each on what those before it have left.

Pods come in the order in which they are given. A pod goes to the first node, in the nodes' order, on which the
scheduler would let it run, or with ``spread`` to the one with the fewest placed pods; its claims get the devices that
the scheduler's allocator would choose there. Nothing is moved to make room, so another order can fit more or fewer.

Invariants: what a pod gets is what a fresh look at the cluster with all earlier pods gives it; no device is given twice
and no amount exceeded; the answer is the same in every run, unless a search is ended by its patience.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from kube.bodies import JsonObject, text_at
from scheduling.explain.cluster import Patience, cluster_of
from scheduling.explain.nodes import ENDED, Hindrance
from scheduling.explain.state import Kind, Objects, State, name_of, namespace_of
from scheduling.explain.subject import ASKS_FOR_NOTHING, is_allocated
from scheduling.explain.survey import ParameterCheck, nodes_of, survey, unchecked
from scheduling.explain.verdict import Explanation
from scheduling.fit.answer import FilledNode, FitAnswer, PlacedPod
from scheduling.fit.choosing import ClusterViews, GivenPlace, KindChooser, share_names
from scheduling.fit.record import PlacingRecord
from scheduling.fit.room import NodeRoom, is_running, needs_of, uncounted
from scheduling.fit.supply import NodePlace, Uses, node_of, slice_for
from scheduling.fit.wanted import ClaimKey, PodSource, WantedPods, claim_key, wanted_of, with_more

MOST = 100_000
"""Pods that are placed at most where as many copies as possible are asked for."""

Progress = Callable[[int], None]
"""Pods placed so far."""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A kind of nodes: one of them, with its slices. ``count``: how many there are, None for as many as it takes."""

    node: JsonObject
    slices: Objects
    count: int | None = None

    @property
    def name(self) -> str:
        """Of the node; its copies are called so with a number behind."""
        return name_of(self.node)


@dataclass(frozen=True, slots=True)
class FitOptions:
    """``copies``: of everything that is wanted, None for as many as fit; ``spread``: fill nodes evenly."""

    copies: int | None = 1
    spread: bool = False
    template: NodeTemplate | None = None
    patience: Patience | None = None
    parameters: ParameterCheck = unchecked
    progress: Progress = lambda _: None


def fit(state: State, sources: Sequence[PodSource], options: FitOptions = FitOptions()) -> FitAnswer:
    """Place everything that is wanted. Raises ``BadQuestion`` and ``FatalError`` for objects that cannot be read."""
    return _Run(state, sources, options).answer()


class _Run:
    def __init__(self, state: State, sources: Sequence[PodSource], options: FitOptions) -> None:
        self._state = state
        self._options = options
        self._template = options.template
        self._record = PlacingRecord()
        self._wanted = 0
        """Pods so far."""
        self._why: Explanation | None = None
        self._choosers: dict[tuple[int, tuple[ClaimKey, ...]], tuple[KindChooser, list[int]]] = {}
        """By kind and allocated claims, each with how many changes it has heard of."""
        self._new_share = share_names()
        cluster = cluster_of(state, options.patience)
        clusters = [cluster]
        uses = Uses(claim for claim in state.claims if is_allocated(claim))
        nodes, self._own_notes = nodes_of(state)
        self._places = [NodePlace(number, node, node, cluster, uses) for number, node in enumerate(nodes)]
        self._take_running(sources)
        self._template_cluster = cluster
        if self._template is not None:
            own = State(slices=self._template.slices, classes=state.classes, server_version=state.server_version)
            self._template_cluster = cluster_of(own, options.patience)
            clusters.append(self._template_cluster)
        self._sources = list(wanted_of(state, sources, copies=options.copies))
        claims = {id(claim): claim for each in self._sources for claim in each.kind.subject.to_allocate}
        self._views = ClusterViews(tuple(claims.values()), clusters)
        self._taken_names = {place.name for place in self._places}
        self._numbers = count(1)
        self._spare: NodePlace | None = None
        """A node of the template that was added for a pod that did not fit there either."""
        for _ in range((self._template.count or 0) if self._template is not None else 0):
            self._open()

    def _take_running(self, sources: Sequence[PodSource]) -> None:
        """Subtract what pods of the cluster have; those that are to be placed are not among them."""
        placed = {(each.question.namespace, each.question.name) for each in sources}
        by_name = {place.name: place for place in self._places}
        waiting = 0
        for pod in self._state.pods:
            if (namespace_of(pod), name_of(pod)) in placed:
                continue
            place = by_name.get(text_at(pod, "spec", "nodeName"))
            if place is not None and is_running(pod):
                place.room.take(needs_of(pod))
            waiting += not text_at(pod, "spec", "nodeName") and text_at(pod, "status", "phase") not in ENDED
        if waiting:
            words = "1 pod waits" if waiting == 1 else f"{waiting} pods wait"
            self._own_notes.append(f"{words} in the cluster already; what they would take is not counted")

    # Placing

    def answer(self) -> FitAnswer:
        copies = self._options.copies
        whole = 0
        cut = endless = False
        for number in count() if copies is None else range(copies):
            self._record.begin_copy()
            self._place_all(daemons=number == 0)
            if self._record.leftovers and copies is None:
                self._record.drop_copy()
                break
            whole += 1
            if copies is None and not self._record.takes:
                endless = True
                break
            cut = copies is None and len(self._record.placed) >= MOST
            if cut:
                break
        if self._spare is not None:
            # What its DaemonSets would have is of no interest where nothing else is there.
            self._record.leave_out(self._spare)
            self._wanted -= self._spare.pods
        return FitAnswer(
            wanted=None if copies is None else self._wanted,
            nodes=tuple(self._filled()),
            leftovers=tuple(self._record.leftovers.values()),
            why=self._why,
            copies=whole if copies is None else None,
            endless=endless,
            cut=cut,
            notes=tuple(self._notes()),
        )

    def _place_all(self, *, daemons: bool) -> None:
        for wanted in self._sources:
            if wanted.source.count is None:
                if daemons:
                    self._place_daemons(wanted, [place.number for place in self._places])
                continue
            for _ in range(wanted.source.count):
                self._place(wanted)
                if self._record.leftovers and self._options.copies is None:
                    return

    def _place_daemons(self, wanted: WantedPods, numbers: Sequence[int]) -> None:
        for number in numbers:
            chooser = self._chooser(wanted)
            if chooser.wants(number):
                self._place(wanted, only=number)

    def _place(self, wanted: WantedPods, only: int | None = None) -> None:
        self._wanted += 1
        name = wanted.next_name()
        given = None
        if not wanted.kind.subject.missing and not any(map(self._record.is_full, wanted.kind.shared)):
            given = self._choose(wanted, only)
        if given is None:
            self._leave(wanted, name, only)
            return
        self._record.enter(wanted, name, given)
        if given.place is self._spare and wanted.source.count is not None:
            self._spare = None
        self._options.progress(len(self._record.placed))

    def _choose(self, wanted: WantedPods, only: int | None) -> GivenPlace | None:
        spread = self._options.spread
        given = self._chooser(wanted).choose(spread=spread, only=only)
        if given is None and only is None and self._can_open():
            self._open()
            given = self._chooser(wanted).choose(spread=spread)
        return given

    def _chooser(self, wanted: WantedPods) -> KindChooser:
        """The chooser for the claims that are allocated by now, which has heard of everything that changed."""
        kind, allocated = wanted.kind, self._record.allocated(wanted.kind.keys)
        key = (id(kind), tuple(allocated))
        if key not in self._choosers:
            rest = [claim for claim in kind.subject.to_allocate if claim_key(claim) not in allocated]
            chooser = KindChooser(
                replace(kind.subject, to_allocate=tuple(rest)),
                wanted.needs,
                (*kind.subject.allocated, *allocated.values()),
                places=self._places,
                views=self._views,
                new_share=self._new_share,
            )
            self._choosers[key] = (chooser, [0])
        chooser, heard = self._choosers[key]
        chooser.look(self._record.changed[heard[0] :])
        heard[0] = len(self._record.changed)
        return chooser

    # Nodes of the template

    def _can_open(self) -> bool:
        """Whether there can be one more node, and none is there that is as empty as that would be."""
        return self._template is not None and self._template.count is None and self._spare is None

    def _open(self) -> None:
        assert self._template is not None
        name = next(
            name for number in self._numbers if (name := f"{self._template.name}-{number}") not in self._taken_names
        )
        node = node_of(self._template.node, name)
        place = NodePlace(len(self._places), node, self._template.node, self._template_cluster, Uses())
        self._places.append(place)
        if self._template.count is None:
            self._spare = place
            for wanted in self._sources:
                if wanted.source.count is None:
                    self._place_daemons(wanted, [place.number])

    # What is told

    def _leave(self, wanted: WantedPods, name: str, only: int | None) -> None:
        self._record.leave(wanted, name)
        if self._why is None:
            self._why = self._explained(wanted, name, only)

    def _explained(self, wanted: WantedPods, name: str, only: int | None) -> Explanation:
        """What a fresh look at the cluster says of a pod that fits nowhere, as it is now."""
        empty = self._template is not None and self._template.count is None
        if empty and not self._places:
            self._open()
        state, subject = self._now(), self._record.subject(wanted.kind, name)
        rooms = {place.name: place.room for place in self._places}

        def short(_: JsonObject, node: JsonObject) -> Sequence[Hindrance]:
            return rooms[name_of(node)].hindrances(wanted.needs) if name_of(node) in rooms else ()

        names = [] if only is None else [self._places[only].name]
        if only is None and empty and all(place.is_of_template for place in self._places):
            # The others are full; what matters is that it does not fit on an empty one.
            names = [self._places[-1].name]
        options = self._options
        return survey(state, subject, names, patience=options.patience, parameters=options.parameters, room=short)

    def _now(self) -> State:
        """The cluster with everything that is placed so far."""
        state = with_more(self._state, Kind.CLAIM, self._record.claims)
        template, opened = self._template, [place for place in self._places if place.is_of_template]
        if template is not None and opened:
            slices = [slice_for(body, template.name, place.name) for place in opened for body in template.slices]
            state = with_more(state, Kind.SLICE, slices)
            state = with_more(state, Kind.NODE, [place.node for place in opened])
        return state

    def _filled(self) -> Iterator[FilledNode]:
        pods: dict[int, list[PlacedPod]] = {}
        for pod, place in self._record.placed:
            pods.setdefault(place.number, []).append(pod)
        for place in self._places:
            template = self._template.name if self._template is not None and place.is_of_template else ""
            if place is not self._spare:
                own = tuple(pods.get(place.number, ()))
                held = [claim.allocation for pod in own for claim in pod.claims]
                yield FilledNode(place.name, own, *place.devices(held), template)

    def _notes(self) -> Iterator[str]:
        yield from self._own_notes
        notes = dict.fromkeys(note for wanted in self._sources for note in wanted.kind.subject.notes)
        yield from (note for note in notes if note != ASKS_FOR_NOTHING)
        rooms: Mapping[str, NodeRoom] = {place.name: place.room for place in self._places}
        short = dict.fromkeys(name for each in self._sources for name in uncounted(each.needs, rooms.values()))
        if short:
            names = " and ".join(short)
            yield f"{names}: not counted, since not every node reports how much it has (status.allocatable)"
