"""A clock that is set, forwards or backwards, by seconds or by years: nothing ends early and nothing hangs."""

from __future__ import annotations

import pytest

from node.health.signal import Condition, Trouble
from node.health.state import Health
from node.values import replace
from tests.node.health.rig import DEGRADED, GONE, HEALTHY, UNHEALTHY, A, B, C, HealthRig, nic

CARRIER = Condition(Trouble.CARRIER)
JUMPS = [-30 * 365 * 86_400.0, -86_400.0, -30.0, 30.0, 86_400.0, 56 * 365 * 86_400.0]


@pytest.fixture(params=JUMPS, ids=lambda seconds: f"{seconds:+g} s")
def jump(request: pytest.FixtureRequest) -> float:
    found: float = request.param
    return found


def test_a_quiet_time_is_as_long_as_ever(jump: float) -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 142)
    rig.time.forward(100)
    rig.time.now += jump
    rig.time.forward(199)
    assert rig.state(A.name) is UNHEALTHY
    rig.time.forward(2)
    assert rig.state(A.name) is HEALTHY


def test_a_quiet_time_is_as_long_as_ever_also_when_something_happens_to_another_device(jump: float) -> None:
    rig = HealthRig([A, B])
    rig.xid(A.name, 142)
    rig.time.forward(100)
    rig.time.now += jump
    rig.xid(B.name, 13)
    rig.time.forward(199)
    assert rig.states() == {A.name: UNHEALTHY, B.name: DEGRADED}
    rig.time.forward(2)
    assert rig.states() == {A.name: HEALTHY, B.name: DEGRADED}


def test_a_condition_that_is_gone_settles_as_long_as_ever(jump: float) -> None:
    port = nic(0x86)
    rig = HealthRig([port])
    rig.look(port.name, CARRIER)
    rig.look(port.name)
    rig.time.forward(5)
    rig.time.now += jump
    rig.time.forward(14)
    assert rig.state(port.name) is UNHEALTHY
    rig.time.forward(2)
    assert rig.state(port.name) is HEALTHY


def test_looks_of_a_source_that_polls_count_as_ever(jump: float) -> None:
    rig = HealthRig([A])
    rig.poll(A.name, Condition(Trouble.PCIE_LINK))
    rig.poll(A.name)
    rig.time.now += jump
    rig.look(A.name, source="nvml")
    assert rig.state(A.name) is DEGRADED
    rig.time.forward(10)
    rig.look(A.name, source="nvml")
    rig.time.forward(0.1)
    assert rig.state(A.name) is HEALTHY


def test_two_looks_are_no_further_apart_for_it(jump: float) -> None:
    rig = HealthRig([A])
    rig.poll(A.name, Condition(Trouble.PCIE_LINK))
    rig.look(A.name, source="nvml")
    rig.time.now += jump
    rig.time.forward(1)
    for _ in range(2):
        rig.look(A.name, source="nvml")
        rig.time.forward(9.7)
    rig.time.forward(10)
    assert rig.state(A.name) is DEGRADED, "it was seen well at two moments that were ten seconds apart"


def test_a_device_that_was_reset_settles_as_long_as_ever(jump: float) -> None:
    rig = HealthRig([A, B])
    rig.xid(A.name, 95)
    rig.scan_health(A.name, GONE)
    rig.scan_health(A.name, Health())
    rig.time.forward(5)
    rig.time.now += jump
    rig.xid(B.name, 13)
    rig.time.forward(4)
    assert rig.state(A.name) is UNHEALTHY
    rig.time.forward(2)
    assert rig.state(A.name) is HEALTHY


def test_what_comes_back_soon_does_so_whatever_the_clock_says(jump: float) -> None:
    port = nic(0x86)
    rig = HealthRig([port])
    for turn in range(3):
        rig.look(port.name, CARRIER)
        rig.look(port.name)
        rig.time.forward(21)
        assert rig.state(port.name) is (HEALTHY if turn < 2 else UNHEALTHY)
        rig.time.now += jump
    assert rig.entry(port.name).flapping


def test_what_flaps_goes_on_flapping(jump: float) -> None:
    port = nic(0x86)
    rig = HealthRig([port])
    for _ in range(5):
        rig.look(port.name, CARRIER)
        rig.look(port.name)
        rig.time.forward(1)
    assert rig.entry(port.name).flapping
    rig.time.now += jump
    rig.time.forward(30)
    assert (rig.state(port.name), rig.entry(port.name).flapping) == (UNHEALTHY, True)
    rig.time.forward(600)
    assert rig.state(port.name) is HEALTHY


def test_a_device_evicts_as_late_as_ever(jump: float) -> None:
    rig = HealthRig([A, B, C])
    rig.scan_health(A.name, GONE)
    rig.time.forward(5)
    rig.time.now += jump
    rig.scan(replace(B, index="9"))
    assert not rig.health(A.name).evicts
    rig.time.forward(4)
    assert not rig.health(A.name).evicts
    rig.time.forward(2)
    assert rig.health(A.name).evicts


def test_devices_that_go_bad_before_and_after_it_go_bad_at_once(jump: float) -> None:
    rig = HealthRig([A, B, C])
    rig.scan_health(A.name, GONE)
    rig.time.forward(5)
    rig.time.now += jump
    rig.scan_health(B.name, GONE)
    rig.time.forward(60)
    assert [limit.kind for limit, _ in rig.keeper.eviction_limits] == ["gpu"]


def test_devices_that_go_bad_at_different_times_do_so_whatever_the_clock_says(jump: float) -> None:
    rig = HealthRig([A, B, C])
    rig.scan_health(A.name, GONE)
    rig.time.forward(100)
    rig.time.now += jump
    rig.scan_health(B.name, GONE)
    rig.time.forward(11)
    assert rig.keeper.eviction_limits == ()
    assert rig.health(B.name).evicts


def test_a_word_holds_as_long_as_it_was_meant_to(jump: float) -> None:
    rig = HealthRig([A])
    rig.keeper.set(A.name, UNHEALTHY, "for an hour", 3600)
    rig.time.forward(600)
    rig.time.now += jump
    rig.time.forward(2999)
    assert rig.state(A.name) is UNHEALTHY
    rig.time.forward(2)
    assert rig.state(A.name) is HEALTHY


def test_events_of_a_device_that_no_scan_knows_yet_are_kept(jump: float) -> None:
    rig = HealthRig([B])
    rig.xid(A.name, 95)
    rig.time.now += jump
    rig.scan(replace(B, index="9"))
    rig.scan(A)
    assert rig.state(A.name) is UNHEALTHY


def test_a_clock_that_is_slewed_moves_nothing() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 95)
    rig.time.forward(61)
    saved = len(rig.saved)
    for _ in range(100):
        rig.time.now += 0.1
        rig.time.forward(10)
        rig.look(A.name)
    assert len(rig.saved) == saved
