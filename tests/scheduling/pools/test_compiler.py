"""The claim compiler on clusters: which form it chooses, what it refuses, and what it says is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduling.allocator.pools import SliceIndex
from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.claim_writer import CompilerInput
from scheduling.pools.compiler import CompiledClaim, compile_claim
from scheduling.pools.documents import PoolDeviceClass
from scheduling.pools.live_names import written_class
from scheduling.pools.lost import LeftOut
from scheduling.pools.publication import published_pools
from scheduling.pools.reading import encode, read
from tests.making.clusters import GPU, GPU_CLASS, NIC, NIC_CLASS, device, device_class, resource_slice
from tests.making.pool_documents import claim, class_, document

Json = dict[str, Any]


def compiled(
    wanted: DeviceClaim,
    *slices: Json,
    classes: Sequence[Json] = (GPU_CLASS, NIC_CLASS),
    written: Any = (),
    nodes: Sequence[Json] = (),
) -> CompiledClaim:
    return compile_claim(wanted, CompilerInput.of(SliceIndex(slices), classes, written=written, nodes=nodes))


def requests(found: CompiledClaim) -> list[Json]:
    spec: Any = found.template["spec"]
    entries: list[Json] = spec["spec"]["devices"]["requests"]
    return entries


def gpu(number: int, memory: str = "80Gi", **more: Any) -> Json:
    return device(f"gpu-{number}", more={"capacity": {"memory": {"value": memory}}, **more.pop("fields", {})}, **more)


def node(*devices: Json, driver: str = GPU, name: str = "node-1") -> Json:
    return resource_slice(name, devices, driver)


SHARED = {"allowMultipleAllocations": True}
A_GPU = {"deviceClass": GPU}


def test_the_preferred_option_decides_the_node() -> None:
    small = resource_slice("node-1", [gpu(0, "40Gi"), gpu(1, "40Gi")])
    found = compiled(
        claim({**A_GPU, "requests": {"memory": "64Gi"}, "limits": {"count": 2}}), small, node(gpu(0), name="node-2")
    )
    assert found.node == "node-2"
    assert [each.request for each in found.devices] == ["need-1/option-1"]


def test_a_template_keeps_namespace_and_labels() -> None:
    text = encode(claim(A_GPU))
    more = {"namespace": "team", "labels": {"app": "x"}}
    text["metadata"] |= more
    wanted = read(text)
    assert isinstance(wanted, DeviceClaim)
    assert compiled(wanted, node(gpu(0))).template["metadata"] == {"name": "claim", **more}


def test_a_claim_with_a_name_that_kubernetes_refuses_is_refused() -> None:
    with pytest.raises(LeftOut, match=r"^metadata.name: v1 cannot name a claim My_Claim: "):
        compiled(claim(A_GPU, name="My_Claim"), node(gpu(0)))


def test_a_node_with_an_unusable_pool_is_not_promised_for_all_of_its_devices() -> None:
    broken = resource_slice("node-1", [gpu(0)], pool={"resourceSliceCount": 2})
    assert compiled(claim(A_GPU), broken, node(gpu(0), name="node-2")).node == "node-2"


def test_an_attribute_that_drivers_publish_under_other_domains_is_refused() -> None:
    foreign = device("b", more={"attributes": {"other.example.com/x": {"int": 1}}})
    slices = [node(device("a", x=1)), node(foreign, driver=NIC, name="node-2")]
    need = claim({"deviceClass": "any", "constraints": "device.x == 1"})
    with pytest.raises(LeftOut, match=rf"the attribute x, which is {GPU}/x and other.example.com/x; write one"):
        compiled(need, *slices, classes=[device_class("any", "true")])


def test_a_cordoned_node_is_not_promised() -> None:
    cordoned = {"metadata": {"name": "node-1"}, "spec": {"unschedulable": True}}
    slices = [node(gpu(0)), node(gpu(0), name="node-2")]
    assert compiled(claim(A_GPU), *slices).node == "node-1"
    assert compiled(claim(A_GPU), *slices, nodes=[cordoned]).node == "node-2"


def test_names_of_drivers_that_differ_are_read_by_the_driver() -> None:
    both = device_class("any", "true")
    slices = [node(device("a", model="x")), node(device("b", model="y"), driver=NIC, name="node-2")]
    found = compiled(claim({"deviceClass": "any", "constraints": "device.model == 'y'"}), *slices, classes=[both])
    assert found.node == "node-2"
    (selector,) = requests(found)[0]["exactly"]["selectors"]
    assert selector["cel"]["expression"] == "device.attributes[device.driver].model == 'y'"


def test_shared_devices_are_asked_by_capacity_and_others_by_a_selector() -> None:
    need = claim({**A_GPU, "requests": {"memory": "8Gi"}})
    (shared,) = requests(compiled(need, node(gpu(0, fields=SHARED))))
    assert shared["exactly"]["capacity"] == {"requests": {"memory": "8Gi"}}
    (whole,) = requests(compiled(need, node(gpu(0))))
    assert "capacity" not in whole["exactly"]


def test_classes_of_a_type_that_cannot_say_the_need_are_left_out() -> None:
    classes = [device_class("gpu.a", f'device.driver == "{GPU}"'), device_class("gpu.b", f'device.driver == "{NIC}"')]
    need = claim({"deviceType": "gpu", "requests": {"memory": "8Gi"}})
    found = compiled(need, node(gpu(0)), node(device("b"), driver=NIC), classes=classes)
    assert requests(found)[0]["exactly"]["deviceClassName"] == "gpu.a"


def test_an_exact_form_names_every_need_once() -> None:
    devices = [gpu(number, memory) for number, memory in enumerate(["80Gi", "40Gi", "80Gi", "40Gi"])]
    two = {**A_GPU, "requests": {"count": 2, "memory": "120Gi"}}
    found = compiled(claim(two, two), node(*devices))
    assert found.exact
    assert found.lost == ()
    names = [each["name"] for each in requests(found)]
    assert names == ["need-1-part-1", "need-1-part-2", "need-2-part-1", "need-2-part-2"]
    assert sorted(each.device for each in found.devices) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]


def test_an_exact_form_says_who_gives_nothing() -> None:
    devices = [device("a", model="x"), gpu(1, "0"), gpu(2, "6", fields=SHARED)]
    found = compiled(claim({**A_GPU, "requests": {"count": 2, "memory": 1}}), node(*devices))
    assert [(each.request, each.device) for each in found.devices] == [
        ("need-1-part-1", "gpu-2"),
        ("need-1-part-2", "a"),
    ]
    selectors = requests(found)[1]["exactly"]["selectors"]
    assert selectors == [{"cel": {"expression": f'!has(device.capacity["{GPU}"].memory)'}}]


@pytest.mark.parametrize(
    ("need", "devices", "message"),
    [
        (
            {"oneOf": [{**A_GPU, "adminAccess": True}, A_GPU]},
            [gpu(0)],
            "spec.claims[0]: v1 cannot ask for admin access in alternatives; write one need without them",
        ),
        (
            {**A_GPU, "constraints": "device.x == 1"},
            [device("a", x=1), device("b", x=True)],
            "spec.claims[0].constraints: device.x == 1: reads the attribute x, which is a text or number here and true",
        ),
        (
            {**A_GPU, "matchAttributes": ["rack"]},
            [device("a", model="x")],
            "spec.claims[0].matchAttributes[0]: no device of class gpu.example.com has the attribute rack",
        ),
        (
            {**A_GPU, "requests": {"cores": 1}},
            [gpu(0)],
            "spec.claims[0].requests.cores: the devices of class gpu.example.com have no cores; they have: memory",
        ),
        ({**A_GPU, "requests": {"count": 33}}, [gpu(0)], "spec.claims[0]: v1 has 32 devices in a claim"),
    ],
)
def test_what_v1_cannot_say_is_refused(need: Json, devices: list[Json], message: str) -> None:
    with pytest.raises(LeftOut) as caught:
        compiled(claim(need), node(*devices))
    assert str(caught.value).startswith(message)


def test_an_amount_that_no_devices_have_is_asked_of_as_many_as_v1_allows() -> None:
    found = compiled(claim({**A_GPU, "requests": {"memory": "1Ei"}, "limits": {"count": 10_000}}), node(gpu(0)))
    assert found.node is None
    assert requests(found)[0]["exactly"]["count"] == 32


def test_a_match_over_names_of_several_drivers_is_refused() -> None:
    slices = [node(device("a", numa=0)), node(device("b", numa=0), driver=NIC)]
    with pytest.raises(LeftOut) as caught:
        compiled(claim(A_GPU, {"deviceClass": NIC}, matchAttributes=["numa"]), *slices)
    assert str(caught.value) == (
        "spec.matchAttributes[0]: v1 compares one name on all devices, and numa is gpu.example.com/numa and "
        "nic.example.com/numa"
    )
    both = device_class("any", "true")
    with pytest.raises(LeftOut, match=r"v1 compares one name on all devices, and numa is gpu.example.com/numa and nic"):
        compiled(claim({"deviceClass": "any", "matchAttributes": ["numa"]}), *slices, classes=[both])


@pytest.mark.parametrize(
    ("need", "devices", "message"),
    [
        (
            {**A_GPU, "configs": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}]},
            [gpu(0)],
            "spec.claims[0].configs[0]: v1 holds parameters and no reference to ConfigMap c",
        ),
        ({**A_GPU, "limits": {"memory": 1}}, [gpu(0)], "spec.claims[0].limits.memory: v1 has no limits"),
        (
            A_GPU,
            [gpu(0, fields=SHARED)],
            "spec.claims[0]: v1 cannot ask for all of a device that can be shared; others may get parts of it",
        ),
        (
            {"deviceType": "gpu", "requests": {"count": 2}},
            [gpu(0), gpu(1)],
            "spec.claims[0]: v1 cannot take the devices of one need from several classes",
        ),
    ],
)
def test_what_is_lost_is_named(need: Json, devices: list[Json], message: str) -> None:
    classes = [GPU_CLASS, device_class("gpu.other", f'device.driver == "{GPU}"')]
    found = compiled(claim(need), node(*devices), classes=classes)
    assert found.node == "node-1"
    assert [str(each) for each in found.lost] == [f"DeviceClaim claim: {message}"]


def test_admin_access_beside_another_need_is_named() -> None:
    watched = {**A_GPU, "adminAccess": True}
    found = compiled(claim(watched, watched), node(device("a")))
    assert found.node is None
    assert [str(each) for each in found.lost] == [
        "DeviceClaim claim: spec.claims: v1 gives a device to one request of a claim only, also with admin access"
    ]


def test_admin_access_beside_counters_is_named() -> None:
    use = [{"counterSet": "set", "counters": {"slots": {"value": "1"}}}]
    counters = [{"name": "set", "counters": {"slots": {"value": "1"}}}]
    two = {"resourceSliceCount": 2}
    slices = [
        resource_slice("node-1", [device("a", more={"consumesCounters": use})], pool=two),
        resource_slice("node-1", [], pool=two, name="counters", sharedCounters=counters),
    ]
    found = compiled(claim({**A_GPU, "adminAccess": True}), *slices)
    assert [each.why for each in found.lost] == ["v1 gives it only to devices whose shared counters are left"]


@pytest.mark.parametrize(
    ("class_document", "message"),
    [
        (
            read(document("DeviceClass", "any", {"selector": {"matchLabels": {"a": "b"}}})),
            "DeviceClass any: spec.selector: v1 has no class for other classes; name those in the claim",
        ),
        (
            class_("x", GPU, constraints="device.size == 1"),
            "DeviceClass x: spec.constraints: device.size == 1: reads the attribute size, which no device of the class",
        ),
    ],
)
def test_classes_that_v1_cannot_say(class_document: PoolDeviceClass, message: str) -> None:
    pools = published_pools([node(device("a", model="x"))])
    with pytest.raises(LeftOut) as caught:
        written_class(class_document, pools)
    assert str(caught.value).startswith(message)
