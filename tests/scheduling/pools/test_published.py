"""Pools of a cluster: what is free, taken, shared, tainted, blocked or unusable, and the names things have in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduling.pools.capacity import DeviceName
from scheduling.pools.matching import MatchingError
from scheduling.pools.publication import published_pools
from scheduling.pools.published import PooledState, PublishedPool, ledger_of
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.search import PoolSearch, PoolSolution
from tests.making.clusters import (
    GPU,
    GPU_CLASS,
    NIC,
    device,
    device_class,
    gpus,
    holder,
    node,
    request,
    resource_slice,
)
from tests.making.clusters import claim as v1_claim
from tests.making.pool_documents import claim, class_

Json = dict[str, Any]
MEMORY = {"memory": {"value": "80Gi"}}


def the_pool(*slices: Json, claims: Sequence[Json] = (), nodes: Sequence[Json] = ()) -> PublishedPool:
    (found,) = published_pools(slices, claims, nodes)
    return found


def states(pool: PublishedPool) -> dict[str, str]:
    return {each.name: each.state.value for each in pool.devices}


def shares(pool: str, name: str, **amounts: str) -> Json:
    """A claim with one share of a device."""
    result = {"request": "gpu", "driver": GPU, "pool": pool, "device": name, "shareID": f"share-of-{name}"}
    status = {"allocation": {"devices": {"results": [{**result, "consumedCapacity": amounts}]}}}
    return {**v1_claim(request(), name="part"), "status": status}


def partitioned() -> list[Json]:
    """A pool with one GPU that is whole or in two halves."""

    def takes(amount: str) -> Json:
        counters = {"memory": {"value": amount}}
        return {"consumesCounters": [{"counterSet": "gpu-0", "counters": counters}]}

    sets = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    two = {"resourceSliceCount": 2}
    devices = [device("whole", more=takes("80Gi")), *(device(f"half-{each}", more=takes("40Gi")) for each in "01")]
    return [
        resource_slice("node-1", devices, pool=two),
        resource_slice("node-1", [], pool=two, name="counters", sharedCounters=sets),
    ]


def solve(pools: Sequence[PublishedPool], *needs: Json, classes: Sequence[Json] = (GPU_CLASS,)) -> PoolSolution | None:
    known = ClusterClasses(classes, pools)
    search = PoolSearch(ledger_of(pools), eligible=known.is_eligible)
    return search.run([claim(*needs)], known.documents)


def chosen(found: PoolSolution | None) -> list[DeviceName]:
    assert found is not None
    return [one.device.name for need in found.needs for one in need.devices]


def test_free_and_taken() -> None:
    found = the_pool(resource_slice("node-1", gpus(3)), claims=[holder("node-1", "gpu-1", pods=["train-0"])])
    assert (found.node, found.nodes, found.driver, found.name) == ("node-1", ("node-1",), GPU, "node-1")
    assert states(found) == {"gpu-0": "free", "gpu-1": "taken", "gpu-2": "free"}
    (user,) = found.devices[1].users
    assert (user.claim, user.pods, user.admin, user.amounts) == ("team/other", ("team/train-0",), False, ())


def test_admin_access_takes_nothing() -> None:
    monitor = holder("node-1", "gpu-0")
    monitor["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    found = the_pool(resource_slice("node-1", gpus(1)), claims=[monitor])
    assert states(found) == {"gpu-0": "free"}
    assert found.devices[0].users[0].admin
    assert chosen(solve([found], {"deviceClass": GPU})) == [("node-1", "gpu-0")]


def test_what_shares_leave() -> None:
    policy = {"default": "80Gi", "validRange": {"min": "0", "step": "8Gi"}}
    capacity = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    part = device("gpu-0", more={"capacity": capacity, "allowMultipleAllocations": True})
    found = the_pool(resource_slice("node-1", [part]), claims=[shares("node-1", "gpu-0", memory="24Gi")])
    (amount,) = found.devices[0].amounts
    assert (amount.name, str(amount.capacity), str(amount.left), str(amount.block)) == ("memory", "80Gi", "56Gi", "8Gi")
    assert states(found) == {"gpu-0": "shared"}
    assert [str(each.allocation) for each in found.devices[0].users[0].amounts] == ["24Gi"]
    assert chosen(solve([found], {"deviceClass": GPU, "requests": {"memory": "56Gi"}})) == [("node-1", "gpu-0")]
    assert solve([found], {"deviceClass": GPU, "requests": {"memory": "57Gi"}}) is None
    assert solve([found], {"deviceClass": GPU}) is None


def test_a_device_that_cannot_be_shared_is_taken_whole_by_an_amount() -> None:
    found = the_pool(resource_slice("node-1", [device("gpu-0", more={"capacity": MEMORY})]))
    small = {"deviceClass": GPU, "requests": {"memory": "8Gi"}}
    assert chosen(solve([found], small)) == [("node-1", "gpu-0")]
    assert solve([found], small, small) is None


def test_a_partition_is_blocked_by_the_whole() -> None:
    found = the_pool(*partitioned(), claims=[holder("node-1", "half-0")])
    assert states(found) == {"whole": "blocked", "half-0": "taken", "half-1": "free"}
    (memory,) = found.resources
    assert (memory.name, str(memory.capacity), str(memory.left)) == ("memory", "80Gi", "40Gi")
    assert found.devices[0].lacking == ("memory",)
    assert {name: str(amount) for name, amount in found.devices[0].document.requests.items()} == {"memory": "80Gi"}
    assert chosen(solve([found], {"deviceClass": GPU})) == [("node-1", "half-1")]


def test_counters_taken_on_other_nodes_are_not_left() -> None:
    local, counters = partitioned()
    local["spec"]["pool"]["resourceSliceCount"] = counters["spec"]["pool"]["resourceSliceCount"] = 3
    del counters["spec"]["nodeName"]
    counters["spec"]["allNodes"] = True
    there = resource_slice("node-2", [{**local["spec"]["devices"][0], "name": "far"}], pool=local["spec"]["pool"])
    pools = published_pools([local, counters, there], [holder("node-1", "far")], [])
    first, second = pools
    assert [states(each) for each in pools] == [
        dict.fromkeys(("whole", "half-0", "half-1"), "blocked"),
        {"far": "taken"},
    ]
    assert (first.document.metadata.name, second.document.metadata.name) == ("node-1", f"node-1.{GPU}")
    assert solve([first], {"deviceClass": GPU}) is None


@pytest.mark.parametrize(("effect", "state"), [("NoSchedule", "tainted"), ("NoExecute", "tainted"), ("None", "free")])
def test_taints_keep_claims_away(effect: str, state: str) -> None:
    taint = {"key": "example.com/sick", "value": "yes", "effect": effect}
    found = the_pool(resource_slice("node-1", [device("gpu-0", more={"taints": [taint]})]))
    assert states(found) == {"gpu-0": state}
    assert found.devices[0].taints[0].key == "example.com/sick"
    assert (solve([found], {"deviceClass": GPU}) is not None) == (state == "free")


def test_an_incomplete_pool_is_unusable() -> None:
    found = the_pool(resource_slice("node-1", gpus(1), pool={"resourceSliceCount": 2}))
    assert found.fault == "incomplete: 1 of 2 slices exist"
    assert states(found) == {"gpu-0": "unusable"}
    assert solve([found], {"deviceClass": GPU}) is None


def test_an_invalid_pool_is_unusable() -> None:
    found = the_pool(resource_slice("node-1", [device("gpu-0"), device("gpu-0")]))
    assert found.fault == "device gpu-0 is in slice node-1-gpu and in slice node-1-gpu"
    assert {each.state for each in found.devices} == {PooledState.UNUSABLE}


def test_only_the_newest_slices_count() -> None:
    old = resource_slice("node-1", gpus(4), name="old")
    found = the_pool(old, resource_slice("node-1", gpus(2), name="new", pool={"generation": 2}))
    assert list(states(found)) == ["gpu-0", "gpu-1"]


def test_attributes_have_flat_names() -> None:
    attributes = {
        "model": {"string": "a100"},
        "cores": {"int": 4},
        "ecc": {"bool": True},
        "driverVersion": {"version": "1.2.3"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0"},
        f"{GPU}/pcieRoot": {"string": "own"},
        "other.example.com/model": {"string": "else"},
        "links": {"strings": ["a", "b"]},
    }
    found = the_pool(resource_slice("node-1", [device("gpu-0", more={"attributes": attributes})]))
    published = found.devices[0]
    flat = {each.name: each.value for each in published.document.attributes}
    assert flat == {
        "model": "a100",
        "cores": 4,
        "ecc": "true",
        "driverVersion": "1.2.3",
        "pcieRoot": "pci0",
        f"{GPU}/pcieRoot": "own",
        "other.example.com/model": "else",
    }
    assert published.names["pcieRoot"] == "resource.kubernetes.io/pcieRoot"
    assert published.names["model"] == f"{GPU}/model"


def test_pools_of_two_drivers_on_one_node_have_two_names() -> None:
    pools = published_pools([resource_slice("node-1", gpus(1)), resource_slice("node-1", gpus(1), NIC)])
    assert [each.document.metadata.name for each in pools] == ["node-1", f"node-1.{NIC}"]


def test_pools_of_several_nodes_come_last() -> None:
    rack = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}
    shared = resource_slice("network", gpus(1), NIC, nodeName=None, nodeSelector=rack)
    nodes = [{**node(name), "metadata": {"name": name, "labels": {"rack": "r1"}}} for name in ("node-1", "node-2")]
    nodes.append(node("node-3"))
    local, network = published_pools([shared, resource_slice("node-1", gpus(1))], [], nodes)
    assert (local.node, network.node, network.nodes) == ("node-1", None, ("node-1", "node-2"))
    assert network.is_at("node-2")
    assert not network.is_at("node-3")


def test_a_pool_of_all_nodes_is_there_without_nodes() -> None:
    found = the_pool(resource_slice("network", gpus(1), nodeName=None, allNodes=True))
    assert (found.node, found.nodes, states(found)) == (None, (), {"gpu-0": "free"})


def test_devices_that_choose_their_own_nodes_are_listed_for_each() -> None:
    devices = [device(f"gpu-{each}", more={"nodeName": f"node-{each}"}) for each in (1, 2)]
    slices = [resource_slice("rack", devices, nodeName=None, perDeviceNodeSelection=True)]
    pools = published_pools(slices, [], [node("node-1"), node("node-2")])
    assert [(each.nodes, list(states(each))) for each in pools] == [(("node-1",), ["gpu-1"]), (("node-2",), ["gpu-2"])]


def test_a_class_of_the_cluster_is_asked_as_kubernetes_asks_it() -> None:
    big = device_class("big.example.com", f'device.attributes["{GPU}"].cores > 2')
    devices = [device("gpu-0", cores=1), device("gpu-1", cores=4)]
    pools = published_pools([resource_slice("node-1", devices)])
    assert chosen(solve(pools, {"deviceClass": "big.example.com"}, classes=[big])) == [("node-1", "gpu-1")]
    assert chosen(solve(pools, {"deviceType": "big"}, classes=[big, GPU_CLASS])) == [("node-1", "gpu-1")]
    small = {"deviceClass": GPU, "constraints": "device.cores == 1"}
    assert chosen(solve(pools, small)) == [("node-1", "gpu-0")]


def test_a_written_class_wins_over_the_clusters() -> None:
    pools = published_pools([resource_slice("node-1", [device("gpu-0", cores=1), device("gpu-1", cores=4)])])
    written = class_(GPU, driver=GPU, constraints="device.cores == 4")
    known = ClusterClasses([GPU_CLASS], pools, written=[written])
    search = PoolSearch(ledger_of(pools), eligible=known.is_eligible)
    assert chosen(search.run([claim({"deviceClass": GPU})], known.documents)) == [("node-1", "gpu-1")]


def test_a_failing_selector_of_a_class_is_said() -> None:
    failing = device_class(GPU, f'device.attributes["{GPU}"].cores > 2')
    pools = published_pools([resource_slice("node-1", gpus(1))])
    with pytest.raises(MatchingError, match=r"DeviceClass gpu.example.com: spec.selectors\[0\].*no such key: cores"):
        solve(pools, {"deviceClass": GPU}, classes=[failing])


def test_a_failing_constraint_of_a_need_is_said() -> None:
    pools = published_pools([resource_slice("node-1", gpus(1))])
    with pytest.raises(MatchingError, match=r"the claim, at device gpu-0 of pool node-1: .*no attribute cores"):
        solve(pools, {"deviceClass": GPU, "constraints": "device.cores == 1"})


def test_no_slices_make_no_pools() -> None:
    assert published_pools([], [], [node("node-1")]) == ()
