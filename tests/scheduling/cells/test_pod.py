"""Annotations of pods: records are read as they were written, and mistakes are named."""

from __future__ import annotations

import json

import pytest

from scheduling.cells.pod import (
    ANNOTATION_BIND_INFO,
    ANNOTATION_SPEC,
    BindInfo,
    GroupMemberPlacement,
    PodPlacement,
    PodTextError,
    read_bind_info,
    read_pod_spec,
)

INFO = BindInfo(
    node="n0",
    leaf_cell_isolation=(0, 1),
    cell_chain="RACK",
    members=(
        GroupMemberPlacement((PodPlacement("n1", (7,), ("",)),)),
        GroupMemberPlacement((PodPlacement("n0", (0, 1), ("NODE", "NODE")), PodPlacement("n2", (2, 3), ("", "")))),
    ),
)


@pytest.mark.parametrize(
    "info",
    [
        INFO,
        BindInfo("n0", (3,), "RACK", ()),
        BindInfo('odd "name"\\', (3,), "RACK", (GroupMemberPlacement((PodPlacement("n1", (3,), ("a b",)),)),)),
        BindInfo("n0", (3,), "RACK", (GroupMemberPlacement((PodPlacement("", (-1,), ("",)),)),)),
    ],
)
def test_record_is_read_as_it_was_written(info: BindInfo) -> None:
    assert read_bind_info(info.annotations()) == info
    assert read_bind_info({ANNOTATION_BIND_INFO: info.write() + "unknown: key\n"}) == info


def test_record_of_older_key_names_is_read() -> None:
    placement = "{physicalNode: n0, physicalGpuIndices: [4]}"
    members = f"affinityGroupBindInfo: [{{podPlacements: [{placement}]}}]"
    text = f"node: gpuType\ngpuIsolation: [4]\ncellChain: G\n{members}"
    info = read_bind_info({ANNOTATION_BIND_INFO: text})
    assert info == BindInfo("gpuType", (4,), "G", (GroupMemberPlacement((PodPlacement("n0", (4,), ("",)),)),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is missing or empty; the pod was not bound by this scheduler"),
        ("node: [n0", "is not valid YAML: line "),
        ("node: n0", "has no node or no leafCellIsolation; the record is incomplete"),
        ("node: n0\nleafCellIsolation: all", "leafCellIsolation must be a list, not a str"),
        ("node: n0\nleafCellIsolation: [x]", "leafCellIsolation must be a number of at most 32 bits, not 'x'"),
        (
            "affinityGroupBindInfo: [{podPlacements: [{physicalLeafCellIndices: [1], preassignedCellTypes: [a, b]}]}]",
            "preassignedCellTypes has 2 values for 1 physicalLeafCellIndices",
        ),
    ],
)
def test_unusable_record_is_named(text: str, message: str) -> None:
    with pytest.raises(PodTextError) as refused:
        read_bind_info({ANNOTATION_BIND_INFO: text})
    assert str(refused.value).startswith(f"annotation {ANNOTATION_BIND_INFO}: {message}")


GOOD = {"virtualCluster": "A", "leafCellNumber": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"virtualCluster": ""}, "virtualCluster is empty; name the virtual cluster that the pod belongs to"),
        ({"priority": -2}, "priority is -2; it must be between -1 and 1000"),
        ({"priority": 1001}, "priority is 1001; it must be between -1 and 1000"),
        ({"leafCellNumber": 0}, "leafCellNumber is 0; it must be at least 1"),
        ({"leafCellNumber": "1"}, "leafCellNumber must be a number of at most 32 bits, not '1'"),
        ({"lazyPreemptionEnable": "no way"}, "lazyPreemptionEnable must be true or false, not 'no way'"),
        ({"virtualCluster": ["A"]}, "virtualCluster must be a text, not a list"),
        ({"affinityGroup": {}}, "affinityGroup.name is empty; give the group a name, or omit affinityGroup"),
        ({"affinityGroup": "g"}, "affinityGroup must be a map, not a str"),
        (
            {"affinityGroup": {"name": "g", "members": [{"podNumber": 0, "leafCellNumber": 1}]}},
            "affinityGroup.members has podNumber 0; it must be at least 1",
        ),
        (
            {"affinityGroup": {"name": "g", "members": [{"podNumber": 1, "leafCellNumber": 0}]}},
            "affinityGroup.members has leafCellNumber 0; it must be at least 1",
        ),
        (
            {"affinityGroup": {"name": "g", "members": [{"podNumber": 2_000_000_000, "leafCellNumber": 1}]}},
            "affinityGroup.members ask for 2000000000 pods; a group has at most 100000",
        ),
        (
            {"affinityGroup": {"name": "g", "members": [{"podNumber": 1, "leafCellNumber": 2}]}},
            "affinityGroup.members has no member with this pod's leafCellNumber 1; add it",
        ),
    ],
)
def test_mistake_in_a_spec_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(PodTextError) as refused:
        read_pod_spec({ANNOTATION_SPEC: json.dumps(GOOD | change)}, "team", "a")
    assert str(refused.value) == f"annotation {ANNOTATION_SPEC}: {message}"
    assert refused.value.code == 400


@pytest.mark.parametrize("text", ["[" * 200_000, "{a: " * 60_000, "- " * 100_000])
def test_a_text_that_nests_deeply_is_refused_before_it_is_composed(text: str) -> None:
    with pytest.raises(PodTextError, match="is not valid YAML: line 1: nested deeper than 64 levels"):
        read_pod_spec({ANNOTATION_SPEC: text}, "team", "a")
    with pytest.raises(PodTextError, match="is not valid YAML: line 1: nested deeper than 64 levels"):
        read_bind_info({ANNOTATION_BIND_INFO: text})


def test_missing_spec_is_named() -> None:
    with pytest.raises(PodTextError, match="is missing or empty; write what the pod asks for"):
        read_pod_spec({}, "team", "a")


def test_pod_without_a_group_is_a_group_of_one() -> None:
    spec = read_pod_spec({ANNOTATION_SPEC: json.dumps(GOOD)}, "team", "a")
    assert (spec.group.name, [(each.pod_number, each.leaf_cell_number) for each in spec.group.members]) == (
        "team/a",
        [(1, 1)],
    )
    assert spec.ignore_suggested_nodes
    assert not spec.lazy_preemption


def test_members_of_equal_size_are_one() -> None:
    members = [
        {"podNumber": 2, "leafCellNumber": 1},
        {"podNumber": 1, "leafCellNumber": 4},
        {"podNumber": 3, "leafCellNumber": 1},
    ]
    spec = read_pod_spec(
        {ANNOTATION_SPEC: json.dumps(GOOD | {"affinityGroup": {"name": "g", "members": members}})}, "team", "a"
    )
    assert [(each.pod_number, each.leaf_cell_number) for each in spec.group.members] == [(5, 1), (1, 4)]
