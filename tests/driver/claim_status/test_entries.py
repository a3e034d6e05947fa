"""The entries of status.devices: what they say of a NIC, and which of the old ones stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from driver.claims.model import PreparedDevice
from driver.claims.status_entries import UNREPORTED, ClaimReport, InterfacesReport, merged, network_data, nic_entries
from driver.devices.view import DoorView
from kube.bodies import JsonObject
from scheduling.api.validation.objects import validate_claim_status
from tests.making.claim_status import ATTACHED, DRIVER, NIC, VIEW, Shown, nic, prepared, stored, view_of


def entries(
    *devices: PreparedDevice, view: DoorView = VIEW, interfaces: InterfacesReport = UNREPORTED
) -> tuple[Shown, ...]:
    return cast("tuple[Shown, ...]", nic_entries(DRIVER, devices, view, interfaces))


def devices_of(claim: JsonObject | None) -> list[Shown]:
    assert claim is not None
    return cast("list[Shown]", cast("Shown", claim["status"])["devices"])


def test_the_api_server_takes_what_is_entered() -> None:
    before = stored()
    full = view_of(ifName="eth2", mac="b8:ce:f6:00:00:01", mtu=9000, rdmaDevice="mlx5_0", sriovFunction="vf", vfIndex=3)
    after = merged(before, DRIVER, entries(prepared(), view=full), 1_800_000_000.0)
    assert after is not None
    assert validate_claim_status(cast("Any", after), cast("Any", before)) == []


def test_entries_of_other_drivers_stay() -> None:
    other: JsonObject = {"driver": "other.example.com", "pool": "p", "device": "d", "data": {"mine": 1}}
    claim = stored(status=[other])
    assert devices_of(merged(claim, DRIVER, entries(prepared()), 0.0))[0] == other


def test_our_own_entries_of_devices_that_are_not_allocated_any_more_go() -> None:
    old: JsonObject = {"driver": DRIVER, "pool": "node-a", "device": "nic-gone"}
    found = devices_of(merged(stored(status=[old]), DRIVER, entries(prepared()), 0.0))
    assert [entry["device"] for entry in found] == [NIC]


def test_a_device_that_is_not_allocated_gets_no_entry() -> None:
    assert merged(stored("gpu-0"), DRIVER, entries(prepared()), 0.0) is None


def test_a_condition_that_has_not_changed_keeps_its_time() -> None:
    first = merged(stored(), DRIVER, entries(prepared()), 0.0)
    assert first is not None
    lower = DoorView((nic(ifName="eth2", mtu=1500),), generation=2)
    (entry,) = devices_of(merged(first, DRIVER, entries(prepared(), view=lower), 500.0))
    times = {condition["lastTransitionTime"] for condition in entry["conditions"]}
    assert times == {"1970-01-01T00:00:00Z"}


def test_a_condition_that_has_changed_has_a_new_time() -> None:
    first = merged(stored(), DRIVER, entries(prepared()), 0.0)
    assert first is not None
    for condition in devices_of(first)[0]["conditions"]:
        condition["status"] = "Unknown"
    (entry,) = devices_of(merged(first, DRIVER, entries(prepared()), 500.0))
    assert {condition["lastTransitionTime"] for condition in entry["conditions"]} == {"1970-01-01T00:08:20Z"}


def test_a_device_of_several_requests_has_one_entry_and_shares_have_their_own() -> None:
    found = entries(prepared(request="a"), prepared(request="b"), prepared(share="s1"), prepared(share="s2"))
    assert [entry.get("shareID") for entry in found] == [None, "s1", "s2"]


def test_a_function_that_a_user_space_driver_has_says_so() -> None:
    (entry,) = entries(prepared(), view=DoorView((nic(driver="vfio-pci"),)))
    _, network = entry["conditions"]
    assert network["reason"] == "NoInterface"
    assert network["message"] == "the device has no network interface that could be moved (driver vfio-pci)"
    assert "networkData" not in entry


def test_an_address_too_long_for_the_api_is_left_out() -> None:
    (entry,) = entries(prepared(), view=DoorView((nic(mac="x" * 129),)))
    assert "networkData" not in entry


MOVED = prepared(interface="eth2")


@pytest.mark.parametrize(
    ("device", "interfaces", "status", "reason", "message"),
    [
        (
            MOVED,
            UNREPORTED,
            "False",
            "InterfaceOnNode",
            "eth2 is in the node's network namespace; ostler moves it when the pod's sandbox starts",
        ),
        (MOVED, InterfacesReport((ATTACHED,)), "True", "NetworkDeviceReady", "the interface is in the pod as net1"),
        (MOVED, InterfacesReport(problem="no such route"), "False", "InterfaceMoveFailed", "no such route"),
        (
            prepared(),
            UNREPORTED,
            "False",
            "InterfaceNotMoved",
            "eth2 stays in the node's network namespace: the device's rule does not say moveInterface",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) and part.isalpha() else "",
)
def test_network_ready_says_where_the_interface_is(
    device: PreparedDevice, interfaces: InterfacesReport, status: str, reason: str, message: str
) -> None:
    (entry,) = entries(device, interfaces=interfaces)
    _, network = entry["conditions"]
    assert (network["type"], network["status"], network["reason"]) == ("NetworkReady", status, reason)
    assert network["message"] == message


def test_an_interface_in_the_pod_has_its_name_and_addresses_there() -> None:
    (entry,) = entries(MOVED, interfaces=InterfacesReport((ATTACHED,)))
    assert entry["networkData"] == {
        "interfaceName": "net1",
        "ips": ["10.0.0.2/24", "2001:db8::2/64"],
        "hardwareAddress": "b8:ce:f6:00:00:01",
    }


def test_the_api_server_takes_any_addresses_of_an_interface() -> None:
    many = tuple(f"2001:DB8::{number:04x}/64" for number in range(1, 30))
    interface = replace(ATTACHED, addresses=("2001:db8:0::1/64", *many), hardware_address="x" * 129)
    data = network_data(interface)
    assert "hardwareAddress" not in data
    before = stored()
    after = merged(before, DRIVER, entries(MOVED, interfaces=InterfacesReport((interface,))), 0.0)
    assert validate_claim_status(cast("Any", after), cast("Any", before)) == []


def test_after_a_restart_an_interface_in_the_pod_stays_ready_until_something_else_is_reported() -> None:
    attached = merged(stored(), DRIVER, entries(MOVED, interfaces=InterfacesReport((ATTACHED,))), 0.0)
    assert attached is not None
    report = ClaimReport(entries(MOVED), unconfirmed=frozenset((NIC,)))
    assert merged(attached, DRIVER, report.entries(DRIVER, attached), 500.0) is None
    gone = ClaimReport(entries(MOVED, interfaces=InterfacesReport()))
    (entry,) = devices_of(merged(attached, DRIVER, gone.entries(DRIVER, attached), 500.0))
    assert entry["conditions"][1]["status"] == "False"
    assert entry["networkData"] == {"hardwareAddress": "b8:ce:f6:00:00:01"}


def test_an_unconfirmed_interface_that_was_never_ready_is_on_the_node() -> None:
    before = merged(stored(), DRIVER, entries(MOVED), 0.0)
    assert before is not None
    report = ClaimReport(entries(MOVED), unconfirmed=frozenset((NIC,)))
    assert report.entries(DRIVER, before)[0] == entries(MOVED)[0]
