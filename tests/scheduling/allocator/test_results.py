"""What is written to a claim's status: results, configuration, node selector."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import Features
from scheduling.allocator.reading import FatalError, InvalidObject
from tests.making.claims import CLASSES, claim, exactly, first_available, request
from tests.making.slices import Json, device, resource_slice, slices
from tests.scheduling.allocator.manifests import NODE


def allocate(
    wanted: Json,
    given_slices: list[Json],
    classes: dict[str, Json] | None = None,
    features: Features = Features(),  # noqa: B008 - a frozen value
) -> Json:
    """The one result."""
    shares = iter(f"share-{each}" for each in range(9))
    made = Allocator(
        [wanted], AllocatedState(), classes or CLASSES, given_slices, features, new_share=lambda: next(shares)
    )
    results = made.allocate(NODE)
    assert results is not None
    return results[0]


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


def selector_of(*given_slices: Json, wanted: Json | None = None) -> Any:
    made = wanted or claim([request(f"r{each}") for each in range(len(given_slices))])
    return allocate(made, list(given_slices)).get("nodeSelector")


def exists(key: str) -> Json:
    return {"key": key, "operator": "DoesNotExist"}


def selected(*expressions: Json, name: str = "slice", **term: Any) -> Json:
    terms = [{"matchExpressions": list(expressions), **term}]
    return resource_slice([device("d")], name, nodeSelector={"nodeSelectorTerms": terms}, pool={"name": name})


THIS_NODE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}


def test_device_of_a_node_binds_the_allocation_to_it() -> None:
    assert selector_of(resource_slice([device("d")])) == THIS_NODE


def test_device_for_all_nodes_binds_to_none() -> None:
    assert selector_of(resource_slice([device("d")], allNodes=True)) is None


def test_device_may_bind_to_the_node_wherever_it_is() -> None:
    assert selector_of(resource_slice([device("d", bindsToNode=True)], allNodes=True)) == THIS_NODE


def test_selectors_of_all_slices_become_one_term_that_says_nothing_twice() -> None:
    same = {"key": "x", "operator": "NotIn", "values": ["1", "2"]}
    turned = {**same, "values": ["2", "1"]}
    found = selector_of(selected(exists("a"), same, name="p"), selected(turned, exists("b"), exists("a"), name="q"))
    assert found == {"nodeSelectorTerms": [{"matchExpressions": [exists("a"), same, exists("b")]}]}


def test_fields_are_kept_apart_from_labels() -> None:
    field = {"key": "metadata.name", "operator": "NotIn", "values": ["node-2"]}
    found = selector_of(selected(exists("a"), matchFields=[field]))
    assert found == {"nodeSelectorTerms": [{"matchExpressions": [exists("a")], "matchFields": [field]}]}


def test_node_of_one_device_goes_before_selectors_of_others() -> None:
    assert selector_of(selected(exists("a"), name="p"), resource_slice([device("d")], "q", pool={"name": "q"})) == (
        THIS_NODE
    )


def test_device_that_chooses_nodes_itself_counts_instead_of_its_slice() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [exists("a")]}]}
    per_device = resource_slice([device("d", nodeSelector=terms)], perDeviceNodeSelection=True)
    assert selector_of(per_device) == terms
    assert selector_of(resource_slice([device("d", nodeName="node-1")], perDeviceNodeSelection=True)) == THIS_NODE
    assert selector_of(resource_slice([device("d", allNodes=True)], perDeviceNodeSelection=True)) is None


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (lambda terms: resource_slice([device("d")], nodeSelector=terms), "spec"),
        (
            lambda terms: resource_slice([device("d", nodeSelector=terms)], perDeviceNodeSelection=True),
            "spec.devices[0]",
        ),
    ],
)
def test_selector_of_several_terms_cannot_be_bound_to(made: Any, path: str) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [exists("a")]}, {"matchExpressions": [exists("b")]}]}
    with pytest.raises(FatalError) as caught:
        selector_of(made(terms))
    assert str(caught.value) == (
        f"ResourceSlice slice: {path}.nodeSelector.nodeSelectorTerms: "
        "2 terms, but an allocation can only be bound to one"
    )
