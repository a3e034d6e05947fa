"""The node selector of an allocation: that of the slices of its devices, as few terms as say it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.allocator.reading import FatalError
from tests.making.claims import claim, request
from tests.making.slices import Json, device, resource_slice
from tests.scheduling.allocator.manifests import allocate


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
