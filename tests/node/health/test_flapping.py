"""A device that comes and goes is held until it is quiet: a thousand turns are a handful of changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.health.policy import HealthPace, Policy
from node.health.signal import Condition, Trouble
from node.health.state import Health
from tests.node.health.rig import HEALTHY, UNHEALTHY, A, HealthRig, nic

CARRIER = Condition(Trouble.CARRIER)
LOST = Health(UNHEALTHY, "the GPU is lost", cause="lost")
PORT = nic(0x86)


@pytest.mark.parametrize("period", [0.002, 1.0, 9.0, 25.0, 60.0, 300.0, 550.0])
def test_a_link_that_flaps_a_thousand_times_is_shown_a_handful_of_changes(period: float) -> None:
    rig = HealthRig([PORT])
    for _ in range(1000):
        rig.look(PORT.name, CARRIER)
        rig.scan(nic(0x86, up=False))
        rig.time.forward(period / 2)
        rig.look(PORT.name)
        rig.scan(nic(0x86, up=True))
        rig.time.forward(period / 2)
    assert rig.entry(PORT.name).flapping
    assert len(rig.shown) <= 12
    assert len(rig.told.events) <= 12
    rig.time.forward(601)
    assert rig.state(PORT.name) is HEALTHY


@pytest.mark.parametrize("period", [0.5, 5.0, 25.0, 60.0, 300.0])
def test_a_gpu_that_scans_lose_and_find_is_given_back_at_once_twice_and_then_held(period: float) -> None:
    rig = HealthRig([A])
    for turn in range(1000):
        rig.scan_health(A.name, LOST)
        rig.time.forward(period / 2)
        rig.scan_health(A.name, Health())
        assert turn > 1 or rig.state(A.name) is HEALTHY
        rig.time.forward(period / 2)
    assert len(rig.shown) <= 20
    rig.time.forward(601)
    assert rig.state(A.name) is HEALTHY


def test_an_xid_that_comes_again_and_again_is_one_state() -> None:
    rig = HealthRig([A])
    for number in range(1000):
        rig.xid(A.name, (13, 31, 68)[number % 3])
        rig.time.forward(1)
    assert len(rig.shown) == 1
    assert rig.told.reasons == ["DeviceDegraded"]


def test_reports_that_disagree_about_numbers_write_nothing() -> None:
    rig = HealthRig([A])
    for number in range(1000):
        rig.poll(A.name, Condition(Trouble.NVLINK, f"NVLinks had {number} errors"))
    assert len(rig.shown) == 1


def test_what_waits_for_a_reset_is_written_to_the_disk_when_it_comes_and_when_it_lasts() -> None:
    rig = HealthRig([A])
    for _ in range(1000):
        rig.xid(A.name, 95)
        rig.time.forward(1)
    assert len(rig.saved) == 2


def test_a_device_that_was_well_for_long_starts_anew() -> None:
    rig = HealthRig([PORT])
    for _ in range(10):
        rig.look(PORT.name, CARRIER)
        rig.look(PORT.name)
        rig.time.forward(21)
        assert rig.state(PORT.name) is HEALTHY
        rig.time.forward(700)
    assert not rig.entry(PORT.name).flapping


def test_how_often_and_how_long_are_the_configurations_words() -> None:
    rig = HealthRig([PORT], Policy(pace=HealthPace(looks=2, apart=1, flaps=2, window=100, longest=50)))
    rig.look(PORT.name, CARRIER)
    rig.look(PORT.name)
    rig.time.forward(1.1)
    assert rig.state(PORT.name) is HEALTHY
    rig.look(PORT.name, CARRIER)
    assert rig.entry(PORT.name).flapping
    rig.look(PORT.name)
    rig.time.forward(1.9)
    assert rig.state(PORT.name) is UNHEALTHY
    rig.time.forward(0.2)
    assert rig.state(PORT.name) is HEALTHY


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 700)), max_size=60))
def test_whatever_comes_and_goes_is_bad_at_once_and_well_in_the_end(steps: list[tuple[bool, float]]) -> None:
    rig = HealthRig([PORT])
    bad = False
    for bad, pause in steps:
        rig.look(PORT.name, *([CARRIER] if bad else []))
        assert not bad or rig.state(PORT.name) is UNHEALTHY
        rig.time.forward(pause)
    rig.look(PORT.name)
    rig.time.forward(601)
    assert rig.state(PORT.name) is HEALTHY
    assert rig.keeper.judged.generation == 1 + len(rig.shown)
