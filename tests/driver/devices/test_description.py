"""A device in a slice: names and types of attributes, capacity, what is left out, taints, and what the API takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.description import LIMIT, Fact, own_facts, quantity, sections, slice_device
from driver.devices.view import DraDevice, taints
from driver.names import Peer
from node.health.state import Health, HealthState
from node.inventory.model import Attribute, AttributeValue, Device, DeviceKind, Version, sorted_attributes
from node.offer import Cause
from node.rules import Doors, Rule
from node.values import replace
from scheduling.api import quantities
from scheduling.api.validation.objects import validate_slice
from tests.driver.devices.recorded import NODES, view
from tests.driver.devices.scheduling import slices
from tests.making.devices import amd, gpu, nic

RULE = Rule("nvidia.com/gpu", door=Doors.DRA)
Json = dict[str, Any]


def device(name: str, node: str, *peers: Peer) -> Json:
    offered = view(node).device(name)
    assert offered is not None
    return slice_device(offered, peers)


def with_facts(made: Device, **facts: AttributeValue) -> DraDevice:
    return DraDevice(replace(made, attributes=sorted_attributes(facts.items())), RULE, healthy=True)


def test_a_gpu_has_the_names_and_types_that_existing_claims_use() -> None:
    found = device("gpu-0000-1b-00-0", "h100-sxm-8")
    assert {name: found["attributes"][name] for name in sorted(NVIDIAS_OWN)} == {
        "addressingMode": {"string": "None"},
        "architecture": {"string": "Hopper"},
        "brand": {"string": "Nvidia"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "cudaDriverVersion": found["attributes"]["cudaDriverVersion"],
        "driverVersion": found["attributes"]["driverVersion"],
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "resource.kubernetes.io/numaNode": {"int": 0},
        "resource.kubernetes.io/pciBusID": {"string": "0000:1b:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:15"},
        "type": {"string": "gpu"},
        "uuid": found["attributes"]["uuid"],
    }
    assert found["capacity"] == {"memory": {"value": "81559Mi"}}


NVIDIAS_OWN = {
    "addressingMode",
    "architecture",
    "brand",
    "cudaComputeCapability",
    "cudaDriverVersion",
    "driverVersion",
    "productName",
    "resource.kubernetes.io/numaNode",
    "resource.kubernetes.io/pciBusID",
    "resource.kubernetes.io/pcieRoot",
    "type",
    "uuid",
}


def test_a_mig_device_has_its_profile_parent_and_every_capacity() -> None:
    found = device("mig-0000-81-00-0-2-1", "a100-mig-4")
    assert found["attributes"]["type"] == {"string": "mig"}
    assert found["attributes"]["profile"]["string"].startswith("1g.")
    assert found["attributes"]["parentUUID"]["string"].startswith("GPU-")
    assert set(found["capacity"]) == {
        "memory",
        "multiprocessors",
        "copyEngines",
        "decoders",
        "encoders",
        "jpegEngines",
        "ofaEngines",
    }


def test_a_virtual_function_has_names_that_claims_for_nics_use() -> None:
    found = device("nic-0000-17-00-2", "sriov-2")["attributes"]
    assert {name: found[name] for name in ("type", "ifName", "rdma", "sriovFunction", "vfIndex", "pfName", "mtu")} == {
        "type": {"string": "nic"},
        "ifName": {"string": "ens1f0v0"},
        "rdma": {"bool": True},
        "sriovFunction": {"string": "vf"},
        "vfIndex": {"int": 0},
        "pfName": {"string": "ens1f0np0"},
        "mtu": {"int": 1500},
    }


@pytest.mark.parametrize("made", [amd(1), nic(3), gpu(0)])
def test_every_device_says_type_vendor_and_resource(made: Device) -> None:
    found = slice_device(DraDevice(made, RULE, healthy=True))["attributes"]
    assert isinstance(found, dict)
    assert found["type"] == {"string": made.kind.value}
    assert found["vendor"] == {"string": made.vendor}
    assert found["resource"] == {"string": "nvidia.com/gpu"}


def test_the_resource_of_a_rule_for_every_profile_is_that_of_the_device() -> None:
    found = device("mig-0000-c1-00-0-0-1", "a100-mig-4")["attributes"]
    assert found["resource"]["string"] == f"nvidia.com/mig-{found['profile']['string']}"


def test_a_text_of_more_than_64_bytes_is_left_out_and_not_cut() -> None:
    found = slice_device(with_facts(gpu(0), productName="ü" * 33, serial="x" * 64))["attributes"]
    assert isinstance(found, dict)
    assert "productName" not in found
    assert found["serial"] == {"string": "x" * 64}


def test_truth_numbers_and_versions_keep_their_types() -> None:
    found = slice_device(with_facts(gpu(0), eccEnabled=True, minor=1, driverVersion=Version("1.2.3")))["attributes"]
    assert isinstance(found, dict)
    assert [found[name] for name in ("eccEnabled", "minor", "driverVersion")] == [
        {"bool": True},
        {"int": 1},
        {"version": "1.2.3"},
    ]


@pytest.mark.parametrize(
    ("amount", "in_bytes", "text"),
    [
        (80 << 30, True, "80Gi"),
        (81559 << 20, True, "81559Mi"),
        (1536, True, "1536"),
        (2048, True, "2Ki"),
        (0, True, "0"),
        (1000, True, "1k"),
        (1001, True, "1001"),
        (2048, False, "2048"),
        (132, False, "132"),
    ],
)
def test_amounts_are_canonical_quantities(amount: int, in_bytes: bool, text: str) -> None:
    assert quantity(Fact("memory", amount, amount=True, bytes=in_bytes)) == text


@given(st.integers(0, 1 << 62) | st.integers(0, 1000).map(lambda count: count << 20), st.booleans())
def test_an_amount_is_written_as_the_api_server_would(amount: int, in_bytes: bool) -> None:
    text = quantity(Fact("memory", amount, amount=True, bytes=in_bytes))
    written = quantities.parse(text)
    assert written == quantities.from_int(amount)
    assert str(written) == text


@pytest.mark.parametrize("peers", [(), (Peer.NVIDIA,), (Peer.DRANET,), (Peer.SRIOV,), tuple(Peer)])
@pytest.mark.parametrize("node", NODES)
def test_slices_of_recorded_nodes_are_what_the_api_takes(node: str, peers: tuple[Peer, ...]) -> None:
    for slice_ in slices(view(node).devices, peers):
        assert validate_slice(slice_) == []


@pytest.mark.parametrize("node", NODES)
def test_what_claims_choose_by_is_there_with_all_peers_too(node: str) -> None:
    for offered in view(node).devices:
        found = slice_device(offered, tuple(Peer))
        attributes, capacity = found["attributes"], found.get("capacity", {})
        assert isinstance(attributes, dict)
        assert isinstance(capacity, dict)
        first, _ = own_facts(offered)
        assert {fact.name for fact in first} <= {*attributes, *capacity}
        assert len(attributes) + len(capacity) <= LIMIT


FACTS = st.lists(
    st.builds(Fact, st.sampled_from([f"n{number}" for number in range(60)]), st.integers(0, 9), st.booleans()),
    max_size=80,
)


@given(FACTS)
def test_of_too_many_facts_the_first_stay(facts: list[Fact]) -> None:
    attributes, capacity = sections(facts)
    order = list(dict.fromkeys((fact.amount, fact.name) for fact in facts))
    kept = {(False, name) for name in attributes} | {(True, name) for name in capacity}
    assert kept == set(order[:LIMIT])
    assert list(attributes) == sorted(attributes)


def test_the_same_device_is_the_same_text() -> None:
    for offered in view("h100-sxm-8").devices:
        assert repr(slice_device(offered, tuple(Peer))) == repr(slice_device(offered, tuple(Peer)))


ILL = replace(gpu(0), health=Health(HealthState.UNHEALTHY, "Xid 79"))


@pytest.mark.parametrize(
    ("made", "cause", "taint"),
    [
        (ILL, Cause.HEALTH, {"key": "ostler.dev/health", "value": "unhealthy", "effect": "NoSchedule"}),
        (
            replace(gpu(0), health=Health(HealthState.UNKNOWN)),
            Cause.HEALTH,
            {"key": "ostler.dev/health", "value": "unknown", "effect": "NoSchedule"},
        ),
        (gpu(0), Cause.LINK_DOWN, {"key": "ostler.dev/link-down", "effect": "NoSchedule"}),
        (gpu(0), Cause.OTHER_DOOR, {"key": "ostler.dev/other-door", "effect": "NoSchedule", "value": "plugin"}),
        (gpu(0), Cause.UNFIT, {"key": "ostler.dev/unfit", "effect": "NoSchedule"}),
    ],
)
def test_a_device_that_may_not_be_allocated_has_a_taint_for_the_cause(made: Device, cause: Cause, taint: Json) -> None:
    assert slice_device(DraDevice(made, RULE, False, "why", cause))["taints"] == [taint]


EVICTING = Health(HealthState.UNHEALTHY, "GPU lost", cause="lost", evicts=True)


@pytest.mark.parametrize(
    ("health", "cause", "effect"),
    [
        (EVICTING, Cause.HEALTH, "NoExecute"),
        (EVICTING, Cause.GONE, "NoExecute"),
        (EVICTING, Cause.OTHER_DOOR, "NoSchedule"),
        (EVICTING, Cause.PENDING_RELEASE, "NoSchedule"),
        (EVICTING, Cause.UNFIT, "NoSchedule"),
        (replace(EVICTING, state=HealthState.UNKNOWN), Cause.HEALTH, "NoSchedule"),
        (replace(EVICTING, evicts=False), Cause.HEALTH, "NoSchedule"),
    ],
)
def test_health_evicts_where_its_policy_says_so_and_unknown_never(health: Health, cause: Cause, effect: str) -> None:
    (taint,) = taints(DraDevice(replace(gpu(0), health=health), RULE, False, "why", cause))
    assert isinstance(taint, dict)
    assert taint["effect"] == effect


@pytest.mark.parametrize("cause", [Cause.OTHER_DOOR, Cause.HEALTH, Cause.MOVING])
def test_a_contested_device_evicts_whatever_else_is_wrong_with_it(cause: Cause) -> None:
    expected = {"key": "ostler.dev/other-door", "value": "plugin", "effect": "NoExecute"}
    assert taints(DraDevice(ILL, RULE, False, "why", cause, contested=True)) == [expected]
    (slice_,) = slices([DraDevice(ILL, RULE, False, "why", cause, contested=True)])
    assert validate_slice(slice_) == []


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_makes_a_taint_that_the_api_takes(cause: Cause) -> None:
    (slice_,) = slices([DraDevice(ILL, RULE, False, "why", cause)])
    assert validate_slice(slice_) == []


def test_a_degraded_device_has_no_taint() -> None:
    made = replace(gpu(0), health=Health(HealthState.DEGRADED, "ECC errors"))
    assert "taints" not in slice_device(DraDevice(made, RULE, True, "ECC errors"))


def test_places_are_attributes_like_others() -> None:
    offered = DraDevice(gpu(0), RULE, True, placement=(Attribute("cell4", "socket-0"),))
    found = slice_device(offered)["attributes"]
    assert isinstance(found, dict)
    assert found["cell4"] == {"string": "socket-0"}


def test_devices_of_amd_say_their_uuid_though_no_fact_does() -> None:
    found = slice_device(DraDevice(replace(amd(1), uuid="GPU-1f"), RULE, True))["attributes"]
    assert isinstance(found, dict)
    assert found["uuid"] == {"string": "GPU-1f"}
    assert amd(1).kind is DeviceKind.GPU
