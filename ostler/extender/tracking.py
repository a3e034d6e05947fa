"""The pods and their states, the nodes and the cells, as the API server reports them.

    Waiting ──► Preempting ──► Binding ──► Bound
       └────────────────────────▲   │         (a pod that is gone or over is forgotten, from every state)
       ▲────────────────────────────┘ its node is not offered any more, and only the scheduler may bind it

A pod is *Binding* from the moment in which a filter call placed it: its cells are allocated, every further call gets
the same node, and the placement changes only when the pod is gone. It is *Bound* when the API server says so. What
this process knows can be lost at any time: bound pods carry the placement of their whole gang, and everything else is
decided anew (``ostler.extender.deciding``).

Invariants. One lock guards pods and cells; nothing waits for a network or sleeps while it is held. The scheduler of
cells refuses a step as a whole or takes it as a whole.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress

from kube.bodies import Json
from ostler.extender.health import NodeHealth
from ostler.extender.mending import RecordMender
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.pods import PodFacts, PodTexts, ReadPod
from ostler.extender.published import PublishedDevices
from ostler.extender.recovering import CellRecovery, UnenteredPod
from ostler.extender.states import CellBooks, Cells, MakeCells, PodReporter, PodState, TrackedPod
from ostler.extender.wire import ExtenderError
from scheduling.cells.configuration import CellsConfiguration
from scheduling.cells.decision import CellsUserError

log = logging.getLogger("ostler.extender")


class CellTracker:
    """Thread-safe. What the API server reports comes in by ``set_…``, ``delete_…`` and ``replace_…``."""

    def __init__(
        self,
        configuration: CellsConfiguration,
        make: MakeCells,
        devices: PublishedDevices,
        mender: RecordMender,
        *,
        reporter: PodReporter,
        metrics: ExtenderMetrics,
    ) -> None:
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._make = make
        self._reporter = reporter
        self._metrics = metrics
        health = NodeHealth(configuration, devices, metrics)
        self._books = CellBooks(configuration, make(configuration), health)
        self._mender = mender
        self._by_key: dict[str, str] = {}

    @contextmanager
    def locked(self) -> Iterator[CellBooks]:
        """The state, while nothing else changes it."""
        with self._lock:
            yield self._books

    def set_node(self, name: str, is_healthy: bool) -> None:
        """A Node is new or has changed."""
        with self._lock:
            if self._books.nodes.set_node(name, is_healthy):
                self._update_node(name)

    def delete_node(self, name: str) -> None:
        """A Node is gone."""
        with self._lock:
            if self._books.nodes.delete_node(name):
                self._update_node(name)

    def replace_nodes(self, nodes: Mapping[str, bool]) -> None:
        """These are all Nodes."""
        with self._lock:
            gone = self._books.nodes.names.difference(nodes)
        for name in gone:
            self.delete_node(name)
        for name, is_healthy in nodes.items():
            self.set_node(name, is_healthy)

    def devices_changed(self, nodes: Iterable[str]) -> None:
        """See ``DevicesFollower``."""
        changed = tuple(nodes)
        for name in changed:
            with self._lock:
                if self._books.nodes.judge_devices(name):
                    self._update_node(name)
        with self._lock:
            self._mend("the nodes", lambda: self._mender.devices_changed(self._books, changed))

    def try_again(self) -> None:
        """Let cells follow that could not before; called every few seconds."""
        with self._lock:
            self._mend("all pods", lambda: self._mender.try_again(self._books))

    def is_bound(self, uid: str) -> bool:
        """Whether a pod is known as bound, so that its annotations need not be read again."""
        with self._lock:
            tracked = self._books.pods.get(uid)
            return tracked is not None and tracked.state is PodState.BOUND

    def wait_for(self, uid: str, seconds: float) -> bool:
        """Wait until a pod is known, so long at most; whether it is. Nothing is locked meanwhile."""
        with self._arrived:
            return self._arrived.wait_for(lambda: uid in self._books.pods, seconds)

    def set_pod(self, pod: ReadPod) -> None:
        """A Pod is new or has changed."""
        with self._lock:
            self._set_pod(pod.facts, pod.texts)

    def delete_pod(self, uid: str) -> None:
        """A Pod is gone."""
        with self._lock:
            self._forget(uid)

    def replace_pods(self, pods: Iterable[ReadPod]) -> None:
        """These are all Pods. The oldest come first, so that a restart finds the order in which they were placed."""
        found = sorted(pods, key=lambda each: (not each.facts.node, each.facts.created, each.facts.key))
        with self._lock:
            for uid in set(self._books.pods) - {each.facts.uid for each in found}:
                self._forget(uid)
            is_recovery = not self._books.pods
            unentered: list[UnenteredPod] = []
            with self._books.nodes.all_healthy(self._books.cells) if is_recovery else nullcontext():
                for pod in found:
                    self._set_pod(pod.facts, pod.texts, unentered)
                lost: Sequence[UnenteredPod] = unentered
                try:
                    lost = CellRecovery(self._books, self._mender).enter(unentered)
                except Exception:
                    self._metrics.faults.add()
                    log.exception("records were not compared with the devices of their pods")
            for each in lost:
                if each.tracked.bind_info is None:
                    self._report_lost(each.tracked, each.problem)

    def reconfigure(self, configuration: CellsConfiguration) -> None:
        """Lay another configuration over the running pods: every pod that has cells keeps its devices.

        All is computed before anything changes; raises ``CellsUserError`` if the configuration cannot be used.
        """
        with self._lock:
            cells = self._make(configuration)
            nodes = self._books.nodes.by(configuration)
            lost = []
            with nodes.all_healthy(cells):
                for tracked in self._books.pods.values():
                    if tracked.bind_info is not None:
                        try:
                            cells.add_allocated(tracked.cell_pod(), tracked.bind_info)
                        except (CellsUserError, ExtenderError) as error:
                            lost.append((tracked, str(error)))
                        except Exception as error:
                            log.exception("a bound pod was not taken", extra={"pod": tracked.facts.key})
                            lost.append((tracked, f"{type(error).__name__}: {error}"))
                for hold in self._books.holds.values():
                    # If that fails, ``CellHolds.problem`` says so.
                    with suppress(CellsUserError):
                        cells.restore_hold(hold.pod, hold.bind_info, nodes.healthy)
            self._books.use(configuration, cells, nodes)
            for tracked, problem in lost:
                self._books.forget_place(tracked)
                if tracked.state is PodState.BOUND:
                    self._report_lost(tracked, problem)
            for tracked in self._books.pods.values():
                if tracked.state is not PodState.BOUND and tracked.bind_info is None:
                    tracked.state = PodState.WAITING
            self._mend("all pods", lambda: self._mender.settle(self._books))

    def look(self, ask: Callable[[Cells], Json]) -> Json:
        """Ask the scheduler of cells while nothing changes; raises ``CellsUserError``."""
        with self._lock:
            return ask(self._books.cells)

    def is_responsive(self, seconds: float) -> bool:
        """Whether the lock gets free within that many seconds."""
        if not self._lock.acquire(timeout=seconds):
            return False
        self._lock.release()
        return True

    def counts(self) -> Mapping[str, int]:
        """Pods by state."""
        with self._lock:
            found = dict.fromkeys((each.value for each in PodState), 0)
            for tracked in self._books.pods.values():
                found[tracked.state.value] += 1
            return found

    def bad_counts(self) -> Mapping[str, int]:
        """How many configured nodes, and how many devices on their own, are bad."""
        with self._lock:
            return self._books.nodes.counts()

    def _update_node(self, name: str) -> None:
        self._guarded(
            "the health of a node was not taken", name, lambda: self._books.nodes.update_cells(self._books.cells, name)
        )

    def _mend(self, name: str, step: Callable[[], None]) -> None:
        self._guarded("records were not compared with the devices of their pods", name, step)

    def _set_pod(self, facts: PodFacts, texts: PodTexts, unentered: list[UnenteredPod] | None = None) -> None:
        """``unentered`` takes a bound pod that cannot be entered; without it the pod is reported."""
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
        tracked = self._books.pods.get(facts.uid)
        if tracked is None:
            tracked = self._books.pods[facts.uid] = TrackedPod(facts, texts.spec, texts.fault)
            self._arrived.notify_all()
            self._by_key[facts.key] = facts.uid
            if facts.node:
                self._take_bound(tracked, texts, unentered)
            return
        tracked.facts = facts
        if facts.node and tracked.state is not PodState.BOUND:
            self._bind_known(tracked, texts, unentered)
        elif tracked.state is PodState.BOUND:
            self._mend(facts.key, lambda: self._mender.pod_changed(self._books, tracked))
        elif tracked.state is PodState.WAITING:
            tracked.spec, tracked.fault = texts.spec, texts.fault

    def _bind_known(self, tracked: TrackedPod, texts: PodTexts, unentered: list[UnenteredPod] | None) -> None:
        """A pod that had no node has one now."""
        if tracked.bind_info is not None and tracked.bind_info.node == tracked.facts.node:
            tracked.state = PodState.BOUND
            self._mender.write(tracked)
            self._mend(tracked.facts.key, lambda: self._mender.pod_changed(self._books, tracked))
            return
        self.release(tracked)
        self._take_bound(tracked, texts, unentered)

    def _take_bound(self, tracked: TrackedPod, texts: PodTexts, unentered: list[UnenteredPod] | None) -> None:
        """Enter the cells that a bound pod has by its own annotation."""
        tracked.state = PodState.BOUND
        if texts.record is None:
            self._report_lost(tracked, texts.record_fault)
            return
        try:
            self._books.allocate(tracked, texts.record)
        except (CellsUserError, ExtenderError) as error:
            if unentered is None:
                self._report_lost(tracked, str(error))
            else:
                unentered.append(UnenteredPod(tracked, texts.record, str(error)))
        except Exception as error:
            # A pod of one user must not end the service for all; the scheduler's step was taken back.
            log.exception("a bound pod was not taken", extra={"pod": tracked.facts.key})
            self._report_lost(tracked, f"{type(error).__name__}: {error}")
        else:
            if unentered is None:
                self._mend(tracked.facts.key, lambda: self._mender.pod_changed(self._books, tracked))

    def _report_lost(self, tracked: TrackedPod, problem: str) -> None:
        self._metrics.unrecovered.add()
        log.warning("a bound pod has no cells", extra={"pod": tracked.facts.key, "error": problem})
        text = f"The extender does not count this pod's devices as used: {problem}; delete the pod and create it again"
        self._reporter.warn(tracked.facts.identity, "CellsNotRecovered", text)

    def _forget(self, uid: str) -> None:
        tracked = self._books.pods.pop(uid, None)
        if tracked is None:
            return
        if self._by_key.get(tracked.facts.key) == uid:
            del self._by_key[tracked.facts.key]
        self.release(tracked)
        if tracked.state is PodState.BOUND:
            node = tracked.facts.node
            self._mend(node, lambda: self._mender.pod_gone(self._books, node))

    def release(self, tracked: TrackedPod) -> None:
        """Take a pod's cells, or its reservation, away. Call it with the books locked."""
        if tracked.spec is None:
            return
        pod, is_allocated = tracked.cell_pod(), tracked.bind_info is not None
        self._books.forget_place(tracked)
        step = self._books.cells.delete_allocated if is_allocated else self._books.cells.delete_unallocated
        self._guarded("a pod's cells were not released", tracked.facts.key, lambda: step(pod))

    def _guarded(self, failure: str, name: str, step: Callable[[], object]) -> None:
        """Take a step that nobody waits for; a fault of it is logged and counted."""
        try:
            step()
        except Exception:
            self._metrics.faults.add()
            log.exception(failure, extra={"object": name})
