"""From signals to what doors are shown: at once when it goes bad, late when it gets well, and nothing for nothing."""

from __future__ import annotations

import logging

import pytest

from node.events import EventBus, EventType
from node.health.keeper import HealthKeeper
from node.health.memory import SavedHealth
from node.health.policy import HealthPace, Policy
from node.health.signal import Condition, HealthEvent, Look, Trouble
from node.health.state import Action, Health, Recovery
from node.health.xids import XidTable
from node.inventory.model import Snapshot, SnapshotJudged
from node.values import replace
from tests.making.events import RecordedEvents, heard
from tests.node.health.rig import DEGRADED, HEALTHY, UNHEALTHY, UNKNOWN, A, B, C, HealthRig, Time, gpu, nic

CARRIER = Condition(Trouble.CARRIER, "eth0 has no carrier")
LOST = Condition(Trouble.LOST)
SCANNED_LOST = Health(UNHEALTHY, "the GPU is lost", recovery=Recovery.RESET, cause="lost")
SILENT = Health(UNKNOWN, "nothing is known of it", recovery=Recovery.AUTOMATIC, cause="silent")


def test_a_node_in_order_is_shown_as_it_was_scanned() -> None:
    rig = HealthRig([A, B])
    rig.scan(replace(A, index="5"))
    (shown,) = rig.shown
    assert shown == Snapshot(2, (replace(A, index="5"), B))
    assert shown.devices[1] is B
    assert rig.told.events == []


def test_an_xid_that_applications_cause_leaves_the_gpu_in_use_and_passes() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 31)
    found = rig.health(A.name)
    assert (found.state, found.cause, found.recovery) == (DEGRADED, "xid", Recovery.AUTOMATIC)
    assert found.reason == "the driver reported XID 31 (illegal memory access (MMU fault))"
    rig.time.forward(599)
    assert rig.state(A.name) is DEGRADED
    rig.time.forward(2)
    assert rig.health(A.name) == Health(since=rig.time.now - 1)


def test_an_xid_that_needs_a_reset_stays_however_long_it_takes() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 95)
    rig.time.forward(30 * 24 * 3600)
    assert (rig.state(A.name), rig.health(A.name).recovery) == (UNHEALTHY, Recovery.RESET)


def test_a_table_in_the_configuration_goes_before_the_catalog() -> None:
    rig = HealthRig([A], Policy(XidTable(overrides=((95, Action.IGNORE), (13, Action.REPLACE)))))
    rig.xid(A.name, 95)
    assert (rig.state(A.name), rig.shown) == (HEALTHY, [])
    rig.xid(A.name, 13)
    rig.time.forward(10**7)
    assert (rig.state(A.name), rig.health(A.name).recovery) == (UNHEALTHY, Recovery.REPLACE)
    rig.keeper.clear(A.name)
    assert rig.state(A.name) is HEALTHY


def test_a_link_is_bad_at_once_and_well_after_a_quiet_time() -> None:
    port = nic(0x86)
    rig = HealthRig([port])
    rig.look(port.name, CARRIER)
    assert rig.health(port.name) == Health(UNHEALTHY, CARRIER.detail, rig.time.now, Recovery.AUTOMATIC, "carrier")
    rig.time.forward(5)
    rig.look(port.name)
    rig.time.forward(19)
    assert rig.state(port.name) is UNHEALTHY
    assert rig.entry(port.name).until == rig.time.now + 1
    rig.time.forward(2)
    assert rig.state(port.name) is HEALTHY
    assert len(rig.shown) == 2


def test_what_one_scan_found_is_over_with_the_next() -> None:
    rig = HealthRig([A])
    rig.scan_health(A.name, SCANNED_LOST)
    assert rig.state(A.name) is UNHEALTHY
    rig.time.forward(60)
    rig.scan_health(A.name, Health())
    assert rig.state(A.name) is HEALTHY


def test_a_silent_driver_is_unknown_and_costs_nobody_a_pod() -> None:
    everything = Policy(evicting=frozenset(Trouble))
    rig = HealthRig([A, B, C], everything)
    rig.look(A.name, LOST)
    rig.time.forward(20)
    assert rig.health(A.name).evicts
    for device in (A, B, C):
        rig.scan_health(device.name, SILENT)
    rig.time.forward(100)
    assert {(rig.state(device.name), rig.health(device.name).evicts) for device in (A, B, C)} == {(UNKNOWN, False)}
    for device in (A, B, C):
        rig.scan_health(device.name, Health())
    rig.time.forward(100)
    assert rig.states() == {A.name: UNHEALTHY, B.name: HEALTHY, C.name: HEALTHY}


def test_since_is_when_the_state_began_and_numbers_in_reasons_change_nothing() -> None:
    rig = HealthRig([A])
    rig.poll(A.name, Condition(Trouble.THERMAL, "93 degrees"))
    began = rig.health(A.name)
    for degrees in range(94, 104):
        rig.poll(A.name, Condition(Trouble.THERMAL, f"{degrees} degrees"))
    assert rig.health(A.name) is began
    assert len(rig.shown) == 1
    rig.xid(A.name, 95)
    assert rig.health(A.name).since == rig.time.now


def test_the_worst_is_said_with_the_hardest_way_out() -> None:
    rig = HealthRig([A])
    rig.poll(A.name, Condition(Trouble.THERMAL))
    rig.xid(A.name, 79)
    rig.look(A.name, LOST)
    found = rig.health(A.name)
    assert (found.state, found.cause, found.recovery) == (UNHEALTHY, "lost", Recovery.RESET)


def test_generations_grow_with_every_change_and_never_fall_behind_the_scans() -> None:
    rig = HealthRig([A])
    assert rig.keeper.judged.generation == 1
    rig.xid(A.name, 95)
    rig.scan(replace(A, index="7"))
    rig.generation = 20
    rig.scan(replace(A, index="8"))
    assert [snapshot.generation for snapshot in rig.shown] == [2, 3, 21]


def test_a_scan_that_changes_nothing_that_is_shown_publishes_nothing() -> None:
    port = nic(0x86)
    rig = HealthRig([port])
    rig.look(port.name, CARRIER)
    rig.scan(nic(0x86, up=False))
    judged = rig.keeper.judged
    rig.look(port.name)
    rig.scan(nic(0x86))
    rig.look(port.name, CARRIER)
    rig.scan(nic(0x86, up=False))
    assert rig.keeper.judged is judged
    rig.look(port.name)
    rig.scan(nic(0x86))
    rig.time.forward(60)
    assert rig.keeper.judged.devices == (replace(port, health=Health(since=rig.time.now - 40)),)


def test_a_device_whose_link_is_down_says_so_before_a_scan_does() -> None:
    port = nic(0x86)
    rig = HealthRig([port])
    rig.look(port.name, CARRIER)
    shown = rig.keeper.judged.device(port.name)
    assert shown is not None
    assert shown.attribute("linkUp") is False


def test_sources_that_speak_before_the_first_scan_are_heard() -> None:
    rig = HealthRig([])
    rig.xid(A.name, 95)
    rig.look(B.name, LOST)
    rig.scan(A, B)
    assert rig.states() == {A.name: UNHEALTHY, B.name: UNHEALTHY}


def test_nothing_is_shown_before_the_first_scan_whatever_is_told() -> None:
    told, time = RecordedEvents(), Time()
    bus = EventBus()
    keeper = HealthKeeper(Policy(), bus, clock=time.clock, later=time.later, steady=time.steady, events=told)
    shown = heard(bus, SnapshotJudged)
    keeper.event(HealthEvent(A.name, Trouble.XID, time.now, code=95))
    keeper.looked(Look("nvml", time.now, {A.name: (LOST,)}))
    keeper.recall(SavedHealth())
    time.forward(1000)
    assert shown == []
    keeper.observe(Snapshot(1))
    assert shown == [SnapshotJudged(Snapshot(1))]


def test_what_is_held_against_a_device_that_never_comes_is_forgotten() -> None:
    rig = HealthRig([A])
    rig.xid("gpu-nowhere", 95)
    rig.time.forward(4000)
    rig.scan(replace(A, index="3"))
    rig.scan(replace(gpu(1), name="gpu-nowhere"))
    assert rig.state("gpu-nowhere") is HEALTHY


def test_words_that_cannot_be_said_withhold_no_verdict() -> None:
    rig = HealthRig([A])

    def unsaid(kind: EventType, reason: str, message: str) -> None:
        raise ValueError(kind, reason, message)

    rig.told.emit = unsaid  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="DeviceUnhealthy"):
        rig.look(A.name, LOST)
    assert rig.shown[-1].devices[0].health.state is UNHEALTHY
    rig.time.forward(11)
    assert rig.evicting == [A.name]


def test_a_subscriber_that_fails_keeps_nobody_else_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    rig = HealthRig([A])

    def broken(judged: SnapshotJudged) -> None:
        raise ValueError(judged.snapshot.generation)

    rig.bus.subscribe(SnapshotJudged, broken)
    judged = heard(rig.bus, SnapshotJudged)
    with caplog.at_level(logging.ERROR):
        rig.xid(A.name, 95)
    assert len(judged) == 1
    assert "a subscriber failed" in caplog.text


def test_nothing_happens_after_it_is_closed() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 13)
    rig.keeper.close()
    rig.time.forward(10_000)
    assert rig.shown[-1].generation == 2


def test_a_clock_that_is_set_back_shortens_nothing_and_a_device_still_gets_well() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 13)
    rig.time.now -= 7200
    rig.scan(replace(A, index="9"))
    rig.time.forward(590)
    assert rig.state(A.name) is DEGRADED
    rig.time.forward(7300)
    assert rig.state(A.name) is HEALTHY


def test_another_policy_takes_effect_at_once_and_leaves_the_past_as_it_was_judged() -> None:
    rig = HealthRig([A, B])
    rig.xid(A.name, 95)
    rig.keeper.use(Policy(XidTable(overrides=((95, Action.IGNORE),)), pace=HealthPace(warn=5)))
    rig.xid(B.name, 95)
    assert rig.states() == {A.name: UNHEALTHY, B.name: HEALTHY}
    rig.xid(B.name, 13)
    rig.time.forward(6)
    assert rig.state(B.name) is HEALTHY


def test_a_dry_run_makes_tells_and_counts_states_and_shows_nobody() -> None:
    rig = HealthRig([A, B], Policy(dry_run=True, evicting=frozenset(Trouble)))
    rig.xid(A.name, 95)
    rig.time.forward(100)
    assert rig.shown == []
    entry = rig.entry(A.name)
    assert (entry.health.state, entry.health.evicts, rig.keeper.entries()[0].shown) == (UNHEALTHY, False, HEALTHY)
    assert rig.keeper.metrics.verdicts.counts == {("gpu", "xid", "unhealthy"): 1}
    ((kind, reason, message),) = rig.told.events
    assert (kind, reason) == (EventType.WARNING, "DeviceUnhealthy")
    assert message == (
        f"{A.name} is unhealthy: the driver reported XID 95 (uncontained memory error); recovers after a reset of "
        "the device (dry run: no pod is affected)"
    )
    rig.scan_health(B.name, SCANNED_LOST)
    assert rig.state(B.name) is UNHEALTHY
    rig.keeper.use(Policy())
    assert rig.state(A.name) is UNHEALTHY


def test_what_happens_is_counted() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 13)
    rig.xid(A.name, 9999)
    rig.poll(A.name, times=3)
    rig.keeper.event(HealthEvent(A.name, Trouble.ECC, rig.time.now))
    counts = rig.keeper.metrics
    assert counts.xids.counts == {("13", "warn"): 1, ("other", "drain"): 1, ("other", "warn"): 0}
    assert counts.events.counts == {("xid",): 2, ("ecc",): 1}
    assert counts.looks.counts == {("nvml",): 3}
    assert counts.verdicts.counts == {("gpu", "xid", "degraded"): 1, ("gpu", "xid", "unhealthy"): 1}


def test_the_event_that_a_gpu_is_unavailable_is_over_by_itself_where_no_look_confirms_it() -> None:
    rig = HealthRig([A])
    rig.keeper.event(HealthEvent(A.name, Trouble.RECOVERY, rig.time.now, "the GPU is unavailable"))
    assert rig.health(A.name).reason == "the GPU is unavailable"
    rig.time.forward(21)
    assert rig.state(A.name) is HEALTHY


def test_a_counter_that_grew_once_is_held_as_long_as_an_event() -> None:
    rig = HealthRig([A])
    rig.poll(A.name, Condition(Trouble.ECC, "1 more"))
    rig.poll(A.name, times=29)
    assert rig.state(A.name) is UNHEALTHY
    rig.poll(A.name, times=3)
    assert rig.state(A.name) is HEALTHY


def test_a_scan_during_which_somebody_had_the_driver_let_go_of_is_no_flapping() -> None:
    rig = HealthRig([A])
    for _ in range(10):
        rig.scan_health(A.name, replace(SILENT, cause="person"))
        assert rig.state(A.name) is UNKNOWN
        rig.scan_health(A.name, Health())
        assert rig.state(A.name) is HEALTHY
    assert rig.told.events == []


def test_a_thousand_devices_cost_little() -> None:
    rig = HealthRig([gpu(number) for number in range(1000)])
    names = list(rig.devices)
    rig.keeper.looked(Look("kernel", rig.time.now, dict.fromkeys(names, (LOST,))))
    assert len(rig.shown) == 1
    assert set(rig.states().values()) == {UNHEALTHY}
    assert rig.told.reasons == ["DeviceUnhealthy", "HealthBrakeOn"]
