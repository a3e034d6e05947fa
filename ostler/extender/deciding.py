"""The answers to a scheduler's filter, prioritize, bind and preempt, decided on the tracked pods.

An answer names only nodes that were asked about and victims that are bound to such a node. A pod with resource claims
or volumes is only placed on nodes that the scheduler offers, because it alone knows where these can be used; and while
one of them is not prepared, nobody but the scheduler binds the pod.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Protocol

from kube.bodies import JsonObject
from node.clocks import SYSTEM, Clocks
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.records import check_gang, check_record
from ostler.extender.states import CellBooks, FilterOutcome, ForceBinder, PodBinding, PodState, TrackedPod
from ostler.extender.tracking import CellTracker
from ostler.extender.wire import (
    BindArguments,
    ExtenderError,
    FilterArguments,
    PodIdentity,
    PreemptArguments,
    filter_answer,
    preempt_answer,
)
from scheduling.cells import pod as contract
from scheduling.cells.decision import CellsUserError, Phase, PodPlaced, PodPreempting

log = logging.getLogger("ostler.extender")

ARRIVAL = 1.0
"""Seconds that a filter or preempt call waits for the API server to report its pod; a scheduler gives up after 5."""
PAUSE = 60.0
"""Seconds in which no call waits after one that waited without success: users can create pods that never show here."""
_UNKNOWN = (
    f"the pod is unknown: it does not exist, is over, has no limit {contract.RESOURCE_ENABLE} of 1 or more, "
    "or the API server has not reported it yet"
)


class PodArrivals(Protocol):
    """Knows which pods the API server has reported."""

    def wait_for(self, uid: str, seconds: float) -> bool:
        """Wait until a pod is known, so long at most; whether it is."""


class ArrivalPatience:
    """Waits for a pod that a scheduler learns of before the extender does.

    A scheduler repeats a failed filter call after a second, and a failed preemption at the next event only.
    """

    def __init__(self, arrivals: PodArrivals, clocks: Clocks = SYSTEM) -> None:
        self._arrivals = arrivals
        self._clock = clocks.monotonic
        self._waits_from = clocks.monotonic()

    def wait_for(self, uid: str) -> None:
        """Return when the pod is known, or when waiting makes no sense."""
        if self._clock() >= self._waits_from and not self._arrivals.wait_for(uid, ARRIVAL):
            self._waits_from = self._clock() + PAUSE


class Decider:
    """Thread-safe."""

    def __init__(self, tracker: CellTracker, binder: ForceBinder, metrics: ExtenderMetrics) -> None:
        self._tracker = tracker
        self._binder = binder
        self._metrics = metrics
        self._patience = ArrivalPatience(tracker)

    def filter(self, arguments: FilterArguments) -> FilterOutcome:
        """Place the pod, or say why not; raises ``ExtenderError``."""
        self._patience.wait_for(arguments.pod.uid)
        with self._tracker.locked() as books:
            tracked = _admitted(books, arguments.pod, "filter")
            if tracked.state is PodState.BINDING:
                tracked.attempts += 1
                answer = self._repeated(books, tracked, arguments)
                if answer is not None:
                    return FilterOutcome(answer)
            with _as_answer(arguments.pod, "filter"):
                return self._place(books, tracked, arguments)

    def prioritize(self, pod: PodIdentity) -> str:
        """The node that the pod is placed on, empty for none."""
        with self._tracker.locked() as books:
            tracked = books.pods.get(pod.uid)
            return tracked.bind_info.node if tracked is not None and tracked.bind_info is not None else ""

    def binding(self, arguments: BindArguments) -> PodBinding:
        """The binding to make; raises ``ExtenderError`` unless the pod is placed on that node."""
        with self._tracker.locked() as books:
            tracked = _admitted(books, arguments.pod, "bind")
            if tracked.state is not PodState.BINDING or tracked.bind_info is None:
                raise _failed(arguments.pod, "bind", f"the pod is {tracked.state.value} and not placed on any node")
            if tracked.bind_info.node != arguments.node:
                placed = tracked.bind_info.node
                raise _failed(arguments.pod, "bind", f"the pod is placed on node {placed}, not on {arguments.node}")
            return books.binding_of(tracked)

    def preempt(self, arguments: PreemptArguments) -> JsonObject:
        """The victims on one of the nodes; raises ``ExtenderError``."""
        self._patience.wait_for(arguments.pod.uid)
        with self._tracker.locked() as books:
            tracked = _admitted(books, arguments.pod, "preempt")
            if tracked.state is PodState.BINDING and tracked.bind_info is not None:
                raise _failed(arguments.pod, "preempt", f"the pod is already binding to node {tracked.bind_info.node}")
            with _as_answer(arguments.pod, "preempt"):
                decision = books.cells.schedule(tracked.cell_pod(), tuple(arguments.nodes), Phase.PREEMPTING)
            if not isinstance(decision, PodPreempting):
                # Nothing is in the way any more, or nothing helps: either way the next filter call decides.
                tracked.state = PodState.WAITING
                return preempt_answer(arguments)
            tracked.state = PodState.PREEMPTING
            node, victims = _victims(books, decision.victims, arguments.nodes)
            self._metrics.victims.add(by=len(victims))
            return preempt_answer(arguments, node, victims)

    def _place(self, books: CellBooks, tracked: TrackedPod, arguments: FilterArguments) -> FilterOutcome:
        offered = frozenset(arguments.nodes)
        pod = tracked.cell_pod()
        gang = pod.spec.group.name
        owner = books.owner(gang)
        if owner and owner != pod.namespace:
            raise CellsUserError(
                f"the gang {gang!r} belongs to namespace {owner}, whose places this pod would take; name another gang"
            )
        check_gang(pod.spec)
        hold = books.hold_of(pod.spec.group.name)
        if hold is not None and hold.pod.namespace != pod.namespace:
            raise ExtenderError(
                f"affinity group {pod.spec.group.name!r} belongs to a job of namespace {hold.pod.namespace}; give this "
                "one another name"
            )
        decision = books.cells.schedule(pod, arguments.nodes, Phase.FILTERING)
        if isinstance(decision, PodPlaced):
            node = decision.bind_info.node
            if node not in offered and tracked.facts.needs_preparation:
                tracked.state = PodState.WAITING
                reasons = dict.fromkeys(arguments.nodes, _only_scheduler(node))
                return FilterOutcome(filter_answer(arguments, unresolvable=reasons), is_waiting=True)
            if not owner:
                check_record(gang, decision.bind_info)
            books.allocate(tracked, decision.bind_info)
            tracked.state = PodState.BINDING
            tracked.attempts, tracked.is_forced = 0, False
            self._metrics.placed.add()
            answer = self._repeated(books, tracked, arguments)
            assert answer is not None
            return FilterOutcome(answer)
        if isinstance(decision, PodPreempting):
            reason = "has pods that this pod can preempt"
            failed = {node: reason for node in decision.victims if node in offered}
            elsewhere = (
                f"pods to preempt are on {', '.join(sorted(decision.victims))}, which the scheduler does not offer"
            )
            rest = {} if failed else dict.fromkeys(arguments.nodes, elsewhere)
            return FilterOutcome(filter_answer(arguments, failed=failed, unresolvable=rest))
        tracked.state = PodState.WAITING
        reason = decision.reason or "the pod's group must wait for free cells"
        reasons = {node: decision.reasons_by_node.get(node) or reason for node in arguments.nodes}
        return FilterOutcome(filter_answer(arguments, unresolvable=reasons), is_waiting=True)

    def _repeated(self, books: CellBooks, tracked: TrackedPod, arguments: FilterArguments) -> JsonObject | None:
        """The answer for a pod that is placed; None if it had to be released to be placed anew."""
        assert tracked.bind_info is not None
        node = tracked.bind_info.node
        is_offered = node in arguments.nodes
        if tracked.facts.needs_preparation and not is_offered:
            self._tracker.release(tracked)
            tracked.state = PodState.WAITING
            return None
        threshold = books.configuration.extender.force_pod_bind_threshold
        if not is_offered or node not in books.nodes or tracked.attempts >= threshold:
            self._force(books, tracked, is_offered)
        if is_offered:
            return filter_answer(arguments, chosen=(node,))
        reason = f"the pod is placed on node {node}, which the scheduler does not offer; the extender binds it"
        return filter_answer(arguments, unresolvable=dict.fromkeys(arguments.nodes, reason))

    def _force(self, books: CellBooks, tracked: TrackedPod, is_offered: bool) -> None:
        binding = books.binding_of(tracked)
        if not tracked.is_forced:
            tracked.is_forced = True
            log.info(
                "the scheduler does not bind the pod",
                extra={
                    "pod": tracked.facts.key,
                    "node": binding.bind_info.node,
                    "offered": is_offered,
                    "attempts": tracked.attempts,
                },
            )
        self._binder.bind_later(binding)


def _admitted(books: CellBooks, pod: PodIdentity, routine: str) -> TrackedPod:
    tracked = books.pods.get(pod.uid)
    if tracked is None:
        raise _failed(pod, routine, _UNKNOWN)
    if tracked.state is PodState.BOUND:
        raise _failed(pod, routine, f"the pod is already bound to node {tracked.facts.node}")
    return tracked


def _victims(
    books: CellBooks, victims: Mapping[str, Collection[str]], nodes: Mapping[str, int]
) -> tuple[str, tuple[str, ...]]:
    """The node with the fewest victims of those that were asked about, and the victims that are bound to it."""
    found = []
    for node in victims:
        bound = tuple(uid for uid in victims[node] if books.is_on(uid, node))
        if node in nodes and bound:
            found.append((nodes[node], len(bound), node, bound))
    if not found:
        return "", ()
    _, _, node, bound = min(found)
    return node, bound


class _as_answer:  # noqa: N801 - reads as a statement
    """Turns what the scheduler of cells raises into what the caller is answered."""

    def __init__(self, pod: PodIdentity, routine: str) -> None:
        self._pod = pod
        self._routine = routine

    def __enter__(self) -> None:
        """See ``__exit__``."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, CellsUserError):
            raise _failed(self._pod, self._routine, str(error), error.code) from error
        if isinstance(error, ExtenderError):
            raise _failed(self._pod, self._routine, str(error), error.code) from error
        if isinstance(error, Exception):
            log.error("a decision failed", exc_info=error, extra={"pod": str(self._pod), "routine": self._routine})
            text = f"{type(error).__name__}: {error}; the extender's log says where"
            raise _failed(self._pod, self._routine, text, HTTPStatus.INTERNAL_SERVER_ERROR) from error


def _failed(pod: PodIdentity, routine: str, problem: str, code: int = HTTPStatus.BAD_REQUEST) -> ExtenderError:
    return ExtenderError(f"[{pod}]: {routine}: {problem}", code)


def _only_scheduler(node: str) -> str:
    return (
        f"the pod's group has its cells on node {node}, which the scheduler does not offer; the pod has resource "
        "claims or volumes, so the extender cannot bind it past the scheduler"
    )
