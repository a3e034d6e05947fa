"""What an allocation says: its devices, shares, conditions, tolerations and configurations."""

from __future__ import annotations

import pytest

from scheduling.allocator.reading import InvalidObject
from tests.making.claims import claim, exactly, first_available, request
from tests.making.slices import Json, device, slices
from tests.scheduling.allocator.manifests import allocate


def opaque(mode: str, *requests: str) -> Json:
    made: Json = {"opaque": {"driver": "gpu.example.com", "parameters": {"mode": mode}}}
    return {**made, "requests": list(requests)} if requests else made


ONE = slices([device("d0"), device("d1"), device("d2")])


def configuration(wanted: Json, classes: dict[str, Json] | None = None) -> list[tuple[str, str, list[str] | None]]:
    """Source, mode and requests of each entry."""
    entries = allocate(wanted, ONE, classes)["devices"].get("config", [])
    return [(each["source"], each["opaque"]["parameters"]["mode"], each.get("requests")) for each in entries]


def test_result_names_request_and_device() -> None:
    assert allocate(claim([request("r")]), ONE)["devices"]["results"] == [
        {"request": "r", "driver": "gpu.example.com", "pool": "pool", "device": "d0"}
    ]


def test_alternative_is_named_behind_its_request() -> None:
    result = allocate(claim([first_available("r", exactly(4), exactly(2))]), ONE)
    assert [each["request"] for each in result["devices"]["results"]] == ["r/s1", "r/s1"]


def test_result_has_tolerations_and_conditions() -> None:
    tolerations = [{"key": "k", "operator": "Exists"}]
    bound = device("d", bindingConditions=["a"], bindingFailureConditions=["b"])
    (entry,) = allocate(claim([request("r", tolerations=tolerations)]), slices([bound]))["devices"]["results"]
    assert entry["tolerations"] == tolerations
    assert (entry["bindingConditions"], entry["bindingFailureConditions"]) == (["a"], ["b"])


def test_admin_access_is_said_only_where_it_is_true() -> None:
    for value in (True, False):
        (entry,) = allocate(claim([request("r", adminAccess=value)]), ONE)["devices"]["results"]
        assert entry.get("adminAccess") is (True if value else None)


def test_each_share_has_an_id_and_says_all_that_it_consumes() -> None:
    shared = slices([device("d", capacity={"mem": "4Gi", "cores": 0}, shared=True)])
    share = {"capacity": {"requests": {"mem": "1Gi"}}}
    entries = allocate(claim([request("a", **share), request("b", **share)]), shared)["devices"]["results"]
    assert [each["shareID"] for each in entries] == ["share-0", "share-1"]
    assert [each["consumedCapacity"] for each in entries] == [{"mem": "1Gi", "cores": "0"}] * 2


def test_shared_device_without_capacity_has_a_share_that_consumes_nothing() -> None:
    (entry,) = allocate(claim([request("a")]), slices([device("d", shared=True)]))["devices"]["results"]
    assert entry["shareID"] == "share-0"
    assert "consumedCapacity" not in entry


def test_claim_without_requests_has_an_empty_result() -> None:
    assert allocate(claim([]), ONE) == {"devices": {}}


def test_configuration_of_a_request_names_it_and_that_of_all_requests_names_none() -> None:
    wanted = claim([request("a"), request("b")], config=[opaque("x", "a"), opaque("y"), opaque("z", "b", "a")])
    assert configuration(wanted) == [("FromClaim", "x", ["a"]), ("FromClaim", "y", None), ("FromClaim", "z", None)]


def test_configuration_of_classes_comes_first_each_once() -> None:
    classes = {name: {"metadata": {"name": name}, "spec": {"config": [opaque(name)]}} for name in ("any", "big")}
    wanted = [request("a"), request("b", deviceClassName="big"), request("c")]
    assert configuration(claim(wanted, config=[opaque("x", "b")]), classes) == [
        ("FromClass", "any", ["a", "c"]),
        ("FromClass", "big", ["b"]),
        ("FromClaim", "x", ["b"]),
    ]


def test_configuration_of_alternatives_that_are_not_taken_is_left_out() -> None:
    config = [opaque("large", "r/s0"), opaque("small", "r/s1"), opaque("any", "r"), opaque("other", "nosuch")]
    wanted = claim([first_available("r", exactly(4), exactly(1)), request("q")], config=config)
    assert configuration(wanted) == [("FromClaim", "small", ["r/s1"]), ("FromClaim", "any", ["r"])]


def test_source_and_requests_cannot_be_forged() -> None:
    forged = {**opaque("x"), "source": "FromClaim", "requests": ["q"]}
    classes = {"any": {"metadata": {"name": "any"}, "spec": {"config": [forged]}}}
    assert configuration(claim([request("r")]), classes) == [("FromClass", "x", None)]
    wanted = claim([request("r")], config=[{**opaque("x"), "source": "FromClass"}])
    assert configuration(wanted) == [("FromClaim", "x", None)]


def test_broken_configuration_is_named() -> None:
    with pytest.raises(InvalidObject) as caught:
        allocate(claim([request("r")], config=[{"requests": "r"}]), ONE)
    assert str(caught.value) == (
        "ResourceClaim team/claim: spec.devices.config[0].requests: 'r' is not a list of strings"
    )
