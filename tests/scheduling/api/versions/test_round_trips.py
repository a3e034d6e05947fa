"""What conversion owes: v1 through any version and back is v1, a second conversion changes nothing, input stays."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduling.api.versions import from_v1, to_v1, with_defaults

words = st.text(alphabet="abc", min_size=1, max_size=3)
devices = st.fixed_dictionaries(
    {"name": words},
    optional={
        "attributes": st.dictionaries(words, st.fixed_dictionaries({"int": st.integers()}), max_size=2),
        "capacity": st.dictionaries(words, st.just({"value": "1Gi"}), max_size=2),
        "nodeName": words,
        "allNodes": st.booleans(),
        "taints": st.just([{"key": "k", "effect": "None"}]),
        "later": st.integers(),
    },
)
slices = st.fixed_dictionaries(
    {"driver": words, "devices": st.lists(devices, max_size=3)},
    optional={"nodeName": words, "allNodes": st.just(True), "sharedCounters": st.just([])},
)
exact = st.fixed_dictionaries(
    {"deviceClassName": words},
    optional={
        "count": st.integers(0, 3),
        "allocationMode": st.sampled_from(["", "ExactCount", "All"]),
        "tolerations": st.just([{"key": "k"}]),
        "adminAccess": st.booleans(),
        "later": st.integers(),
    },
)
requests = st.one_of(
    st.fixed_dictionaries({"name": words, "exactly": exact}),
    st.fixed_dictionaries({"name": words, "firstAvailable": st.lists(exact, max_size=2)}),
    st.fixed_dictionaries({"name": words, "exactly": exact, "firstAvailable": st.lists(exact, max_size=2)}),
)
claims = st.fixed_dictionaries({"devices": st.fixed_dictionaries({"requests": st.lists(requests, max_size=3)})})
v1 = st.one_of(
    slices.map(lambda spec: {"kind": "ResourceSlice", "spec": spec}),
    claims.map(lambda spec: {"kind": "ResourceClaim", "spec": spec}),
    claims.map(lambda spec: {"kind": "ResourceClaimTemplate", "spec": {"spec": spec}}),
).map(lambda resource: {"apiVersion": "resource.k8s.io/v1", **resource})


@given(resource=v1)
def test_v1_survives_any_version_and_its_defaults_are_set_once_and_change_no_input(resource: Any) -> None:
    before = copy.deepcopy(resource)
    for version in ("v1beta1", "v1beta2", "v1"):
        there: Any = from_v1(resource, version)
        assert there["apiVersion"] == f"resource.k8s.io/{version}"
        assert to_v1(there) == resource == before
    once = with_defaults(resource)
    assert with_defaults(once) == once
    assert resource == before


@given(resources=st.lists(slices, max_size=3), version=st.sampled_from(["v1beta1", "v1beta2"]))
def test_list_is_converted_as_its_items_are(resources: Any, version: Any) -> None:
    single = [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": spec} for spec in resources]
    listed = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSliceList",
        "items": [{"spec": s} for s in resources],
    }
    converted: Any = from_v1(listed, version)
    assert [item["spec"] for item in converted["items"]] == [from_v1(entry, version)["spec"] for entry in single]
    assert to_v1(converted) == listed
