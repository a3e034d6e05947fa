"""What waits for a reset ends with a sign of one and with nothing less."""

from __future__ import annotations

import pytest

from node.health.policy import Policy
from node.health.signal import Condition, HealthEvent, Trouble
from node.health.state import Action, Health
from node.inventory.facts import NvmlFacts
from node.inventory.model import Device, SourceState, sorted_attributes
from node.inventory.nvidia.health import DRIVER_UNREACHABLE, silence
from node.values import replace
from tests.node.health.rig import DEGRADED, GONE, HEALTHY, UNHEALTHY, UNKNOWN, A, B, HealthRig, gpu

LOST = Health(UNHEALTHY, "the GPU is lost", cause="lost")
UNBOUND = Health(UNHEALTHY, "no driver is bound", cause="unbound")
SILENT = Health(UNKNOWN, "its state is unknown: the driver did not answer in time (TIMEOUT)", cause="silent")


def sick(code: int = 95) -> HealthRig:
    rig = HealthRig([A, B])
    rig.xid(A.name, code)
    rig.time.forward(100)
    assert rig.state(A.name) is UNHEALTHY
    return rig


def settles(rig: HealthRig) -> None:
    """It is freed, and well once it has been quiet."""
    assert rig.state(A.name) is UNHEALTHY
    rig.time.forward(21)
    assert rig.state(A.name) is HEALTHY


@pytest.mark.parametrize("away", [LOST, UNBOUND, GONE], ids=lambda health: health.reason)
def test_a_gpu_that_was_away_and_is_back_was_reset(away: Health) -> None:
    rig = sick(79)
    rig.scan_health(A.name, away)
    rig.time.forward(1000)
    assert rig.state(A.name) is UNHEALTHY
    rig.scan_health(A.name, Health())
    settles(rig)


def test_a_driver_that_was_not_there_and_is_back_was_loaded_anew() -> None:
    rig = sick()
    rig.driver(SourceState.WAITING)
    rig.driver(SourceState.OK)
    settles(rig)


def test_a_driver_that_only_did_not_answer_proves_nothing() -> None:
    rig = sick()
    rig.scan_health(A.name, SILENT)
    rig.driver(SourceState.FAILED)
    rig.scan_health(A.name, Health())
    rig.driver(SourceState.OK)
    rig.time.forward(100_000)
    assert rig.state(A.name) is UNHEALTHY


@pytest.mark.parametrize("status", ["LIBRARY_NOT_FOUND", DRIVER_UNREACHABLE])
def test_a_library_or_device_files_that_were_away_for_a_while_prove_nothing(status: str) -> None:
    rig = sick()
    detail = f"waiting for driver: {silence(NvmlFacts(status=status))}"
    rig.driver(SourceState.WAITING, detail)
    rig.driver(SourceState.OK)
    rig.time.forward(100_000)
    assert rig.state(A.name) is UNHEALTHY
    rig.look(A.name, Condition(Trouble.UNBOUND))
    rig.driver(SourceState.WAITING, detail)
    rig.look(A.name)
    rig.time.forward(45)
    assert rig.state(A.name) is HEALTHY, "its module was unloaded as well, so that it had no driver"


def test_a_recovery_action_that_became_another_one_was_not_done() -> None:
    rig = sick()
    rig.poll(A.name, Condition(Trouble.RECOVERY, code=1))
    rig.poll(A.name, Condition(Trouble.RECOVERY, code=3), times=10)
    rig.keeper.use(Policy(actions=((Trouble.RECOVERY, Action.IGNORE),)))
    assert rig.state(A.name) is UNHEALTHY
    rig.time.forward(1000)
    assert rig.health(A.name).recovery == "reset"


@pytest.mark.parametrize("kind", [Trouble.ECC, Trouble.AER, Trouble.NVLINK, Trouble.THERMAL, Trouble.PCIE_LINK])
def test_a_condition_that_passes_waits_for_a_reset_where_the_configuration_asks_for_one(kind: Trouble) -> None:
    rig = HealthRig([A], Policy(actions=((kind, Action.RESET),)))
    rig.poll(A.name, Condition(kind))
    rig.poll(A.name, times=100)
    assert (rig.state(A.name), rig.health(A.name).recovery) == (UNHEALTHY, "reset")
    rig.scan_health(A.name, GONE)
    rig.scan_health(A.name, Health())
    settles(rig)


def test_a_condition_that_is_still_so_after_a_reset_waits_for_another_one() -> None:
    rig = HealthRig([A], Policy(actions=((Trouble.PCIE_LINK, Action.RESET),)))
    rig.poll(A.name, Condition(Trouble.PCIE_LINK))
    rig.scan_health(A.name, GONE)
    rig.scan_health(A.name, Health())
    rig.poll(A.name, Condition(Trouble.PCIE_LINK))
    rig.poll(A.name, times=100)
    assert rig.state(A.name) is UNHEALTHY


@pytest.mark.parametrize("kind", [Trouble.LOST, Trouble.UNBOUND, Trouble.RECOVERY, Trouble.ROW_REMAP])
def test_a_condition_that_only_a_reset_ends_needs_no_other_sign_of_it(kind: Trouble) -> None:
    rig = HealthRig([A], Policy(actions=((kind, Action.RESET),)))
    rig.poll(A.name, Condition(kind))
    rig.poll(A.name, times=4)
    assert rig.state(A.name) is HEALTHY


def test_another_version_of_the_driver_is_another_driver() -> None:
    rig = sick()
    newer: Device = replace(A, attributes=sorted_attributes([("driverVersion", "580.0.0"), ("migEnabled", False)]))
    rig.scan(newer)
    settles(rig)


def newer(device: Device, driver: str = "580.0.0") -> Device:
    return replace(device, attributes=sorted_attributes([("driverVersion", driver), ("migEnabled", False)]))


def test_a_sign_of_a_reset_ends_nothing_that_comes_after_it() -> None:
    rig = sick(119)
    rig.scan(newer(A))
    rig.time.forward(5)
    rig.xid(A.name, 119)
    rig.scan(replace(newer(A), index="9"))
    rig.time.forward(10_000)
    assert rig.state(A.name) is UNHEALTHY
    rig.scan(newer(A, "590.0.0"))
    settles(rig)


@pytest.mark.parametrize("driver", ["570.1.2", "580.0.0"])
def test_what_comes_before_the_scan_that_finds_the_device_back_waits_for_another_reset(driver: str) -> None:
    rig = sick(119)
    rig.scan_health(A.name, UNBOUND)
    rig.xid(A.name, 119)
    rig.scan(newer(A, driver))
    rig.time.forward(10_000)
    assert rig.state(A.name) is UNHEALTHY
    rig.scan(newer(A, "590.0.0"))
    settles(rig)


def test_what_comes_while_the_device_is_lost_ends_when_it_is_not_any_more() -> None:
    rig = sick(79)
    rig.scan_health(A.name, LOST)
    rig.poll(A.name, Condition(Trouble.LOST))
    rig.xid(A.name, 79)
    rig.poll(A.name, Condition(Trouble.LOST))
    rig.scan_health(A.name, Health())
    rig.poll(A.name, times=5)
    assert rig.state(A.name) is HEALTHY


def test_a_condition_that_is_told_while_the_device_is_away_takes_no_sign_of_a_reset_away() -> None:
    rig = HealthRig([A], Policy(actions=((Trouble.PCIE_LINK, Action.RESET),)))
    rig.poll(A.name, Condition(Trouble.PCIE_LINK), source="sysfs")
    rig.driver(SourceState.WAITING)
    rig.poll(A.name, Condition(Trouble.PCIE_LINK), source="sysfs")
    rig.look(A.name, source="sysfs")
    rig.driver(SourceState.OK)
    settles(rig)


def test_a_recovery_action_that_the_driver_takes_back_was_done() -> None:
    rig = sick()
    rig.poll(A.name, Condition(Trouble.RECOVERY, code=1))
    assert rig.health(A.name).cause == "recovery"
    assert rig.health(A.name).reason == "the driver asks for a reset of the GPU"
    rig.poll(A.name, times=2)
    assert rig.state(A.name) is UNHEALTHY
    rig.poll(A.name, times=1)
    assert rig.state(A.name) is HEALTHY


def test_that_the_gpu_is_unavailable_while_it_is_reset_does_not_keep_the_reset_from_being_seen() -> None:
    rig = sick()
    rig.poll(A.name, Condition(Trouble.RECOVERY, code=1))
    rig.poll(A.name, times=2)
    rig.keeper.event(HealthEvent(A.name, Trouble.RECOVERY, rig.time.now, "the GPU is unavailable"))
    rig.poll(A.name, times=3)
    assert rig.state(A.name) is HEALTHY


def test_a_recovery_action_that_was_taken_back_before_the_xid_says_nothing_of_it() -> None:
    rig = HealthRig([A])
    rig.poll(A.name, Condition(Trouble.RECOVERY, code=1))
    rig.poll(A.name)
    rig.xid(A.name, 95)
    rig.poll(A.name, times=10)
    assert rig.state(A.name) is UNHEALTHY


def test_another_gpu_in_the_same_place_has_nothing_to_do_with_the_former_one() -> None:
    rig = sick()
    rig.xid(A.name, 54)
    rig.scan(gpu(0x1A, uuid="GPU-other"))
    assert rig.state(A.name) is HEALTHY


def test_what_somebody_said_of_a_place_holds_for_the_next_gpu_in_it() -> None:
    rig = HealthRig([A])
    rig.keeper.set(A.name, UNHEALTHY, "this slot is broken")
    rig.scan(gpu(0x1A, uuid="GPU-other"))
    assert rig.state(A.name) is UNHEALTHY


def test_a_neighbour_that_was_away_is_no_sign() -> None:
    rig = sick()
    rig.scan_health(B.name, GONE)
    rig.scan_health(B.name, Health())
    rig.time.forward(1000)
    assert rig.state(A.name) is UNHEALTHY


def test_a_trouble_that_comes_while_it_settles_waits_for_another_reset() -> None:
    rig = sick()
    rig.scan_health(A.name, LOST)
    rig.scan_health(A.name, Health())
    rig.time.forward(5)
    rig.xid(A.name, 95)
    rig.time.forward(10_000)
    assert rig.state(A.name) is UNHEALTHY


def test_what_waits_for_a_person_is_not_ended_by_a_reset() -> None:
    rig = sick(54)
    rig.scan_health(A.name, GONE)
    rig.scan_health(A.name, Health())
    rig.time.forward(10_000)
    assert rig.state(A.name) is UNHEALTHY


def test_a_row_that_cannot_be_remapped_waits_for_a_person_also_once_it_is_not_seen_any_more() -> None:
    rig = HealthRig([A])
    rig.poll(A.name, Condition(Trouble.ROW_REMAP, code=1))
    rig.poll(A.name, times=10)
    assert (rig.state(A.name), rig.health(A.name).recovery) == (UNHEALTHY, "replace")
    rig.keeper.clear(A.name)
    assert rig.state(A.name) is HEALTHY


def test_a_row_that_waits_for_a_reset_degrades_until_it_does_not() -> None:
    rig = HealthRig([A])
    rig.poll(A.name, Condition(Trouble.ROW_REMAP, code=0))
    assert (rig.state(A.name), rig.health(A.name).recovery) == (DEGRADED, "reset")
    rig.poll(A.name, times=3)
    assert rig.state(A.name) is HEALTHY
