from __future__ import annotations

import copy
from typing import Any

import pytest

from scheduling.api.versions import VersionError, from_v1, to_v1, with_defaults

SLICE_V1BETA1 = {
    "apiVersion": "resource.k8s.io/v1beta1",
    "kind": "ResourceSlice",
    "metadata": {"name": "n1-gpu", "ownerReferences": [{"kind": "Node"}]},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "allNodes": False,
        "devices": [
            {
                "name": "gpu-0",
                "basic": {
                    "attributes": {"model": {"string": "H200"}},
                    "capacity": {"memory": {"value": "141Gi"}},
                    "taints": [{"key": "k", "effect": "NoSchedule"}],
                },
            },
            {"name": "gpu-1"},
        ],
    },
}

SLICE_V1 = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "n1-gpu", "ownerReferences": [{"kind": "Node"}]},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"model": {"string": "H200"}},
                "capacity": {"memory": {"value": "141Gi"}},
                "taints": [{"key": "k", "effect": "NoSchedule"}],
            },
            {"name": "gpu-1"},
        ],
    },
}

CLAIM_V1BETA1 = {
    "apiVersion": "resource.k8s.io/v1beta1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "a", "deviceClassName": "gpu.example.com", "count": 2, "adminAccess": False},
                {
                    "name": "b",
                    "deviceClassName": "",
                    "firstAvailable": [{"name": "s", "deviceClassName": "gpu.example.com"}],
                },
            ],
            "constraints": [{"matchAttribute": "gpu.example.com/numa"}],
        }
    },
    "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]},
}

CLAIM_V1 = {
    **CLAIM_V1BETA1,
    "apiVersion": "resource.k8s.io/v1",
    "spec": {
        "devices": {
            "requests": [
                {"name": "a", "exactly": {"deviceClassName": "gpu.example.com", "count": 2, "adminAccess": False}},
                {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "gpu.example.com"}]},
            ],
            "constraints": [{"matchAttribute": "gpu.example.com/numa"}],
        }
    },
}


def of(kind: str, version: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, **fields}


def requests_of(claim: Any) -> Any:
    return claim["spec"]["devices"]["requests"]


def claim_of(version: str, *requests: Any) -> dict[str, Any]:
    return of("ResourceClaim", version, spec={"devices": {"requests": list(requests)}})


def test_slice_of_v1beta1_loses_basic_and_the_empty_words_for_unset() -> None:
    before = copy.deepcopy(SLICE_V1BETA1)
    assert to_v1(SLICE_V1BETA1) == SLICE_V1
    assert before == SLICE_V1BETA1


def test_slice_to_v1beta1_has_basic_in_every_device() -> None:
    converted: Any = from_v1(SLICE_V1, "v1beta1")
    assert converted["spec"]["devices"][1] == {"name": "gpu-1", "basic": {}}
    assert to_v1(converted) == SLICE_V1


def test_slice_of_v1beta2_has_the_shape_of_v1() -> None:
    assert to_v1({**SLICE_V1, "apiVersion": "resource.k8s.io/v1beta2"}) == SLICE_V1
    assert from_v1(SLICE_V1, "v1beta2") == {**SLICE_V1, "apiVersion": "resource.k8s.io/v1beta2"}


def test_slice_of_1_31_has_bare_quantities_as_capacity() -> None:
    device = {"name": "gpu-0", "basic": {"capacity": {"memory": "141Gi"}, "attributes": {"numa": {"int": 1}}}}
    old = of("ResourceSlice", "v1alpha3", spec={"nodeName": "n1", "devices": [device]})
    assert to_v1(old)["spec"]["devices"] == [
        {"name": "gpu-0", "capacity": {"memory": {"value": "141Gi"}}, "attributes": {"numa": {"int": 1}}}
    ]


def test_claim_of_v1beta1_gets_exactly_around_the_fields_of_a_request() -> None:
    before = copy.deepcopy(CLAIM_V1BETA1)
    assert to_v1(CLAIM_V1BETA1) == CLAIM_V1
    assert from_v1(CLAIM_V1, "v1beta1") == CLAIM_V1BETA1
    assert before == CLAIM_V1BETA1


@pytest.mark.parametrize("empty", [{"count": 0}, {"deviceClassName": ""}, {"selectors": None}, {}])
def test_request_of_v1beta1_without_content_gets_no_exactly(empty: Any) -> None:
    assert requests_of(to_v1(claim_of("v1beta1", {"name": "a", **empty}))) == [{"name": "a"}]


@pytest.mark.parametrize("content", [{"selectors": []}, {"adminAccess": False}, {"capacity": {}}, {"count": 1}])
def test_request_of_v1beta1_with_any_field_gets_exactly(content: Any) -> None:
    assert requests_of(to_v1(claim_of("v1beta1", {"name": "a", **content}))) == [{"name": "a", "exactly": content}]


def test_template_is_converted_inside() -> None:
    template = of("ResourceClaimTemplate", "v1beta1", spec={"spec": CLAIM_V1BETA1["spec"], "metadata": {"labels": {}}})
    assert to_v1(template)["spec"] == {"spec": CLAIM_V1["spec"], "metadata": {"labels": {}}}
    assert from_v1(to_v1(template), "v1beta1") == template


def test_class_changes_only_its_version() -> None:
    spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/gpu"}
    assert to_v1(of("DeviceClass", "v1beta1", spec=spec)) == of("DeviceClass", "v1", spec=spec)


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta2"])
def test_taint_rule_changes_only_its_version(version: Any) -> None:
    spec = {"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "NoExecute"}}
    assert to_v1(of("DeviceTaintRule", version, spec=spec)) == of("DeviceTaintRule", "v1", spec=spec)
    assert from_v1(of("DeviceTaintRule", "v1", spec=spec), version) == of("DeviceTaintRule", version, spec=spec)


def test_items_of_a_list_need_no_version_of_their_own() -> None:
    items = [{"metadata": {"name": "x"}, "spec": SLICE_V1BETA1["spec"]}]
    assert to_v1(of("ResourceSliceList", "v1beta1", items=items)) == of(
        "ResourceSliceList", "v1", items=[{"metadata": {"name": "x"}, "spec": SLICE_V1["spec"]}]
    )


def test_items_of_a_list_with_a_version_are_converted_by_it() -> None:
    mixed = of("ResourceSliceList", "v1beta1", items=[SLICE_V1BETA1, SLICE_V1])
    assert to_v1(mixed)["items"] == [SLICE_V1, SLICE_V1]


def test_unknown_fields_keep_a_place() -> None:
    device = {"name": "d", "unknown": 1, "basic": {"later": 2}}
    old = of("ResourceSlice", "v1beta1", extra=3, spec={"more": 4, "devices": [device]})
    assert to_v1(old) == of(
        "ResourceSlice", "v1", extra=3, spec={"more": 4, "devices": [{"name": "d", "unknown": 1, "later": 2}]}
    )
    assert requests_of(to_v1(claim_of("v1beta1", {"name": "a", "later": 1}))) == [{"name": "a", "later": 1}]
    exactly = {"deviceClassName": "c", "later": 1}
    assert requests_of(to_v1(claim_of("v1beta1", {"name": "a", **exactly}))) == [{"name": "a", "exactly": exactly}]


def test_fields_of_another_version_are_dropped_as_the_server_drops_them() -> None:
    old = of("ResourceSlice", "v1beta1", spec={"devices": [{"name": "d", "attributes": {"a": {"int": 1}}}]})
    assert to_v1(old)["spec"]["devices"] == [{"name": "d"}]
    assert requests_of(to_v1(claim_of("v1beta1", {"name": "a", "exactly": {"count": 2}}))) == [{"name": "a"}]
    [request] = requests_of(from_v1(claim_of("v1", {"name": "a", "count": 2}), "v1beta1"))
    assert request == {"name": "a", "deviceClassName": ""}


@pytest.mark.parametrize("spec", [None, "text", {"devices": "text"}, {"devices": ["text", None, {"basic": 1}]}])
def test_parts_of_a_wrong_type_do_not_disturb(spec: Any) -> None:
    assert to_v1(of("ResourceSlice", "v1beta1", spec=spec))["kind"] == "ResourceSlice"


def test_defaults_of_a_claim() -> None:
    toleration = {"key": "k"}
    claim = claim_of(
        "v1",
        {"name": "a", "exactly": {"deviceClassName": "c", "tolerations": [toleration]}},
        {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
        {"name": "c", "firstAvailable": [{"name": "s", "deviceClassName": "c", "count": 3}]},
    )
    before = copy.deepcopy(claim)
    assert requests_of(with_defaults(claim)) == [
        {
            "name": "a",
            "exactly": {
                "deviceClassName": "c",
                "tolerations": [{"key": "k", "operator": "Equal"}],
                "allocationMode": "ExactCount",
                "count": 1,
            },
        },
        {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
        {
            "name": "c",
            "firstAvailable": [{"name": "s", "deviceClassName": "c", "count": 3, "allocationMode": "ExactCount"}],
        },
    ]
    assert claim == before


def test_defaults_of_a_slice_take_the_time_they_are_given() -> None:
    mapping = {"cpu": {"capacityKey": "cores"}}
    device = {"name": "d", "taints": [{"key": "k", "effect": "None"}], "nodeAllocatableResourceMappings": mapping}
    slice_ = of("ResourceSlice", "v1", spec={"devices": [device]})
    [plain] = with_defaults(slice_)["spec"]["devices"]
    assert plain["taints"] == device["taints"]
    assert plain["nodeAllocatableResourceMappings"]["cpu"]["allocationMultiplier"] == "1"
    [timed] = with_defaults(slice_, now="2026-01-01T00:00:00Z")["spec"]["devices"]
    assert timed["taints"] == [{"key": "k", "effect": "None", "timeAdded": "2026-01-01T00:00:00Z"}]


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (of("Pod", "v1"), "kind 'Pod' in version 'resource.k8s.io/v1'.*must be one of ResourceSlice, ResourceClaim"),
        ({"apiVersion": "v1", "kind": "ResourceSlice"}, "of resource.k8s.io"),
        (of("ResourceClaim", "v1alpha3"), "write one of v1, v1beta2, v1beta1"),
        (of("DeviceTaintRule", "v1beta1"), "write one of v1, v1beta2, v1alpha3"),
        ({"kind": "ResourceSlice"}, "must have a string as apiVersion"),
        ({"apiVersion": "resource.k8s.io/v1"}, "must have a string as kind"),
        (["x"], "must be a mapping, this is list"),
    ],
)
def test_what_cannot_be_converted_is_named_with_what_is_possible(resource: Any, text: Any) -> None:
    with pytest.raises(VersionError, match=text):
        to_v1(resource)


def test_only_served_versions_are_written() -> None:
    with pytest.raises(VersionError, match=r"'v1alpha3'.*write one of v1, v1beta2, v1beta1"):
        from_v1(SLICE_V1, "v1alpha3")
    with pytest.raises(VersionError, match="convert it to v1 first"):
        from_v1(SLICE_V1BETA1, "v1beta2")
    with pytest.raises(VersionError, match="defaults are set on v1; convert it to v1 first"):
        with_defaults(SLICE_V1BETA1)


def test_item_of_a_list_that_has_a_name_of_its_own_goes_by_it() -> None:
    def listed(*items: Any) -> dict[str, Any]:
        return {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSliceList", "items": list(items)}

    old = {"spec": {"devices": [{"name": "d", "basic": {"allNodes": True}}]}}
    new = {"spec": {"devices": [{"name": "d", "allNodes": True}]}}
    bare, kind, version, null = to_v1(
        listed(
            old, {"kind": "ResourceSlice", **old}, {"apiVersion": "resource.k8s.io/v1", **new}, {"kind": None, **old}
        )
    )["items"]
    assert bare == new
    named = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **new}
    assert kind == version == named
    assert null == {"kind": None, **new}
    with pytest.raises(VersionError, match=r"kind 'Pod' in version 'resource\.k8s\.io/v1beta1'"):
        to_v1(listed({"kind": "Pod"}))
    with pytest.raises(VersionError, match="only v1 is converted"):
        from_v1(of("ResourceSliceList", "v1", items=[{"apiVersion": "resource.k8s.io/v1beta2"}]), "v1beta1")


def test_device_parts_of_a_wrong_type_are_left_for_the_rules() -> None:
    devices = [{"name": "a", "basic": "x"}, {"name": "b", "basic": None}, {"name": "c", "basic": {"name": "z"}}, "d"]
    for version in ("v1beta1", "v1alpha3"):
        slice_ = of("ResourceSlice", version, spec={"devices": devices, "nodeName": 0, "allNodes": 0})
        spec = to_v1(slice_)["spec"]
        assert spec == {"devices": ["x", {"name": "b"}, {"name": "c"}, "d"], "nodeName": 0, "allNodes": 0}


def test_error_shows_no_more_than_a_line() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for resource in (
        {"kind": deep},
        {"kind": "x" * 10**6, "apiVersion": "y" * 10**6},
        {"kind": "K", "apiVersion": deep},
    ):
        with pytest.raises(VersionError) as caught:
            to_v1(resource)
        assert len(str(caught.value)) < 500
