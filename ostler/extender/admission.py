"""The controller of Kueue's AdmissionChecks: reserves the cells of a Workload's gang before its pods exist.

Kueue reserves quota for a Workload, and then asks each AdmissionCheck of its ClusterQueue. Here the answer is *Ready*
once the gang has its cells (or reserves those of pods that it preempts), *Retry* while it has to wait, so that Kueue
gives the quota to others, and *Rejected* if it can never be placed as it is. ``ostler.extender.check_answers``
decides what the answers say, ``ostler.extender.check_writing`` writes them; this file reads, and holds cells.

Invariants. The Workload is the only record: a hold exists here exactly as long as its Workload has quota and no check
that says Retry or Rejected, so nothing is released by an event alone that could be missed. Cells are held before
*Ready* is written, and a write that fails leaves the hold to the next look at the Workload. A replica restores the
holds of all Workloads that are *Ready* before it answers a scheduler. Only the active replica writes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from kube.bodies import JsonObject, path_of, text_at
from kube.collection import Collection
from kube.errors import KubeError, NotFound, WriteConflict
from kube.json_stream import Fields
from kube.reflector import Handler, Reflector
from node.clocks import Clocks
from ostler.extender.check_answers import (
    CheckAnswer,
    WorkloadUnfit,
    gang_of,
    placed,
    preempting,
    recorded_places,
    rejected,
    retried,
    unconcerned,
    waiting,
)
from ostler.extender.check_writing import GROUP, VERSION, AdmissionClient, CheckWriter, WorkloadReporter, is_ours
from ostler.extender.holds import CellHolds
from ostler.extender.lease import ActiveReplica
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.workloads import FIELDS, KueueWorkload, WorkloadStep, read_workload
from scheduling.cells.decision import CellsUserError, PodPlaced, PodPreempting
from scheduling.cells.pod import CellPod

log = logging.getLogger("ostler.extender")

LOOK = 1.0
"""Seconds between two looks whether holds still hold, and after which a failed write is tried again."""
SYNC = 15.0
"""Seconds that a start waits for Kueue's objects; a cluster whose Kueue is gone must still get its pods placed."""
CHECK_FIELDS: Fields = {
    "metadata": dict.fromkeys(("name", "uid", "resourceVersion", "generation"), True),
    "spec": {"controllerName": True, "parameters": {"name": True}},
    "status": {"conditions": True},
}


class AdmissionController:
    """Answers checks from ``start`` to ``stop``; asks ``replica`` before each write."""

    def __init__(
        self,
        client: AdmissionClient,
        holds: CellHolds,
        reporter: WorkloadReporter,
        metrics: ExtenderMetrics,
        *,
        replica: ActiveReplica,
        clocks: Clocks,
    ) -> None:
        self._holds = holds
        self._metrics = metrics
        self._writer = CheckWriter(client, reporter, metrics, replica)
        self._changed = threading.Condition()
        self._workloads: dict[str, KueueWorkload] = {}
        self._checks: dict[str, JsonObject] = {}
        self._due: dict[str, None] = {}
        self._due_checks: dict[str, None] = {}
        self._again: dict[str, None] = {}
        self._is_stopped = False
        checks = Collection(client, path_of("apis", GROUP, VERSION, "admissionchecks"), fields=CHECK_FIELDS)
        workloads = Collection(client, path_of("apis", GROUP, VERSION, "workloads"), fields=FIELDS)
        # Set if the API server does not know Kueue's objects: there is nothing to wait for.
        self._is_missing = threading.Event()
        self._of_checks = self._reflector(checks, _Feed(self.replace_checks, self.set_check), "admissionchecks", clocks)
        self._of_workloads = self._reflector(
            workloads, _Feed(self.replace_workloads, self.set_workload), "workloads", clocks
        )
        self._thread = threading.Thread(target=self._run, name="admission", daemon=True)

    def start(self, stopped: threading.Event) -> None:
        """Restore all holds, and begin; waits for Kueue's objects as long as ``SYNC`` says."""
        begun = time.monotonic()
        for reflector in (self._of_checks, self._of_workloads):
            reflector.start()
            while not reflector.synced.wait(0.05) and not stopped.is_set():
                if self._is_missing.is_set() or time.monotonic() - begun > SYNC:
                    log.warning("Kueue's objects cannot be read", extra={"error": reflector.status().failing})
                    break
        with self._changed:
            # Those with cells on record first: the others take what is left.
            known = sorted(self._workloads.values(), key=lambda each: not any(check.places for check in each.checks))
        for workload in known:
            self._guarded(workload.uid, partial(self._restore, workload))
        self._thread.start()

    @property
    def problems(self) -> tuple[str, ...]:
        """Why what is known may be outdated, one line each."""
        return tuple(filter(None, (self._of_checks.status().failing, self._of_workloads.status().failing)))

    def stop(self) -> None:
        """End it; holds stay as the Workloads have them on record."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        for reflector in (self._of_checks, self._of_workloads):
            reflector.stop()
        if self._thread.ident is not None:
            self._thread.join(10.0)

    # Called by the reflectors' threads.

    def _reflector(self, source: Collection, handler: Handler, name: str, clocks: Clocks) -> Reflector:
        def failed(error: Exception) -> None:
            if isinstance(error, NotFound):
                self._is_missing.set()

        return Reflector(source, handler, random=clocks.random, on_failure=failed, name=name)

    def replace_checks(self, bodies: Sequence[JsonObject]) -> None:
        """These are all AdmissionChecks."""
        with self._changed:
            self._checks = {name: body for body in bodies if (name := _name(body)) and is_ours(body)}
            self._due_checks |= dict.fromkeys(self._checks)
            self._due |= dict.fromkeys(self._workloads)
            self._changed.notify_all()

    def set_check(self, body: JsonObject, is_there: bool) -> None:
        """An AdmissionCheck is new, has changed or is gone."""
        name = _name(body)
        with self._changed:
            was_ours = name in self._checks
            if is_there and is_ours(body):
                self._checks[name] = body
                self._due_checks[name] = None
            else:
                self._checks.pop(name, None)
            if was_ours != (name in self._checks):
                self._due |= dict.fromkeys(self._workloads)
            self._changed.notify_all()

    def replace_workloads(self, bodies: Sequence[JsonObject]) -> None:
        """These are all Workloads."""
        found = {each.uid: each for body in bodies if (each := read_workload(body)).has_quota and each.checks}
        with self._changed:
            self._due |= dict.fromkeys((*self._workloads, *found))
            self._workloads = found
            self._changed.notify_all()

    def set_workload(self, body: JsonObject, is_there: bool) -> None:
        """A Workload is new, has changed or is gone."""
        workload = read_workload(body)
        is_known = is_there and workload.has_quota and bool(workload.checks)
        with self._changed:
            if not is_known and self._workloads.pop(workload.uid, None) is None:
                return
            if is_known:
                self._workloads[workload.uid] = workload
            self._due[workload.uid] = None
            self._changed.notify_all()

    # Called by the own thread.

    def _run(self) -> None:
        looked = time.monotonic()
        while True:
            with self._changed:
                if not self._is_stopped and not self._due and not self._due_checks:
                    self._changed.wait(max(0.0, looked + LOOK - time.monotonic()))
                if self._is_stopped:
                    return
                check = next(iter(self._due_checks), "")
                self._due_checks.pop(check, None)
                uid = "" if check else next(iter(self._due), "")
                self._due.pop(uid, None)
            if check:
                self._guarded(check, partial(self._activate, check))
            elif uid:
                self._guarded(uid, partial(self._turn, uid))
            if time.monotonic() - looked >= LOOK:
                self._look()
                looked = time.monotonic()

    def _look(self) -> None:
        """Make those due whose hold is worth nothing any more, or whose last write failed."""
        ended = [uid for uid in self._holds.holders() if uid not in self._workloads or self._holds.problem(uid)]
        with self._changed:
            for each in (*self._again, *ended):
                target = self._due_checks if each in self._checks else self._due
                target[each] = None
            self._again.clear()

    def _guarded(self, key: str, step: Callable[[], object]) -> None:
        """Take a step for one object, whose faults must not end the service for all others."""
        try:
            step()
        except KubeError as error:
            if not isinstance(error, WriteConflict):
                log.warning("an AdmissionCheck cannot be answered", extra={"object": key, "error": str(error)})
            with self._changed:
                self._again[key] = None
        except Exception:
            # The log and the metric tell the operator; other Workloads are answered.
            self._metrics.faults.add()
            log.exception("an AdmissionCheck was not answered", extra={"object": key})

    def _turn(self, uid: str) -> None:
        """Do what a Workload needs now."""
        with self._changed:
            workload, ours = self._workloads.get(uid), frozenset(self._checks)
        step = WorkloadStep.RELEASE if workload is None else workload.step(ours)
        if workload is None or step is WorkloadStep.RELEASE:
            self._holds.end(uid)
        elif step is WorkloadStep.DECIDE:
            answers = self._decided(workload, ours)
            self._writer.answer(workload, step, answers)
        elif problem := self._holds.problem(uid) if self._holds.has(uid) else self._restore(workload):
            self._lose(workload, problem, ours)

    def _decided(self, workload: KueueWorkload, ours: frozenset[str]) -> Mapping[str, CheckAnswer]:
        """The answers for a pending check; cells that they give are held."""
        pod: CellPod | None = None
        try:
            pod = gang_of(workload)
            if pod is None:
                return unconcerned(workload, ours)
            decision = self._holds.take(pod)
            if isinstance(decision, PodPlaced):
                return placed(workload, pod, decision.bind_info, ours)
            if isinstance(decision, PodPreempting):
                return preempting(workload, pod, self._holds.victims(decision), ours)
            if reason := self._holds.never_fits(pod):
                return rejected(workload, f"{pod.spec.group.name} cannot be placed: {reason}", ours)
            return waiting(workload, pod, decision.reason, ours)
        except WorkloadUnfit as error:
            return rejected(workload, str(error), ours)
        except CellsUserError as error:
            # Only a name that is in use may get free.
            answer = retried if error.code == _IN_USE else rejected
            return answer(workload, f"{workload.key} cannot be placed: {error}", ours)

    def _restore(self, workload: KueueWorkload) -> str:
        """Hold what a Workload was given before this replica began; why that is not possible, empty if it is."""
        with self._changed:
            ours = frozenset(self._checks)
        if workload.step(ours) is not WorkloadStep.KEEP:
            return ""
        with suppress(WorkloadUnfit):
            if (pod := gang_of(workload)) is not None:
                return self._holds.restore(pod, recorded_places(workload, pod, ours))
        return ""

    def _lose(self, workload: KueueWorkload, problem: str, ours: frozenset[str]) -> None:
        """Ask Kueue to take back a Workload whose cells are lost."""
        self._holds.end(workload.uid)
        answers = retried(workload, f"{workload.key} has lost its cells: {problem}", ours)
        if self._writer.answer(workload, WorkloadStep.KEEP, answers):
            self._metrics.holds_lost.add()

    def _activate(self, name: str) -> None:
        """Say on an AdmissionCheck that it is answered."""
        with self._changed:
            known = self._checks.get(name)
        if known is not None:
            self._writer.activate(known)


_IN_USE = 409


class _Feed:
    """The controller as a handler of a collection, by its methods for all objects and for one."""

    def __init__(
        self, replace: Callable[[Sequence[JsonObject]], None], change: Callable[[JsonObject, bool], None]
    ) -> None:
        self._replace = replace
        self._change = change

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        self._replace(objects)

    def applied(self, body: JsonObject) -> None:
        self._change(body, True)

    def deleted(self, body: JsonObject) -> None:
        self._change(body, False)

    def bookmark(self, resource_version: str) -> None:
        """Nothing has changed."""


def _name(body: JsonObject) -> str:
    return text_at(body, "metadata", "name")
