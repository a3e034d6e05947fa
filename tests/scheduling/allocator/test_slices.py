"""ResourceSlices as they are read, the errors of broken ones, and how pools and devices are written."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.allocator.reading import FatalError, InvalidObject
from scheduling.allocator.slices import DeviceID, PoolID, ResourceSlice, SharedDeviceID, Taint, are_plain
from tests.making.slices import DRIVER, device, resource_slice


def broken(**fields: Any) -> dict[str, Any]:
    return resource_slice([{"name": "d", **fields}])


def test_slice_knows_its_place() -> None:
    made = ResourceSlice(resource_slice([device("d")], "one", pool={"generation": 3, "resourceSliceCount": 2}))
    assert (made.name, made.pool, made.generation, made.slice_count) == ("one", PoolID(DRIVER, "pool"), 3, 2)
    assert made.devices[0].id == DeviceID(DRIVER, "pool", "d")
    assert repr(made.devices[0]) == f"Device({DRIVER}/pool/d)"


def test_devices_are_in_the_order_of_the_slice() -> None:
    made = ResourceSlice(resource_slice([device("b"), device("a")]))
    assert [(each.name, each.path) for each in made.devices] == [("b", "spec.devices[0]"), ("a", "spec.devices[1]")]


def test_consumed_counters_of_one_set_add_up() -> None:
    entries = [
        {"counterSet": "a", "counters": {"x": {"value": "1"}, "y": {"value": "2"}}},
        {"counterSet": "a", "counters": {"x": {"value": "500m"}}},
        {"counterSet": "b", "counters": {"x": {"value": "7"}}},
    ]
    made = ResourceSlice(broken(consumesCounters=entries)).devices[0]
    assert made.consumed == {("a", "x"): 15 * 10**8, ("a", "y"): 2 * 10**9, ("b", "x"): 7 * 10**9}


def test_taints_are_read_in_order() -> None:
    made = ResourceSlice(broken(taints=[{"key": "b", "effect": "NoSchedule"}, {"key": "a", "value": "v"}])).devices[0]
    assert made.taints == (Taint("b", "", "NoSchedule"), Taint("a", "v", ""))


def test_binding_conditions_that_are_absent_are_not_those_that_are_empty() -> None:
    assert ResourceSlice(broken()).devices[0].binding_conditions is None
    assert ResourceSlice(broken(bindingConditions=[])).devices[0].binding_conditions == []


@pytest.mark.parametrize(
    ("fields", "node", "selected"),
    [
        ({"nodeName": "node-1"}, "node-1", True),
        ({"nodeName": "node-1"}, "node-2", False),
        ({"allNodes": True}, "node-2", True),
        ({"allNodes": False}, "node-2", False),
        (
            {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}},
            "n",
            True,
        ),
        ({"nodeSelector": {"nodeSelectorTerms": []}}, "n", False),
        ({"perDeviceNodeSelection": True}, "node-1", True),
        ({"perDeviceNodeSelection": True}, "node-3", False),
        ({"perDeviceNodeSelection": False}, "node-1", False),
    ],
)
def test_slice_is_for_the_nodes_that_it_or_its_devices_choose(
    fields: dict[str, Any], node: str, selected: bool
) -> None:
    devices = [device("d", nodeName="node-1"), device("e", nodeName="node-2"), device("f")]
    assert ResourceSlice(resource_slice(devices, **fields)).selects(node, {"a": ""}) is selected


def test_slice_that_says_nothing_about_nodes_is_for_none() -> None:
    made = resource_slice([device("d")])
    del made["spec"]["nodeName"]
    assert not ResourceSlice(made).selects("node-1", {})


def test_node_selector_that_cannot_be_read_is_fatal_and_names_its_place() -> None:
    terms = [{"matchExpressions": [{"key": "a", "operator": "Foo"}]}]
    made = ResourceSlice(resource_slice([], nodeSelector={"nodeSelectorTerms": terms}))
    with pytest.raises(FatalError) as caught:
        made.selects("node-1", {})
    assert str(caught.value) == (
        "ResourceSlice slice: spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator: "
        '"Foo" is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt'
    )


def spec(**fields: Any) -> dict[str, Any]:
    made = resource_slice([])
    made["spec"].update(fields)
    return made


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"metadata": {"name": "slice"}, "spec": []}, "spec: [] is not an object"),
        (spec(pool="p"), "spec.pool: 'p' is not an object"),
        (spec(driver=5), "spec.driver: 5 is not a string"),
        (spec(pool={"name": ["p"]}), "spec.pool.name: ['p'] is not a string"),
        (spec(pool={"generation": "1"}), "spec.pool.generation: '1' is not a whole number"),
        (spec(pool={"resourceSliceCount": 1.5}), "spec.pool.resourceSliceCount: 1.5 is not a whole number"),
        (spec(nodeName=5), "spec.nodeName: 5 is not a string"),
        (spec(nodeSelector="x"), "spec.nodeSelector: 'x' is not an object"),
        (spec(allNodes="yes"), "spec.allNodes: 'yes' is not true or false"),
        (spec(perDeviceNodeSelection=1), "spec.perDeviceNodeSelection: 1 is not true or false"),
    ],
)
def test_broken_slice_is_named_at_once(made: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        ResourceSlice(made)
    assert str(caught.value).startswith(f"ResourceSlice slice: {message}")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": None, "allowMultipleAllocations": 1}, "allowMultipleAllocations: 1 is not true or false"),
        ({"name": ["d"]}, "name: ['d'] is not a string"),
        ({"bindsToNode": "x"}, "bindsToNode: 'x' is not true or false"),
        ({"bindingConditions": "x"}, "bindingConditions: 'x' is not a list of strings"),
        ({"bindingConditions": [1]}, "bindingConditions[0]: 1 is not a string"),
        ({"bindingFailureConditions": {}}, "bindingFailureConditions: {} is not a list of strings"),
        ({"nodeName": []}, "nodeName: [] is not a string"),
        ({"allNodes": "no"}, "allNodes: 'no' is not true or false"),
    ],
)
def test_broken_device_is_named_when_devices_are_asked_for(fields: dict[str, Any], message: str) -> None:
    made = ResourceSlice(broken(**fields))
    with pytest.raises(InvalidObject) as caught:
        _ = made.devices
    assert str(caught.value).startswith(f"ResourceSlice slice: spec.devices[0].{message}")


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        ("attributes", {"attributes": ["a"]}, "attributes: ['a'] is not an object"),
        ("attributes", {"attributes": {"model": "A100"}}, "attributes[model]: 'A100' is not an object"),
        ("attributes", {"attributes": {5: {}}}, "attributes[5]: 5 is not a name"),
        ("attributes", {"attributes": {"a": {"int": "5"}}}, "attributes[a].int: '5' is not a value of type int"),
        ("attributes", {"attributes": {"a": {"int": True}}}, "attributes[a].int: True is not a value of type int"),
        ("attributes", {"attributes": {"a": {"bool": 1}}}, "attributes[a].bool: 1 is not a value of type bool"),
        ("attributes", {"attributes": {"a": {"string": ["x"]}}}, "attributes[a].string: ['x'] is not a value of type"),
        (
            "attributes",
            {"attributes": {"a": {"version": 1}}},
            "attributes[a].version: 1 is not a value of type",
        ),
        ("attributes", {"attributes": {"a": {"ints": 5}}}, "attributes[a].ints: 5 is not a list of values of type int"),
        (
            "attributes",
            {"attributes": {"a": {"strings": [1]}}},
            "attributes[a].strings: [1] is not a list of values",
        ),
        ("cel", {"attributes": {"a": {"strings": [[1]]}}}, "attributes[a].strings: [[1]] is not a list of values of"),
        ("cel", {"attributes": {"a": {"int": "5"}}}, "attributes[a].int: '5' is not a value of type int"),
        ("capacity", {"capacity": {"mem": "80Gi"}}, "capacity[mem]: '80Gi' is not an object"),
        ("capacity", {"capacity": {"mem": {"value": "80 GB"}}}, 'capacity[mem].value: "80 GB" is not a quantity'),
        ("capacity", {"capacity": {"mem": {"requestPolicy": 5}}}, "capacity[mem].requestPolicy: 5 is not an object"),
        (
            "capacity",
            {"capacity": {"mem": {"requestPolicy": {"validValues": "1"}}}},
            "capacity[mem].requestPolicy.validValues: '1' is not a list of quantities",
        ),
        (
            "capacity",
            {"capacity": {"mem": {"requestPolicy": {"validValues": ["1", "x"]}}}},
            'capacity[mem].requestPolicy.validValues[1]: "x" is not a quantity',
        ),
        (
            "capacity",
            {"capacity": {"mem": {"requestPolicy": {"validRange": {"step": {}}}}}},
            "capacity[mem].requestPolicy.validRange.step: {} is not a quantity",
        ),
        (
            "capacity",
            {"capacity": {"mem": {"requestPolicy": {"default": "x"}}}},
            'capacity[mem].requestPolicy.default: "x" is not a quantity',
        ),
        ("consumes", {"consumesCounters": {}}, "consumesCounters: {} is not a list"),
        ("consumes", {"consumesCounters": [{"counterSet": 1}]}, "consumesCounters[0].counterSet: 1 is not a string"),
        (
            "consumes",
            {"consumesCounters": [{"counters": {"x": "1"}}]},
            "consumesCounters[0].counters[x]: '1' is not an object",
        ),
        (
            "consumes",
            {"consumesCounters": [{"counters": {"x": {"value": "?"}}}]},
            'consumesCounters[0].counters[x].value: "?" is not a quantity',
        ),
        ("taints", {"taints": ["x"]}, "taints[0]: 'x' is not an object"),
        ("taints", {"taints": [{"key": 1}]}, "taints[0].key: 1 is not a string"),
    ],
)
def test_broken_part_of_a_device_is_named_when_it_is_asked_for(part: str, fields: dict[str, Any], message: str) -> None:
    made = ResourceSlice(broken(**fields)).devices[0]
    with pytest.raises(InvalidObject) as caught:
        getattr(made, part)
    assert str(caught.value).startswith(f"ResourceSlice slice: spec.devices[0].{message}")


def test_broken_counter_set_is_named() -> None:
    made = ResourceSlice(resource_slice([], sharedCounters=[{"name": "a", "counters": {"x": {"value": "x"}}}]))
    with pytest.raises(InvalidObject) as caught:
        _ = made.counter_sets
    assert str(caught.value).startswith('ResourceSlice slice: spec.sharedCounters[0].counters[x].value: "x" is no')


def test_fields_and_types_that_nobody_knows_are_let_through() -> None:
    made = ResourceSlice(broken(future=5, attributes={"a": {"future": [{}]}, "b": {"int": None}})).devices[0]
    assert made.attributes == {"a": {"future": [{}]}, "b": {"int": None}}


@pytest.mark.parametrize(
    ("attributes", "plain"),
    [
        ({"a": {"int": 1}, "b": {"string": "x"}, "c": {"bool": True}, "d": {"version": "1.0.0"}}, True),
        ({}, True),
        (None, False),
        ({"a": {"int": True}}, False),
        ({"a": {"ints": [1]}}, False),
        ({"a": 1}, False),
    ],
)
def test_attributes_of_single_values_are_seen_at_a_glance(attributes: object, plain: bool) -> None:
    assert are_plain(attributes) is plain


def test_compatibility_groups_are_noticed() -> None:
    groups = [{"counterSet": "a", "compatibilityGroups": ["x"]}]
    assert ResourceSlice(broken(consumesCounters=groups)).has_compatibility_groups
    assert not ResourceSlice(broken(consumesCounters=[{"counterSet": "a"}])).has_compatibility_groups
    assert not ResourceSlice(broken()).has_compatibility_groups


def test_pool_is_written_as_driver_and_pool() -> None:
    assert str(PoolID("gpu.example.com", "node-1")) == "gpu.example.com/node-1"


def test_device_is_written_as_driver_pool_and_device() -> None:
    assert str(DeviceID("gpu.example.com", "node-1", "gpu-0")) == "gpu.example.com/node-1/gpu-0"


def test_share_is_written_behind_its_device() -> None:
    device = DeviceID("gpu.example.com", "node-1", "gpu-0")
    assert str(SharedDeviceID(device, "share-1")) == "gpu.example.com/node-1/gpu-0/share-1"


def test_pools_of_two_drivers_differ_although_their_names_are_equal() -> None:
    assert PoolID("a.example.com", "node-1") != PoolID("b.example.com", "node-1")
