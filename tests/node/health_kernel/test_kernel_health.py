"""What is heard on the loop becomes Looks at once, and only differences do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.clocks import SystemClocks
from node.events import EventBus
from node.health.signal import Condition, Look, Trouble
from node.inventory.live.kernel_health import KERNEL, SYSFS, KernelHealth
from node.inventory.live.sweeps import Swept
from node.inventory.live.udev import Uevent
from node.inventory.model import Device
from node.inventory.network.rtnetlink import Link
from tests.making.events import heard
from tests.making.kernel_devices import CARELESS, CARING, gpu, nic, snapshot, vf
from tests.node.live.virtual_time import run_in_virtual_time

GPU, NIC, VF = "gpu-0000-83-00-0", "nic-0000-84-00-0", "nic-0000-84-00-1"
PATH = "/sys/devices/pci0000:80/0000:83:00.0"


class _Told:
    """A KernelHealth and everything it told; the clock stands at 1000."""

    def __init__(self, *devices: Device) -> None:
        bus = EventBus()
        self.looks = heard(bus, Look)
        self.health = KernelHealth(bus, SystemClocks(clock=lambda: 1000.0))
        self.observe(*devices)

    def observe(self, *devices: Device) -> None:
        self.health.observe(snapshot(*devices), CARING)

    def link(
        self, name: str = "ens1", index: int = 2, *, up: bool = True, carrier: bool = True, kind: str = ""
    ) -> None:
        self.health.link(Link(index, name, kind, up=up, carrier=carrier), gone=False)

    def event(self, action: str, path: str = PATH, subsystem: str = "pci") -> bool:
        return self.health.uevent(Uevent(action, subsystem, path))

    def taken(self) -> list[tuple[str, dict[str, list[Trouble]]]]:
        """What was told since the last time: the source, and the kinds by device."""
        found = [
            (look.source, {name: [each.kind for each in look.found[name]] for name in look.found})
            for look in self.looks
        ]
        assert all(look.at == 1000.0 for look in self.looks)
        self.looks.clear()
        return found


def on_a_loop(steps: Callable[[], None]) -> None:
    async def main() -> None:
        steps()

    run_in_virtual_time(main())


def test_a_carrier_that_is_lost_is_told_at_once_and_its_return_too() -> None:
    told = _Told(nic(), vf())
    told.link(carrier=False)
    assert told.taken() == []
    told.health.settle()
    assert told.taken() == [(KERNEL, {NIC: [Trouble.CARRIER], VF: [Trouble.CARRIER]})]
    told.link()
    told.health.settle()
    assert told.taken() == [(KERNEL, {NIC: [], VF: []})]


def test_flaps_within_one_read_are_one_look_or_none() -> None:
    told = _Told(nic())
    for number in range(1001):
        told.link(carrier=number % 2 == 0)
    told.health.settle()
    assert told.taken() == []
    told.link(carrier=False)
    told.link(carrier=True)
    told.link(carrier=False)
    told.health.settle()
    assert told.taken() == [(KERNEL, {NIC: [Trouble.CARRIER]})]


def test_a_nic_that_is_moved_into_a_pod_is_not_told() -> None:
    told = _Told(nic())
    told.link()
    # The kernel sets it down, then it is gone from this namespace.
    told.link(up=False, carrier=False)
    told.health.settle()
    told.health.link(Link(2, "ens1"), gone=True)
    told.health.settle()
    told.observe(nic(inPod=True, linkUp=False))
    assert told.taken() == []


def test_an_interface_that_stays_down_is_told_when_a_scan_says_so() -> None:
    told = _Told(nic())
    told.link(up=False, carrier=False)
    told.health.settle()
    assert told.taken() == []
    told.observe(nic(linkUp=False))
    assert told.taken() == [(KERNEL, {NIC: [Trouble.CARRIER]})]


def test_a_snapshot_that_is_older_than_a_message_does_not_undo_it() -> None:
    told = _Told(nic())
    told.link(carrier=False)
    told.health.settle()
    told.taken()
    told.observe(nic(linkUp=True, mtu=9000))
    assert told.taken() == []


def test_links_that_are_listed_anew_replace_what_was_heard() -> None:
    told = _Told(nic())
    told.link(carrier=False)
    told.health.settle()
    told.taken()
    told.health.relisted([Link(2, "ens1", up=True, carrier=True)])
    assert told.taken() == [(KERNEL, {NIC: []})]


def test_a_renamed_interface_is_not_taken_for_the_one_that_had_its_name() -> None:
    told = _Told(nic())
    told.link(carrier=False)
    told.link("ens2", carrier=False)
    told.link("ens1", index=3)
    told.health.settle()
    assert told.taken() == []


def test_pods_links_are_not_kept_unless_they_have_a_nics_name() -> None:
    told = _Told(nic())
    told.link("cali1", 8, kind="veth", carrier=False)
    assert told.health._links == {}
    told.link(kind="veth", carrier=False)
    told.health.settle()
    assert told.taken() == [(KERNEL, {NIC: [Trouble.CARRIER]})]


def test_other_rules_are_followed_at_once() -> None:
    told = _Told(nic())
    told.link(carrier=False)
    told.health.settle()
    told.taken()
    told.health.observe(snapshot(nic()), CARELESS)
    assert told.taken() == [(KERNEL, {NIC: []})]
    told.observe(nic())
    assert told.taken() == [(KERNEL, {NIC: [Trouble.CARRIER]})]


@pytest.mark.parametrize(("action", "kind"), [("unbind", Trouble.UNBOUND), ("remove", Trouble.LOST)])
def test_a_uevent_is_believed_until_a_sweep_has_looked(action: str, kind: Trouble) -> None:
    def steps() -> None:
        told = _Told(gpu(), nic())
        assert told.event(action)
        assert told.taken() == [(KERNEL, {GPU: [kind]})]
        # This sweep began before the event.
        told.health.swept(Swept(-1.0, {GPU: (), NIC: ()}))
        assert told.taken() == [(SYSFS, {GPU: [], NIC: []})]
        told.health.swept(Swept(1.0, {GPU: (Condition(kind),), NIC: ()}))
        assert told.taken() == [(SYSFS, {GPU: [kind], NIC: []}), (KERNEL, {GPU: []})]

    on_a_loop(steps)


def test_a_driver_that_is_bound_again_is_told_at_once() -> None:
    def steps() -> None:
        told = _Told(gpu())
        told.event("unbind")
        told.event("bind")
        assert [found for _, found in told.taken()] == [{GPU: [Trouble.UNBOUND]}, {GPU: []}]

    on_a_loop(steps)


def test_a_sweep_that_left_a_device_out_says_nothing_of_it() -> None:
    def steps() -> None:
        told = _Told(gpu(), nic())
        told.event("remove")
        told.taken()
        told.health.swept(Swept(1.0, {NIC: ()}))
        assert told.taken() == [(SYSFS, {NIC: []})]

    on_a_loop(steps)


def test_events_of_others_are_nobodys() -> None:
    def steps() -> None:
        told = _Told(gpu())
        assert not told.event("unbind", "/sys/devices/pci0000:80/0000:99:00.0")
        assert not told.event("remove", "/sys/devices/x/nvidia0", "net")
        assert not told.event("", "", "")
        assert told.taken() == []

    on_a_loop(steps)


def test_a_node_that_is_removed_is_told_with_what_else_is_wrong() -> None:
    def steps() -> None:
        told = _Told(gpu(GPU, "/dev/dri/card1"))
        told.event("remove", f"{PATH}/drm/card1", "drm")
        told.event("unbind")
        assert [found for _, found in told.taken()] == [{GPU: [Trouble.NODE]}, {GPU: [Trouble.NODE, Trouble.UNBOUND]}]

    on_a_loop(steps)


def test_a_device_that_vanished_is_forgotten_and_is_well_when_it_is_back() -> None:
    def steps() -> None:
        told = _Told(gpu(), nic())
        told.event("remove")
        told.taken()
        told.observe(nic())
        assert told.taken() == [(KERNEL, {GPU: []})]
        told.health.swept(Swept(1.0, {GPU: (Condition(Trouble.LOST),), NIC: ()}))
        assert told.taken() == [(SYSFS, {NIC: []})]
        told.observe(gpu(), nic())
        assert told.taken() == []
        told.event("remove")
        assert told.taken() == [(KERNEL, {GPU: [Trouble.LOST]})]

    on_a_loop(steps)


def test_what_lasts_is_told_again_when_asked_and_nothing_else_is() -> None:
    told = _Told(gpu(), nic(), vf())
    told.health.republish()
    assert told.taken() == []
    told.link(carrier=False)
    told.health.settle()
    told.taken()
    told.health.republish()
    assert told.taken() == [(KERNEL, {NIC: [Trouble.CARRIER], VF: [Trouble.CARRIER]})]
    told.link()
    told.health.settle()
    told.taken()
    told.health.republish()
    assert told.taken() == []


def test_a_virtual_function_that_is_removed_is_unbound_and_its_physical_one_lost() -> None:
    def steps() -> None:
        told = _Told(nic(), vf())
        told.event("remove", PATH.replace("83:00.0", "84:00.1"))
        assert told.taken() == [(KERNEL, {VF: [Trouble.UNBOUND]})]
        told.event("remove", PATH.replace("83:00.0", "84:00.0"))
        assert told.taken() == [(KERNEL, {NIC: [Trouble.LOST]})]

    on_a_loop(steps)


@given(st.lists(st.sampled_from(["cut", "up", "down", "gone", "scan up", "scan down", "settle"]), max_size=30))
def test_what_was_told_last_is_always_what_is_so(steps: list[str]) -> None:
    told = _Told(nic())
    last: dict[str, list[Trouble]] = {NIC: []}
    heard: str | None = None
    scanned = True
    for step in steps:
        match step:
            case "settle":
                told.health.settle()
            case "gone":
                told.health.link(Link(2, "ens1"), gone=True)
                heard = None
            case "scan up" | "scan down":
                scanned = step == "scan up"
                told.observe(nic(linkUp=scanned))
            case _:
                told.link(up=step != "down", carrier=step == "up")
                heard = step
    told.health.settle()
    for _, found in told.taken():
        last |= found
    wrong = heard == "cut" or (heard in (None, "down") and not scanned)
    assert last == {NIC: [Trouble.CARRIER] if wrong else []}
