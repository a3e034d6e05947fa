"""Kueue's Workloads as the AdmissionCheck sees them: which gang a Workload will be, and what its check is to say. Pure.

Users create Workloads, so every field is read without trust, and only what is needed is kept. A Workload is one gang:
all of its pods that want cells. Their templates have the annotation with the scheduling spec; the pods' numbers come
from Kueue's assignment, so the group's members are computed here and given to the pods in an annotation. The cells
that were given to the gang are written into the check's ``podSetUpdates`` as well, so that a restarted replica finds
them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kube.bodies import Json, JsonObject, count_of, object_at, one_line, text_at
from kube.json_stream import Fields
from ostler.cells.planning import GangPlan, PlannedPod
from ostler.extender.pods import CONTAINER_FIELDS, wants_cells
from scheduling.cells import pod as contract
from scheduling.cells.decision import CellsUserError
from scheduling.cells.pod import (
    AffinityGroupSpec,
    BindInfo,
    CellPod,
    GroupMember,
    GroupMemberPlacement,
    PodPlacement,
    PodSchedulingSpec,
)

CONTROLLER = "ostler.dev/cells"
"""``spec.controllerName`` of the AdmissionChecks that are answered here."""
ANNOTATION_PLACES = "ostler.dev/cells-reserved"
"""The cells of a gang, on the first pod set of its Workload: ``{"chain": …, "pods": [[node, indices, types], …]}``."""
MOST_SPECS = 16 << 10
"""Characters of all annotations with a scheduling spec of one Workload."""
MOST_PLACES = 128 << 10
"""Characters of the annotation with the cells; the API server accepts 256 KiB for all annotations of a pod."""
MOST_MESSAGE = 1000
"""Characters of a message; a gang of 10,000 pods would fill a screen a thousand times."""
MOST_POD_SETS = 8
"""Pod sets of a Workload, by Kueue's schema."""
FIRST_RETRY, MOST_RETRY = 10, 300
"""Seconds after which Kueue asks again: doubled with every attempt."""

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


class WorkloadUnfit(Exception):
    """A Workload that can never be placed as it is; the message says why and what to change."""


class CheckState(Enum):
    """The states of an AdmissionCheck of a Workload."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class WorkloadStep(Enum):
    """What a Workload needs now."""

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


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """What the check is to say. ``updates``: its podSetUpdates. ``retry_after``: seconds, for ``RETRY``."""

    state: CheckState
    message: str
    updates: tuple[JsonObject, ...] = ()
    retry_after: int | None = None


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


def gang_of(workload: KueueWorkload) -> CellPod | None:
    """The gang that the Workload will be, as a pod that stands for it; None if none of its pods wants cells.

    Raises ``WorkloadUnfit``.
    """
    members = [each for each in workload.pod_sets if each.wants_cells and each.count > 0]
    if not members:
        return None
    if len(workload.pod_sets) > MOST_POD_SETS:
        raise WorkloadUnfit(f"the Workload has more than {MOST_POD_SETS} pod sets")
    size = sum(len(each.annotations.get(contract.ANNOTATION_SPEC, "")) for each in members)
    if size > MOST_SPECS:
        raise WorkloadUnfit(
            f"the annotations {contract.ANNOTATION_SPEC} have {size} characters together; the limit is {MOST_SPECS}"
        )
    specs = [(each, _spec(workload, each)) for each in members]
    first_set, first = specs[0]
    for pod_set, spec in specs[1:]:
        _check_same(first_set.name, first, pod_set.name, spec)
    sizes: dict[int, int] = {}
    for pod_set, spec in specs:
        sizes[spec.leaf_cell_number] = sizes.get(spec.leaf_cell_number, 0) + pod_set.count
    pods = sum(sizes.values())
    if pods > contract.MOST_PODS:
        raise WorkloadUnfit(f"the Workload has {pods} pods that want cells; a gang has at most {contract.MOST_PODS}")
    group = AffinityGroupSpec(
        first.group.name, tuple(GroupMember(number, leaves) for leaves, number in sorted(sizes.items()))
    )
    own = AffinityGroupSpec(workload.key, (GroupMember(1, first.leaf_cell_number),))
    if first.group not in (own, group):
        raise WorkloadUnfit(
            f"affinityGroup {first.group.name!r} has {_members(first.group)}, and the Workload has {_members(group)};"
            " omit affinityGroup, so that the Workload's pods are the group"
        )
    spec = replace(first, leaf_cell_number=group.members[0].leaf_cell_number, group=group)
    return CellPod(workload.uid, workload.namespace, workload.name, spec)


def placed(workload: KueueWorkload, pod: CellPod, info: BindInfo, ours: Collection[str]) -> dict[str, CheckAnswer]:
    """The answers of the Workload's checks once its gang has cells."""
    pods = tuple(
        PlannedPod(each.node, tuple(sorted(each.indices)), is_broken=False)
        for member in info.members
        for each in member.pod_placements
    )
    return _ready(workload, pod, _text(GangPlan(pod, pods=pods)), write_places(info), ours)


def preempting(
    workload: KueueWorkload, pod: CellPod, victims: Mapping[str, Sequence[str]], ours: Collection[str]
) -> dict[str, CheckAnswer]:
    """The answers once its gang has reserved cells of pods that it preempts."""
    plan = GangPlan(pod, victims=tuple((node, tuple(names)) for node, names in victims.items()))
    return _ready(workload, pod, _text(plan), "", ours)


def waiting(workload: KueueWorkload, pod: CellPod, reason: str, ours: Collection[str]) -> dict[str, CheckAnswer]:
    """The answers while its gang has to wait."""
    return retried(workload, _text(GangPlan(pod, reason=reason)), ours)


def retried(workload: KueueWorkload, message: str, ours: Collection[str]) -> dict[str, CheckAnswer]:
    """Kueue is to release the quota and ask again, later with each attempt."""
    text = one_line(message, MOST_MESSAGE)
    return {
        each.name: CheckAnswer(CheckState.RETRY, text, retry_after=min(MOST_RETRY, FIRST_RETRY << min(each.retries, 6)))
        for each in workload.checks
        if each.name in ours
    }


def rejected(workload: KueueWorkload, message: str, ours: Collection[str]) -> dict[str, CheckAnswer]:
    """Kueue is to deactivate the Workload."""
    answer = CheckAnswer(CheckState.REJECTED, one_line(message, MOST_MESSAGE))
    return {each.name: answer for each in workload.checks if each.name in ours}


def unconcerned(workload: KueueWorkload, ours: Collection[str]) -> dict[str, CheckAnswer]:
    """The answers for a Workload without pods that want cells."""
    answer = CheckAnswer(CheckState.READY, f"no pod has a limit {contract.RESOURCE_ENABLE}, so no cells are reserved")
    return {each.name: answer for each in workload.checks if each.name in ours}


def write_places(info: BindInfo) -> str:
    """The cells of a gang as text; empty if that is too long."""
    pods = [
        [each.node, ",".join(map(str, each.indices)), _shortened(each.preassigned_types)]
        for member in info.members
        for each in member.pod_placements
    ]
    text = json.dumps({"chain": info.cell_chain, "pods": pods}, separators=(",", ":"))
    return text if len(text) <= MOST_PLACES else ""


def recorded_places(workload: KueueWorkload, pod: CellPod, ours: Collection[str]) -> BindInfo | None:
    """The cells that the Workload's check has on record; None if there are none, or not those of this gang."""
    text = next((each.places for each in workload.checks if each.name in ours and each.places), "")
    try:
        found = json.loads(text) if 0 < len(text) <= MOST_PLACES else None
    except (ValueError, RecursionError):
        found = None
    pods = found.get("pods") if isinstance(found, dict) else None
    places = [_place(each) for each in pods] if isinstance(pods, list) else []
    by_size: dict[int, list[PodPlacement]] = {}
    for place in places:
        if place is None:
            return None
        by_size.setdefault(len(place.indices), []).append(place)
    if {size: len(found) for size, found in by_size.items()} != {
        each.leaf_cell_number: each.pod_number for each in pod.spec.group.members
    }:
        return None
    members = tuple(GroupMemberPlacement(tuple(by_size[size])) for size in sorted(by_size))
    first = members[0].pod_placements[0]
    return BindInfo(first.node, first.indices, text_at(found, "chain"), members)


def _ready(
    workload: KueueWorkload, pod: CellPod, message: str, places: str, ours: Collection[str]
) -> dict[str, CheckAnswer]:
    group = contract.write_group(pod.spec.group)
    updates: list[JsonObject] = []
    for each in workload.pod_sets:
        if each.wants_cells and each.count > 0:
            annotations: JsonObject = {contract.ANNOTATION_GROUP: group}
            if places and not updates:
                annotations[ANNOTATION_PLACES] = places
            updates.append({"name": each.name, "annotations": annotations})
    # Two checks may not say the same to a pod set, so the first speaks.
    found: dict[str, CheckAnswer] = {}
    for check in workload.checks:
        if check.name in ours:
            found[check.name] = CheckAnswer(CheckState.READY, message, () if found else tuple(updates))
    return found


def _text(plan: GangPlan) -> str:
    return one_line("; ".join(line.strip() for line in plan.lines()), MOST_MESSAGE)


def _spec(workload: KueueWorkload, pod_set: WorkloadPodSet) -> PodSchedulingSpec:
    if contract.ANNOTATION_GROUP in pod_set.annotations or ANNOTATION_PLACES in pod_set.annotations:
        raise WorkloadUnfit(
            f"pod set {pod_set.name!r} has the annotation {contract.ANNOTATION_GROUP} or {ANNOTATION_PLACES}, which the"
            " check writes; remove it"
        )
    try:
        return contract.read_pod_spec(pod_set.annotations, workload.namespace, workload.name)
    except CellsUserError as error:
        raise WorkloadUnfit(f"pod set {pod_set.name!r}: {error}") from error


_SAME = {
    "virtualCluster": "virtual_cluster",
    "priority": "priority",
    "pinnedCellId": "pinned_cell_id",
    "leafCellType": "leaf_cell_type",
    "lazyPreemptionEnable": "lazy_preemption",
    "ignoreK8sSuggestedNodes": "ignore_suggested_nodes",
}


def _check_same(first: str, spec: PodSchedulingSpec, second: str, other: PodSchedulingSpec) -> None:
    for key, name in _SAME.items():
        ours, theirs = getattr(spec, name), getattr(other, name)
        if ours != theirs:
            raise WorkloadUnfit(
                f"{key} is {ours!r} in pod set {first!r} and {theirs!r} in {second!r}; a Workload is one gang, so write"
                " the same in both"
            )
    if spec.group.name != other.group.name:
        raise WorkloadUnfit(
            f"affinityGroup is {spec.group.name!r} in pod set {first!r} and {other.group.name!r} in {second!r}; a "
            "Workload is one gang, so omit affinityGroup"
        )


def _members(group: AffinityGroupSpec) -> str:
    return " and ".join(
        f"{each.pod_number} pod{'' if each.pod_number == 1 else 's'} with {each.leaf_cell_number} leaf cells"
        for each in group.members
    )


def _shortened(types: Sequence[str]) -> Json:
    return types[0] if len(set(types)) == 1 else list(types)


def _place(value: Json) -> PodPlacement | None:
    """One pod's cells as ``write_places`` writes them."""
    if not isinstance(value, list) or len(value) != 3:
        return None
    node, numbers, types = value
    if not isinstance(node, str) or not isinstance(numbers, str):
        return None
    indices = [count_of(each) for each in numbers.split(",")]
    kinds = [types] * len(indices) if isinstance(types, str) else types
    if not isinstance(kinds, list) or len(kinds) != len(indices):
        return None
    known = tuple(each for each in indices if each is not None)
    names = tuple(each for each in kinds if isinstance(each, str))
    if len(known) != len(indices) or len(names) != len(indices):
        return None
    return PodPlacement(node, known, names)


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
