"""The entries of status.devices: what they say of a NIC, and which of the old ones stay."""

from __future__ import annotations

from typing import Any, cast

from driver.claims.claim_status import merged, nic_entries
from driver.claims.model import PreparedDevice
from driver.devices.view import DoorView
from kube.bodies import JsonObject
from scheduling.api.validation.objects import validate_claim_status
from tests.making.claim_status import DRIVER, NIC, VIEW, Shown, nic, prepared, stored, view_of


def entries(*devices: PreparedDevice, view: DoorView = VIEW) -> tuple[Shown, ...]:
    return cast("tuple[Shown, ...]", nic_entries(DRIVER, devices, view))


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
