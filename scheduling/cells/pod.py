"""What a pod asks for and what it got, as its annotations say it.

The scheduling spec comes from users: every mistake is a `PodTextError` that names the annotation and the key. Its
reader accepts what HiveD's accepts: unknown keys, the last of equal keys, the older `gpu` names, fractions cut to whole
numbers. The bind info is written by the scheduler and read again after a restart; it holds the placement of the whole
group, so that any surviving pod restores it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Final

from scheduling.cells.decision import CellsUserError
from scheduling.cells.yaml_nodes import (
    YamlTextError,
    boolean,
    first_document,
    kind_of,
    number,
    scalar_text,
)

if TYPE_CHECKING:
    import yaml

GROUP: Final = "hivedscheduler.microsoft.com"
RESOURCE_ENABLE: Final = f"{GROUP}/pod-scheduling-enable"
ANNOTATION_SPEC: Final = f"{GROUP}/pod-scheduling-spec"
ANNOTATION_ISOLATION: Final = f"{GROUP}/pod-leaf-cell-isolation"
ANNOTATION_OLD_ISOLATION: Final = f"{GROUP}/pod-gpu-isolation"
ANNOTATION_BIND_INFO: Final = f"{GROUP}/pod-bind-info"
ANNOTATION_GROUP: Final = "ostler.dev/cells-group"
"""The group of a pod whose job was given cells before it had pods; it replaces the spec's."""

OPPORTUNISTIC: Final = -1
HIGHEST_PRIORITY: Final = 1000
MOST_PODS: Final = 100_000
"""Pods of a group: each is placed on its own, and users write the number."""

_OLD_NAMES: Final = {
    "gpuType": "leafCellType",
    "gpuNumber": "leafCellNumber",
    "gpuIsolation": "leafCellIsolation",
    "physicalGpuIndices": "physicalLeafCellIndices",
}

_NUMBERS: Final = r"\[[0-9]+(?:, [0-9]+)*\]"
_TEXT: Final = r'"[^"\\\n]*"'
_TEXTS: Final = rf"\[{_TEXT}(?:, {_TEXT})*\]"
_PLACEMENT: Final = re.compile(
    rf"  - physicalNode: ({_TEXT})\n    physicalLeafCellIndices: ({_NUMBERS})\n    preassignedCellTypes: ({_TEXTS})\n"
)
_GROUP_KEY: Final = "affinityGroupBindInfo:\n"
_WRITTEN: Final = re.compile(rf"node: ({_TEXT})\nleafCellIsolation: ({_NUMBERS})\ncellChain: ({_TEXT})\n")
_WRITTEN_GROUP: Final = re.compile(
    rf"(?:- podPlacements:\n(?:  - physicalNode: {_TEXT}\n    physicalLeafCellIndices: {_NUMBERS}\n"
    rf"    preassignedCellTypes: {_TEXTS}\n)+)+"
)
_SAME_GROUPS: Final = 16
"""Texts of groups that are remembered: the pods of one have the same, and are often read one after the other."""


class PodTextError(CellsUserError):
    """An annotation that cannot be used."""

    def __init__(self, annotation: str, problem: str) -> None:
        super().__init__(f"annotation {annotation}: {problem}")
        self.annotation = annotation
        self.problem = problem


@dataclass(frozen=True, slots=True)
class GroupMember:
    """So many pods of a group ask for that many leaf cells each."""

    pod_number: int
    leaf_cell_number: int


@dataclass(frozen=True, slots=True)
class AffinityGroupSpec:
    """A gang. Its members have different leaf cell numbers, in ascending order."""

    name: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class PodSchedulingSpec:
    """What one pod asks for."""

    virtual_cluster: str
    priority: int
    pinned_cell_id: str
    leaf_cell_type: str
    leaf_cell_number: int
    lazy_preemption: bool
    ignore_suggested_nodes: bool
    group: AffinityGroupSpec


@dataclass(frozen=True, slots=True)
class CellPod:
    """A pod that the cell scheduler tracks."""

    uid: str
    namespace: str
    name: str
    spec: PodSchedulingSpec

    @property
    def key(self) -> str:
        """The pod as messages name it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where one pod of a group runs. `preassigned_types` has one type for each device; "" if it is opportunistic."""

    node: str
    indices: tuple[int, ...]
    preassigned_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupMemberPlacement:
    """Where all pods of one leaf cell number run."""

    pod_placements: tuple[PodPlacement, ...]


@dataclass(frozen=True, slots=True)
class BindInfo:
    """The place of one pod and of its whole group."""

    node: str
    leaf_cell_isolation: tuple[int, ...]
    cell_chain: str
    members: tuple[GroupMemberPlacement, ...]

    @property
    def isolation(self) -> str:
        """The device indices as the isolation annotation has them."""
        return ",".join(str(each) for each in self.leaf_cell_isolation)

    def write(self) -> str:
        """The annotation's text, YAML with the keys of HiveD."""
        lines = [
            f"node: {json.dumps(self.node)}",
            f"leafCellIsolation: {_list(self.leaf_cell_isolation)}",
            f"cellChain: {json.dumps(self.cell_chain)}",
            f"affinityGroupBindInfo:{'' if self.members else ' []'}",
        ]
        for member in self.members:
            lines.append(f"- podPlacements:{'' if member.pod_placements else ' []'}")
            for each in member.pod_placements:
                lines += [
                    f"  - physicalNode: {json.dumps(each.node)}",
                    f"    physicalLeafCellIndices: {_list(each.indices)}",
                    f"    preassignedCellTypes: {json.dumps(list(each.preassigned_types))}",
                ]
        return "\n".join(lines) + "\n"

    def annotations(self) -> dict[str, str]:
        """The annotations that the binding carries."""
        return {ANNOTATION_ISOLATION: self.isolation, ANNOTATION_BIND_INFO: self.write()}


def read_pod_spec(annotations: Mapping[str, str], namespace: str, name: str) -> PodSchedulingSpec:
    """The scheduling spec of a pod, with defaults. Raises `PodTextError`."""
    reader = _Reader(ANNOTATION_SPEC)
    text = annotations.get(ANNOTATION_SPEC, "")
    if not text:
        raise PodTextError(ANNOTATION_SPEC, "is missing or empty; write what the pod asks for")
    keys = reader.document(text)
    spec = PodSchedulingSpec(
        virtual_cluster=reader.text(keys, "virtualCluster"),
        priority=reader.integer(keys, "priority"),
        pinned_cell_id=reader.text(keys, "pinnedCellId"),
        leaf_cell_type=reader.text(keys, "leafCellType"),
        leaf_cell_number=reader.integer(keys, "leafCellNumber"),
        lazy_preemption=reader.flag(keys, "lazyPreemptionEnable", default=False),
        ignore_suggested_nodes=reader.flag(keys, "ignoreK8sSuggestedNodes", default=True),
        group=_read_group(reader, keys, annotations, f"{namespace}/{name}"),
    )
    _check_spec(spec)
    return replace(spec, group=_merged(spec.group))


def _read_group(
    reader: _Reader, keys: Mapping[str, yaml.Node], annotations: Mapping[str, str], default_name: str
) -> AffinityGroupSpec:
    if made := annotations.get(ANNOTATION_GROUP, ""):
        reader = _Reader(ANNOTATION_GROUP)
        group = reader.document(made)
    elif (node := keys.get("affinityGroup")) is not None:
        group = reader.mapping(node, "affinityGroup")
    else:
        return AffinityGroupSpec(default_name, (GroupMember(1, reader.integer(keys, "leafCellNumber")),))
    members: list[GroupMember] = []
    for each in reader.items(group, "members"):
        member = reader.mapping(each, "affinityGroup.members")
        members.append(GroupMember(reader.integer(member, "podNumber"), reader.integer(member, "leafCellNumber")))
    return AffinityGroupSpec(reader.text(group, "name"), tuple(members))


def write_group(group: AffinityGroupSpec) -> str:
    """The text of the annotation `ANNOTATION_GROUP`."""
    members = [{"podNumber": each.pod_number, "leafCellNumber": each.leaf_cell_number} for each in group.members]
    return json.dumps({"name": group.name, "members": members})


def _check_spec(spec: PodSchedulingSpec) -> None:
    """Refuse values out of range."""
    group = spec.group
    problem = ""
    if not spec.virtual_cluster:
        problem = "virtualCluster is empty; name the virtual cluster that the pod belongs to"
    elif not OPPORTUNISTIC <= spec.priority <= HIGHEST_PRIORITY:
        problem = f"priority is {spec.priority}; it must be between {OPPORTUNISTIC} and {HIGHEST_PRIORITY}"
    elif spec.leaf_cell_number <= 0:
        problem = f"leafCellNumber is {spec.leaf_cell_number}; it must be at least 1"
    elif not group.name:
        problem = "affinityGroup.name is empty; give the group a name, or omit affinityGroup"
    for member in () if problem else group.members:
        if member.pod_number <= 0:
            problem = f"affinityGroup.members has podNumber {member.pod_number}; it must be at least 1"
        elif member.leaf_cell_number <= 0:
            problem = f"affinityGroup.members has leafCellNumber {member.leaf_cell_number}; it must be at least 1"
        if problem:
            break
    pods = sum(each.pod_number for each in group.members)
    if not problem and pods > MOST_PODS:
        problem = f"affinityGroup.members ask for {pods} pods; a group has at most {MOST_PODS}"
    if not problem and all(each.leaf_cell_number != spec.leaf_cell_number for each in group.members):
        problem = f"affinityGroup.members has no member with this pod's leafCellNumber {spec.leaf_cell_number}; add it"
    if problem:
        raise PodTextError(ANNOTATION_SPEC, problem)


def _merged(group: AffinityGroupSpec) -> AffinityGroupSpec:
    """The group with one member for each leaf cell number."""
    sizes: dict[int, int] = {}
    for member in group.members:
        sizes[member.leaf_cell_number] = sizes.get(member.leaf_cell_number, 0) + member.pod_number
    return AffinityGroupSpec(group.name, tuple(GroupMember(pods, leaves) for leaves, pods in sorted(sizes.items())))


def read_bind_info(annotations: Mapping[str, str]) -> BindInfo:
    """The bind info of a bound pod. Raises `PodTextError`."""
    reader = _Reader(ANNOTATION_BIND_INFO)
    text = annotations.get(ANNOTATION_BIND_INFO, "")
    if not text:
        raise PodTextError(ANNOTATION_BIND_INFO, "is missing or empty; the pod was not bound by this scheduler")
    # A text as `BindInfo.write` makes it: a start with thousands of pods reads no YAML.
    head, key, group = text.partition(_GROUP_KEY)
    own = _WRITTEN.fullmatch(head)
    members = _written_group(group) if own is not None and key else None
    if own is None or members is None:
        return _read_info(reader, text)
    node, isolation, chain = map(json.loads, own.groups())
    return BindInfo(intern(node), tuple(isolation), intern(chain), members)


@lru_cache(_SAME_GROUPS)
def _written_group(text: str) -> tuple[GroupMemberPlacement, ...] | None:
    """The places of a whole group, None if the text is not as `BindInfo.write` makes it."""
    if _WRITTEN_GROUP.fullmatch(text) is None:
        return None
    return tuple(
        GroupMemberPlacement(
            tuple(
                PodPlacement(
                    intern(json.loads(node)), tuple(json.loads(numbers)), tuple(map(intern, json.loads(types)))
                )
                for node, numbers, types in _PLACEMENT.findall(part)
            )
        )
        for part in text.split("- podPlacements:\n")[1:]
    )


def _read_info(reader: _Reader, text: str) -> BindInfo:
    keys = reader.document(text)
    members = tuple(
        GroupMemberPlacement(
            tuple(
                _read_placement(reader, placement)
                for placement in reader.items(reader.mapping(member, "affinityGroupBindInfo"), "podPlacements")
            )
        )
        for member in reader.items(keys, "affinityGroupBindInfo")
    )
    info = BindInfo(
        node=reader.text(keys, "node"),
        leaf_cell_isolation=reader.integers(keys, "leafCellIsolation"),
        cell_chain=reader.text(keys, "cellChain"),
        members=members,
    )
    if not info.node or not info.leaf_cell_isolation:
        raise PodTextError(ANNOTATION_BIND_INFO, "has no node or no leafCellIsolation; the record is incomplete")
    return info


def _read_placement(reader: _Reader, node: yaml.Node) -> PodPlacement:
    keys = reader.mapping(node, "podPlacements")
    indices = reader.integers(keys, "physicalLeafCellIndices")
    types = tuple(intern(scalar_text(each) or "") for each in reader.items(keys, "preassignedCellTypes"))
    if types and len(types) != len(indices):
        raise PodTextError(
            reader.annotation,
            f"preassignedCellTypes has {len(types)} values for {len(indices)} physicalLeafCellIndices",
        )
    return PodPlacement(intern(reader.text(keys, "physicalNode")), indices, types or ("",) * len(indices))


def _list(numbers: tuple[int, ...]) -> str:
    return json.dumps(list(numbers))


class _Reader:
    """Reads keys of one annotation; null is as good as absent."""

    def __init__(self, annotation: str) -> None:
        self.annotation = annotation

    def document(self, text: str) -> dict[str, yaml.Node]:
        """The keys of the whole text."""
        try:
            node = first_document(text)
        except YamlTextError as error:
            raise PodTextError(self.annotation, f"is not valid YAML: {error}") from error
        return {} if node is None else self.mapping(node, "the text")

    def mapping(self, node: yaml.Node, where: str) -> dict[str, yaml.Node]:
        """The keys of a map by their present names."""
        kind = kind_of(node)
        if kind == "null":
            return {}
        if kind != "map":
            raise PodTextError(self.annotation, f"{where} must be a map, not a {kind}")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if kind_of(value) != "null":
                found[_OLD_NAMES.get(name, name)] = value
        return found

    def items(self, keys: Mapping[str, yaml.Node], name: str) -> list[yaml.Node]:
        """The values of a list; none if it is absent."""
        node = keys.get(name)
        if node is None:
            return []
        if kind_of(node) != "list":
            raise PodTextError(self.annotation, f"{name} must be a list, not a {kind_of(node)}")
        return list(node.value)

    def text(self, keys: Mapping[str, yaml.Node], name: str) -> str:
        """A text; "" if it is absent."""
        node = keys.get(name)
        if node is None:
            return ""
        found = scalar_text(node)
        if found is None:
            raise PodTextError(self.annotation, f"{name} must be a text, not a {kind_of(node)}")
        return found

    def integer(self, keys: Mapping[str, yaml.Node], name: str) -> int:
        """A whole number; 0 if it is absent."""
        node = keys.get(name)
        return 0 if node is None else self._number(node, name)

    def integers(self, keys: Mapping[str, yaml.Node], name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        return tuple(self._number(each, name) for each in self.items(keys, name))

    def flag(self, keys: Mapping[str, yaml.Node], name: str, *, default: bool) -> bool:
        """A boolean."""
        node = keys.get(name)
        if node is None:
            return default
        found = boolean(node)
        if found is None:
            raise PodTextError(self.annotation, f"{name} must be true or false, not {str(node.value)!r}")
        return found

    def _number(self, node: yaml.Node, name: str) -> int:
        found = number(node)
        if found is None:
            shown = kind_of(node) if kind_of(node) in {"map", "list"} else repr(node.value)
            raise PodTextError(self.annotation, f"{name} must be a number of at most 32 bits, not {shown}")
        return int(found)
