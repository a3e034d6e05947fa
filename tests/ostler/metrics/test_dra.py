"""What the DRA door's figures are made from."""

from __future__ import annotations

from driver.claims.contracts import ClaimObserver
from driver.door.registration import DraDoorObserver
from node.clocks import SystemClocks
from node.ledger.events import HoldsObserver
from ostler.metrics.dra import DraFigures, DraMetrics
from protos.agent.v1alpha1.agent_pb2 import Claim, ListClaimsResponse, ListSlicesResponse, Pool, PoolDevice
from tests.ostler.metrics import scraping

TAINTED = PoolDevice(name="nic-0", state="missing", taints=["ostler.dev/link_down=:NoSchedule"])
POOL = Pool(name="worker-1", slices=2, devices=[PoolDevice(name="gpu-0", state="published"), TAINTED], in_order=True)
NOTHING = ListSlicesResponse()


def numbers(
    counts: DraMetrics, view: ListSlicesResponse, *claims: Claim, state: str = "registered"
) -> dict[tuple[str, ...], float]:
    """Samples by name and the values of their labels."""
    figures = DraFigures(
        counts, state, view, ListClaimsResponse(claims=claims), {"nic-1": False, "nic-2": False, "nic-3": True}, True
    )
    return scraping.numbers(figures.collect())


def test_moved_interfaces_are_counted_by_direction_and_outcome() -> None:
    counts = DraMetrics(HoldsObserver())
    counts.interfaces.moved("ok", 0.02)
    counts.interfaces.returned("failed", 0.01)
    counts.interfaces.lost(2)
    found = numbers(counts, ListSlicesResponse())
    assert found["ostler_interfaces_moves_total", "to_pod", "ok"] == 1
    assert found["ostler_interfaces_moves_total", "to_node", "failed"] == 1
    assert found["ostler_interfaces_lost_total",] == 2
    assert (found["ostler_interfaces_out", "in_pod"], found["ostler_interfaces_out", "failing"]) == (2, 1)
    assert found["ostler_interfaces_runtime_failing",] == 1


def test_devices_count_by_state_and_tainted_ones_besides() -> None:
    found = numbers(DraMetrics(HoldsObserver()), ListSlicesResponse(pools=[POOL, POOL], created=3, updated=2))
    states = ("published", "missing", "surplus", "withheld")
    assert [found["ostler_dra_devices", state] for state in states] == [2, 2, 0, 0]
    assert (found["ostler_dra_tainted_devices",], found["ostler_dra_slices",]) == (2, 4)
    assert found["ostler_dra_slice_writes_total", "create"] == 3
    assert found["ostler_dra_publishing_failing",] == 0


def test_one_pool_that_cannot_be_written_is_a_failure() -> None:
    found = numbers(DraMetrics(HoldsObserver()), ListSlicesResponse(pools=[POOL, Pool(name="b", problem="y")]))
    assert (found["ostler_dra_publishing_failing",], found["ostler_dra_slices_in_order",]) == (1, 0)
    assert numbers(DraMetrics(HoldsObserver()), ListSlicesResponse(pools=[POOL]))["ostler_dra_slices_in_order",] == 1


def test_every_outcome_and_state_is_there_from_the_start() -> None:
    found = numbers(DraMetrics(HoldsObserver()), NOTHING, state="waiting")
    for name in ("ostler_dra_claim_preparations_total", "ostler_dra_claim_releases_total"):
        assert [found[name, outcome] for outcome in ("ok", "refused", "unavailable")] == [0, 0, 0]
    assert [found["ostler_dra_claims", state] for state in ("prepared", "started", "void", "refused")] == [0] * 4
    assert found["ostler_dra_registration_state", "waiting"] == 1
    assert found["ostler_dra_call_claims_total", "NodePrepareResources", "failed"] == 0
    assert ("ostler_dra_registration_timestamp_seconds",) not in found


def test_what_observers_are_told_is_counted() -> None:
    counts = DraMetrics(HoldsObserver(), SystemClocks(clock=lambda: 17.0))
    door: DraDoorObserver = counts.door
    claims: ClaimObserver = counts.claims
    door.called("NodePrepareResources", "v1beta1", "OK", 0.02)
    door.answered("NodePrepareResources", 3, 1)
    door.asked()
    door.registered()
    door.failed()
    door.watched(2)
    claims.prepared("refused", 0.3)
    claims.unprepared("ok", 0.1)
    claims.collected(2)
    claims.damaged()
    found = numbers(counts, NOTHING, Claim(state="started"))
    assert found["ostler_dra_calls_total", "NodePrepareResources", "v1beta1", "OK"] == 1
    assert found["ostler_dra_call_claims_total", "NodePrepareResources", "served"] == 2
    assert found["ostler_dra_call_claims_total", "NodePrepareResources", "failed"] == 1
    for name in ("registration_attempts", "registrations", "registration_failures", "damaged_claim_records"):
        assert found[f"ostler_dra_{name}_total",] == 1
    assert found["ostler_dra_registration_timestamp_seconds",] == 17.0
    assert found["ostler_dra_health_streams",] == 2
    assert found["ostler_dra_claim_preparations_total", "refused"] == 1
    assert found["ostler_dra_claim_preparation_duration_seconds_sum",] == 0.3
    assert found["ostler_dra_claim_releases_total", "ok"] == 1
    assert found["ostler_dra_abandoned_claims_total",] == 2
    assert found["ostler_dra_claims", "started"] == 1
