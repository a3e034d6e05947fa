"""What people say of a device goes before what is measured, until they take it back or its time is over."""

from __future__ import annotations

import pytest

from node.health.keeper import InvalidRequest, NothingToClear
from node.health.signal import Condition, Trouble
from node.health.state import Health, HealthState, Recovery
from node.inventory.model import UnknownDevice
from tests.node.health.rig import DEGRADED, GONE, HEALTHY, UNHEALTHY, UNKNOWN, A, B, HealthRig, gpu, mig


def test_a_word_holds_for_its_time() -> None:
    rig = HealthRig([A, B])
    assert rig.keeper.set(A.name, UNHEALTHY, " bad\nfan ", 7200) == (f"{A.name} healthy -> unhealthy (bad fan)",)
    assert rig.health(A.name) == Health(UNHEALTHY, "bad fan", rig.time.now, Recovery.PERSON, "person")
    assert rig.entry(A.name).until == rig.time.now + 7200
    rig.time.forward(7199)
    assert rig.state(A.name) is UNHEALTHY
    rig.time.forward(2)
    assert rig.states() == {A.name: HEALTHY, B.name: HEALTHY}
    assert rig.told.reasons == ["DeviceUnhealthy", "DeviceHealthy"]


def test_a_word_without_a_time_holds_until_it_is_cleared() -> None:
    rig = HealthRig([A])
    rig.keeper.set("GPU-26", DEGRADED, "noisy")
    rig.time.forward(10**8)
    assert (rig.state(A.name), rig.health(A.name).usable) == (DEGRADED, True)
    assert rig.keeper.clear(A.name, dry_run=True) == (f"{A.name}: the override (noisy) would be cleared",)
    assert rig.state(A.name) is DEGRADED
    assert rig.keeper.clear(A.name) == (f"{A.name} degraded -> healthy",)


def test_healthy_overrules_what_signals_say_and_not_what_a_scan_finds() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 95)
    rig.poll(A.name, Condition(Trouble.THERMAL))
    rig.keeper.set(A.name, HEALTHY, "known fault, harmless")
    assert rig.health(A.name) == Health(since=rig.time.now)
    rig.scan_health(A.name, Health(DEGRADED, "MIG mode will be enabled"))
    assert rig.state(A.name) is HEALTHY
    rig.scan_health(A.name, GONE)
    assert rig.health(A.name).reason == GONE.reason
    rig.scan_health(A.name, Health(UNKNOWN, "nothing is known of it"))
    assert rig.state(A.name) is UNKNOWN


def test_a_word_that_changes_nothing_says_how_the_device_stays() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 95)
    assert rig.keeper.set(A.name, UNHEALTHY, "I saw it, too") == (f"{A.name} stays unhealthy",)


def test_the_end_of_a_word_shows_what_is_so_meanwhile() -> None:
    rig = HealthRig([A])
    rig.keeper.set(A.name, UNHEALTHY, "work on the rack", 60)
    rig.xid(A.name, 13)
    rig.time.forward(61)
    assert (rig.state(A.name), rig.health(A.name).cause) == (DEGRADED, "xid")


def test_clearing_a_part_says_of_whom_its_trouble_is() -> None:
    whole = gpu(0x1A, mig=True)
    part = mig(whole, (1, 0))
    rig = HealthRig([whole, part])
    rig.xid(whole.name, 95)
    with pytest.raises(NothingToClear) as caught:
        rig.keeper.clear(part.name)
    assert str(caught.value) == (
        f"{part.name} has the trouble of {whole.name}; clear it there: ostler health clear {whole.name}"
    )


def test_clearing_forgets_what_happened_and_not_what_is_so() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 95)
    rig.look(A.name, Condition(Trouble.CARRIER, "no carrier"))
    assert rig.keeper.clear(A.name) == (f"{A.name} stays unhealthy",)
    assert rig.health(A.name).reason == "no carrier"
    with pytest.raises(NothingToClear) as caught:
        rig.keeper.clear(A.name)
    assert str(caught.value) == (
        f"{A.name} has no override, and its trouble is still there: no carrier; to override it: ostler health "
        f"set {A.name} healthy --reason ..."
    )


def test_clearing_ends_a_quiet_time_and_forgets_the_flapping() -> None:
    rig = HealthRig([A])
    for _ in range(5):
        rig.look(A.name, Condition(Trouble.CARRIER))
        rig.look(A.name)
        rig.time.forward(100)
    rig.look(A.name, Condition(Trouble.CARRIER))
    rig.look(A.name)
    assert rig.entry(A.name).flapping
    rig.keeper.clear(A.name)
    assert (rig.state(A.name), rig.entry(A.name).flapping) == (HEALTHY, False)


@pytest.mark.parametrize(
    ("state", "reason", "seconds", "text"),
    [
        (UNKNOWN, "x", None, "state: must be healthy, degraded or unhealthy, not unknown"),
        (UNHEALTHY, " \n", None, "reason: is empty; say why, for those who look at the device later"),
        (UNHEALTHY, "x" * 201, None, "reason: must have at most 200 characters, all printable"),
        (UNHEALTHY, "a\x1b[31m", None, "reason: must have at most 200 characters, all printable"),
        (
            UNHEALTHY,
            "x",
            -1,
            "duration: is -1 s; must be above 0 and at most 366 days; omit it to keep the override until",
        ),
        (UNHEALTHY, "x", float("nan"), "duration: is nan s; must be above 0 and at most 366 days"),
        (UNHEALTHY, "x", 1e12, "duration: is 1e+12 s; must be above 0 and at most 366 days"),
    ],
)
def test_words_that_cannot_be_meant_are_refused(
    state: HealthState, reason: str, seconds: float | None, text: str
) -> None:
    rig = HealthRig([A])
    with pytest.raises(InvalidRequest) as caught:
        rig.keeper.set(A.name, state, reason, seconds)
    assert str(caught.value).startswith(text)
    assert rig.shown == []


def test_a_device_that_is_not_here_is_named() -> None:
    rig = HealthRig([A])
    with pytest.raises(UnknownDevice, match="this node has no device 'gpu-9'; 'ostler devices' lists"):
        rig.keeper.set("gpu-9", UNHEALTHY, "x")
    with pytest.raises(UnknownDevice, match="this node has no device 'gpu-9'"):
        rig.keeper.clear("gpu-9")
    with pytest.raises(NothingToClear, match=f"{A.name} has no override and is healthy"):
        rig.keeper.clear(A.name)


def test_a_word_that_is_tried_out_leaves_the_one_that_holds() -> None:
    rig = HealthRig([A])
    rig.keeper.set(A.name, DEGRADED, "noisy")
    assert rig.keeper.set(A.name, UNHEALTHY, "too noisy", dry_run=True) == (
        f"{A.name} degraded -> unhealthy (too noisy)",
    )
    rig.time.forward(100)
    assert rig.health(A.name).reason == "noisy"
    assert len(rig.saved) == 1
