"""Writes the answers to Kueue's AdmissionChecks: into Workloads, and on the checks themselves that they are answered.

Every write is of an object that was read a moment before, so it changes nothing that another has changed meanwhile.
Only the active replica writes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

from kube.bodies import Json, JsonObject, object_at, path_of, text_at
from kube.collection import ReadClient
from kube.errors import NotFound
from kube.events import Subject
from ostler.extender.check_answers import CheckAnswer
from ostler.extender.lease import ActiveReplica
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.workloads import CONTROLLER, CheckState, KueueWorkload, WorkloadStep, read_workload

log = logging.getLogger("ostler.extender")

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
_EVENTS = {
    CheckState.READY: ("Normal", "CellsReserved"),
    CheckState.RETRY: ("Normal", "CellsNotFree"),
    CheckState.REJECTED: ("Warning", "CellsImpossible"),
}


class AdmissionClient(ReadClient, Protocol):
    """A client as far as the controller needs it."""

    def replace(self, path: str, body: JsonObject, *, attempts: int | None = None) -> JsonObject:
        """Put an object in the place of one."""


class WorkloadReporter(Protocol):
    """Takes what people must know of a Workload; never blocks."""

    def report(self, workload: Subject, kind: str, reason: str, message: str) -> None:
        """``kind``: Normal or Warning."""


class CheckWriter:
    """Writes answers into Workloads and conditions into checks; asks ``replica`` before each write."""

    def __init__(
        self,
        client: AdmissionClient,
        reporter: WorkloadReporter,
        metrics: ExtenderMetrics,
        replica: ActiveReplica,
    ) -> None:
        self._client = client
        self._reporter = reporter
        self._metrics = metrics
        self._replica = replica

    def answer(self, workload: KueueWorkload, step: WorkloadStep, answers: Mapping[str, CheckAnswer]) -> bool:
        """Write answers, if the Workload still needs this step; whether they were written. Raises ``KubeError``."""
        path = path_of("apis", GROUP, VERSION, "namespaces", workload.namespace, "workloads", workload.name)
        if not self._replica.may_act():
            return False
        try:
            body = self._client.get(path, attempts=1)
            fresh = read_workload(body)
            if (fresh.uid, fresh.pod_sets) != (workload.uid, workload.pod_sets) or fresh.step(
                answers.keys()
            ) is not step:
                # The watch tells it soon.
                return False
            checks = object_at(body, "status").get("admissionChecks")
            for check in checks if isinstance(checks, list) else ():
                if isinstance(check, dict) and (answer := answers.get(text_at(check, "name"))) is not None:
                    _enter(check, answer)
            self._client.replace(f"{path}/status", body, attempts=1)
        except NotFound:
            return False
        answer = next(iter(answers.values()))
        self._metrics.checks.add(answer.state.value.lower())
        self._reporter.report(_subject(workload), *_EVENTS[answer.state], answer.message)
        log.info("check answered", extra={"workload": workload.key, "state": answer.state.value, "why": answer.message})
        return True

    def activate(self, check: JsonObject) -> None:
        """Say on an AdmissionCheck that it is answered. Raises ``KubeError``."""
        wanted = _condition(check)
        if not self._replica.may_act() or _has_condition(check, wanted):
            return
        path = path_of("apis", GROUP, VERSION, "admissionchecks", text_at(check, "metadata", "name"))
        with suppress(NotFound):
            body = self._client.get(path, attempts=1)
            if not is_ours(body) or _has_condition(body, wanted):
                return
            status = object_at(body, "status")
            others = [each for each in _conditions(body) if text_at(each, "type") != "Active"]
            changed: JsonObject = {**wanted, "lastTransitionTime": _now()}
            body["status"] = {**status, "conditions": [*others, changed]}
            self._client.replace(f"{path}/status", body, attempts=1)


def is_ours(body: JsonObject) -> bool:
    """Whether this controller answers an AdmissionCheck."""
    return text_at(body, "spec", "controllerName") == CONTROLLER


def _subject(workload: KueueWorkload) -> Subject:
    return Subject(
        "Workload",
        workload.name,
        workload.uid,
        api_version=f"{GROUP}/{VERSION}",
        namespace=workload.namespace,
        is_namespaced=True,
    )


def _enter(check: JsonObject, answer: CheckAnswer) -> None:
    """Change one check of a Workload to an answer."""
    updates: list[Json] = list(answer.updates)
    check |= {"state": answer.state.value, "message": answer.message, "lastTransitionTime": _now()}
    for key, value in (("podSetUpdates", updates or None), ("requeueAfterSeconds", answer.retry_after)):
        check.pop(key, None)
        if value is not None:
            check[key] = value


def _condition(body: JsonObject) -> JsonObject:
    """The condition Active that an AdmissionCheck should have."""
    found: JsonObject = {"type": "Active", "status": "True", "reason": "Active"}
    found["message"] = "ostler's extender answers this check"
    if object_at(body, "spec", "parameters"):
        found |= {"status": "False", "reason": "ParametersNotSupported"}
        found["message"] = "spec.parameters is not supported; create the AdmissionCheck without it"
    return found


def _conditions(body: JsonObject) -> list[Json]:
    found = object_at(body, "status").get("conditions")
    return found if isinstance(found, list) else []


def _has_condition(body: JsonObject, wanted: JsonObject) -> bool:
    return any(isinstance(each, dict) and wanted.items() <= each.items() for each in _conditions(body))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
