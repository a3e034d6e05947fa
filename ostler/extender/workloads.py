"""Kueue's Workloads as the AdmissionCheck sees them. Pure.

Users create Workloads, so every field is read without trust, and only what is needed is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from kube.bodies import Json, JsonObject, object_at, text_at
from kube.json_stream import Fields
from ostler.extender.pods import CONTAINER_FIELDS, wants_cells
from scheduling.cells import pod as contract

CONTROLLER = "ostler.dev/cells"
"""``spec.controllerName`` of the AdmissionChecks that are answered here."""
ANNOTATION_PLACES = "ostler.dev/cells-reserved"
"""The cells of a gang, on the first pod set of its Workload: ``{"chain": …, "pods": [[node, indices, types], …]}``."""
MOST_POD_SETS = 8
"""Pod sets of a Workload, by Kueue's schema."""

_ANNOTATIONS = dict.fromkeys((contract.ANNOTATION_SPEC, contract.ANNOTATION_GROUP, ANNOTATION_PLACES), True)
FIELDS: Fields = {
    "metadata": dict.fromkeys(("namespace", "name", "uid", "resourceVersion", "deletionTimestamp"), True),
    "spec": {
        "active": True,
        "podSets": {
            "name": True,
            "count": True,
            "template": {
                "metadata": {"annotations": _ANNOTATIONS},
                "spec": {"containers": CONTAINER_FIELDS, "initContainers": CONTAINER_FIELDS},
            },
        },
    },
    "status": {
        "conditions": {"type": True, "status": True},
        "admission": {"podSetAssignments": {"name": True, "count": True}},
        "admissionChecks": {
            "name": True,
            "state": True,
            "retryCount": True,
            "podSetUpdates": {"annotations": {ANNOTATION_PLACES: True}},
        },
    },
}


class CheckState(Enum):
    """The states of an AdmissionCheck of a Workload."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class WorkloadStep(Enum):
    """The next step that a Workload needs."""

    RELEASE = "release"  # it has no right to cells
    DECIDE = "decide"  # its check is pending
    KEEP = "keep"  # its check is ready: its cells must stay held


@dataclass(frozen=True, slots=True)
class WorkloadPodSet:
    """Pods of one template. ``count``: as many as Kueue admits. ``annotations``: of the template, as far as needed."""

    name: str
    count: int
    annotations: Mapping[str, str]
    wants_cells: bool


@dataclass(frozen=True, slots=True)
class WorkloadCheck:
    """The state of one check of a Workload. ``places``: the cells that were given, as text."""

    name: str
    state: str
    retries: int = 0
    places: str = ""


@dataclass(frozen=True, slots=True)
class KueueWorkload:
    """``has_quota``: Kueue has reserved quota for it, and neither evicts it nor has finished it."""

    uid: str
    namespace: str
    name: str
    has_quota: bool
    pod_sets: tuple[WorkloadPodSet, ...]
    checks: tuple[WorkloadCheck, ...]

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def step(self, ours: Collection[str]) -> WorkloadStep:
        """What it needs; ``ours``: the names of the AdmissionChecks of this controller."""
        states = {each.state for each in self.checks if each.name in ours}
        if not self.has_quota or not states or states & {CheckState.RETRY.value, CheckState.REJECTED.value}:
            return WorkloadStep.RELEASE
        return WorkloadStep.KEEP if states == {CheckState.READY.value} else WorkloadStep.DECIDE


def read_workload(body: JsonObject) -> KueueWorkload:
    """A Workload; what is missing or has another type counts as empty."""
    spec, status = object_at(body, "spec"), object_at(body, "status")
    conditions = {text_at(each, "type"): text_at(each, "status") == "True" for each in _objects(status, "conditions")}
    has_quota = (
        conditions.get("QuotaReserved", False)
        and not conditions.get("Evicted", False)
        and not conditions.get("Finished", False)
        and spec.get("active") is not False
        and not text_at(body, "metadata", "deletionTimestamp")
    )
    assigned = {
        text_at(each, "name"): _count(each.get("count"))
        for each in _objects(object_at(status, "admission"), "podSetAssignments")
    }
    sets = list(_objects(spec, "podSets"))[: MOST_POD_SETS + 1] if has_quota else []
    return KueueWorkload(
        uid=text_at(body, "metadata", "uid"),
        namespace=text_at(body, "metadata", "namespace"),
        name=text_at(body, "metadata", "name"),
        has_quota=has_quota,
        pod_sets=tuple(_pod_set(each, assigned) for each in sets),
        checks=tuple(_check(each) for each in _objects(status, "admissionChecks")) if has_quota else (),
    )


def _pod_set(body: JsonObject, assigned: Mapping[str, int]) -> WorkloadPodSet:
    name, template = text_at(body, "name"), object_at(body, "template")
    annotations = object_at(template, "metadata", "annotations")
    count = _count(body.get("count"))
    return WorkloadPodSet(
        name,
        assigned.get(name) or count,
        {key: text for key in _ANNOTATIONS if isinstance(text := annotations.get(key), str)},
        wants_cells=wants_cells(object_at(template, "spec")),
    )


def _check(body: JsonObject) -> WorkloadCheck:
    places = next(
        (text for each in _objects(body, "podSetUpdates") if (text := text_at(each, "annotations", ANNOTATION_PLACES))),
        "",
    )
    return WorkloadCheck(text_at(body, "name"), text_at(body, "state"), _count(body.get("retryCount")), places)


def _count(value: Json) -> int:
    """A number of Kueue's, which are 32 bits wide; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else 0


def _objects(body: JsonObject, key: str) -> Iterator[JsonObject]:
    found = body.get(key)
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict):
            yield each
