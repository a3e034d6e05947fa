"""Decides the state of a Workload's AdmissionCheck, from the gang that it will be and the cells on record. Pure.

A Workload is one gang: all of its pods that want cells. Their templates have the annotation with the scheduling spec;
the pods' numbers come from Kueue's assignment, so the group's members are computed here and given to the pods in an
annotation. The cells that were given to the gang are written into the check's ``podSetUpdates`` as well, so that a
restarted replica finds them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kube.bodies import Json, JsonObject, count_of, one_line, text_at
from node.documents import DocumentRefused, parse_json
from ostler.cells.planning import GangPlan, PlannedPod
from ostler.extender.workloads import ANNOTATION_PLACES, MOST_POD_SETS, CheckState, KueueWorkload, WorkloadPodSet
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

MOST_SPECS = 16 << 10
"""Characters of all annotations with a scheduling spec of one Workload."""
MOST_PLACES = 128 << 10
"""Characters of the annotation with the cells; the API server accepts 256 KiB for all annotations of a pod."""
MOST_MESSAGE = 1000
"""Characters of a message; a gang of 10,000 pods would fill a screen a thousand times."""
FIRST_RETRY, MOST_RETRY = 10, 300
"""Seconds after which Kueue asks again: doubled with every attempt."""
_SAME_KEYS = {
    "virtualCluster": "virtual_cluster",
    "priority": "priority",
    "pinnedCellId": "pinned_cell_id",
    "leafCellType": "leaf_cell_type",
    "lazyPreemptionEnable": "lazy_preemption",
    "ignoreK8sSuggestedNodes": "ignore_suggested_nodes",
}
"""The settings on which the pod sets of a gang must agree, as written and as read."""


class WorkloadUnfit(Exception):
    """A Workload that can never be placed as it is; the message says why and what to change."""


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """The state that the check gets. ``updates``: its podSetUpdates. ``retry_after``: seconds, for ``RETRY``."""

    state: CheckState
    message: str
    updates: tuple[JsonObject, ...] = ()
    retry_after: int | None = None


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
        found = parse_json(text) if 0 < len(text) <= MOST_PLACES else None
    except DocumentRefused:
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


def _check_same(first: str, spec: PodSchedulingSpec, second: str, other: PodSchedulingSpec) -> None:
    for key, name in _SAME_KEYS.items():
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
