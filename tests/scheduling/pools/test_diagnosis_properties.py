"""Claims have no way on a node if and only if there are reasons; their numbers are those of all ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.api.quantities import parse
from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.diagnosis import PoolOutcome, diagnose
from scheduling.pools.documents import COUNT, DevicePool
from scheduling.pools.obstacles import (
    AmountShort,
    AttributesDiffer,
    NeedsCompete,
    NotAtOnce,
    TooFewDevices,
)
from scheduling.pools.remedies import PoolRemedy, PoolRemedyKind, remedies
from tests.making.pool_documents import claim
from tests.scheduling.pools.brute_force import best
from tests.scheduling.pools.small_cases import (
    BUSY,
    CLAIMS,
    CLASSES,
    DETAILS,
    POOLS,
    in_use,
    judge_of,
    small_claims,
    small_need,
    small_pools,
)

NAMED = {each.metadata.name: each for each in CLASSES}


@settings(max_examples=60, deadline=None)
@given(POOLS, CLAIMS, BUSY, st.sampled_from([0, 1, 2]))
def test_there_are_reasons_if_and_only_if_there_is_no_way(pools_: Any, claims_: Any, busy: Any, block: int) -> None:
    pools, claims = small_pools(pools_, block), small_claims(claims_)
    others = in_use(busy) if all(len(each[2]) for each in pools_) else []
    judge = judge_of(pools, others)
    finding = diagnose(claims, "node-1", judge)
    possible = best(claims, NAMED, pools, others) is not None
    assert (finding.outcome is PoolOutcome.FITS) == possible
    assert (finding.solution is not None) == possible
    assert (not finding.every_obstacle()) == possible
    for remedy in remedies(claims, finding, judge):
        changed, still = applied(claims, remedy), [] if remedy.change is PoolRemedyKind.FREE else others
        assert best(changed, NAMED, pools, still) is not None
    for obstacle in finding.obstacles:
        if isinstance(obstacle, NeedsCompete) and obstacle.minimal:
            competing_needs_are_minimal(obstacle, claims, pools, others)


def applied(claims: Sequence[DeviceClaim], remedy: PoolRemedy) -> list[DeviceClaim]:
    """The claims with one change made by hand."""
    found = []
    for each in claims:
        spec, instances = each.spec, list(each.spec.claims)
        if each.metadata.name == remedy.claim:
            if not remedy.need:
                rest = tuple(name for name in spec.match_attributes if name != remedy.what)
                spec = replace(spec, match_attributes=rest)
            else:
                entry = int(remedy.need.partition("[")[2].partition("]")[0])
                instance = instances[entry]
                if ".oneOf[" in remedy.need:
                    number = int(remedy.need.rpartition("[")[2][:-1])
                    details = list(instance.one_of)
                    details[number] = changed_detail(details[number], remedy)
                    instances[entry] = replace(instance, one_of=tuple(details))
                else:
                    instances[entry] = replace(instance, all_of=(changed_detail(instance.all_of[0], remedy),))
        found.append(replace(each, spec=replace(spec, claims=tuple(instances))))
    return found


def changed_detail(detail: Any, remedy: PoolRemedy) -> Any:
    match remedy.change:
        case PoolRemedyKind.FEWER:
            return replace(detail, requests={**detail.requests, COUNT: parse(remedy.value)})
        case PoolRemedyKind.LESS:
            return replace(detail, requests={**detail.requests, remedy.what: parse(remedy.value)})
        case PoolRemedyKind.MORE_DEVICES:
            return replace(detail, limits={**detail.limits, COUNT: parse(remedy.value)})
        case PoolRemedyKind.NO_MATCH:
            return replace(detail, match_attributes=())
        case _:
            return replace(detail, constraints=None)


def competing_needs_are_minimal(
    obstacle: NeedsCompete, claims: Sequence[DeviceClaim], pools: Sequence[DevicePool], others: Sequence[DeviceClaim]
) -> None:
    def possible(needs: Sequence[tuple[str, str]]) -> bool:
        kept = []
        for each in claims:
            entries = tuple(
                instance
                for number, instance in enumerate(each.spec.claims)
                if (each.metadata.name, f"claims[{number}]") in needs
            )
            matched = each.spec.match_attributes if obstacle.attributes else ()
            if entries:
                kept.append(replace(each, spec=replace(each.spec, claims=entries, match_attributes=matched)))
        return best(kept, NAMED, pools, others) is not None

    assert not possible(obstacle.needs)
    for left_out in obstacle.needs:
        assert possible([each for each in obstacle.needs if each != left_out])


@settings(max_examples=75, deadline=None)
@given(POOLS, DETAILS, BUSY, st.sampled_from([0, 1, 2]))
def test_numbers_of_reasons_are_the_best_of_all_ways(pools_: Any, given_: Any, busy: Any, block: int) -> None:
    # All of one driver and one class: otherwise hardly anything would be short but devices.
    pools = small_pools([(False, capacity, devices) for _, capacity, devices in pools_], block)
    need = small_need({**given_, "by": "gpu"})
    others = in_use(busy) if all(len(each[2]) for each in pools_) else []
    finding = diagnose([claim(need)], "node-1", judge_of(pools, others))

    def possible(**changed: Any) -> bool:
        return best([claim({**need, **changed})], NAMED, pools, others) is not None

    for obstacle in finding.every_obstacle():
        match obstacle:
            case AmountShort(goals=(goal,)):
                kept: dict[str, Any] = {"matchAttributes": list(obstacle.matching)}
                most, step = int(parse(goal.best).nanos // 10**9), max(1, block)
                requests = {**need["requests"], "memory": most}
                assert most < need["requests"]["memory"]
                assert not most or possible(**kept, requests=requests)
                assert not possible(**kept, requests={**requests, "memory": most + step})
            case NotAtOnce():
                kept = {"matchAttributes": [], "limits": {}}
                free = {name: 0 for name in need["requests"] if name != COUNT}
                assert not obstacle.best or possible(**kept, requests={**free, COUNT: obstacle.best})
                assert not possible(**kept, requests={**free, COUNT: obstacle.best + 1})
            case TooFewDevices():
                assert sum(len(each[2]) for each in pools_) >= obstacle.there
                assert obstacle.there < obstacle.wanted
            case AttributesDiffer():
                assert not possible(matchAttributes=list(obstacle.attributes))
