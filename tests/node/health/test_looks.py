"""Looks of sources: what one says about which device, how many end a trouble, and when one without findings matters."""

from __future__ import annotations

from node.health.findings import Override
from node.health.policy import Policy
from node.health.signal import Condition, Look, Trouble
from node.health.tracker import HealthTracker, Judgement
from node.inventory.model import Snapshot
from tests.node.health.rig import DEGRADED, HEALTHY, UNHEALTHY, A, B, HealthRig

LOST = Condition(Trouble.LOST)


def test_a_look_that_finds_nothing_judges_nothing_on_a_node_in_order_and_ends_what_was_found() -> None:
    tracker, clean = HealthTracker(Policy()), Look("nvml", 0.0, {A.name: ()})
    tracker.observe(Snapshot(1, (A,)), 0.0)
    nothing = tracker.looked(clean, 1.0)
    assert nothing == Judgement()
    assert tracker.looked(clean, 2.0) is nothing
    assert tracker.looked(Look("nvml", 0.0, {A.name: (LOST,)}), 3.0).changed
    assert tracker.looked(clean, 4.0) is not nothing
    assert tracker.judged.devices[0].health.state is UNHEALTHY
    changed = [tracker.looked(clean, 5.0 + second).changed for second in range(3600)]
    assert sum(changed) == 1
    assert tracker.judged.devices[0].health.state is HEALTHY


def test_a_look_that_finds_nothing_ends_the_excuse_of_a_device_that_is_well_after_a_restart() -> None:
    tracker, clean = HealthTracker(Policy()), Look("nvml", 0.0, {A.name: ()})
    limits = tracker.eviction_limits
    limits.restore((), (A.name,), (B.name,), 0.0)
    tracker.observe(Snapshot(1, (A, B)), 1.0)
    tracker.looked(clean, 59.0)
    assert (limits.excused, limits.ailing) == ((A.name,), (B.name,))
    tracker.looked(clean, 61.0)
    assert (limits.excused, limits.ailing) == ((), ())
    assert limits.is_idle


def test_eviction_limits_are_not_idle_while_one_holds_though_every_device_is_well() -> None:
    tracker = HealthTracker(Policy())
    limits = tracker.eviction_limits
    tracker.observe(Snapshot(1, (A, B)), 0.0)
    tracker.looked(Look("nvml", 0.0, {A.name: (LOST,), B.name: (LOST,)}), 1.0)
    for second in range(3600):
        tracker.looked(Look("nvml", 0.0, {A.name: (), B.name: ()}), 2.0 + second)
    assert [device.health.state for device in tracker.judged.devices] == [HEALTHY, HEALTHY]
    assert limits.holds(A.kind)
    assert not limits.is_idle
    limits.release(A.kind)
    assert limits.is_idle


def test_a_look_that_finds_nothing_ends_an_override_whose_time_is_over() -> None:
    tracker, clean = HealthTracker(Policy()), Look("nvml", 0.0, {A.name: ()})
    tracker.observe(Snapshot(1, (A,)), 0.0)
    tracker.findings.restore_overrides({A.name: Override(DEGRADED, "noisy", 0.0, 10.0)})
    assert tracker.touched((A.name,), 1.0).changed
    assert not tracker.looked(clean, 9.0).changed
    assert tracker.judged.devices[0].health.state is DEGRADED
    assert tracker.looked(clean, 11.0).changed
    assert tracker.judged.devices[0].health.state is HEALTHY


def test_what_a_poll_told_is_over_only_after_three_looks_that_find_it_gone() -> None:
    rig = HealthRig([A])
    rig.poll(A.name, LOST)
    rig.look(A.name, source="nvml")
    rig.time.forward(10**6)
    assert rig.state(A.name) is UNHEALTHY
    rig.poll(A.name, times=2)
    assert rig.state(A.name) is HEALTHY


def test_looks_in_a_hurry_count_as_one() -> None:
    rig = HealthRig([A])
    rig.poll(A.name, LOST)
    for _ in range(50):
        rig.look(A.name, source="nvml")
    rig.time.forward(60)
    assert rig.state(A.name) is UNHEALTHY


def test_a_source_that_did_not_look_at_a_device_says_nothing_of_it() -> None:
    rig = HealthRig([A, B])
    rig.look(A.name, LOST)
    rig.look(B.name, LOST)
    rig.look(A.name)
    rig.time.forward(60)
    assert rig.states() == {A.name: HEALTHY, B.name: UNHEALTHY}


def test_one_source_does_not_end_what_another_told() -> None:
    rig = HealthRig([A])
    rig.look(A.name, LOST, source="kernel")
    rig.poll(A.name, times=5, source="nvml")
    assert rig.state(A.name) is UNHEALTHY
