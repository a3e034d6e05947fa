"""Pools as one node sees them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.allocator.pools import Features, ResourcePool, SliceIndex, gather_pools
from scheduling.allocator.reading import FatalError, InvalidObject
from tests.making.slices import Json, device, resource_slice, values
from tests.scheduling.allocator.manifests import NODE

COUNTERS = [{"name": "set", "counters": values({"x": 1})}]


def gathered(*given_slices: Json, features: Features = Features()) -> list[ResourcePool]:  # noqa: B008 - a frozen value
    return gather_pools(NODE, given_slices, features)


def only(*given_slices: Json, **kwargs: Any) -> ResourcePool:
    (pool,) = gathered(*given_slices, **kwargs)
    return pool


def of(count: int, generation: int = 1, name: str = "pool") -> Json:
    return {"name": name, "generation": generation, "resourceSliceCount": count}


def names(pool: ResourcePool) -> list[str]:
    return [each.name for each in pool.devices]


def test_pool_is_complete_when_all_its_slices_are_there() -> None:
    one, two = (resource_slice([device(each)], each, pool=of(2)) for each in ("a", "b"))
    pool = only(two, one)
    assert pool.usable
    assert (str(pool.id), names(pool), pool.present, pool.expected) == ("gpu.example.com/pool", ["a", "b"], 2, 2)


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_pool_with_too_few_or_too_many_slices_is_incomplete_and_has_none(expected: int) -> None:
    pool = only(*(resource_slice([device(each)], each, pool=of(expected)) for each in ("a", "b")))
    assert (pool.is_incomplete, pool.usable, pool.slices) == (True, False, ())
    assert (pool.present, pool.expected) == (2, expected)


def test_slices_for_other_nodes_count_for_completeness_and_are_kept_beside() -> None:
    mine = resource_slice([device("a")], "a", pool=of(2))
    other = resource_slice([device("b")], "b", pool=of(2), nodeName="node-2")
    pool = only(mine, other)
    assert pool.usable
    assert (names(pool), [each.name for each in pool.elsewhere]) == (["a"], ["b"])


def test_newest_generation_on_the_node_counts() -> None:
    old = resource_slice([device("old")], "a", pool=of(1, 1))
    new = resource_slice([device("new")], "b", pool=of(1, 2))
    assert names(only(old, new)) == names(only(new, old)) == ["new"]


def test_incomplete_pool_with_a_newer_generation_elsewhere_is_left_out() -> None:
    mine = resource_slice([device("a")], "a", pool=of(2, 1))
    other = resource_slice([device("b")], "b", pool=of(2, 2), nodeName="node-2")
    assert gathered(mine, other) == []


def test_complete_old_generation_is_used_although_a_newer_one_is_elsewhere() -> None:
    mine = resource_slice([device("a")], "a", pool=of(1, 1))
    other = resource_slice([device("b")], "b", pool=of(1, 2), nodeName="node-2")
    assert names(only(mine, other)) == ["a"]


def test_pools_of_two_drivers_are_two_although_their_names_are_equal() -> None:
    one = resource_slice([device("a")], "a")
    two = resource_slice([device("b")], "b", driver="nic.example.com")
    assert [str(pool.id) for pool in gathered(two, one)] == ["gpu.example.com/pool", "nic.example.com/pool"]


@pytest.mark.parametrize(
    ("given_slices", "reason"),
    [
        (
            [resource_slice([device("d")], each, pool=of(2)) for each in ("a", "b")],
            "device d is in slice a and in slice b",
        ),
        (
            [resource_slice([], each, pool=of(2), sharedCounters=COUNTERS) for each in ("b", "a")],
            "counter set set is declared twice, the second time in slice b",
        ),
        (
            [resource_slice([device("d", counters={"nosuch": {"x": 1}})])],
            "device d consumes counter set nosuch, which no slice declares",
        ),
        (
            [
                resource_slice([device("d", counters={"set": {"y": 1}})], "a", pool=of(2)),
                resource_slice([], "b", pool=of(2), sharedCounters=COUNTERS),
            ],
            "device d consumes counter y, which counter set set does not have",
        ),
        (
            [
                resource_slice([device("a")], "a", pool=of(2)),
                resource_slice([device("d", counters={"set": {"x": 1}})], "b", pool=of(2), nodeName="node-2"),
            ],
            "device d consumes counter set set, which no slice declares",
        ),
    ],
)
def test_broken_pool_is_invalid_has_no_slices_and_says_why(given_slices: list[Json], reason: str) -> None:
    pool = only(*given_slices)
    assert (pool.is_invalid, pool.usable, pool.slices) == (True, False, ())
    assert pool.invalid_reason == reason


def test_one_name_on_two_nodes_is_no_duplicate() -> None:
    mine = resource_slice([device("d")], "a", pool=of(2))
    other = resource_slice([device("d")], "b", pool=of(2), nodeName="node-2")
    assert only(mine, other).usable


def test_counter_sets_of_all_slices_belong_to_the_pool() -> None:
    mine = resource_slice([device("d", counters={"set": {"x": 1}})], "a", pool=of(2))
    counters = resource_slice([], "b", pool=of(2), nodeName="node-2", sharedCounters=COUNTERS)
    assert only(mine, counters).counter_sets == {"set": {"x": 10**9}}


def test_pools_come_by_driver_and_name_and_those_with_binding_conditions_last() -> None:
    plain = [resource_slice([device("d")], each, pool=of(1, name=each)) for each in ("c", "b")]
    bound = resource_slice([device("d", bindingConditions=["x"])], "a", pool=of(1, name="a"))
    assert [pool.id.pool for pool in gathered(bound, *plain)] == ["b", "c", "a"]


@given(st.permutations(("a", "b", "c", "d")))
def test_order_of_slices_does_not_matter(order: list[str]) -> None:
    made = [resource_slice([device(f"{each}1"), device(f"{each}0")], each, pool=of(4)) for each in order]
    assert names(only(*made)) == ["a1", "a0", "b1", "b0", "c1", "c0", "d1", "d0"]


def test_slices_that_need_partitionable_devices_are_left_out_while_the_feature_is_off() -> None:
    off = Features(partitionable_devices=False)
    per_device = resource_slice([device("d", nodeName="node-1")], "a", perDeviceNodeSelection=True)
    assert gathered(per_device, features=off) == []
    counters = resource_slice([], "b", pool=of(2), sharedCounters=COUNTERS)
    assert names(only(resource_slice([device("d")], "a", pool=of(2)), counters, features=off)) == ["d"]


def test_slices_with_compatibility_groups_are_left_out() -> None:
    groups = [{"counterSet": "set", "compatibilityGroups": ["x"], "counters": {}}]
    assert gathered(resource_slice([device("d", consumesCounters=groups)])) == []


def test_selector_that_cannot_be_read_is_fatal_although_the_slice_is_for_another_node() -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Foo"}]}]}
    with pytest.raises(FatalError, match='"Foo" is not one of'):
        gathered(resource_slice([device("d")]), resource_slice([], "b", nodeSelector=selector))


def test_index_serves_all_nodes_and_builds_a_shared_pool_once() -> None:
    made = resource_slice([device("d")], allNodes=True)
    index = SliceIndex([made])
    one, other = (gather_pools({"metadata": {"name": each}}, index)[0] for each in ("node-1", "node-2"))
    assert one is other


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"metadata": []}, "Node : metadata: [] is not an object"),
        ({"metadata": {"name": "n", "labels": ["a"]}}, "Node n: metadata.labels: ['a'] is not an object"),
        ({"metadata": {"name": "n", "labels": {"a": 1}}}, "Node n: metadata.labels[a]: 1 is not a string (in quotes)"),
        ("node-1", "Node : 'node-1' is not an object"),
    ],
)
def test_broken_node_is_named(node: Any, message: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        gather_pools(node, [])
    assert str(caught.value) == message
