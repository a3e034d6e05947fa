"""A cable that is pulled while a pod has the NIC: its health, and what the DRA door's slice says of it."""

from __future__ import annotations

import pytest

from driver.devices.partitions import partitioned
from driver.devices.view import door_offer, taints, view_of
from kube.bodies import Json
from node.clocks import SystemClocks
from node.health.kernel.links import LiveLink
from node.health.state import HealthState
from node.inventory.live.kernel_health import KernelHealth
from node.inventory.model import Device, DeviceKind, SnapshotJudged
from node.ledger.holds import Hold
from node.ledger.offer_context import NOTHING_HELD, OfferContext
from node.rules import Door, Doors, Rule, Selector
from node.values import replace
from tests.making.kernel_devices import nic, snapshot
from tests.node.health.rig import HealthRig

NIC = "nic-0000-84-00-0"
UP, CUT, DOWN = (LiveLink(up, carrier, "rail0") for up, carrier in ((True, True), (True, False), (False, False)))
HELD = OfferContext(holds={NIC: (Hold(NIC, Door.DRA, "team/claim", 0.0, "uid"),)})


def rule(*, link_health: bool) -> tuple[Rule, ...]:
    nics = Selector(kinds=(DeviceKind.NIC,))
    return (Rule("example.com/nic", nics, Doors.DRA, link_health=link_health, moves_interface=True),)


class Moved:
    """A NIC whose interface is in a pod, with the health that its link there has."""

    def __init__(self, *, link_health: bool = True, told: bool = True) -> None:
        self.rules = rule(link_health=link_health)
        self.device = replace(nic(inPod=True, linkUp=told), vendor="mellanox")
        self.rig = HealthRig([self.device])
        self.judged = [snapshot(self.device)]
        self.rig.bus.subscribe(SnapshotJudged, lambda event: self.judged.append(event.snapshot))
        self.health = KernelHealth(self.rig.bus, SystemClocks(clock=self.rig.time.clock))
        self.health.observe(snapshot(self.device), self.rules)

    def link(self, link: LiveLink | None) -> None:
        self.health.pod_link(NIC, link)

    def shown(self) -> Device:
        (device,) = self.judged[-1].devices
        return device

    def taints(self, context: OfferContext = NOTHING_HELD) -> list[Json]:
        parted = partitioned(self.judged[-1], self.rules)
        offered = door_offer(parted, self.rules, context)
        (device,) = view_of(parted, offered, context, self.rules).devices
        return taints(device)


def test_it_is_unhealthy_with_the_reason_and_a_taint_while_the_cable_is_out() -> None:
    moved = Moved()
    moved.link(UP)
    assert moved.taints() == []
    moved.link(CUT)
    assert moved.shown().health.state is HealthState.UNHEALTHY
    assert moved.shown().health.reason == "rail0 in its pod has no carrier"
    assert moved.taints() == [{"key": "ostler.dev/link-down", "effect": "NoSchedule"}]
    assert moved.taints(HELD) == moved.taints(), "also while the claim holds it"


def test_what_the_pod_does_itself_is_no_fault() -> None:
    moved = Moved()
    moved.link(DOWN)
    assert moved.taints() == []


def test_it_recovers_with_the_cable_and_when_it_comes_back() -> None:
    for back in (UP, None):
        moved = Moved()
        moved.link(CUT)
        assert moved.taints()
        moved.link(back)
        moved.rig.time.forward(3600)
        assert moved.shown().health.usable
        assert moved.taints() == []


@pytest.mark.parametrize("told", [True, False])
def test_without_link_health_nobody_asks(told: bool) -> None:
    moved = Moved(link_health=False, told=told)
    moved.link(CUT)
    assert moved.taints() == []
