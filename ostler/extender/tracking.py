"""The extender's decisions: the pods and their states, and the answers to filter, prioritize, bind and preempt.

    Waiting ──► Preempting ──► Binding ──► Bound
       └────────────────────────▲   │         (a pod that is gone or over is forgotten, from every state)
       ▲────────────────────────────┘ its node is not offered any more, and only the scheduler may bind it

A pod is *Binding* from the moment in which a filter call placed it: its cells are allocated, every further call gets
the same node, and the placement changes only when the pod is gone. It is *Bound* when the API server says so. What
this process knows can be lost at any time: bound pods carry the placement of their whole gang, and everything else is
decided anew.

Invariants. One lock guards pods and cells; nothing waits for a network or sleeps while it is held. The scheduler of
cells refuses a step as a whole or takes it as a whole. An answer names only nodes that were asked about and victims
that are bound to such a node. A pod with resource claims or volumes is only placed on nodes that the scheduler
offers, because it alone knows where these can be used; and while one of them is not prepared, nobody but the
scheduler binds the pod.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from http import HTTPStatus

from kube.bodies import Json, JsonObject
from ostler.extender.inspecting import node_sizes
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.pods import MOST_SPEC, PodFacts
from ostler.extender.states import (
    Cells,
    FilterOutcome,
    ForceBinder,
    MakeCells,
    PodBinding,
    PodReporter,
    PodState,
    TrackedPod,
)
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
from scheduling.cells.configuration import CellsConfiguration
from scheduling.cells.decision import CellsUserError, Phase, PodPlaced, PodPreempting
from scheduling.cells.pod import BindInfo, PodSchedulingSpec

log = logging.getLogger("ostler.extender")

_UNKNOWN = (
    f"the pod is unknown: it does not exist, is over, has no limit {contract.RESOURCE_ENABLE} of 1 or more, "
    "or the API server has not reported it yet"
)


class CellTracker:
    """Thread-safe. What the API server reports comes in by ``set_…``, ``delete_…`` and ``replace_…``."""

    def __init__(
        self,
        configuration: CellsConfiguration,
        make: MakeCells,
        binder: ForceBinder,
        reporter: PodReporter,
        metrics: ExtenderMetrics,
    ) -> None:
        self._lock = threading.Lock()
        self._configuration = configuration
        self._make = make
        self._cells = make(configuration)
        self._node_sizes = node_sizes(self._cells)
        self._binder = binder
        self._reporter = reporter
        self._metrics = metrics
        self._nodes: dict[str, bool] = {}
        self._pods: dict[str, TrackedPod] = {}
        self._by_key: dict[str, str] = {}

    def set_node(self, name: str, is_healthy: bool) -> None:
        """A Node is new or has changed."""
        with self._lock:
            if self._nodes.get(name) is not is_healthy:
                self._nodes[name] = is_healthy
                self._guarded("a node was not taken", name, lambda: self._cells.set_node(name, healthy=is_healthy))

    def delete_node(self, name: str) -> None:
        """A Node is gone."""
        with self._lock:
            if self._nodes.pop(name, None) is not None:
                self._guarded("a node was not removed", name, lambda: self._cells.delete_node(name))

    def replace_nodes(self, nodes: Mapping[str, bool]) -> None:
        """These are all Nodes."""
        for name in set(self._nodes) - set(nodes):
            self.delete_node(name)
        for name, is_healthy in nodes.items():
            self.set_node(name, is_healthy)

    def set_pod(self, facts: PodFacts) -> None:
        """A Pod is new or has changed."""
        with self._lock:
            self._set_pod(facts)

    def delete_pod(self, uid: str) -> None:
        """A Pod is gone."""
        with self._lock:
            self._forget(uid)

    def replace_pods(self, pods: Iterable[PodFacts]) -> None:
        """These are all Pods. The oldest come first, so that a restart finds the order in which they were placed."""
        found = sorted(pods, key=lambda each: (not each.node, each.created, each.key))
        with self._lock:
            for uid in set(self._pods) - {each.uid for each in found}:
                self._forget(uid)
            is_recovery = not self._pods
            with _nodes_as_healthy(self._cells, self._nodes) if is_recovery else nullcontext():
                for facts in found:
                    self._set_pod(facts)

    def reconfigure(self, configuration: CellsConfiguration) -> None:
        """Lay another configuration over the running pods: every pod that has cells keeps its devices.

        All is computed before anything changes; raises ``CellsUserError`` if the configuration cannot be used.
        """
        with self._lock:
            cells = self._make(configuration)
            lost = []
            with _nodes_as_healthy(cells, self._nodes):
                for tracked in self._pods.values():
                    if tracked.bind_info is not None:
                        try:
                            cells.add_allocated(tracked.cell_pod(), tracked.bind_info)
                        except (CellsUserError, ExtenderError) as error:
                            lost.append((tracked, str(error)))
            self._cells, self._configuration = cells, configuration
            self._node_sizes = node_sizes(cells)
            for tracked, problem in lost:
                tracked.bind_info = None
                self._report_lost(tracked, problem)
            for tracked in self._pods.values():
                if tracked.state is PodState.PREEMPTING:
                    tracked.state = PodState.WAITING

    def filter(self, arguments: FilterArguments) -> FilterOutcome:
        """Place the pod, or say why not; raises ``ExtenderError``."""
        with self._lock:
            tracked = self._admitted(arguments.pod, "filter")
            if tracked.state is PodState.BINDING:
                tracked.attempts += 1
                answer = self._repeated(tracked, arguments)
                if answer is not None:
                    return FilterOutcome(answer)
            with _as_answer(arguments.pod, "filter"):
                return self._place(tracked, arguments)

    def prioritize(self, pod: PodIdentity) -> str:
        """The node that the pod is placed on, empty for none."""
        with self._lock:
            tracked = self._pods.get(pod.uid)
            return tracked.bind_info.node if tracked is not None and tracked.bind_info is not None else ""

    def binding(self, arguments: BindArguments) -> PodBinding:
        """What to bind; raises ``ExtenderError`` unless the pod is placed on that node."""
        with self._lock:
            tracked = self._admitted(arguments.pod, "bind")
            if tracked.state is not PodState.BINDING or tracked.bind_info is None:
                raise _failed(arguments.pod, "bind", f"the pod is {tracked.state.value} and not placed on any node")
            if tracked.bind_info.node != arguments.node:
                placed = tracked.bind_info.node
                raise _failed(arguments.pod, "bind", f"the pod is placed on node {placed}, not on {arguments.node}")
            return self._binding_of(tracked.facts, tracked.bind_info)

    def preempt(self, arguments: PreemptArguments) -> JsonObject:
        """The victims on one of the nodes; raises ``ExtenderError``."""
        with self._lock:
            tracked = self._admitted(arguments.pod, "preempt")
            if tracked.state is PodState.BINDING and tracked.bind_info is not None:
                raise _failed(arguments.pod, "preempt", f"the pod is already binding to node {tracked.bind_info.node}")
            with _as_answer(arguments.pod, "preempt"):
                decision = self._cells.schedule(tracked.cell_pod(), tuple(arguments.nodes), Phase.PREEMPTING)
            if not isinstance(decision, PodPreempting):
                # Nothing is in the way any more, or nothing helps: either way the next filter call decides.
                tracked.state = PodState.WAITING
                return preempt_answer(arguments)
            tracked.state = PodState.PREEMPTING
            node, victims = self._victims(decision.victims, arguments.nodes)
            self._metrics.victims.add(by=len(victims))
            return preempt_answer(arguments, node, victims)

    def look(self, ask: Callable[[Cells], Json]) -> Json:
        """Ask the scheduler of cells while nothing changes; raises ``CellsUserError``."""
        with self._lock:
            return ask(self._cells)

    def is_responsive(self, seconds: float) -> bool:
        """Whether the lock gets free within so many seconds."""
        if not self._lock.acquire(timeout=seconds):
            return False
        self._lock.release()
        return True

    def counts(self) -> Mapping[str, int]:
        """Pods by state."""
        with self._lock:
            found = dict.fromkeys((each.value for each in PodState), 0)
            for tracked in self._pods.values():
                found[tracked.state.value] += 1
            return found

    def _set_pod(self, facts: PodFacts) -> None:
        known = self._by_key.get(facts.key)
        if known is not None and known != facts.uid:
            # Its deletion was missed.
            self._forget(known)
        if not facts.is_read:
            # It is there; what it was stays valid.
            return
        if not facts.is_enabled or facts.is_over:
            self._forget(facts.uid)
            return
        tracked = self._pods.get(facts.uid)
        if tracked is None:
            tracked = self._pods[facts.uid] = TrackedPod(facts, *_spec_of(facts))
            self._by_key[facts.key] = facts.uid
            if facts.node:
                self._take_bound(tracked)
            return
        was_bound, before = tracked.state is PodState.BOUND, tracked.facts.annotations
        tracked.facts = facts
        if facts.node and not was_bound:
            self._bind_known(tracked)
        elif tracked.state is PodState.WAITING and facts.annotations != before:
            tracked.spec, tracked.fault = _spec_of(facts)

    def _bind_known(self, tracked: TrackedPod) -> None:
        """A pod that had no node has one now."""
        if tracked.bind_info is not None and tracked.bind_info.node == tracked.facts.node:
            tracked.state = PodState.BOUND
            return
        self._release(tracked)
        self._take_bound(tracked)

    def _take_bound(self, tracked: TrackedPod) -> None:
        """Enter the cells that a bound pod has by its own annotation."""
        tracked.state = PodState.BOUND
        try:
            info = contract.read_bind_info(tracked.facts.annotations)
            self._cells.add_allocated(tracked.cell_pod(), info)
        except (CellsUserError, ExtenderError) as error:
            self._report_lost(tracked, str(error))
        except Exception as error:
            # A pod of one user must not end the service for all; the scheduler's step was taken back.
            log.exception("a bound pod was not taken", extra={"pod": tracked.facts.key})
            self._report_lost(tracked, f"{type(error).__name__}: {error}")
        else:
            tracked.bind_info = info

    def _report_lost(self, tracked: TrackedPod, problem: str) -> None:
        self._metrics.unrecovered.add()
        log.warning("a bound pod has no cells", extra={"pod": tracked.facts.key, "error": problem})
        text = f"The extender does not count this pod's devices as used: {problem}; delete the pod and create it again"
        self._reporter.warn(tracked.facts.identity, "CellsNotRecovered", text)

    def _forget(self, uid: str) -> None:
        tracked = self._pods.pop(uid, None)
        if tracked is None:
            return
        if self._by_key.get(tracked.facts.key) == uid:
            del self._by_key[tracked.facts.key]
        self._release(tracked)

    def _release(self, tracked: TrackedPod) -> None:
        if tracked.spec is None:
            return
        pod, is_allocated = tracked.cell_pod(), tracked.bind_info is not None
        tracked.bind_info = None
        step = self._cells.delete_allocated if is_allocated else self._cells.delete_unallocated
        self._guarded("a pod's cells were not released", tracked.facts.key, lambda: step(pod))

    def _guarded(self, failure: str, name: str, step: Callable[[], object]) -> None:
        """Take a step that nobody waits for; a fault of it is logged and counted."""
        try:
            step()
        except Exception:
            self._metrics.faults.add()
            log.exception(failure, extra={"object": name})

    def _admitted(self, pod: PodIdentity, routine: str) -> TrackedPod:
        tracked = self._pods.get(pod.uid)
        if tracked is None:
            raise _failed(pod, routine, _UNKNOWN)
        if tracked.state is PodState.BOUND:
            raise _failed(pod, routine, f"the pod is already bound to node {tracked.facts.node}")
        return tracked

    def _place(self, tracked: TrackedPod, arguments: FilterArguments) -> FilterOutcome:
        offered = frozenset(arguments.nodes)
        pod = tracked.cell_pod()
        decision = self._cells.schedule(pod, arguments.nodes, Phase.FILTERING)
        if isinstance(decision, PodPlaced):
            node = decision.bind_info.node
            if node not in offered and tracked.facts.needs_preparation:
                tracked.state = PodState.WAITING
                reasons = dict.fromkeys(arguments.nodes, _only_scheduler(node))
                return FilterOutcome(filter_answer(arguments, unresolvable=reasons), is_waiting=True)
            self._cells.add_allocated(pod, decision.bind_info)
            tracked.bind_info, tracked.state = decision.bind_info, PodState.BINDING
            tracked.attempts, tracked.is_forced = 0, False
            self._metrics.placed.add()
            answer = self._repeated(tracked, arguments)
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

    def _repeated(self, tracked: TrackedPod, arguments: FilterArguments) -> JsonObject | None:
        """The answer for a pod that is placed; None if it had to be released to be placed anew."""
        assert tracked.bind_info is not None
        node = tracked.bind_info.node
        is_offered = node in arguments.nodes
        if tracked.facts.needs_preparation and not is_offered:
            self._release(tracked)
            tracked.state = PodState.WAITING
            return None
        if not is_offered or node not in self._nodes or tracked.attempts >= self._threshold:
            self._force(tracked, node, is_offered)
        if is_offered:
            return filter_answer(arguments, chosen=(node,))
        reason = f"the pod is placed on node {node}, which the scheduler does not offer; the extender binds it"
        return filter_answer(arguments, unresolvable=dict.fromkeys(arguments.nodes, reason))

    @property
    def _threshold(self) -> int:
        return self._configuration.extender.force_pod_bind_threshold

    def _force(self, tracked: TrackedPod, node: str, is_offered: bool) -> None:
        assert tracked.bind_info is not None
        if not tracked.is_forced:
            tracked.is_forced = True
            log.info(
                "the scheduler does not bind the pod",
                extra={"pod": tracked.facts.key, "node": node, "offered": is_offered, "attempts": tracked.attempts},
            )
        self._binder.bind_later(self._binding_of(tracked.facts, tracked.bind_info))

    def _binding_of(self, facts: PodFacts, info: BindInfo) -> PodBinding:
        return PodBinding(facts, info, self._node_sizes.get(info.node, 0))

    def _victims(self, victims: Mapping[str, Collection[str]], nodes: Mapping[str, int]) -> tuple[str, tuple[str, ...]]:
        """The node with the fewest victims of those that were asked about, and the victims that are bound to it."""
        found = []
        for node in victims:
            bound = tuple(uid for uid in victims[node] if self._is_on(uid, node))
            if node in nodes and bound:
                found.append((nodes[node], len(bound), node, bound))
        if not found:
            return "", ()
        _, _, node, bound = min(found)
        return node, bound

    def _is_on(self, uid: str, node: str) -> bool:
        tracked = self._pods.get(uid)
        return tracked is not None and tracked.facts.node == node


@contextmanager
def _nodes_as_healthy(cells: Cells, nodes: Mapping[str, bool]) -> Iterator[None]:
    """All nodes of the configuration count as healthy while running pods get their cells back, and then as they are.

    Cells of a virtual cluster are bound to bad nodes when it has too few others. A pod that is restored later could be
    taken for one without a cell of its own, and another virtual cluster could preempt it.
    """
    names = {*node_sizes(cells), *nodes}
    for name in sorted(names):
        cells.set_node(name, healthy=True)
    try:
        yield
    finally:
        for name in sorted(names):
            if name not in nodes:
                cells.delete_node(name)
            elif not nodes[name]:
                cells.set_node(name, healthy=False)


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


def _spec_of(facts: PodFacts) -> tuple[PodSchedulingSpec | None, str]:
    size = len(facts.annotations.get(contract.ANNOTATION_SPEC, ""))
    if size > MOST_SPEC:
        return None, f"the annotation {contract.ANNOTATION_SPEC} has {size} characters; the limit is {MOST_SPEC}"
    try:
        return contract.read_pod_spec(facts.annotations, facts.identity.namespace, facts.identity.name), ""
    except CellsUserError as error:
        return None, str(error)


def _only_scheduler(node: str) -> str:
    return (
        f"the pod's group has its cells on node {node}, which the scheduler does not offer; the pod has resource "
        "claims or volumes, so the extender cannot bind it past the scheduler"
    )
