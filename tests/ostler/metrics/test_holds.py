"""What the figures of holds are made from."""

from __future__ import annotations

from node.clocks import SystemClocks
from node.ledger.events import HoldsObserver, ReadingOutcome
from node.ledger.holds import HoldState
from node.metrics import metrics_of
from node.rules import Door
from ostler.metrics.counters import HoldsMetrics
from ostler.metrics.gauges import HoldsFigures, holds
from protos.agent.v1alpha1 import agent_pb2
from tests.ostler.metrics import scraping


def numbers(
    counts: HoldsMetrics,
    report: agent_pb2.ListHoldsResponse | None = None,
    **pending: int,
) -> dict[tuple[str, ...], float]:
    """Samples by name and the values of their labels."""
    return scraping.numbers(metrics_of(counts), holds(HoldsFigures(report or agent_pb2.ListHoldsResponse(), pending)))


def held(device: str, door: Door | None, state: HoldState, *, admin: bool = False) -> agent_pb2.DeviceHolds:
    hold = agent_pb2.Hold(door=door or "", holder="a/b", state=state, admin=admin)
    return agent_pb2.DeviceHolds(device=device, holds=[hold])


def test_every_state_and_door_is_there_from_the_start() -> None:
    found = numbers(HoldsMetrics())
    assert {key: value for key, value in found.items() if key[0] == "ostler_holds"} == {
        ("ostler_holds", "plugin", "allocated"): 0,
        ("ostler_holds", "plugin", "listed"): 0,
        ("ostler_holds", "plugin", "recorded"): 0,
        ("ostler_holds", "plugin", "draining"): 0,
        ("ostler_holds", "dra", "reserved"): 0,
        ("ostler_holds", "dra", "prepared"): 0,
        ("ostler_holds", "none", "draining"): 0,
    }
    assert [found["ostler_hold_conflicts_total", door] for door in Door] == [0, 0]
    assert [found["ostler_hold_readings_total", outcome] for outcome in ("whole", "partial", "failed")] == [0, 0, 0]
    assert ("ostler_hold_reading_timestamp_seconds",) not in found
    assert found["ostler_holds_known",] == 1


def test_what_is_pending_release_counts_by_its_reason_and_waits_by_what_came_of_them() -> None:
    counts = HoldsMetrics()
    counts.waited(given=True)
    counts.waited(given=True)
    counts.waited(given=False)
    report = agent_pb2.ListHoldsResponse(status=agent_pb2.HoldsStatus(containers="not seen"))
    found = numbers(counts, report, containers=2, processes=0, looking=0)
    reasons = ("containers", "processes", "looking")
    assert [found["ostler_pending_release_devices", reason] for reason in reasons] == [2, 0, 0]
    assert [found["ostler_release_waits_total", outcome] for outcome in ("given", "refused")] == [2, 1]
    assert found["ostler_containers_seen",] == 0
    assert numbers(counts)["ostler_containers_seen",] == 1


def test_every_state_of_a_hold_is_shown_at_some_door() -> None:
    shown = {key[2] for key in numbers(HoldsMetrics()) if key[0] == "ostler_holds"}
    assert shown == {state.value for state in HoldState}


def test_holds_count_by_door_and_state_and_looking_on_is_none() -> None:
    report = agent_pb2.ListHoldsResponse(
        devices=[
            held("a", Door.PLUGIN, HoldState.LISTED),
            held("b", Door.PLUGIN, HoldState.LISTED),
            held("c", Door.DRA, HoldState.PREPARED),
            held("d", Door.DRA, HoldState.PREPARED, admin=True),
            held("e", None, HoldState.PENDING_RELEASE),
        ],
        status=agent_pb2.HoldsStatus(moving=3, losers=2, kubelet="not told", both="no taints"),
    )
    found = numbers(HoldsMetrics(), report)
    assert found["ostler_holds", "plugin", "listed"] == 2
    assert found["ostler_holds", "dra", "prepared"] == 1
    assert found["ostler_holds", "none", "draining"] == 1
    assert (found["ostler_moving_devices",], found["ostler_hold_losers",]) == (3, 2)
    assert (found["ostler_holds_known",], found["ostler_door_both_off",]) == (0, 1)


def test_what_happens_is_counted() -> None:
    counts = HoldsMetrics(SystemClocks(clock=lambda: 17.0))
    counts.lost(Door.DRA)
    counts.lost(Door.DRA)
    counts.lost(Door.PLUGIN)
    counts.evicted()
    observer: HoldsObserver = counts
    observer.read(ReadingOutcome.FAILED, 5.0)
    observer.read(ReadingOutcome.PARTIAL, 0.01)
    assert ("ostler_hold_reading_timestamp_seconds",) not in numbers(counts)
    observer.read(ReadingOutcome.WHOLE, 0.01)
    observer.looked(0)
    observer.looked(2)
    found = numbers(counts)
    assert [found["ostler_hold_conflicts_total", door] for door in ("plugin", "dra")] == [1, 2]
    assert [found["ostler_hold_readings_total", outcome] for outcome in ("whole", "partial", "failed")] == [1, 1, 1]
    assert found["ostler_hold_reading_timestamp_seconds",] == 17.0
    assert found["ostler_hold_reading_duration_seconds_sum",] == 5.02
    assert [found["ostler_hold_looks_total", result] for result in ("clean", "process")] == [1, 1]
    assert found["ostler_hold_evictions_total",] == 1
