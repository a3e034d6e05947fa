"""Most devices of a kind that go bad at once cost nobody a pod: a cause that they have in common is likelier."""

from __future__ import annotations

import pytest

from node.events import EventType
from node.health.keeper import InvalidRequest, NothingToClear
from node.health.policy import Policy
from node.health.signal import Condition, Trouble
from node.health.state import Health
from node.inventory.model import DeviceKind
from node.values import replace
from tests.node.health.rig import GONE, UNHEALTHY, A, B, C, D, HealthRig, gpu, lost, mig, nic

LOST = Condition(Trouble.LOST)
EVERYTHING = Policy(evicting=frozenset(Trouble))
DESTROYED = Health(UNHEALTHY, "gone from its GPU; it was destroyed or created again")


def test_an_eviction_limit_stops_a_device_that_evicts_also_while_it_settles() -> None:
    rig = HealthRig([A, B, C])
    rig.look(A.name, LOST)
    rig.time.forward(11)
    rig.look(A.name)
    rig.time.forward(1)
    rig.look(B.name, LOST)
    assert (rig.evicting, [*rig.limited]) == ([], [DeviceKind.GPU])


def test_an_eviction_limit_by_what_is_over_already_names_no_device() -> None:
    rig = HealthRig([A, B])
    rig.look(A.name, LOST)
    rig.time.forward(3)
    rig.look(A.name)
    rig.time.forward(3)
    rig.xid(B.name, 79)
    assert rig.states() == {A.name: UNHEALTHY, B.name: UNHEALTHY}
    assert rig.shown[-1] is rig.keeper.judged
    assert rig.limited == {DeviceKind.GPU: ()}
    assert rig.told.events[-1] == (
        EventType.WARNING,
        "HealthBrakeOn",
        (
            "2 of 2 devices of kind gpu went bad within 60 s: none of them costs a pod until 'ostler health"
            " release-eviction-limit gpu'"
        ),
    )


def test_more_than_half_of_a_kind_at_once_costs_nobody_a_pod() -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan(*lost(A, B, C))
    rig.time.forward(1000)
    assert rig.evicting == []
    assert rig.limited == {DeviceKind.GPU: (A.name, B.name, C.name)}
    assert rig.told.reasons == ["DeviceUnhealthy", "HealthBrakeOn"]
    kind, _, message = rig.told.events[-1]
    assert kind is EventType.WARNING
    assert message == (
        "3 of 4 devices of kind gpu went bad within 60 s: none of them costs a pod until 'ostler health "
        f"release-eviction-limit gpu'; {A.name}, {B.name} and {C.name}"
    )


def test_half_of_a_kind_is_not_more_than_half() -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan(*lost(A, B))
    rig.time.forward(11)
    assert rig.evicting == [A.name, B.name]


def test_the_only_device_of_a_kind_has_no_eviction_limit() -> None:
    rig = HealthRig([A])
    rig.scan_health(A.name, GONE)
    rig.time.forward(11)
    assert rig.evicting == [A.name]


def test_devices_that_go_bad_one_after_another_within_a_minute_stop_those_that_evict_already() -> None:
    rig = HealthRig([A, B, C, D])
    for device in (A, B, C):
        rig.scan_health(device.name, GONE)
        rig.time.forward(15)
    assert rig.evicting == []
    assert rig.told.reasons[-1] == "HealthBrakeOn"


def test_devices_that_go_bad_over_an_hour_evict_one_by_one() -> None:
    rig = HealthRig([A, B, C, D])
    for device in (A, B, C):
        rig.scan_health(device.name, GONE)
        rig.time.forward(1200)
    assert rig.evicting == [A.name, B.name, C.name]
    assert rig.limited == {}


def test_an_eviction_limit_stays_on_until_somebody_releases_it() -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan(*lost(A, B, C))
    rig.scan(A, B, C)
    rig.time.forward(10_000)
    rig.scan_health(D.name, GONE)
    rig.time.forward(100)
    assert rig.evicting == []
    assert rig.keeper.release_eviction_limit("gpu", dry_run=True) == (
        "devices of kind gpu may evict",
        f"{D.name}: evicts the pods that have it",
    )
    assert rig.evicting == []
    rig.keeper.release_eviction_limit("gpu")
    assert rig.evicting == [D.name]
    assert rig.told.events[-1] == (
        EventType.NORMAL,
        "HealthBrakeReleased",
        "devices of kind gpu may evict again: a person released the eviction limit",
    )


def test_released_while_all_are_bad_they_evict() -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan(*lost(A, B, C, D))
    rig.time.forward(20)
    rig.keeper.release_eviction_limit("gpu")
    assert rig.evicting == [A.name, B.name, C.name, D.name]
    rig.time.forward(1000)
    assert rig.limited == {}


def test_without_eviction_limits_in_the_configuration_all_may_evict() -> None:
    rig = HealthRig([A, B, C, D], Policy(limits_evictions=False))
    rig.scan(*lost(A, B, C, D))
    rig.time.forward(11)
    assert len(rig.evicting) == 4


def test_kinds_do_not_limit_each_other() -> None:
    rig = HealthRig([A, B, nic(0x86), nic(0x87), nic(0x88)], EVERYTHING)
    for number in (0x86, 0x87, 0x88):
        rig.look(nic(number).name, LOST)
    rig.xid(A.name, 95)
    rig.time.forward(11)
    assert rig.evicting == [A.name]
    assert [*rig.limited] == [DeviceKind.NIC]


def test_devices_that_are_bad_for_long_and_leave_the_bus_together_start_the_limit() -> None:
    rig = HealthRig([A, B, C, D])
    for device in (A, B, C, D):
        rig.xid(device.name, 119)
    rig.time.forward(61)
    for device in (A, B, C, D):
        rig.look(device.name, LOST)
    rig.time.forward(11)
    assert rig.evicting == []
    assert rig.limited == {DeviceKind.GPU: (A.name, B.name, C.name, D.name)}
    # The fourth one, whose cause is told after it, finds the limit in force.
    assert rig.told.reasons[-2:] == ["HealthBrakeOn", "DeviceUnhealthy"]


def test_devices_that_were_bad_when_the_limit_was_released_do_not_start_it_again_however_bad_they_get() -> None:
    rig = HealthRig([A, B, C, D])
    for device in (C, D):
        rig.xid(device.name, 119)
    for device in (A, B):
        rig.look(device.name, LOST)
    rig.keeper.release_eviction_limit("gpu")
    for device in (C, D):
        rig.look(device.name, LOST)
    rig.time.forward(11)
    assert rig.evicting == [A.name, B.name, C.name, D.name]
    assert rig.limited == {}


def test_devices_that_the_configuration_lets_evict_did_not_go_bad_with_it() -> None:
    rig = HealthRig([A, B, C, D])
    for device in (A, B, C):
        rig.xid(device.name, 119)
        rig.time.forward(1200)
    rig.keeper.use(EVERYTHING)
    rig.time.forward(11)
    assert rig.evicting == [A.name, B.name, C.name]
    assert rig.limited == {}


def test_released_devices_that_were_well_and_go_bad_again_start_the_limit_again() -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan(*lost(A, B, C))
    rig.keeper.release_eviction_limit("gpu")
    rig.scan(A, B, C)
    rig.time.forward(30)
    rig.scan(*lost(A, B, C))
    rig.time.forward(11)
    assert rig.evicting == []
    assert [*rig.limited] == [DeviceKind.GPU]


def test_an_eviction_limit_that_the_configuration_let_go_does_not_come_back_with_it() -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan(*lost(A, B, C))
    rig.time.forward(11)
    rig.keeper.use(Policy(limits_evictions=False))
    assert rig.evicting == [A.name, B.name, C.name]
    rig.keeper.use(Policy())
    rig.time.forward(100)
    assert rig.evicting == [A.name, B.name, C.name]
    assert rig.limited == {}


def test_what_was_taken_down_on_purpose_neither_starts_the_limit_nor_evicts() -> None:
    whole = gpu(0x1A, mig=True)
    parts = [mig(whole, (number, 0)) for number in range(7)]
    rig = HealthRig([whole, *parts])
    rig.scan(*(replace(part, health=DESTROYED) for part in parts[:6]))
    rig.scan_health(parts[6].name, GONE)
    rig.time.forward(11)
    assert rig.evicting == [parts[6].name]
    assert rig.limited == {}


def test_what_was_taken_down_is_not_one_of_its_kind_when_most_go_bad() -> None:
    numbers = range(0x80, 0x88)
    rig = HealthRig([nic(number) for number in numbers])
    rig.scan(*(replace(nic(number), health=DESTROYED) for number in (*numbers,)[:5]))
    rig.time.forward(1000)
    rig.scan(*lost(nic(0x85), nic(0x86)))
    rig.time.forward(11)
    assert rig.evicting == []
    assert rig.limited[DeviceKind.NIC] == (nic(0x85).name, nic(0x86).name)


def test_two_of_three_are_more_than_half_and_one_of_two_is_not() -> None:
    rig = HealthRig([A, B, C])
    rig.scan(*lost(A, B))
    rig.time.forward(11)
    assert rig.evicting == []
    rig = HealthRig([A, B])
    rig.scan_health(A.name, GONE)
    rig.time.forward(11)
    assert rig.evicting == [A.name]


def test_to_release_an_eviction_limit_says_nothing_of_another_kind() -> None:
    rig = HealthRig([A, B, *(nic(number) for number in range(3))], EVERYTHING)
    rig.scan(*lost(A, B))
    rig.scan(*lost(nic(0)))
    rig.keeper.release_eviction_limit("gpu")
    rig.scan(*lost(nic(1)))
    rig.time.forward(11)
    assert rig.evicting == [A.name, B.name]
    assert [*rig.limited] == [DeviceKind.NIC]


def test_a_gpu_that_left_the_bus_with_all_parts_of_its_kind_keeps_them_from_evicting() -> None:
    whole = gpu(0x1A, mig=True)
    rig = HealthRig([whole, *(mig(whole, (number, 0)) for number in range(7))])
    rig.look(whole.name, LOST)
    rig.time.forward(11)
    assert rig.evicting == [whole.name]
    assert [*rig.limited] == [DeviceKind.MIG]


def test_devices_that_would_not_evict_need_no_eviction_limit() -> None:
    rig = HealthRig([A, B, C, D])
    for device in (A, B, C, D):
        rig.xid(device.name, 95)
    assert rig.limited == {}


def test_an_agent_that_starts_among_lost_devices_starts_the_limit() -> None:
    rig = HealthRig(lost(A, B, C, D))
    rig.time.forward(100)
    assert rig.evicting == []
    assert [*rig.limited] == [DeviceKind.GPU]


def test_releasing_what_is_not_on_says_so() -> None:
    rig = HealthRig([A])
    with pytest.raises(NothingToClear, match="no eviction limit holds for kind gpu; 'ostler health' shows those"):
        rig.keeper.release_eviction_limit("gpu")
    with pytest.raises(
        InvalidRequest, match="'toaster' is not a kind of device; must be one of gpu, mig, partition, nic, rdma"
    ):
        rig.keeper.release_eviction_limit("toaster")
