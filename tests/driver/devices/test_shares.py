"""Shares at the DRA door: what a slice says of a shared device, and what the scheduler makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.description import LIMIT, slice_device
from driver.devices.shares import consumable, consumed, with_defaults
from driver.devices.view import DraDevice
from driver.names import Peer
from node.inventory.model import Attribute, Capacity, Device, DeviceKind, Version
from node.ledger.holds import Hold
from node.ledger.offer_context import OfferContext, by_place
from node.offer import Cause
from node.rules import Door, Doors, Rule, Selector
from node.sharing import (
    COMPUTE,
    MEMORY,
    MILLION,
    Amounts,
    Sharing,
    SharingStrategy,
    fit_within,
    most_clients,
    whole_amounts,
)
from node.values import replace
from scheduling.api.validation.objects import validate_slice
from tests.driver.devices import scheduling
from tests.driver.devices.recorded import NODES, snapshot, snapshot_of
from tests.making import claims
from tests.making.devices import gpu
from tests.making.dra_door import door_view

GIB = 1 << 30
FOUR = Sharing(replicas=4)


def a100(number: int = 0) -> Device:
    return replace(gpu(number), capacity=(Capacity("memory", 80 * GIB),))


def shared(sharing: Sharing = FOUR, *devices: Device, holds: tuple[Hold, ...] = ()) -> tuple[DraDevice, ...]:
    rule = Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,)), Doors.BOTH, sharing=sharing)
    return door_view(snapshot_of(devices or (a100(),)), [rule], OfferContext(by_place(holds))).devices


def replica(number: int, sharing: Sharing = FOUR) -> Hold:
    device = a100()
    owner = f"plugin/{device.name}::{number}"
    share, whole = sharing.replica_amounts(device), whole_amounts(device)
    return Hold(device.name, Door.PLUGIN, "team/pod", 1.0, owner, str(number), amounts=share, whole=whole)


def wanting(**capacity: str) -> dict[str, Any]:
    request = scheduling.request("gpu")
    if capacity:
        request["exactly"]["capacity"] = {"requests": capacity}
    return claims.claim([request])


@pytest.mark.parametrize(
    ("named", "counted"),
    [
        ((), {MEMORY: 20 * GIB, COMPUTE: MILLION // 4}),
        (((MEMORY, GIB),), {MEMORY: GIB, COMPUTE: MILLION // 4}),
        (((COMPUTE, 0),), {MEMORY: 20 * GIB, COMPUTE: 0}),
        (((MEMORY, GIB), (COMPUTE, MILLION // 2)), {MEMORY: GIB, COMPUTE: MILLION // 2}),
    ],
)
def test_a_share_takes_the_default_of_a_capacity_that_its_allocation_does_not_name(
    named: Amounts, counted: dict[str, int]
) -> None:
    assert dict(with_defaults(named, a100(), FOUR)) == counted
    assert dict(with_defaults((), gpu(0), FOUR)) == {COMPUTE: MILLION // 4}, "its memory is not known"


def test_a_default_is_what_the_slice_says() -> None:
    seven = Sharing(replicas=7)
    defaults = with_defaults((), a100(), seven)
    shown = {"memory": 1, "compute": MILLION // 100}
    published = consumable(a100(), seven, ())
    assert {name: amount // shown[name] for name, amount in defaults} == {
        name: each.default for name, each in published.items()
    }


def test_a_shared_device_is_consumed_by_memory_and_compute() -> None:
    (offered,) = shared()
    published = slice_device(offered)
    assert published["allowMultipleAllocations"] is True
    assert published["capacity"] == {
        "compute": {
            "value": "100",
            "requestPolicy": {"default": "25", "validRange": {"min": "1", "step": "1"}},
        },
        "memory": {
            "value": "80Gi",
            "requestPolicy": {"default": "20Gi", "validRange": {"min": "1Mi", "step": "1Mi"}},
        },
    }


@pytest.mark.parametrize("peers", [(), (Peer.NVIDIA,)])
@pytest.mark.parametrize("name", NODES)
def test_shared_devices_have_no_more_facts_than_the_api_takes(name: str, peers: tuple[Peer, ...]) -> None:
    kinds = (DeviceKind.GPU, DeviceKind.MIG, DeviceKind.PARTITION)
    rule = Rule("example.com/{profile}", Selector(kinds=kinds), Doors.DRA, sharing=FOUR)
    for offered in door_view(snapshot(name), [rule]).devices:
        device: dict[str, Any] = slice_device(offered, peers)
        assert len(device["attributes"]) + len(device["capacity"]) <= LIMIT
        assert "sharing" in device["attributes"]
        assert COMPUTE in device["capacity"]


def test_the_whole_is_given_to_as_many_claims_as_there_are_shares() -> None:
    scheduler = scheduling.DeviceScheduler(scheduling.slices(shared()))
    assert [scheduler.allocate(wanting()) is not None for _ in range(5)] == [True] * 4 + [False]


def test_a_claim_gets_the_memory_and_compute_that_it_asks_for() -> None:
    scheduler = scheduling.DeviceScheduler(scheduling.slices(shared()))
    assert scheduler.allocate(wanting(memory="60Gi", compute="10")) is not None
    assert scheduler.allocate(wanting(memory="21Gi", compute="10")) is None
    assert scheduler.allocate(wanting(memory="20Gi", compute="91")) is None
    assert scheduler.allocate(wanting(memory="20Gi", compute="90")) is not None


def test_what_pods_have_through_the_plugin_door_is_no_longer_there_for_claims() -> None:
    (offered,) = shared(holds=(replica(0), replica(2)))
    assert offered.healthy
    scheduler = scheduling.DeviceScheduler(scheduling.slices((offered,)))
    assert [scheduler.allocate(wanting()) is not None for _ in range(3)] == [True, True, False]


def test_a_device_without_a_share_left_has_a_taint() -> None:
    (offered,) = shared(holds=tuple(replica(number) for number in range(4)))
    assert (offered.healthy, offered.cause) == (False, Cause.OTHER_DOOR)
    assert offered.reason == (
        "pods have shares of it through the plugin door, which leave less compute and memory than a share takes"
    )
    published = slice_device(offered)
    taints: Any = published["taints"]
    assert [taint["key"] for taint in taints] == ["ostler.dev/other-door"]
    assert scheduling.DeviceScheduler(scheduling.slices((offered,))).allocate(wanting()) is None


def test_other_capacities_of_a_shared_device_are_seen_and_not_consumed() -> None:
    mig = replace(
        a100(),
        attributes=a100().attributes,
        capacity=(Capacity("copyEngines", 2), Capacity("memory", 80 * GIB)),
    )
    (offered,) = shared(FOUR, mig)
    capacity: Any = slice_device(offered, (Peer.NVIDIA,))["capacity"]
    nothing = {"default": "0", "validValues": ["0"]}
    assert capacity["copyEngines"] == {"value": "2", "requestPolicy": nothing}
    assert capacity["gpu.nvidia.com/memory"] == {"value": "80Gi", "requestPolicy": nothing}
    scheduler = scheduling.DeviceScheduler(scheduling.slices((offered,), (Peer.NVIDIA,)))
    assert [scheduler.allocate(wanting()) is not None for _ in range(5)] == [True] * 4 + [False]


def test_a_device_with_one_replica_is_published_as_if_its_rule_did_not_share_it() -> None:
    alone = replace(FOUR, own_replicas=((a100(1).name, 1),))
    other, one = shared(alone, a100(), a100(1))
    assert "allowMultipleAllocations" in slice_device(one)
    assert slice_device(other) == slice_device(replace(other, rule=replace(other.rule, sharing=None)))


def test_a_memory_limit_of_mps_is_what_a_claim_gets_unasked() -> None:
    limited = Sharing(SharingStrategy.MPS, replicas=4, memory_limit=8 * GIB)
    (offered,) = shared(limited)
    capacity: Any = slice_device(offered)["capacity"]
    assert capacity["memory"]["requestPolicy"]["default"] == "8Gi"


@pytest.mark.parametrize(("capability", "clients"), [("8.0.0", 33), ("7.0.0", 16)])
def test_no_more_claims_share_by_mps_than_the_gpu_has_clients(capability: str, clients: int) -> None:
    device = replace(a100(), attributes=(Attribute("cudaComputeCapability", Version(capability)),))
    assert clients <= most_clients(device)
    scheduler = scheduling.DeviceScheduler(scheduling.slices(shared(Sharing(SharingStrategy.MPS, replicas=4), device)))
    smallest = wanting(memory="1Mi", compute="1")
    assert [scheduler.allocate(smallest) is not None for _ in range(60)] == [True] * clients + [False] * (60 - clients)


@pytest.mark.parametrize("replicas", [2, 15, 34, 48])
def test_as_many_claims_as_a_rule_has_replicas_share_by_mps(replicas: int) -> None:
    scheduler = scheduling.DeviceScheduler(scheduling.slices(shared(Sharing(SharingStrategy.MPS, replicas=replicas))))
    assert [scheduler.allocate(wanting()) is not None for _ in range(replicas + 1)] == [True] * replicas + [False]


def test_consumed_capacity_is_counted_as_the_ledger_counts() -> None:
    assert consumed({"memory": "20Gi", "compute": "25", "copyEngines": "0"}, "ostler.dev") == (
        (COMPUTE, MILLION // 4),
        (MEMORY, 20 * GIB),
    )
    assert consumed({"ostler.dev/memory": "1Mi"}, "ostler.dev") == ((MEMORY, 1 << 20),)
    assert consumed({"memory": "2Mi", "ostler.dev/memory": "1Mi"}, "ostler.dev") == ((MEMORY, 2 << 20),)
    assert consumed({"memory": "0.5", "compute": "1500m"}, "ostler.dev") == ((COMPUTE, MILLION // 50), (MEMORY, 1))


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("lots", 'memory: "lots" is not a quantity: '),
        ("-1", "memory: -1 is less than nothing"),
        ("1e400", "memory: 1e400 is more than any device has"),
        ("9223372036854775808", "memory: 9223372036854775808 is more than any device has"),
    ],
)
def test_an_amount_that_is_none_is_named(amount: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}"):
        consumed({"memory": amount}, "ostler.dev")


sharings = st.builds(Sharing, strategy=st.sampled_from(SharingStrategy), replicas=st.integers(2, 200))


@given(sharings, st.integers(1 << 20, 200 * GIB), st.data())
def test_what_claims_may_consume_fits_beside_what_pods_have(sharing: Sharing, memory: int, data: st.DataObject) -> None:
    device = replace(gpu(0), capacity=(Capacity("memory", memory),))
    number = data.draw(st.integers(0, sharing.replicas))
    part = sharing.replica_amounts(device)
    held: Amounts = tuple((name, number * amount) for name, amount in part)
    left = {name: f"{each.left}" for name, each in consumable(device, sharing, held).items()}
    assert fit_within([held, consumed(left, "ostler.dev")], whole_amounts(device))


@given(sharings, st.integers(8 << 20, 200 * GIB), st.data())
def test_a_shared_device_is_valid_however_much_of_it_pods_have(
    sharing: Sharing, memory: int, data: st.DataObject
) -> None:
    device = replace(gpu(0), capacity=(Capacity("memory", memory),))
    held = data.draw(st.integers(0, sharing.replicas))
    part, whole = sharing.replica_amounts(device), whole_amounts(device)
    holds = tuple(
        Hold(device.name, Door.PLUGIN, "a/b", 1.0, f"plugin/{number}", str(number), amounts=part, whole=whole)
        for number in range(held)
    )
    (slice_,) = scheduling.slices(shared(sharing, device, holds=holds))
    assert validate_slice(slice_) == []
