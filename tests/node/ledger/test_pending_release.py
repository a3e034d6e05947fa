"""Devices that nobody holds, until a look has found no process on them."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from node.inventory.model import Device, DeviceKind, sorted_attributes
from node.ledger.holds import Hold, HoldState, wholes_of
from node.ledger.process_check import SLOW, PendingRelease
from node.ledger.processes import Process
from node.rules import Door
from tests.making.offered_devices import gpu, mig

ONE, TWO, WHOLE, PART = gpu(0), gpu(1), gpu(2, mig=True), mig(2, 0)
ALL = (ONE, TWO, WHOLE, PART)
NIC = Device("nic-0000-86-00-0", DeviceKind.NIC, "mellanox")
LEFT = Process(4711, "/usr/bin/python3")


def _held(device: Device, door: Door = Door.PLUGIN, *, admin: bool = False) -> Hold:
    return Hold(device.name, door, "team/one", 0.0, owner="o", admin=admin, within=wholes_of(device))


def _look(draining: PendingRelease, now: float, *left: Process) -> None:
    for order in draining.due(now):
        draining.looked(order, left, now)


def test_a_free_device_is_looked_at_before_it_is_allocated() -> None:
    draining = PendingRelease()
    draining.update((ONE, PART), (), 5.0, 1000.0)
    hold = draining.wanted()[PART.name]
    assert (hold.door, hold.owner, hold.state) == (None, f"draining/{PART.name}", HoldState.PENDING_RELEASE)
    assert (hold.since, hold.within) == (1000.0, (PART.parent,))
    assert hold.words == "pending release: ostler is checking for processes that still use it"
    assert draining.next_due() == 5.0
    _look(draining, 5.0)
    assert (dict(draining.wanted()), draining.next_due()) == ({}, None)
    draining.update((ONE, PART), (), 6.0, 1001.0)
    assert not draining.wanted(), "one look is enough until it is held"


def test_a_partition_is_looked_at_together_with_the_memory_slices_that_it_takes() -> None:
    draining = PendingRelease()
    attributes = {"placementStart": 2, "placementSize": 2, "computeSlices": 2, "gpuSlices": 2}
    part = replace(PART, attributes=sorted_attributes([*attributes.items()]))
    draining.update((part,), (), 5.0, 1000.0)
    assert draining.wanted()[part.name].slices == (2, 2)


def test_a_device_drains_from_the_moment_its_last_hold_ends() -> None:
    draining = PendingRelease()
    draining.update((ONE,), (_held(ONE), _held(ONE, Door.DRA)), 5.0, 1000.0)
    assert not draining.wanted()
    draining.update((ONE,), (_held(ONE, Door.DRA),), 6.0, 1001.0)
    assert not draining.wanted()
    draining.update((ONE,), (), 7.0, 1002.0)
    assert set(draining.wanted()) == {ONE.name}


def test_holds_for_looking_on_and_draining_ones_keep_nothing() -> None:
    draining = PendingRelease()
    draining.update((ONE,), (_held(ONE, admin=True),), 5.0, 1000.0)
    draining.update((ONE,), draining.wanted().values(), 6.0, 1000.0)
    assert set(draining.wanted()) == {ONE.name}


def test_what_overlaps_is_not_free_either() -> None:
    draining = PendingRelease()
    draining.update((WHOLE, PART), (_held(PART),), 5.0, 1000.0)
    draining.update((WHOLE, PART), (_held(WHOLE),), 6.0, 1000.0)
    assert not draining.wanted()
    draining.update((WHOLE, PART), (), 7.0, 1000.0)
    assert set(draining.wanted()) == {WHOLE.name, PART.name}


def test_a_left_over_process_is_named_and_looked_for_again_until_it_ends() -> None:
    draining = PendingRelease()
    draining.update((ONE,), (), 0.0, 1000.0)
    looks, now = [], 0.0
    while now < 60.0:
        looks.append(now)
        _look(draining, now, LEFT, Process(1, "nvidia-persistenced"))
        due = draining.next_due()
        assert due is not None
        now = due
    assert looks == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 25.5, 35.5, 45.5, 55.5]
    assert draining.wanted()[ONE.name].words == "pending release: process 4711 (python3)"
    assert draining.wanted()[ONE.name].since == 1000.0
    assert draining.left(ONE.name) == (LEFT,)
    _look(draining, now)
    assert not draining.wanted()
    assert draining.left(ONE.name) == ()


def test_many_processes_are_counted_not_named() -> None:
    draining = PendingRelease()
    draining.update((ONE,), (), 0.0, 1000.0)
    _look(draining, 0.0, *(Process(pid, "a") for pid in range(5)))
    assert draining.wanted()[ONE.name].holder == "processes 0 (a), 1 (a), 2 (a) and 2 more"


def test_daemons_alone_leave_a_device_free() -> None:
    draining = PendingRelease(ignore=("my-monitor",))
    draining.update((ONE,), (), 0.0, 1000.0)
    _look(draining, 0.0, Process(1, "/opt/my-monitor"))
    assert not draining.wanted()


def test_a_person_can_release_a_device_until_it_is_held_again() -> None:
    draining = PendingRelease()
    assert not draining.release(ONE.name)
    draining.update((ONE,), (), 0.0, 1000.0)
    _look(draining, 0.0, LEFT)
    assert draining.release(ONE.name)
    draining.update((ONE,), (), 20.0, 1000.0)
    assert not draining.wanted()
    assert draining.found_free(ONE.name)
    draining.update((ONE,), (_held(ONE),), 21.0, 1000.0)
    draining.update((ONE,), (), 22.0, 1000.0)
    assert set(draining.wanted()) == {ONE.name}


def test_a_look_from_before_a_hold_says_nothing() -> None:
    draining = PendingRelease()
    draining.update((ONE,), (), 0.0, 1000.0)
    (order,) = draining.due(0.0)
    draining.update((ONE,), (_held(ONE),), 1.0, 1000.0)
    draining.update((ONE,), (), 2.0, 1000.0)
    assert draining.looked(order, (), 3.0) == ()
    draining.failed(order, "NVML is silent", 3.0)
    assert draining.wanted()[ONE.name].holder == "ostler is checking for processes that still use it"
    assert draining.due(3.0) != (order,)


def test_a_device_that_was_made_anew_is_looked_for_by_its_new_uuid() -> None:
    draining = PendingRelease()
    draining.update((PART,), (), 0.0, 1000.0)
    (order,) = draining.due(0.0)
    draining.failed(order, "no such device", 0.0)
    draining.update((replace(PART, uuid="MIG-new"),), (), 1.0, 1000.0)
    (again,) = draining.due(1.0)
    assert again.device.uuid == "MIG-new"
    draining.looked(again, (), 1.0)
    assert not draining.wanted()


def test_a_look_that_fails_is_made_again_and_told() -> None:
    draining = PendingRelease()
    draining.update((ONE,), (), 0.0, 1000.0)
    (order,) = draining.due(0.0)
    draining.failed(order, "GPU is lost", 0.1)
    hold = draining.wanted()[ONE.name]
    assert hold.holder == "ostler is checking for processes that still use it, which fails: GPU is lost"
    assert draining.due(0.5) == ()
    assert len(draining.due(0.1 + SLOW)) == 1


def test_a_driver_that_never_tells_keeps_nothing() -> None:
    draining = PendingRelease()
    draining.update((ONE,), (), 0.0, 1000.0)
    (order,) = draining.due(0.0)
    draining.looked(order, None, 0.1)
    assert not draining.wanted()
    assert draining.found_free(ONE.name)


def test_devices_without_processes_and_checks_that_are_off_keep_nothing() -> None:
    draining = PendingRelease()
    draining.update((NIC,), (), 0.0, 1000.0)
    off = PendingRelease(off="the agent does not see the node's processes")
    off.update(ALL, (), 0.0, 1000.0)
    assert (dict(draining.wanted()), dict(off.wanted())) == ({}, {})


def test_a_device_that_is_gone_or_no_longer_both_doors_is_forgotten() -> None:
    draining = PendingRelease()
    draining.update((ONE, TWO), (), 0.0, 1000.0)
    _look(draining, 0.0, LEFT)
    draining.update((TWO,), (), 1.0, 1000.0)
    assert set(draining.wanted()) == {TWO.name}
    draining.update((ONE, TWO), (), 2.0, 1001.0)
    assert draining.wanted()[ONE.name].holder == "ostler is checking for processes that still use it"


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.sampled_from(ALL)),
        st.tuples(st.just("end"), st.sampled_from(ALL)),
        st.tuples(st.just("look"), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 20.0])),
        st.tuples(st.just("release"), st.sampled_from(ALL)),
    ),
    max_size=40,
)


@given(_STEPS)
def test_every_device_that_nobody_holds_drains_or_was_found_free_since_it_was_held(
    steps: list[tuple[str, Device | bool | float]],
) -> None:
    draining, now = PendingRelease(), 0.0
    held: dict[str, Hold] = {}
    free: set[str] = set()

    def busy(device: Device) -> bool:
        wholes = wholes_of(device)
        return any(device.name in (h.device, *h.within) or h.device in wholes for h in held.values())

    for action, what in steps:
        if isinstance(what, Device) and action == "hold":
            held[what.name] = _held(what)
        elif isinstance(what, Device) and action == "end":
            held.pop(what.name, None)
        elif isinstance(what, Device):
            if draining.release(what.name):
                free.add(what.name)
        elif action == "look":
            for order in draining.due(now):
                if not draining.looked(order, (LEFT,) if what else (), now) and not what:
                    free.add(order.device.name)
        else:
            now += float(what)
        draining.update(ALL, held.values(), now, now)
        free -= {device.name for device in ALL if busy(device)}
        expected = {device.name for device in ALL if not busy(device)} - free
        assert set(draining.wanted()) == expected
