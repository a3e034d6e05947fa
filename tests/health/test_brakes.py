"""Who may cost pods: only what left the bus, after a moment, and never most of a kind at once."""

from __future__ import annotations

import pytest

from node.events import EventType
from node.health.errors import BadWordError, NothingToClearError
from node.health.policy import Pace, Policy
from node.health.signal import Condition, Trouble
from node.health.state import Health, HealthState
from node.inventory.model import DeviceKind
from node.values import replace
from tests.health.rig import A, B, C, D, Rig, gpu, mig, nic

HEALTHY, DEGRADED, UNHEALTHY, UNKNOWN = HealthState
LOST = Condition(Trouble.LOST)
GONE = Health(UNHEALTHY, "gone from the PCI bus; it was removed or does not answer", cause="lost")
EVERYTHING = Policy(evicting=frozenset(Trouble))


def evicting(rig: Rig) -> list[str]:
    return [device.name for device in rig.keeper.judged.devices if device.health.evicts]


def braked(rig: Rig) -> dict[DeviceKind, tuple[str, ...]]:
    return {brake.kind: names for brake, names in rig.keeper.brakes}


def test_a_device_that_left_the_bus_evicts_after_a_moment_and_others_do_not() -> None:
    rig = Rig([A, B, C, D])
    rig.scan_health(A.name, GONE)
    rig.xid(B.name, 95)
    rig.time.forward(9)
    assert evicting(rig) == []
    since = rig.health(A.name).since
    rig.time.forward(2)
    assert evicting(rig) == [A.name]
    assert rig.health(A.name).since == since
    rig.time.forward(100_000)
    assert evicting(rig) == [A.name]
    rig.scan_health(A.name, Health())
    assert evicting(rig) == []


@pytest.mark.parametrize("by", ["kernel", "scan"])
def test_a_device_that_is_back_within_the_moment_does_not_evict_while_it_settles(by: str) -> None:
    rig = Rig([A, B, C])
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
        assert evicting(rig) == []


def test_a_device_that_evicts_goes_on_until_it_has_settled() -> None:
    rig = Rig([A, B, C])
    rig.look(A.name, LOST)
    rig.time.forward(11)
    assert evicting(rig) == [A.name]
    rig.look(A.name)
    rig.time.forward(19)
    assert evicting(rig) == [A.name]
    rig.time.forward(2)
    assert rig.state(A.name) is HEALTHY


def test_a_brake_stops_a_device_that_evicts_also_while_it_settles() -> None:
    rig = Rig([A, B, C])
    rig.look(A.name, LOST)
    rig.time.forward(11)
    rig.look(A.name)
    rig.time.forward(1)
    rig.look(B.name, LOST)
    assert (evicting(rig), list(braked(rig))) == ([], [DeviceKind.GPU])


def test_what_evicts_goes_on_when_the_configuration_waits_longer_from_now_on() -> None:
    rig = Rig([A, B, C])
    rig.look(A.name, LOST)
    rig.time.forward(11)
    rig.keeper.use(Policy(pace=Pace(evict_after=3600)))
    rig.look(B.name, LOST)
    rig.time.forward(5)
    rig.scan(replace(C, index="9"))
    assert A.name not in evicting(rig), "two of three at once"
    rig = Rig([A, B, C])
    rig.look(A.name, LOST)
    rig.time.forward(11)
    rig.keeper.use(Policy(pace=Pace(evict_after=3600)))
    rig.scan(replace(C, index="9"))
    assert evicting(rig) == [A.name]


def test_a_device_that_is_lost_again_while_it_settles_has_its_moment_again() -> None:
    rig = Rig([A, B, C])
    for _ in range(2):
        rig.look(A.name, LOST)
        rig.time.forward(6)
        rig.look(A.name)
        rig.time.forward(3)
    rig.look(A.name, LOST)
    rig.time.forward(9)
    assert evicting(rig) == []
    rig.time.forward(2)
    assert evicting(rig) == [A.name]


def test_what_evicts_is_the_configurations_word() -> None:
    rig = Rig([A, B, C, D], Policy(evicting=frozenset({Trouble.XID}), pace=Pace(evict_after=0)))
    rig.look(A.name, LOST)
    rig.xid(B.name, 95)
    assert evicting(rig) == [B.name]
    rig.xid(C.name, 13)
    assert evicting(rig) == [B.name]
    rig.keeper.use(Policy())
    assert evicting(rig) == []
    rig.time.forward(11)
    assert evicting(rig) == [A.name]


def test_more_than_half_of_a_kind_at_once_costs_nobody_a_pod() -> None:
    rig = Rig([A, B, C, D])
    rig.scan(*(replace(device, health=GONE) for device in (A, B, C)))
    rig.time.forward(1000)
    assert evicting(rig) == []
    assert braked(rig) == {DeviceKind.GPU: (A.name, B.name, C.name)}
    assert rig.told.reasons == ["DeviceUnhealthy", "HealthBrakeOn"]
    kind, _, message = rig.told.events[-1]
    assert kind is EventType.WARNING
    assert message == (
        "3 of 4 devices of kind gpu went bad within 60 s: none of them costs a pod until 'ostler health release-brake "
        f"gpu'; {A.name}, {B.name} and {C.name}"
    )


def test_half_of_a_kind_is_not_more_than_half() -> None:
    rig = Rig([A, B, C, D])
    rig.scan(*(replace(device, health=GONE) for device in (A, B)))
    rig.time.forward(11)
    assert evicting(rig) == [A.name, B.name]


def test_the_only_device_of_a_kind_has_no_brake() -> None:
    rig = Rig([A])
    rig.scan_health(A.name, GONE)
    rig.time.forward(11)
    assert evicting(rig) == [A.name]


def test_devices_that_go_bad_one_after_another_within_a_minute_stop_those_that_evict_already() -> None:
    rig = Rig([A, B, C, D])
    for device in (A, B, C):
        rig.scan_health(device.name, GONE)
        rig.time.forward(15)
    assert evicting(rig) == []
    assert rig.told.reasons[-1] == "HealthBrakeOn"


def test_devices_that_go_bad_over_an_hour_evict_one_by_one() -> None:
    rig = Rig([A, B, C, D])
    for device in (A, B, C):
        rig.scan_health(device.name, GONE)
        rig.time.forward(1200)
    assert evicting(rig) == [A.name, B.name, C.name]
    assert braked(rig) == {}


def test_a_brake_stays_on_until_somebody_releases_it() -> None:
    rig = Rig([A, B, C, D])
    rig.scan(*(replace(device, health=GONE) for device in (A, B, C)))
    rig.scan(A, B, C)
    rig.time.forward(10_000)
    rig.scan_health(D.name, GONE)
    rig.time.forward(100)
    assert evicting(rig) == []
    assert rig.keeper.release_brake("gpu", dry_run=True) == (
        "devices of kind gpu may evict",
        f"{D.name}: evicts the pods that have it",
    )
    assert evicting(rig) == []
    rig.keeper.release_brake("gpu")
    assert evicting(rig) == [D.name]
    assert rig.told.events[-1] == (
        EventType.NORMAL,
        "HealthBrakeReleased",
        "devices of kind gpu may evict again: somebody released the brake",
    )


def test_released_while_all_are_bad_they_evict() -> None:
    rig = Rig([A, B, C, D])
    rig.scan(*(replace(device, health=GONE) for device in (A, B, C, D)))
    rig.time.forward(20)
    rig.keeper.release_brake("gpu")
    assert evicting(rig) == [A.name, B.name, C.name, D.name]
    rig.time.forward(1000)
    assert braked(rig) == {}


def test_without_brakes_in_the_configuration_all_may_evict() -> None:
    rig = Rig([A, B, C, D], Policy(brake=False))
    rig.scan(*(replace(device, health=GONE) for device in (A, B, C, D)))
    rig.time.forward(11)
    assert len(evicting(rig)) == 4


def test_kinds_do_not_brake_each_other() -> None:
    rig = Rig([A, B, nic(0x86), nic(0x87), nic(0x88)], EVERYTHING)
    for number in (0x86, 0x87, 0x88):
        rig.look(nic(number).name, LOST)
    rig.xid(A.name, 95)
    rig.time.forward(11)
    assert evicting(rig) == [A.name]
    assert list(braked(rig)) == [DeviceKind.NIC]


def test_devices_that_are_bad_for_long_and_leave_the_bus_together_brake() -> None:
    rig = Rig([A, B, C, D])
    for device in (A, B, C, D):
        rig.xid(device.name, 119)
    rig.time.forward(61)
    for device in (A, B, C, D):
        rig.look(device.name, LOST)
    rig.time.forward(11)
    assert evicting(rig) == []
    assert braked(rig) == {DeviceKind.GPU: (A.name, B.name, C.name, D.name)}
    assert rig.told.reasons[-1] == "HealthBrakeOn"


def test_devices_that_were_bad_when_a_brake_was_released_do_not_put_it_on_again_however_they_get_worse() -> None:
    rig = Rig([A, B, C, D])
    for device in (C, D):
        rig.xid(device.name, 119)
    for device in (A, B):
        rig.look(device.name, LOST)
    rig.keeper.release_brake("gpu")
    for device in (C, D):
        rig.look(device.name, LOST)
    rig.time.forward(11)
    assert evicting(rig) == [A.name, B.name, C.name, D.name]
    assert braked(rig) == {}


def test_devices_that_the_configuration_lets_evict_did_not_go_bad_with_it() -> None:
    rig = Rig([A, B, C, D])
    for device in (A, B, C):
        rig.xid(device.name, 119)
        rig.time.forward(1200)
    rig.keeper.use(EVERYTHING)
    rig.time.forward(11)
    assert evicting(rig) == [A.name, B.name, C.name]
    assert braked(rig) == {}


def test_released_devices_that_were_well_and_go_bad_again_brake_again() -> None:
    rig = Rig([A, B, C, D])
    rig.scan(*(replace(device, health=GONE) for device in (A, B, C)))
    rig.keeper.release_brake("gpu")
    rig.scan(A, B, C)
    rig.time.forward(30)
    rig.scan(*(replace(device, health=GONE) for device in (A, B, C)))
    rig.time.forward(11)
    assert evicting(rig) == []
    assert list(braked(rig)) == [DeviceKind.GPU]


def test_a_brake_that_the_configuration_let_go_does_not_come_back_with_it() -> None:
    rig = Rig([A, B, C, D])
    rig.scan(*(replace(device, health=GONE) for device in (A, B, C)))
    rig.time.forward(11)
    rig.keeper.use(Policy(brake=False))
    assert evicting(rig) == [A.name, B.name, C.name]
    rig.keeper.use(Policy())
    rig.time.forward(100)
    assert evicting(rig) == [A.name, B.name, C.name]
    assert braked(rig) == {}


DESTROYED = Health(UNHEALTHY, "gone from its GPU; it was destroyed, or made anew")


def test_what_was_taken_down_on_purpose_neither_puts_a_brake_on_nor_evicts() -> None:
    whole = gpu(0x1A, mig=True)
    parts = [mig(whole, (number, 0)) for number in range(7)]
    rig = Rig([whole, *parts])
    rig.scan(*(replace(part, health=DESTROYED) for part in parts[:6]))
    rig.scan_health(parts[6].name, GONE)
    rig.time.forward(11)
    assert evicting(rig) == [parts[6].name]
    assert braked(rig) == {}


def test_what_was_taken_down_is_not_one_of_its_kind_when_most_go_bad() -> None:
    numbers = range(0x80, 0x88)
    rig = Rig([nic(number) for number in numbers])
    rig.scan(*(replace(nic(number), health=DESTROYED) for number in (*numbers,)[:5]))
    rig.time.forward(1000)
    rig.scan(*(replace(nic(number), health=GONE) for number in (*numbers,)[5:7]))
    rig.time.forward(11)
    assert evicting(rig) == []
    assert braked(rig)[DeviceKind.NIC] == (nic(0x85).name, nic(0x86).name)


def test_two_of_three_are_more_than_half_and_one_of_two_is_not() -> None:
    rig = Rig([A, B, C])
    rig.scan(*(replace(device, health=GONE) for device in (A, B)))
    rig.time.forward(11)
    assert evicting(rig) == []
    rig = Rig([A, B])
    rig.scan_health(A.name, GONE)
    rig.time.forward(11)
    assert evicting(rig) == [A.name]


def test_to_release_a_brake_says_nothing_of_another_kind() -> None:
    rig = Rig([A, B, *(nic(number) for number in range(3))], EVERYTHING)
    rig.scan(*(replace(device, health=GONE) for device in (A, B)))
    rig.scan(replace(nic(0), health=GONE))
    rig.keeper.release_brake("gpu")
    rig.scan(replace(nic(1), health=GONE))
    rig.time.forward(11)
    assert evicting(rig) == [A.name, B.name]
    assert list(braked(rig)) == [DeviceKind.NIC]


def test_a_gpu_that_left_the_bus_with_all_parts_of_its_kind_keeps_them_from_evicting() -> None:
    whole = gpu(0x1A, mig=True)
    rig = Rig([whole, *(mig(whole, (number, 0)) for number in range(7))])
    rig.look(whole.name, LOST)
    rig.time.forward(11)
    assert evicting(rig) == [whole.name]
    assert list(braked(rig)) == [DeviceKind.MIG]


def test_devices_that_would_not_evict_need_no_brake() -> None:
    rig = Rig([A, B, C, D])
    for device in (A, B, C, D):
        rig.xid(device.name, 95)
    assert braked(rig) == {}


def test_an_agent_that_starts_among_lost_devices_brakes() -> None:
    rig = Rig([replace(gpu(number), health=GONE) for number in range(4)])
    rig.time.forward(100)
    assert evicting(rig) == []
    assert list(braked(rig)) == [DeviceKind.GPU]


def test_releasing_what_is_not_on_says_so() -> None:
    rig = Rig([A])
    with pytest.raises(NothingToClearError, match="the brake of the kind gpu is not on; 'ostler health' shows those"):
        rig.keeper.release_brake("gpu")
    with pytest.raises(BadWordError, match="'toaster' is no kind of device; kinds are gpu, mig, partition, nic, rdma"):
        rig.keeper.release_brake("toaster")
