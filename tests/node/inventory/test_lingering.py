"""A NIC that the node needed a moment ago is not free yet."""

from __future__ import annotations

from node.inventory.model import Device, DeviceKind
from node.inventory.nics.use import SECONDS, LingeringUses

ROUTE = "carries the node's default route (IPv4, by eth0)"


def nic(use: str = "", name: str = "nic-0000-01-00-0") -> Device:
    return Device(name, DeviceKind.NIC, "intel", host_use=use)


def test_a_use_that_ends_counts_for_a_minute_longer() -> None:
    uses = LingeringUses()
    assert uses.applied([nic(ROUTE)], 1000.0) == (nic(ROUTE),)
    assert uses.applied([nic()], 1030.0) == (nic(ROUTE),)
    assert uses.applied([nic()], 1000.0 + SECONDS) == (nic(),)


def test_a_use_that_comes_back_counts_anew() -> None:
    uses = LingeringUses()
    uses.applied([nic(ROUTE)], 1000.0)
    uses.applied([nic()], 1050.0)
    uses.applied([nic(ROUTE)], 1055.0)
    assert uses.applied([nic()], 1100.0) == (nic(ROUTE),)


def test_another_use_replaces_the_one_before() -> None:
    uses = LingeringUses()
    uses.applied([nic(ROUTE)], 1000.0)
    assert uses.applied([nic("is in bond0")], 1001.0) == (nic("is in bond0"),)
    assert uses.applied([nic()], 1002.0) == (nic("is in bond0"),)


def test_a_device_that_goes_is_forgotten_and_others_are_as_they_are() -> None:
    uses = LingeringUses()
    other = nic(name="nic-0000-02-00-0")
    assert uses.applied([nic(ROUTE), other], 1000.0) == (nic(ROUTE), other)
    assert uses.applied([other], 1001.0) == (other,)
    assert uses.applied([nic(), other], 1002.0) == (nic(), other)


def test_a_clock_set_back_ends_it_a_minute_from_then() -> None:
    uses = LingeringUses()
    uses.applied([nic(ROUTE)], 1000.0)
    assert uses.applied([nic()], 10.0) == (nic(ROUTE),)
    assert uses.applied([nic()], 10.0 + SECONDS) == (nic(),)
