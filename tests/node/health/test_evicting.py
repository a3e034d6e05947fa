"""Who may cost pods: only what left the bus, after a moment, and what the configuration names."""

from __future__ import annotations

import pytest

from node.health.policy import HealthPace, Policy
from node.health.signal import Condition, Trouble
from node.health.state import Health
from node.values import replace
from tests.node.health.rig import GONE, HEALTHY, UNHEALTHY, A, B, C, D, HealthRig

LOST = Condition(Trouble.LOST)


def test_a_device_that_left_the_bus_evicts_after_a_moment_and_others_do_not() -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan_health(A.name, GONE)
    rig.xid(B.name, 95)
    rig.time.forward(9)
    assert rig.evicting == []
    since = rig.health(A.name).since
    rig.time.forward(2)
    assert rig.evicting == [A.name]
    assert rig.health(A.name).since == since
    rig.time.forward(100_000)
    assert rig.evicting == [A.name]
    rig.scan_health(A.name, Health())
    assert rig.evicting == []


@pytest.mark.parametrize("by", ["kernel", "scan"])
def test_a_device_that_is_back_within_the_moment_does_not_evict_while_it_settles(by: str) -> None:
    rig = HealthRig([A, B, C])
    if by == "kernel":
        rig.look(A.name, LOST)
        rig.time.forward(3)
        rig.look(A.name)
    else:
        for _ in range(6):
            rig.scan_health(A.name, GONE)
            rig.time.forward(3)
            rig.scan_health(A.name, Health())
    assert rig.state(A.name) is UNHEALTHY
    for _ in range(16):
        rig.time.forward(1)
        assert rig.evicting == []


def test_a_device_that_evicts_goes_on_until_it_has_settled() -> None:
    rig = HealthRig([A, B, C])
    rig.look(A.name, LOST)
    rig.time.forward(11)
    assert rig.evicting == [A.name]
    rig.look(A.name)
    rig.time.forward(9)
    assert rig.evicting == [A.name]
    rig.time.forward(2)
    assert rig.state(A.name) is HEALTHY


def test_what_evicts_goes_on_when_the_configuration_waits_longer_from_now_on() -> None:
    rig = HealthRig([A, B, C])
    rig.look(A.name, LOST)
    rig.time.forward(11)
    rig.keeper.use(Policy(pace=HealthPace(evict_after=3600)))
    rig.look(B.name, LOST)
    rig.time.forward(5)
    rig.scan(replace(C, index="9"))
    assert A.name not in rig.evicting, "two of three at once"
    rig = HealthRig([A, B, C])
    rig.look(A.name, LOST)
    rig.time.forward(11)
    rig.keeper.use(Policy(pace=HealthPace(evict_after=3600)))
    rig.scan(replace(C, index="9"))
    assert rig.evicting == [A.name]


def test_a_device_that_is_lost_again_while_it_settles_has_its_moment_again() -> None:
    rig = HealthRig([A, B, C])
    for _ in range(2):
        rig.look(A.name, LOST)
        rig.time.forward(6)
        rig.look(A.name)
        rig.time.forward(3)
    rig.look(A.name, LOST)
    rig.time.forward(9)
    assert rig.evicting == []
    rig.time.forward(2)
    assert rig.evicting == [A.name]


def test_what_evicts_is_the_configurations_word() -> None:
    rig = HealthRig([A, B, C, D], Policy(evicting=frozenset({Trouble.XID}), pace=HealthPace(evict_after=0)))
    rig.look(A.name, LOST)
    rig.xid(B.name, 95)
    assert rig.evicting == [B.name]
    rig.xid(C.name, 13)
    assert rig.evicting == [B.name]
    rig.keeper.use(Policy())
    assert rig.evicting == []
    rig.time.forward(11)
    assert rig.evicting == [A.name]
