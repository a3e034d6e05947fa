"""One cause, the finding that is hardest to end, and every view names it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from node.health.finding import Finding, judged
from node.health.policy import FAILED
from node.health.signal import Condition, Trouble
from node.health.state import Health, HealthState, Recovery
from tests.node.health.rig import A, HealthRig, lost

HEALTHY, DEGRADED, UNHEALTHY, UNKNOWN = HealthState
LOST = Condition(Trouble.LOST, "it does not answer (GPU_IS_LOST)")
RECOVER = Condition(Trouble.RECOVERY, "reset it", 1)
ROW = Condition(Trouble.ROW_REMAP, "a row could not be remapped", FAILED)
HARDNESS = list(Recovery)

findings = st.lists(
    st.builds(
        Finding,
        st.sampled_from([DEGRADED, UNHEALTHY, UNKNOWN]),
        st.sampled_from(Trouble),
        st.sampled_from(["one", "two", "three"]),
        st.sampled_from(Recovery),
        st.sampled_from(["nvml", "scan", "event"]),
        until=st.none() | st.floats(0, 100),
        gone=st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(findings, st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_the_order_in_which_findings_come_changes_nothing(found: list[Finding], random: object) -> None:
    verdict = judged(found, frozenset({Trouble.LOST}))
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random of the strategy
    assert judged(shuffled, frozenset({Trouble.LOST})) == verdict


@given(findings)
@settings(max_examples=200)
def test_cause_reason_and_recovery_are_of_one_finding_the_hardest_of_the_worst(found: list[Finding]) -> None:
    verdict = judged(found, frozenset())
    worst = [each for each in found if each.state is verdict.health.state]
    assert all(list(HealthState).index(each.state) <= list(HealthState).index(verdict.health.state) for each in found)
    named = [
        each
        for each in worst
        if (each.kind.value, each.reason, each.recovery, each.source)
        == (verdict.health.cause, verdict.health.reason, verdict.health.recovery, verdict.source)
    ]
    assert named
    assert HARDNESS.index(verdict.health.recovery) == max(HARDNESS.index(each.recovery) for each in worst)


@given(findings)
def test_each_other_kind_of_trouble_is_listed_after_the_cause(found: list[Finding]) -> None:
    verdict = judged(found, frozenset())
    others = {each.kind for each in found if each.kind.value != verdict.health.cause}
    assert len(verdict.also) >= len(others)
    assert set(verdict.also) <= {each.reason for each in found}


@given(findings)
def test_once_the_cause_has_ended_the_next_hardest_is_the_cause(found: list[Finding]) -> None:
    verdict = judged(found, frozenset())
    rest = [each for each in found if each.kind.value != verdict.health.cause]
    if rest:
        after = judged(rest, frozenset())
        assert after.health.cause in {each.kind.value for each in rest}
        assert after.health.cause != verdict.health.cause


def test_a_failed_row_remap_is_the_cause_and_not_the_xid_beside_it() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 48)
    rig.poll(A.name, ROW)
    entry = rig.entry(A.name)
    assert (entry.health.cause, entry.health.recovery) == ("row-remap", Recovery.REPLACE)
    assert entry.health.reason == "a row could not be remapped"
    assert entry.also == ("the driver reported XID 48 (double-bit ECC error)",)
    assert rig.told.events[-1][2] == (
        f"{A.name} is still unhealthy: a row could not be remapped (also: the driver reported XID 48 (double-bit ECC"
        " error)); recovers when a person clears it ('ostler health clear')"
    )


def test_the_next_cause_is_told_when_one_has_ended() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 142)
    rig.poll(A.name, RECOVER)
    assert rig.entry(A.name).also == ("the driver reported XID 142",)
    rig.poll(A.name, times=4)
    assert (rig.health(A.name).cause, rig.entry(A.name).also) == ("xid", ())
    end = "; recovers by itself after a quiet time"
    reset = "; recovers after a reset of the device"
    assert [message for _, _, message in rig.told.events] == [
        f"{A.name} is unhealthy: the driver reported XID 142{end}",
        f"{A.name} is still unhealthy: reset it (also: the driver reported XID 142){reset}",
        f"{A.name} is still unhealthy: the driver reported XID 142{end}",
    ]


def test_a_gpu_that_is_lost_has_one_cause_whoever_speaks_first() -> None:
    signs = (
        lambda rig: rig.xid(A.name, 79),
        lambda rig: rig.look(A.name, LOST, source="nvml"),
        lambda rig: rig.scan(*lost(A)),
    )
    found = set()
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        rig = HealthRig([A])
        for number in order:
            signs[number](rig)
        entry = rig.entry(A.name)
        assert rig.health(A.name).cause == entry.health.cause
        assert "XID 79" in " ".join(entry.also)
        found.add((entry.health.cause, entry.health.recovery))
    assert found == {("lost", Recovery.RESET)}


def test_a_cause_that_comes_and_goes_beside_a_harder_one_is_no_news() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 79)
    told = len(rig.told.events)
    for _ in range(10):
        rig.look(A.name, Condition(Trouble.AER), source="sysfs")
        rig.time.forward(30)
        rig.look(A.name, source="sysfs")
        rig.time.forward(30)
    assert len(rig.told.events) == told


def test_a_person_who_says_the_same_state_is_answered_that_it_stays() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 79)
    assert rig.keeper.set(A.name, UNHEALTHY, "vendor case 4711") == (f"{A.name} stays unhealthy",)
    assert rig.health(A.name).cause == "person"
    assert rig.entry(A.name).health.recovery is Recovery.PERSON


def test_verdicts_are_counted_by_states_and_not_by_causes() -> None:
    rig = HealthRig([A])
    rig.xid(A.name, 79)
    rig.look(A.name, LOST, source="nvml")
    assert rig.keeper.metrics.verdicts.counts == {("gpu", "xid", "unhealthy"): 1}
    assert isinstance(rig.health(A.name), Health)
