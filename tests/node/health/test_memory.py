"""What outlives a restart of the agent, and what a reboot ends."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.files import JsonValue
from node.health.memory import SavedHealth, from_data
from node.health.policy import Policy
from node.health.signal import Condition, Trouble
from node.health.state import Health
from node.inventory.model import Device, DeviceKind
from node.values import replace
from tests.node.health.rig import DEGRADED, GONE, HEALTHY, UNHEALTHY, A, B, C, D, HealthRig, gpu, lost, nic


def restarted(rig: HealthRig, *devices: Device, boot: str = "boot-1") -> HealthRig:
    """The next process: it reads what the former one has written, as it comes back from a disk."""
    data: JsonValue = json.loads(json.dumps(rig.saved[-1])) if rig.saved else None
    return HealthRig(devices or rig.devices.values(), boot=boot, memory=from_data(data, boot))


def test_what_waits_for_a_reset_waits_on_after_a_restart_of_the_agent() -> None:
    rig = HealthRig([A, B, C])
    rig.xid(A.name, 95)
    rig.xid(B.name, 13)
    after = restarted(rig)
    assert after.states() == {A.name: UNHEALTHY, B.name: HEALTHY, C.name: HEALTHY}
    assert after.health(A.name).since == rig.health(A.name).since
    assert after.health(A.name).reason == rig.health(A.name).reason
    after.scan_health(A.name, GONE)
    after.scan_health(A.name, Health())
    after.time.forward(21)
    assert after.state(A.name) is HEALTHY
    assert restarted(after).state(A.name) is HEALTHY


def later(rig: HealthRig, seconds: float) -> HealthRig:
    """The next process, so many seconds after the first one began."""
    after = HealthRig(rig.devices.values())
    after.time.forward(seconds)
    after.keeper.recall(from_data(json.loads(json.dumps(rig.saved[-1])), "boot-1"))
    return after


def test_a_quiet_time_goes_on_over_a_restart_of_the_agent() -> None:
    rig = HealthRig([A, B])
    rig.xid(A.name, 142)
    rig.time.forward(100)
    rig.xid(A.name, 142)
    after = later(rig, 110)
    after.time.forward(289)
    assert (after.state(A.name), after.health(A.name).recovery) == (UNHEALTHY, "automatic")
    after.time.forward(62)
    assert after.state(A.name) is HEALTHY
    assert after.saved[-1] == HealthRig([A]).keeper._data()


def test_a_quiet_time_that_was_over_meanwhile_is_over_and_a_reboot_ends_it() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 142)
    assert later(rig, 1000).state(A.name) is HEALTHY
    assert later(rig, 100).state(A.name) is UNHEALTHY
    assert restarted(rig, boot="boot-2").state(A.name) is HEALTHY


def test_a_storm_of_events_is_written_once_a_minute_at_most() -> None:
    rig = HealthRig([A])
    for _ in range(1000):
        rig.xid(A.name, 142)
        rig.time.forward(0.1)
    assert len(rig.saved) <= 3


def test_a_word_that_was_said_later_than_now_holds_no_longer_than_it_was_meant_to() -> None:
    rig = HealthRig([A])
    rig.time.now += 86_400
    rig.keeper.set(A.name, UNHEALTHY, "for an hour", 3600)
    after = restarted(rig)
    after.time.forward(3599)
    assert after.state(A.name) is UNHEALTHY
    after.time.forward(2)
    assert after.state(A.name) is HEALTHY


def test_a_reboot_is_a_reset_and_replaces_nothing() -> None:
    rig = HealthRig([A, B, C])
    rig.xid(A.name, 95)
    rig.xid(B.name, 54)
    rig.keeper.set(C.name, UNHEALTHY, "wait for the vendor")
    after = restarted(rig, boot="boot-2")
    assert after.states() == {A.name: HEALTHY, B.name: UNHEALTHY, C.name: UNHEALTHY}


def test_where_boots_cannot_be_told_apart_nothing_is_taken_for_one() -> None:
    rig = HealthRig([A], boot="")
    rig.xid(A.name, 95)
    assert restarted(rig, boot="").state(A.name) is UNHEALTHY


def test_another_gpu_or_another_driver_after_a_restart_is_found_out() -> None:
    rig = HealthRig([A, B])
    rig.xid(A.name, 95)
    rig.xid(B.name, 95)
    after = restarted(rig, gpu(0x1A, uuid="GPU-other"), gpu(0x1B, driver="580.0.0"))
    assert after.state(A.name) is HEALTHY
    after.time.forward(21)
    assert after.state(B.name) is HEALTHY


def test_the_rest_of_a_words_time_counts_on() -> None:
    rig = HealthRig([A])
    rig.keeper.set(A.name, UNHEALTHY, "for a day", 86_400)
    after = restarted(rig)
    after.time.forward(86_399)
    assert after.state(A.name) is UNHEALTHY
    after.time.forward(2)
    assert after.state(A.name) is HEALTHY
    assert after.saved[-1] == HealthRig([A]).keeper._data()


def test_an_eviction_limit_that_is_on_stays_on() -> None:
    rig = HealthRig([A, B, C])
    for device in (A, B):
        rig.look(device.name, Condition(Trouble.LOST))
    after = restarted(rig, A, B, C)
    assert [limit.kind for limit, _ in after.keeper.eviction_limits] == [DeviceKind.GPU]
    after.scan_health(C.name, GONE)
    after.time.forward(1000)
    assert not after.health(C.name).evicts


def test_a_gpu_that_the_first_scans_do_not_show_is_still_to_be_replaced_when_it_is_there() -> None:
    rig = HealthRig([A, B])
    rig.xid(A.name, 54)
    after = HealthRig([nic(1)], boot="boot-2")
    after.time.forward(2 * 3600)
    after.keeper.recall(from_data(json.loads(json.dumps(rig.saved[-1])), "boot-2"))
    after.scan(nic(2))
    after.time.forward(20 * 86_400)
    after.scan(A, B)
    assert after.states()[A.name] is UNHEALTHY
    after.scan(gone=[A.name])
    after.time.forward(20 * 86_400)
    after.scan(A)
    assert (after.state(A.name), after.health(A.name).recovery) == (UNHEALTHY, "replace")


def test_what_waits_for_a_reset_is_not_forgotten_with_the_first_scan_that_does_not_show_it() -> None:
    rig = HealthRig([A, B])
    rig.xid(A.name, 95)
    after = HealthRig([nic(1)])
    after.time.forward(2 * 3600)
    after.keeper.recall(from_data(json.loads(json.dumps(rig.saved[-1])), "boot-1"))
    after.scan(nic(2))
    after.scan(A, B)
    assert after.states()[A.name] is UNHEALTHY


def test_a_gpu_that_no_scan_shows_for_a_month_is_not_remembered_for_ever() -> None:
    rig = HealthRig([A, B])
    rig.xid(A.name, 54)
    rig.scan(gone=[A.name])
    rig.time.forward(31 * 86_400)
    rig.scan(replace(B, index="9"))
    assert rig.saved[-1] == HealthRig([B]).keeper._data()


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_another_gpu_after_a_restart_is_not_the_one_that_was_to_be_replaced(boot: str) -> None:
    rig = HealthRig([A, B, C])
    rig.xid(A.name, 54)
    rig.poll(B.name, Condition(Trouble.ROW_REMAP, code=1))
    rig.xid(C.name, 54)
    after = restarted(rig, gpu(0x1A, uuid="GPU-new-a"), gpu(0x1B, uuid="GPU-new-b"), C, boot=boot)
    assert after.states() == {A.name: HEALTHY, B.name: HEALTHY, C.name: UNHEALTHY}
    assert restarted(after, boot=boot).states() == after.states()


@pytest.mark.parametrize("by", ["scan", "kernel"])
def test_an_eviction_limit_that_was_released_stays_off_after_a_restart(by: str) -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan(*lost(A, B, C))
    rig.time.forward(11)
    rig.keeper.release_eviction_limit("gpu")
    assert rig.evicting == [A.name, B.name, C.name]
    after = restarted(rig, *(lost(A, B, C) if by == "scan" else (A, B, C)), D)
    for device in (A, B, C):
        after.look(device.name, Condition(Trouble.LOST))
    after.time.forward(11)
    assert (after.evicting, after.keeper.eviction_limits) == ([A.name, B.name, C.name], ())


def test_a_release_holds_over_a_restart_only_for_those_that_were_bad_and_until_they_are_well() -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan(*lost(A, B, C))
    rig.keeper.release_eviction_limit("gpu")
    after = restarted(rig, A, B, C, D)
    after.time.forward(3600)
    after.scan(*lost(A, B, C))
    after.time.forward(11)
    assert after.evicting == []
    assert [limit.kind for limit, _ in after.keeper.eviction_limits] == [DeviceKind.GPU]
    assert from_data(after.saved[-1], "boot-1").excused == ()


def test_what_was_bad_for_long_did_not_go_bad_with_a_restart() -> None:
    rig = HealthRig([A, B, C, D])
    for device in (A, B, C):
        rig.scan_health(device.name, GONE)
        rig.time.forward(1200)
    assert rig.evicting == [A.name, B.name, C.name]
    once = restarted(rig)
    once.time.forward(11)
    assert (once.evicting, once.limited) == ([A.name, B.name, C.name], {})
    twice = restarted(once)
    twice.time.forward(100)
    assert (twice.evicting, twice.limited) == ([A.name, B.name, C.name], {})
    twice.scan(A, B, C)
    twice.time.forward(100)
    twice.scan(*lost(A, B, C))
    twice.time.forward(11)
    assert (twice.evicting, [*twice.limited]) == ([], [DeviceKind.GPU])


def test_what_was_bad_without_evicting_goes_bad_after_a_restart_when_it_might_evict() -> None:
    rig = HealthRig([A, B, C, D])
    for device in (A, B):
        rig.xid(device.name, 119)
    rig.time.forward(61)
    after = restarted(restarted(rig))
    after.look(C.name, Condition(Trouble.LOST))
    after.time.forward(11)
    assert (after.evicting, after.limited) == ([C.name], {})
    for device in (A, B):
        after.look(device.name, Condition(Trouble.LOST))
    assert (after.evicting, [*after.limited]) == ([], [DeviceKind.GPU])


def test_what_went_bad_just_before_a_restart_went_bad_with_it() -> None:
    rig = HealthRig([A, B, C, D])
    rig.xid(A.name, 119)
    rig.time.forward(61)
    rig.scan(*lost(B))
    rig.time.forward(30)
    rig.scan(*lost(A))
    after = restarted(rig, *lost(A, B, C), D)
    after.time.forward(11)
    assert (after.evicting, [*after.limited]) == ([], [DeviceKind.GPU])


def test_it_is_remembered_that_a_device_is_bad_for_long_also_where_nothing_else_happens() -> None:
    rig = HealthRig([A, B, C, D])
    rig.scan(*lost(A))
    rig.xid(B.name, 119)
    rig.time.forward(59)
    memory = from_data(rig.saved[-1], "boot-1")
    assert (memory.excused, memory.ailing) == ((), ())
    rig.time.forward(2)
    memory = from_data(rig.saved[-1], "boot-1")
    assert (memory.excused, memory.ailing) == ((A.name,), (B.name,))
    assert len(rig.saved) <= 3
    rig.scan(A)
    rig.keeper.clear(B.name)
    rig.time.forward(100)
    assert rig.saved[-1] == HealthRig([A]).keeper._data()


def test_an_eviction_limit_from_before_a_restart_is_let_go_by_a_configuration_without_eviction_limits() -> None:
    rig = HealthRig([A, B, C])
    rig.scan(*lost(A, B))
    after = HealthRig(rig.devices.values(), Policy(limits_evictions=False), memory=from_data(rig.saved[-1], "boot-1"))
    after.time.forward(100)
    after.keeper.use(Policy())
    assert (after.evicting, after.keeper.eviction_limits) == ([A.name, B.name], ())


def test_what_was_said_meanwhile_goes_before_what_is_remembered() -> None:
    rig = HealthRig([A, B])
    rig.keeper.set(A.name, UNHEALTHY, "old")
    rig.keeper.set(B.name, UNHEALTHY, "old")
    standby = HealthRig([A, B])
    standby.keeper.set(A.name, DEGRADED, "new")
    standby.keeper.recall(from_data(rig.saved[-1], "boot-1"))
    assert standby.states() == {A.name: DEGRADED, B.name: UNHEALTHY}


def test_what_a_standby_saw_and_somebody_cleared_is_not_brought_back_by_it() -> None:
    active, standby = HealthRig([A, B]), HealthRig([A, B])
    for rig in (active, standby):
        rig.xid(A.name, 95)
        rig.time.forward(100)
    active.keeper.clear(A.name)
    for rig in (active, standby):
        rig.xid(B.name, 95)
    standby.keeper.recall(None)
    assert standby.states() == {A.name: UNHEALTHY, B.name: UNHEALTHY}
    standby.keeper.recall(from_data(active.saved[-1], "boot-1"))
    assert standby.states() == {A.name: HEALTHY, B.name: UNHEALTHY}


def test_what_a_gpu_waits_for_hits_the_instance_that_it_hit() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 109, (1, 2))
    (_, track), *rest = from_data(rig.saved[-1], "boot-1").tracks
    assert (track.instance, rest) == ((1, 2), [])


def test_nothing_is_written_for_nothing() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 13)
    rig.look(A.name, Condition(Trouble.CARRIER))
    rig.scan_health(A.name, GONE)
    assert rig.saved == []


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"boot": 7, "troubles": "x", "words": [3], "brakes": {"kind": "gpu"}},
        {"troubles": [{"device": "a", "kind": "xid", "action": "reset", "recovery": "reset", "since": True}]},
        {"troubles": [{"device": "a", "kind": "xid", "action": "warn", "recovery": "automatic", "since": 1}]},
        {"troubles": [{"device": "", "kind": "xid", "action": "replace", "recovery": "replace", "since": 1}]},
        {"words": [{"device": "a", "state": "sad", "at": 1}, {"device": "a", "state": "healthy", "at": "now"}]},
        {"brakes": [{"kind": "toaster", "since": 1}, {"kind": "gpu"}]},
        {"excused": ["", 3, None]},
        {"excused": "gpu", "ailing": {"gpu": 1}},
    ],
)
def test_what_is_not_as_it_should_be_is_left_out(data: JsonValue) -> None:
    assert from_data(data, "") == SavedHealth()


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["boot", "troubles", "kind"]), inner),
    max_leaves=10,
)


@given(JSON)
def test_no_data_whatever_stops_the_agent(data: JsonValue) -> None:
    from_data(data, "boot-1")
