"""A sick whole is sick in all its parts; a sick part leaves its whole in use and its neighbours alone."""

from __future__ import annotations

import pytest

from node.health.signal import Condition, HealthEvent, Trouble
from node.health.state import Health, HealthState
from tests.node.health.rig import DEGRADED, HEALTHY, UNHEALTHY, A, B, HealthRig, gpu, mig, nic

WHOLE = gpu(0x2A, mig=True)
ONE, TWO, THREE = mig(WHOLE, (1, 0)), mig(WHOLE, (2, 0)), mig(WHOLE, (2, 1))
PORT = nic(0x86)
FIRST, SECOND = nic(0x87, part_of=PORT), nic(0x88, part_of=PORT)
OTHER = nic(0x96)
ALL = 0xFFFFFFFF


def rig() -> HealthRig:
    return HealthRig([A, B, WHOLE, ONE, TWO, THREE, PORT, FIRST, SECOND, OTHER])


def bad(kept: HealthRig) -> dict[str, HealthState]:
    return {name: state for name, state in kept.states().items() if state is not HEALTHY}


@pytest.mark.parametrize("instance", [None, (ALL, ALL), (ALL, 0)])
def test_an_xid_of_a_gpu_is_one_of_all_its_instances(instance: tuple[int, int] | None) -> None:
    kept = rig()
    kept.xid(WHOLE.name, 95, instance)
    assert bad(kept) == dict.fromkeys([WHOLE.name, ONE.name, TWO.name, THREE.name], UNHEALTHY)
    assert kept.health(ONE.name).reason.startswith(f"its GPU {WHOLE.name}: the driver reported XID 95")
    assert kept.entry(ONE.name).of == WHOLE.name
    assert kept.told.reasons == ["DeviceUnhealthy"]
    assert kept.told.events[0][2].startswith(f"{WHOLE.name} and 3 parts of it are unhealthy: the driver reported")


def test_an_xid_of_an_instance_is_that_instances_and_degrades_its_gpu() -> None:
    kept = rig()
    kept.xid(WHOLE.name, 109, (1, 0))
    assert bad(kept) == {WHOLE.name: DEGRADED, ONE.name: UNHEALTHY}
    assert kept.health(WHOLE.name).reason.startswith(f"its MIG device {ONE.name}: the driver reported XID 109")


def test_an_xid_of_a_gpu_instance_is_one_of_all_its_compute_instances() -> None:
    kept = rig()
    kept.xid(WHOLE.name, 109, (2, ALL))
    assert bad(kept) == {WHOLE.name: DEGRADED, TWO.name: UNHEALTHY, THREE.name: UNHEALTHY}


def test_an_instance_that_no_scan_knows_yet_hits_none_that_it_does() -> None:
    kept = rig()
    kept.xid(WHOLE.name, 109, (7, 0))
    assert bad(kept) == {WHOLE.name: DEGRADED}
    kept.scan(mig(WHOLE, (7, 0)))
    assert kept.state(f"{ONE.name.removesuffix('1-0')}7-0") is UNHEALTHY


def test_a_memory_error_that_was_contained_is_its_instances_and_one_that_was_not_is_the_gpus() -> None:
    kept = rig()
    kept.xid(WHOLE.name, 94, (1, 0))
    # Its application has died; the instance can be used at once, and its siblings never noticed.
    assert bad(kept) == dict.fromkeys([WHOLE.name, ONE.name], DEGRADED)
    kept.xid(WHOLE.name, 95, (1, 0))
    assert bad(kept) == dict.fromkeys([WHOLE.name, ONE.name, TWO.name, THREE.name], UNHEALTHY)


def test_a_gpus_count_of_memory_errors_says_nothing_of_its_instances() -> None:
    kept = rig()
    kept.look(WHOLE.name, Condition(Trouble.ECC, "1 new uncorrectable memory error"))
    assert bad(kept) == {WHOLE.name: UNHEALTHY}
    kept.look(WHOLE.name, Condition(Trouble.ROW_REMAP, "a memory row could not be remapped", 2))
    assert set(bad(kept)) == {WHOLE.name, ONE.name, TWO.name, THREE.name}


def test_a_double_bit_error_is_one_of_the_instance_that_the_driver_names() -> None:
    kept = rig()
    kept.keeper.event(HealthEvent(WHOLE.name, Trouble.ECC, kept.time.now, instance=(1, 0)))
    assert bad(kept) == {WHOLE.name: DEGRADED, ONE.name: UNHEALTHY}
    kept = rig()
    kept.keeper.event(HealthEvent(WHOLE.name, Trouble.ECC, kept.time.now))
    assert set(bad(kept)) == {WHOLE.name, ONE.name, TWO.name, THREE.name}


def test_an_instance_of_a_gpu_without_instances_is_all_of_it() -> None:
    kept = rig()
    kept.xid(A.name, 95, (0, 0))
    assert bad(kept) == {A.name: UNHEALTHY}


def test_a_physical_function_hands_down_what_is_wrong_with_its_slot() -> None:
    kept = rig()
    kept.look(PORT.name, Condition(Trouble.AER, "fatal PCIe errors", 2))
    assert bad(kept) == dict.fromkeys([PORT.name, FIRST.name, SECOND.name], UNHEALTHY)
    assert kept.health(FIRST.name).reason == f"its NIC {PORT.name}: fatal PCIe errors"
    kept.look(PORT.name)
    kept.time.forward(301)
    assert bad(kept) == {}


@pytest.mark.parametrize("kind", [Trouble.CARRIER, Trouble.PORT, Trouble.NODE, Trouble.UNBOUND])
def test_a_virtual_function_has_a_link_a_driver_and_nodes_of_its_own(kind: Trouble) -> None:
    kept = rig()
    kept.look(PORT.name, Condition(kind))
    assert bad(kept) == {PORT.name: UNHEALTHY}


def test_a_virtual_function_hands_nothing_up() -> None:
    kept = rig()
    kept.look(FIRST.name, Condition(Trouble.LOST))
    assert bad(kept) == {FIRST.name: UNHEALTHY}


def test_a_person_who_speaks_of_a_whole_speaks_of_its_parts() -> None:
    kept = rig()
    assert kept.keeper.set(WHOLE.name, UNHEALTHY, "burns", dry_run=True) == (
        f"{WHOLE.name} healthy -> unhealthy (burns)",
        f"{ONE.name} healthy -> unhealthy (its GPU {WHOLE.name}: burns)",
        f"{TWO.name} healthy -> unhealthy (its GPU {WHOLE.name}: burns)",
        f"{THREE.name} healthy -> unhealthy (its GPU {WHOLE.name}: burns)",
    )
    assert bad(kept) == {}
    kept.keeper.set(WHOLE.name, UNHEALTHY, "burns")
    kept.keeper.set(TWO.name, HEALTHY, "this one I need")
    assert bad(kept) == dict.fromkeys([WHOLE.name, ONE.name, THREE.name], UNHEALTHY)
    kept.keeper.set(WHOLE.name, HEALTHY, "burns no more")
    kept.xid(WHOLE.name, 95)
    assert bad(kept) == {}


def test_what_a_scan_says_of_a_whole_it_says_of_its_parts_itself() -> None:
    kept = rig()
    kept.scan_health(WHOLE.name, Health(UNHEALTHY, "the GPU must be reset"))
    assert bad(kept) == {WHOLE.name: UNHEALTHY}
