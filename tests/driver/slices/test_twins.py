from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.slices.wanted import slice_faults, without_twins
from scheduling.api.validation.objects import validate_slice
from scheduling.api.validation.shapes import Gates

Json = dict[str, Any]
EVERYTHING = Gates(list_attributes=True, node_allocatable_resources=True)

VALUES = st.one_of(
    st.builds(lambda number: {"int": number}, st.sampled_from([0, 1, 2**63 - 1, -(2**63), 2**63, True, "1"])),
    st.builds(lambda flag: {"bool": flag}, st.sampled_from([True, False, 1, None])),
    st.builds(lambda text: {"string": text}, st.sampled_from(["", "a", "x" * 64, "x" * 65, "é" * 32, "é" * 33])),
    st.builds(lambda text: {"version": text}, st.sampled_from(["1.2.3", "1.2.4", "1.2", ""])),
    st.builds(lambda numbers: {"ints": numbers}, st.sampled_from([[1], [], [1, 2]])),
    st.sampled_from([{}, {"int": 1, "bool": True}, None, 5, {"string": None}]),
)
AMOUNTS = st.sampled_from(
    [{"value": "1Gi"}, {"value": "1"}, {"value": "much"}, {}, {"value": 3}, {"value": True}, None]
)
NAMES = st.sampled_from(["a", "b", "x.example.com/a", "Bad-Name", "n" * 33])
DEVICES = st.fixed_dictionaries(
    {"name": st.sampled_from(["d0", "d1", "d2", "Bad", ""])},
    optional={
        "attributes": st.dictionaries(NAMES, VALUES, max_size=3),
        "capacity": st.dictionaries(NAMES, AMOUNTS, max_size=2),
        "taints": st.sampled_from([[], [{"key": "k", "effect": "NoSchedule"}], [{"key": "", "effect": "Never"}]]),
    },
)


def body(devices: list[Any]) -> Json:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "pool": pool, "allNodes": True, "devices": devices}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "00000-d-"},
        "spec": spec,
    }


@given(st.lists(st.one_of(DEVICES, st.none()), max_size=6))
def test_faults_are_those_of_the_whole(devices: list[Any]) -> None:
    made = body(devices)
    assert slice_faults(made) == validate_slice(made, None, EVERYTHING)


def test_of_many_devices_of_one_form_one_is_judged_whole() -> None:
    devices: list[Json] = [
        {"name": f"d{number}", "attributes": {"n": {"int": number}, "v": {"version": "1.0.0"}}} for number in range(9)
    ]
    devices[5]["attributes"]["v"] = {"version": "1.0.1"}
    spec: Any = without_twins(body(devices))["spec"]
    reduced = spec["devices"]
    assert [number for number, each in enumerate(reduced) if "attributes" in each] == [0, 5]
    assert [each["name"] for each in reduced] == [each["name"] for each in devices]


def test_devices_with_more_are_judged_whole() -> None:
    tainted = [{"name": f"d{number}", "taints": [{"key": "k", "effect": "NoSchedule"}]} for number in range(65)]
    assert without_twins(body(tainted)) == body(tainted)
    assert [str(fault) for fault in slice_faults(body(tainted))] == [
        "spec.devices: has 65 entries, at most 64 are allowed"
    ]


@pytest.mark.parametrize("text", ["x" * 65, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 33, True])
def test_a_text_that_may_be_too_long_is_no_twin_of_a_short_one(text: object) -> None:
    devices = [{"name": f"d{number}", "attributes": {"a": {"string": each}}} for number, each in enumerate(["a", text])]
    (fault,) = slice_faults(body(devices))
    assert str(fault).startswith("spec.devices[1].attributes[a]")
