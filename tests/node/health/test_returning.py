"""A GPU that fell off the bus and is back is allocated again within fifteen seconds, an XID beside it or not."""

from __future__ import annotations

import pytest

from node.health.policy import APART, NARROW, UNREACHABLE
from node.health.signal import Condition, HealthEvent, Trouble
from node.health.state import Health
from node.inventory.model import sorted_attributes
from node.inventory.nvidia.signals.polls import PULSE
from node.values import replace
from tests.node.health.rig import DEGRADED, HEALTHY, START, UNHEALTHY, A, HealthRig, gpu, lost, mig

LOST = Condition(Trouble.LOST, "it does not answer (GPU_IS_LOST)")
WITHIN = 15.0
CLIQUE = "c2c1e1a5-0000-4000-8000-000000000001.4"


def test_a_pulse_comes_within_three_seconds() -> None:
    assert PULSE <= 2.5


@pytest.mark.parametrize("away", [1.0, 10.0, 600.0])
@pytest.mark.parametrize("xid", [True, False], ids=["XID 79", "no event"])
@pytest.mark.parametrize("scanned", [True, False], ids=["scans see it gone", "it stays on the bus"])
def test_a_gpu_that_is_back_is_well_within_fifteen_seconds(away: float, xid: bool, scanned: bool) -> None:
    rig = HealthRig([A])
    if xid:
        rig.xid(A.name, 79)
        rig.keeper.event(HealthEvent(A.name, Trouble.RECOVERY, START, "unavailable"))
    rig.look(A.name, LOST, source="nvml")
    rig.scan_health(A.name, lost(A)[0].health if scanned else Health(UNHEALTHY, "the GPU is lost", cause="lost"))
    rig.time.forward(away)
    back = rig.time.now
    # The first pulse after its return sees it, and has it scanned.
    rig.time.forward(PULSE)
    rig.look(A.name, source="nvml")
    rig.scan_health(A.name, Health())
    while rig.state(A.name) is UNHEALTHY:
        assert rig.time.now - back <= WITHIN
        rig.time.forward(PULSE)
        rig.look(A.name, source="nvml")
    assert rig.state(A.name) is HEALTHY


def test_a_gpu_that_answers_once_and_is_lost_again_is_not_allocated() -> None:
    rig = HealthRig([A])
    for _ in range(5):
        rig.look(A.name, LOST, source="nvml")
        rig.time.forward(PULSE)
        rig.look(A.name, source="nvml")
        rig.time.forward(PULSE)
        assert rig.state(A.name) is UNHEALTHY


FABRIC = gpu(0x5D)
FABRIC = replace(
    FABRIC, attributes=sorted_attributes([*((each.name, each.value) for each in FABRIC.attributes), ("clique", CLIQUE)])
)


@pytest.mark.parametrize(
    ("code", "state", "clique"),
    [(UNREACHABLE, UNHEALTHY, None), (APART, DEGRADED, None), (NARROW, DEGRADED, CLIQUE)],
    ids=["routes fail", "no partition", "less bandwidth"],
)
def test_a_clique_is_published_only_while_the_fabric_is_well_and_comes_back_once_that_has_lasted(
    code: int, state: object, clique: str | None
) -> None:
    rig = HealthRig([FABRIC])
    rig.poll(FABRIC.name, Condition(Trouble.FABRIC, "the fabric", code))
    shown = rig.keeper.judged.device(FABRIC.name)
    assert shown is not None
    assert (shown.health.state, shown.attribute("clique")) == (state, clique)
    rig.poll(FABRIC.name, times=4)
    well = rig.keeper.judged.device(FABRIC.name)
    assert well is not None
    assert (well.health.state, well.attribute("clique")) == (HEALTHY, CLIQUE)


def test_a_fabric_that_comes_and_goes_is_written_once() -> None:
    rig = HealthRig([FABRIC])
    for _ in range(50):
        rig.look(FABRIC.name, Condition(Trouble.FABRIC, "routes", UNREACHABLE), source="nvml")
        rig.time.forward(5)
        rig.look(FABRIC.name, source="nvml")
        rig.time.forward(5)
    assert len(rig.shown) == 1


def test_the_fabric_of_a_gpu_is_no_matter_of_its_mig_devices() -> None:
    whole = gpu(0x2A, mig=True)
    part = mig(whole, (1, 0))
    rig = HealthRig([whole, part])
    rig.look(whole.name, Condition(Trouble.FABRIC, "routes", UNREACHABLE))
    assert (rig.state(whole.name), rig.state(part.name)) == (UNHEALTHY, HEALTHY)


def test_too_many_errors_of_sram_wait_for_a_person() -> None:
    rig = HealthRig([A])
    rig.poll(A.name, Condition(Trouble.SRAM))
    rig.poll(A.name, times=6)
    assert rig.health(A.name).reason == "its SRAM has more uncorrectable errors than NVIDIA allows"
    assert rig.state(A.name) is UNHEALTHY
    rig.keeper.clear(A.name)
    assert rig.state(A.name) is HEALTHY
