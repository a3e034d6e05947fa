"""When the link of a NIC is a trouble."""

from __future__ import annotations

import pytest

from node.health.kernel.links import LiveLink, by_interface, link_troubles, nic_link
from node.health.signal import Condition, Trouble
from node.health.state import Health, HealthState
from node.inventory.model import Device
from node.values import replace
from tests.making.kernel_devices import CARELESS, CARING, gpu, nic, vf

UP, DOWN, CUT = LiveLink(up=True, carrier=True), LiveLink(up=False, carrier=False), LiveLink(up=True, carrier=False)


def kinds(device: Device, *, rules: object = CARING, **live: LiveLink) -> list[Trouble]:
    found = nic_link(device, CARING if rules is CARING else CARELESS)
    assert found is not None
    return [trouble.kind for trouble in link_troubles(found, live)]


def test_an_interface_that_is_up_without_carrier_has_a_link_that_is_down() -> None:
    found = nic_link(nic(), CARING)
    assert found is not None
    assert link_troubles(found, {"ens1": CUT}) == (Condition(Trouble.CARRIER, "ens1 has no carrier"),)
    assert link_troubles(found, {"ens1": UP}) == ()


def test_what_was_just_heard_is_newer_than_the_scan() -> None:
    assert kinds(nic(linkUp=False), ens1=UP) == []
    assert kinds(nic(linkUp=True), ens1=CUT) == [Trouble.CARRIER]


@pytest.mark.parametrize(("told", "expected"), [(True, []), (False, [Trouble.CARRIER])])
def test_an_interface_that_was_set_down_is_as_the_scan_says(told: bool, expected: list[Trouble]) -> None:
    assert kinds(nic(linkUp=told), ens1=DOWN) == expected


@pytest.mark.parametrize(("told", "expected"), [(True, []), (False, [Trouble.CARRIER])])
def test_an_interface_of_which_nothing_is_heard_is_as_the_scan_says(told: bool, expected: list[Trouble]) -> None:
    assert kinds(nic(linkUp=told)) == expected


def test_a_nic_of_which_nobody_can_tell_has_no_trouble() -> None:
    found = nic_link(replace(nic(), attributes=()), CARING)
    assert found is not None
    assert link_troubles(found, {"ens1": CUT}) == ()


@pytest.mark.parametrize("told", [True, False])
def test_what_a_pod_does_with_its_nics_link_is_no_trouble(told: bool) -> None:
    for live in (UP, DOWN, CUT):
        assert kinds(nic(inPod=True, linkUp=told), ens1=live) == []


def test_without_a_rule_that_asks_no_link_is_a_trouble() -> None:
    assert kinds(nic(linkUp=False), rules=CARELESS, ens1=CUT) == []


def test_a_nic_that_is_gone_has_no_link_trouble() -> None:
    gone = replace(nic(linkUp=False), health=Health(HealthState.UNHEALTHY, "gone from the PCI bus"))
    assert kinds(gone, ens1=CUT) == []


@pytest.mark.parametrize(
    ("own", "above", "expected"),
    [
        (DOWN, CUT, [Trouble.CARRIER]),
        (DOWN, UP, []),
        (UP, CUT, []),
        (CUT, UP, [Trouble.CARRIER]),
    ],
)
def test_an_idle_virtual_function_has_its_physical_ones_link(
    own: LiveLink, above: LiveLink, expected: list[Trouble]
) -> None:
    assert kinds(vf(), ens1v0=own, ens1=above) == expected


@pytest.mark.parametrize(("told", "expected"), [(True, []), (False, [Trouble.PORT])])
def test_infiniband_is_as_its_port_whatever_its_interface_does(told: bool, expected: list[Trouble]) -> None:
    assert kinds(nic(linkType="infiniband", linkUp=told), ens1=CUT) == expected


def test_a_gpu_has_no_link() -> None:
    assert nic_link(gpu(), CARING) is None


def test_an_interface_decides_about_its_nic_and_its_virtual_functions() -> None:
    nics = {device.name: nic_link(device, CARING) for device in (nic(), vf(), vf("nic-0000-84-00-2", ifName=""))}
    found = by_interface({name: link for name, link in nics.items() if link is not None})
    assert {name: sorted(devices) for name, devices in found.items()} == {
        "ens1": ["nic-0000-84-00-0", "nic-0000-84-00-1", "nic-0000-84-00-2"],
        "ens1v0": ["nic-0000-84-00-1"],
    }
