"""What is lost of published slices, classes and claims on the way to documents, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduling.pools.documents import DevicePool
from scheduling.pools.lost import Lost
from scheduling.pools.publication import published_pools
from scheduling.pools.published_documents import published_documents
from tests.making.clusters import GPU, GPU_CLASS, ROOT, device_class, holder, match, request, resource_slice
from tests.making.clusters import claim as v1_claim
from tests.making.clusters import device as v1_device

Json = dict[str, Any]


def back(*given: Json) -> list[Lost]:
    """What is lost of v1 objects on the way to documents."""

    def of(kind: str) -> list[Json]:
        return [each for each in given if each["kind"] == kind]

    pools = published_pools(of("ResourceSlice"), of("ResourceClaim"), of("Node"))
    return published_documents(pools, of("DeviceClass"), of("ResourceClaim")).lost


def a_device(**more: Any) -> Json:
    return resource_slice("node-1", [v1_device("gpu-0", more=more)])


def shareable(policy: Json) -> Json:
    return a_device(allowMultipleAllocations=True, capacity={"memory": {"value": "8", "requestPolicy": policy}})


SAME_NAMES = {"x": {"int": 1}, f"{GPU}/x": {"int": 2}}


def parted(*, counters: bool) -> list[Json]:
    """A pool of two nodes: one device each, beside a device or shared counters for both."""
    three = {"name": "rack", "resourceSliceCount": 3}
    if counters:
        shared = [{"name": "set", "counters": {"slots": {"value": "1"}}}]
        both = resource_slice("rack", [], pool=three, name="both", nodeName=None, allNodes=True, sharedCounters=shared)
        takes = {"consumesCounters": [{"counterSet": "set", "counters": {"slots": {"value": "1"}}}]}
    else:
        both = resource_slice("rack", [v1_device("c")], pool=three, name="both", nodeName=None, allNodes=True)
        takes = {}
    return [both, *(resource_slice(f"node-{n}", [v1_device(f"d{n}", more=takes)], pool=three) for n in (1, 2))]


RACK = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]}
RACK_NODE = {"kind": "Node", "metadata": {"name": "node-1", "labels": {"rack": "r"}}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            [resource_slice("node-1", [], pool={"resourceSliceCount": 2})],
            "pool gpu.example.com/node-1: incomplete: 1 of 2 slices exist; left out",
        ),
        (
            [a_device(taints=[{"key": "sick", "effect": "NoExecute"}])],
            "pool gpu.example.com/node-1: device gpu-0: pools have no taints (sick); the device is left out",
        ),
        ([a_device(attributes={"x": {"bool": True}})], f"attribute {GPU}/x: pools have no true and false; it becomes"),
        ([a_device(attributes={"x": {"strings": ["a"]}})], f"attribute {GPU}/x: pools have no lists; it is left out"),
        (
            [shareable({"default": "4", "validValues": ["4", "8"]})],
            "capacity memory: pools have no lists of amounts that can be drawn",
        ),
        (
            [shareable({"default": "4", "validRange": {"min": "4", "step": "2"}})],
            "capacity memory: pools have no least amount but the block",
        ),
        ([a_device(allowMultipleAllocations=True)], "device gpu-0: any number of claims can share it; a need takes it"),
        (
            [resource_slice("rack", [v1_device("gpu-0")], nodeName=None, nodeSelector=RACK), RACK_NODE],
            "spec.nodeName: a DevicePool is on one node or on all; this one is on node-1",
        ),
        (
            parted(counters=True),
            "pool gpu.example.com/rack: nodes see parts of it that have devices or counters in common, which two",
        ),
        (parted(counters=False), "which two documents cannot share; this part is on node-2; left out"),
        ([device_class("any", "true")], "DeviceClass any: spec.selectors: a DeviceClass document has one driver;"),
        (
            [device_class("two", "device.driver == 'a'", "device.driver == 'b'")],
            "DeviceClass two: spec.selectors[1]: the class names two drivers, so no device is of it; left out",
        ),
        (
            [device_class("old", f'device.driver == "{GPU}"', "device.capacity['x'].y == 1")],
            "DeviceClass old: spec.selectors[1]: device.capacity['x'].y == 1: reads more of the device than attributes",
        ),
        (
            [a_device(attributes={"x": {"bool": True}}), device_class("x", f'device.attributes["{GPU}"].x')],
            f"reads {GPU}/x, a bool, whose values pools hold otherwise; left out",
        ),
        (
            [v1_claim(request(allocationMode="All"))],
            "ResourceClaim team/train: spec.devices.requests[0].exactly.allocationMode: pools cannot ask",
        ),
        (
            [v1_claim(request(count=2), constraints=[{"distinctAttribute": ROOT}])],
            "spec.devices.constraints[0].distinctAttribute: pools cannot ask for different values; left out",
        ),
        (
            [v1_claim(request("a"), request("b"), request("c"), constraints=[match(ROOT, "a", "b")])],
            "spec.devices.constraints[0].requests: pools match one need or the whole claim; left out",
        ),
        (
            [v1_claim(request("gpu", GPU, 1, f"device.driver == '{GPU}'"))],
            "exactly.selectors[0]: device.driver == 'gpu.example.com': the driver belongs into a class of pools",
        ),
        (
            [v1_claim(request(tolerations=[{"operator": "Exists"}]))],
            "spec.devices.requests[0].exactly.tolerations: pools have no taints",
        ),
        (
            [v1_claim(request(count=2, capacity={"requests": {"memory": "8"}}))],
            "spec.devices.requests[0].exactly.capacity: memory of each device becomes a sum over devices",
        ),
        (
            [v1_claim(request("gpu", GPU, 1, "device.capacity['x'].y == 1"))],
            "exactly.selectors[0]: device.capacity['x'].y == 1: reads more of the device than attributes by name",
        ),
        (
            [
                resource_slice("node-1", [v1_device("a", x=1)]),
                resource_slice("node-2", [v1_device("b", more={"attributes": SAME_NAMES})], driver="other.example.com"),
                v1_claim(request(count=2), constraints=[match(f"{GPU}/x", "gpu")]),
            ],
            f"spec.devices.constraints[0]: reads {GPU}/x, which is {GPU}/x and x in pools; left out",
        ),
        ([GPU_CLASS, holder("node-9", "gpu-0")], "results[0]: no slice lists the device gpu.example.com/node-9/gpu-0"),
    ],
)
def test_what_is_lost_on_the_way_back_is_named(given: Sequence[Json], message: str) -> None:
    found = [str(each) for each in back(*given)]
    assert [each for each in found if message in each], found


def test_an_allocated_claim_stays_even_if_its_needs_cannot_be_said() -> None:
    body = {**holder("node-1", "gpu-0"), "spec": v1_claim(request(allocationMode="All"))["spec"]}
    pools = published_pools([resource_slice("node-1", [v1_device("gpu-0")])], [body])
    found = published_documents(pools, [GPU_CLASS], [body])
    assert [each.left_out for each in found.lost] == [False]
    assert "the document asks for the classes alone" in str(found.lost[0])
    holding = found.documents[-1]
    assert holding.kind == "DeviceClaim"
    assert [each.device for each in holding.status.allocations] == ["gpu-0"]  # type: ignore[union-attr]


def test_a_pool_that_one_of_the_nodes_reaches_is_on_that_node() -> None:
    nodes = [RACK_NODE, {"kind": "Node", "metadata": {"name": "node-2"}}]
    pools = published_pools([resource_slice("rack", [v1_device("a")], nodeName=None, nodeSelector=RACK)], [], nodes)
    (found,) = published_documents(pools, [], []).documents
    assert isinstance(found, DevicePool)
    assert found.spec.node_name == "node-1"
