"""What a conversion of documents says is lost, and where; and the exact objects of some documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduling.pools.claim_documents import Document
from scheduling.pools.conversion import convert
from scheduling.pools.reading import encode, read
from tests.making.pool_documents import DRIVER, attributes, claim, class_, device, document, pool

Json = dict[str, Any]
NIC = class_("nic", "nic.example.com", deviceType="nic")


def lost(*documents: Document) -> list[str]:
    return [str(each) for each in convert(documents).lost]


def objects(*documents: Document, kind: str) -> list[Json]:
    return [each for each in convert(documents).objects if each["kind"] == kind]


def a_pool(spec: Json, name: str = "p") -> Document:
    return read(document("DevicePool", name, {"driver": DRIVER, "devices": [], **spec}))


def with_attribute(value: Json) -> Document:
    return a_pool({"devices": [{"name": "d", "attributes": [{"name": "x", **value}]}]})


def test_a_pool_becomes_slices() -> None:
    gpus = pool(
        "gpus",
        device("whole", {"memory": 3}, color="red"),
        device("part", {"memory": 1}, [("cores", 8, 3)]),
        resources=[("memory", 4, 2)],
    )
    counters, devices = (each["spec"] for each in objects(gpus, kind="ResourceSlice"))
    assert counters["sharedCounters"] == [{"name": "pool", "counters": {"memory": {"value": "4"}}}]
    assert {key: counters[key] for key in ("driver", "nodeName", "pool")} == {
        "driver": DRIVER,
        "nodeName": "node-1",
        "pool": {"name": "gpus", "generation": 1, "resourceSliceCount": 2},
    }
    assert devices["devices"] == [
        {
            "name": "whole",
            "attributes": {"color": {"string": "red"}},
            "consumesCounters": [{"counterSet": "pool", "counters": {"memory": {"value": "4"}}}],
        },
        {
            "name": "part",
            "capacity": {
                "cores": {"value": "8", "requestPolicy": {"default": "6", "validRange": {"min": "0", "step": "3"}}}
            },
            "consumesCounters": [{"counterSet": "pool", "counters": {"memory": {"value": "2"}}}],
            "allowMultipleAllocations": True,
        },
    ]


def test_a_large_pool_becomes_several_slices() -> None:
    many = pool("many", *(device(f"d{number:03}") for number in range(130)), node=None)
    found = objects(many, kind="ResourceSlice")
    assert [len(each["spec"]["devices"]) for each in found] == [128, 2]
    assert all(each["spec"]["allNodes"] for each in found)


def test_an_existing_allocation_is_kept() -> None:
    gpus = pool("gpus", device("a", {}, [("memory", 8, 2), ("cores", 4)]), device("b"))
    taken = [
        {"devicePoolName": "gpus", "deviceName": "a", "allocations": [{"name": "memory", "allocation": "3"}]},
        {"devicePoolName": "gpus", "deviceName": "b"},
    ]
    (found,) = objects(gpus, class_(), claim({"requests": {"count": 2}}, allocations=taken), kind="ResourceClaim")
    first, second = found["status"]["allocation"]["devices"]["results"]
    assert first["consumedCapacity"] == {"memory": "4"}
    assert second == {"request": "need-1", "driver": DRIVER, "pool": "gpus", "device": "b"}


def test_a_claim_keeps_its_namespace_and_labels() -> None:
    text = encode(claim({}))
    text["metadata"] |= {"namespace": "team", "labels": {"app": "x"}}
    (found,) = objects(class_(), read(text), kind="ResourceClaim")
    assert found["metadata"] == {"name": "claim", "namespace": "team", "labels": {"app": "x"}}


def test_an_allocation_with_admin_access_stays_one() -> None:
    gpus = pool("gpus", device("a"))
    taken = [{"devicePoolName": "gpus", "deviceName": "a"}]
    (found,) = objects(gpus, class_(), claim({"adminAccess": True}, allocations=taken), kind="ResourceClaim")
    (result,) = found["status"]["allocation"]["devices"]["results"]
    assert result == {"request": "need-1", "driver": DRIVER, "pool": "gpus", "device": "a", "adminAccess": True}


def test_a_claim_that_draws_nothing_has_the_whole_device() -> None:
    gpus = pool("gpus", device("a", {}, [("memory", 8, 2)]))
    drawn = [{"devicePoolName": "gpus", "deviceName": "a", "allocations": [{"name": "memory", "allocation": "0"}]}]
    documents: list[Document] = [gpus, class_(), claim({}, allocations=drawn)]
    (found,) = objects(*documents, kind="ResourceClaim")
    (result,) = found["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"memory": "8"}
    assert lost(*documents) == [
        "DeviceClaim claim: status.allocations: v1 has no part of 0; the claim has whole devices"
    ]


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([a_pool({"driver": "no driver"})], "DevicePool p: spec.driver: v1 cannot name a driver no driver: "),
        ([a_pool({}, "No_Pool")], "DevicePool No_Pool: metadata.name: v1 cannot name a pool No_Pool: "),
        (
            [a_pool({"resources": [{"name": f"r{number}", "capacity": 1} for number in range(33)]})],
            "DevicePool p: spec.resources: v1 has 32 counters in a set, and the pool 33; left out",
        ),
        ([a_pool({})], "DevicePool p: spec.devices: there are none, so that there are no slices"),
        (
            [a_pool({"devices": [{"name": "GPU_0"}]})],
            "DevicePool p: spec.devices[0].name: v1 cannot name a device GPU_0",
        ),
        (
            [with_attribute({"quantityValue": "8Gi"})],
            "spec.devices[0].attributes.x: v1 has no quantities as attributes; it becomes an amount, which claims can",
        ),
        (
            [with_attribute({"stringValue": "y" * 65})],
            "spec.devices[0].attributes.x: v1 has texts of 64 bytes, and this one has 65",
        ),
        (
            [with_attribute({"semVerValue": "1.8"})],
            "spec.devices[0].attributes.x: 1.8 is no version that v1 compares as this text; it becomes a text",
        ),
        (
            [a_pool({"devices": [{"name": "d", "attributes": [{"name": "a-b", "intValue": 1}]}]})],
            "spec.devices[0].attributes.a-b: v1 cannot name an attribute so: ",
        ),
        (
            [a_pool({"devices": [{"name": "d", "attributes": [{"name": f"{DRIVER}/x", "intValue": 1}]}]})],
            f"attributes.{DRIVER}/x: in v1 it is the attribute of the same name without the driver's domain; write it",
        ),
        (
            [
                a_pool(
                    {
                        "devices": [
                            {"name": "d", "attributes": attributes({f"a{number}": number for number in range(33)})}
                        ]
                    }
                )
            ],
            "spec.devices[0].attributes: v1 has 32 attributes and amounts in a device; a32 is lost",
        ),
        (
            [a_pool({"devices": [device("d", {}, [("memory-slice", 1)])]})],
            "spec.devices[0].resources.memory-slice: v1 cannot name an amount so: ",
        ),
        (
            [a_pool({"devices": [device("d", {}, [("cores", 1, "500m")])]})],
            "spec.devices[0].resources.cores.blockSize: v1 counts steps in whole units, and the block is 500m",
        ),
        (
            [a_pool({"devices": [device("d", {}, [("cores", 1), ("memory", 1)])]})],
            "spec.devices[0].resources: a claim that requests only some of the amounts takes all of the others in v1",
        ),
        (
            [read(document("DeviceClass", "any", {"selector": {"matchLabels": {"a": "b"}}}))],
            "DeviceClass any: spec.selector: v1 has no class for other classes; claims name those as alternatives",
        ),
        (
            [class_(constraints=f"device['{DRIVER}/x'] == 1")],
            f"reads the attribute {DRIVER}/x; write x, without the driver's domain; left out",
        ),
        (
            [class_(constraints="device['a-b'] == 1")],
            "device['a-b'] == 1: reads the attribute a-b, which v1 cannot name: ",
        ),
        ([class_("Gpu")], "DeviceClass Gpu: metadata.name: v1 cannot name a class Gpu: "),
        ([class_(adminAccess=True)], "DeviceClass gpu: spec.adminAccess: v1 asks for admin access in each claim"),
        ([class_(deviceType="a b")], "DeviceClass gpu: spec.deviceType: v1 has no device types, and a b is no value"),
        (
            [class_(configs=[{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "c"}])],
            "DeviceClass gpu: spec.configs[0]: v1 holds parameters and no reference to ConfigMap n/c",
        ),
        (
            [class_(constraints="size(device) > 1")],
            "spec.constraints: size(device) > 1: uses the whole map device; read its attributes by name; left out",
        ),
        ([class_(), claim({}, name="No_Name")], "metadata.name: v1 cannot name a claim No_Name: "),
        (
            [claim({"deviceType": "gpu"})],
            "spec.claims[0]: no DeviceClass is of deviceType gpu; the types are: none; add",
        ),
        ([claim({"deviceClass": "No Class"})], "spec.claims[0].deviceClass: v1 cannot name a class No Class: "),
        (
            [class_(), claim({"limits": {"memory": 1}})],
            "DeviceClaim claim: spec.claims[0].limits.memory: v1 has no limits",
        ),
        (
            [class_(), claim({"requests": {"memory": 0}})],
            "spec.claims[0].requests.memory: v1 has no part of 0; the need takes whole devices",
        ),
        (
            [class_(), claim({"requests": {"gpu-memory": 1}})],
            "spec.claims[0].requests.gpu-memory: v1 cannot name an amount gpu-memory: ",
        ),
        (
            [class_(), claim({"requests": {"memory": 9}, "limits": {"count": 9}})],
            "spec.claims[0]: v1 has 8 alternatives; 1 less preferred ones are left out",
        ),
        (
            [class_(), claim({"requests": {"count": 32, "memory": 9}, "limits": {"count": 33}})],
            "spec.claims[0]: v1 has 32 devices in a claim; ways with more are left out",
        ),
        ([class_(), claim({"requests": {"count": 33}})], "spec.claims[0]: v1 has 32 devices in a claim; left out"),
        (
            [class_(), class_("other"), claim({"deviceType": "gpu", "requests": {"count": 2}})],
            "spec.claims[0]: v1 cannot take the devices of one need from several classes",
        ),
        (
            [class_(), claim({"oneOf": [{"deviceClass": "gpu", "adminAccess": True}, {"deviceClass": "gpu"}]})],
            "spec.claims[0]: v1 cannot ask for admin access in alternatives; write one need without them; left out",
        ),
        (
            [class_(), NIC, claim({}, {"deviceClass": "nic"}, matchAttributes=["numa"])],
            "numa is gpu.example.com/numa and nic.example.com/numa; publish and match it with a domain, such as",
        ),
        (
            [with_attribute({"quantityValue": "8Gi"}), class_(), claim({"matchAttributes": ["x"]})],
            "spec.claims[0].matchAttributes[0]: v1 cannot compare x, which is a quantity; left out",
        ),
        (
            [
                with_attribute({"stringValue": "a"}),
                with_attribute({"semVerValue": "1.0.0"}),
                class_(constraints="device.x == 1"),
            ],
            "device.x == 1: reads the attribute x, which is a text or number here and a version there; publish one",
        ),
        ([class_(), claim({"matchAttributes": ["a-b"]})], "matchAttributes[0]: v1 cannot name an attribute a-b: "),
        (
            [class_(), claim({}, allocations=[{"devicePoolName": "p", "deviceName": "d"}])],
            "status.allocations: the pool p is not among the documents, or not the device; the claim is not allocated",
        ),
    ],
)
def test_what_is_lost_is_named(documents: Sequence[Document], message: str) -> None:
    assert [each for each in lost(*documents) if message in each], lost(*documents)
