"""The search: the recorded answers, every way tried on small cases, and what the rules say one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.api.quantities import Quantity, parse
from scheduling.pools.capacity import PoolLedger
from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.documents import DevicePool, PoolDeviceClass
from scheduling.pools.matching import MatchingError, devices_of
from scheduling.pools.search import PoolSearch, PoolSolution, node_names, occupying, pools_at, search
from scheduling.pools.ways import SearchGaveUp, SearchSteps
from tests.making.pool_documents import claim, class_, decoded, device, pool, recorded
from tests.scheduling.pools.brute_force import best, rank_of
from tests.scheduling.pools.small_cases import BUSY, CLAIMS, CLASSES, POOLS, in_use, small_claims, small_pools

TYPES_OF_AMOUNTS = "type-mismatch"
"""The prototype's amounts had types (a counter, a quantity); those of documents have none."""
RECORDED = [
    pytest.param(case, id=f"{file}-{case['name']}")
    for file in ("select-node-hand", "select-node-random", "schedule-pod-hand", "schedule-pod-random")
    for case in recorded(file)
    if "derived" in case and case["name"] != TYPES_OF_AMOUNTS
]


@pytest.mark.parametrize("case", RECORDED)
def test_claims_can_be_met_where_recorded(case: dict[str, Any]) -> None:
    pools, classes, claims = decoded(case)
    for node, derived in case["derived"].items():
        own = [each for each in pools if each.spec.node_name == node]
        found = search(claims, classes, own, skip_failing=True)
        assert (found is not None) == derived["possible"]
        if "possibleWithNetworkPools" in derived:
            every = [*own, *(each for each in pools if not each.spec.node_name)]
            assert (search(claims, classes, every, skip_failing=True) is not None) == derived[
                "possibleWithNetworkPools"
            ]
        if not case.get("departs") and "selectable" in case["expect"]:
            assert (found is not None) == (node in case["expect"]["selectable"])
            if found is not None:
                assert per_pool(found) == recorded_per_pool(case["expect"]["nodes"][node]["allocations"])


def test_every_recorded_case_with_documents_is_judged() -> None:
    judged = {each.id for each in RECORDED}
    for file in ("select-node-hand", "select-node-random", "schedule-pod-hand", "schedule-pod-random"):
        for case in recorded(file):
            inexpressible = "pools" not in case or case.get("expressible") is False
            assert f"{file}-{case['name']}" in judged or inexpressible or case["name"] == TYPES_OF_AMOUNTS


def per_pool(found: PoolSolution) -> Counter[str]:
    return Counter(one.device.name[0] for need in found.needs for one in need.devices)


def recorded_per_pool(allocations: list[dict[str, Any]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in allocations:
        counts[each["devicePoolName"]] += each["deviceCount"]
    return counts


SCHEDULED = [
    case
    for file in ("schedule-pod-hand", "schedule-pod-random")
    for case in recorded(file)
    if "derived" in case and case["expect"].get("best", -1) >= 0
]


def test_amounts_of_a_device_are_as_recorded() -> None:
    compared = 0
    for case in SCHEDULED:
        pools, classes, claims = decoded(case)
        for node in case["expect"]["nodes"]:
            own = [each for each in pools if each.spec.node_name == node["node"]]
            found = search(claims, classes, own) if node["success"] else None
            for need in found.needs if found is not None else ():
                (chosen,) = need.devices
                for given_, expected in recorded_amounts(node, need.claim.metadata.name, chosen.device.name):
                    ours = {each.name: each.allocation for each in chosen.amounts}
                    assert ours[given_] == expected
                    compared += 1
    assert compared > 50


def recorded_amounts(node: Any, claim_name: str, device_name: tuple[str, str]) -> list[tuple[str, Quantity]]:
    """The amounts that the prototype took for a claim at a device, if it could."""
    return [
        (each["capacity"], parse(str((each.get("quantity") or each.get("counter"))["request"])))
        for claims in node["claims"]
        for result in claims.get("deviceClaimResults", ())
        if result["claimName"] == claim_name
        for pool_ in result["poolResults"]
        if f"{node['node']}-{pool_['poolName']}" == device_name[0]
        for one in pool_["deviceResults"] or ()
        if one["deviceName"] == device_name[1]
        for each in one["capacityResults"] or ()
    ]


@settings(max_examples=75, deadline=None)
@given(POOLS, CLAIMS, BUSY, st.sampled_from([0, 1, 2]))
def test_answer_is_the_best_of_all_ways(pools_: Any, claims_: Any, busy: Any, block: int) -> None:
    pools, claims = small_pools(pools_, block), small_claims(claims_)
    others = in_use(busy) if all(len(each[2]) for each in pools_) else []
    found = search(claims, CLASSES, pools, others)
    expected = best(claims, {each.metadata.name: each for each in CLASSES}, pools, others)
    assert (None if found is None else rank_of(found, claims, pools)) == expected
    if found is not None:
        holds(found, pools, [*others])


def holds(found: PoolSolution, pools: Sequence[DevicePool], others: Sequence[DeviceClaim]) -> None:
    """The amounts in an answer are enough for every need, and no device gives more than it has."""
    ledger = PoolLedger(one for each in pools for one in devices_of(each))
    for each in others:
        ledger.apply(each.status.allocations)
    before = {name: Counter(use.drawn) for name, use in ledger.uses.items()}
    for need in found.needs:
        if need.devices[0].admin_access:
            continue
        ledger.apply(one.allocation for one in need.devices)
        for name, amount in need.detail.requests.items():
            if name != "count":
                assert (
                    sum(a.allocation.nanos for one in need.devices for a in one.amounts if a.name == name)
                    >= amount.nanos
                )
    for device_, use in ledger.uses.items():
        for resource in ledger.devices[device_].device.resources:
            drawn_before = before[device_][resource.name]
            assert use.drawn.get(resource.name, 0) <= max(resource.capacity.nanos, drawn_before)


GPUS = pool("gpus", *(device(f"gpu-{n}", {}, [("memory", "80Gi", "10Gi")], root=f"r{n // 2}") for n in range(4)))


def names(found: PoolSolution | None) -> list[list[str]]:
    assert found is not None
    return [[one.device.device.name for one in need.devices] for need in found.needs]


def drawn(found: PoolSolution | None) -> list[list[str]]:
    assert found is not None
    return [[str(each.allocation) for one in need.devices for each in one.amounts] for need in found.needs]


def asked(*needs: Any, classes: Sequence[PoolDeviceClass] = CLASSES, others: Any = (), **spec: Any) -> Any:
    return search([claim(*needs, **spec)], classes, [GPUS], others)


def test_range_takes_as_few_devices_as_reach_the_sum() -> None:
    found = asked({"requests": {"memory": "128Gi"}, "limits": {"count": 8}, "matchAttributes": ["root"]})
    assert names(found) == [["gpu-0", "gpu-1"]]
    assert drawn(found) == [["80Gi", "50Gi"]]
    assert asked({"requests": {"memory": "161Gi"}, "limits": {"count": 8}, "matchAttributes": ["root"]}) is None
    assert asked({"requests": {"memory": "128Gi"}}) is None


def test_every_device_gives_at_least_a_block() -> None:
    assert drawn(asked({"requests": {"count": 3, "memory": "20Gi"}})) == [["10Gi", "10Gi", "10Gi"]]


def test_device_with_amounts_is_shared_and_one_without_is_taken_whole() -> None:
    half = {"requests": {"memory": "40Gi"}}
    assert names(asked(half, half)) == [["gpu-0"], ["gpu-0"]]
    assert names(asked(half, {})) == [["gpu-0"], ["gpu-1"]]
    found = asked({})
    assert found.needs[0].devices[0].allocation.allocations == ()


def test_existing_allocations_are_subtracted_first() -> None:
    shared = [
        {"devicePoolName": "gpus", "deviceName": "gpu-0", "allocations": [{"name": "memory", "allocation": "45Gi"}]}
    ]
    whole = [{"devicePoolName": "gpus", "deviceName": "gpu-1"}]
    others = [claim({}, name="a", allocations=shared), claim({}, name="b", allocations=whole)]
    assert names(asked({"requests": {"memory": "30Gi"}}, others=others)) == [["gpu-0"]]
    assert names(asked({"requests": {"memory": "31Gi"}}, others=others)) == [["gpu-2"]]
    assert names(asked({}, others=others)) == [["gpu-2"]]


def test_admin_access_ignores_use_and_adds_none() -> None:
    whole = [{"devicePoolName": "gpus", "deviceName": f"gpu-{n}"} for n in range(4)]
    others = [claim({}, name="a", allocations=whole)]
    watch = {"deviceClass": "watch", "requests": {"count": 4}}
    found = asked(watch, others=others)
    assert names(found) == [["gpu-0", "gpu-1", "gpu-2", "gpu-3"]]
    assert all(each.admin_access and not each.amounts for each in found.needs[0].devices)
    watching = claim(watch, name="w", allocations=whole)
    assert occupying(watching, {each.metadata.name: each for each in CLASSES}) == ()
    assert names(asked({}, others=[watching])) == [["gpu-0"]]
    assert asked({}, others=others) is None


def test_earlier_alternative_wins_and_later_ones_are_tried() -> None:
    first = {"deviceClass": "gpu", "requests": {"count": 5}}
    second = {"deviceClass": "gpu", "requests": {"count": 2}}
    found = asked({"oneOf": [first, second, {"deviceClass": "gpu"}]})
    assert [need.alternative for need in found.needs] == [1]
    assert len(found.needs[0].devices) == 2


def test_attributes_match_within_a_need_or_across_the_claim() -> None:
    pair = {"requests": {"count": 2}, "matchAttributes": ["root"]}
    assert names(asked(pair, pair)) == [["gpu-0", "gpu-1"], ["gpu-2", "gpu-3"]]
    assert asked(pair, pair, matchAttributes=["root"]) is None
    assert names(asked({}, {}, matchAttributes=["root"])) == [["gpu-0"], ["gpu-1"]]
    assert asked({}, matchAttributes=["slot"]) is None
    assert asked({"matchAttributes": ["slot"]}) is None


def test_device_type_takes_devices_of_all_its_classes() -> None:
    other = pool("others", device("x"), driver="other.example.com")
    classes = [class_("gpu"), class_("other", "other.example.com")]
    found = search([claim({"deviceType": "gpu", "requests": {"count": 5}})], classes, [GPUS, other])
    assert found is not None
    assert [one.class_name for one in found.needs[0].devices] == ["gpu"] * 4 + ["other"]
    assert [each.device for each in found.allocations(found.needs[0].claim)][-1] == "x"


def test_pools_of_the_network_are_part_of_every_node() -> None:
    pools = [pool("b", device("b"), node="n"), pool("c", device("c"), node=None), pool("a", device("a"), node="m")]
    assert node_names(pools) == ["m", "n"]
    assert [each.metadata.name for each in pools_at(pools, "n")] == ["b", "c"]
    assert [each.metadata.name for each in pools_at(pools, None)] == ["c"]


def test_failing_constraint_is_an_error_of_the_claim() -> None:
    with pytest.raises(MatchingError, match="the claim, at device gpu-0 of pool gpus"):
        asked({"constraints": "device.speed > 1"})


def test_search_that_takes_too_many_steps_says_so() -> None:
    searching = PoolSearch(PoolLedger(devices_of(GPUS)))
    with pytest.raises(SearchGaveUp, match="no answer after trying 2 ways; search for fewer claims at once"):
        searching.run([claim({"requests": {"count": 4}})], {"gpu": class_()}, SearchSteps(2))


def test_search_that_gives_up_leaves_the_ledger_as_it_was() -> None:
    cut = pool("cut", *(device(f"d{n}", {"slices": 1}) for n in range(4)), resources=[("slices", 4)])
    ledger = PoolLedger(devices_of(cut))
    with pytest.raises(SearchGaveUp):
        PoolSearch(ledger).run([claim({"requests": {"count": 4}})], {"gpu": class_()}, SearchSteps(3))
    assert ledger.left_of_pool("cut", cut.spec.resources[0]).value() == 4
    found = PoolSearch(ledger).run([claim({"requests": {"count": 4}})], {"gpu": class_()})
    assert found is not None


def test_search_for_more_devices_than_it_can_place_together_says_so() -> None:
    many = pool("many", *(device(f"d{n}") for n in range(1_000)))
    with pytest.raises(SearchGaveUp, match="needs and their devices must be 700 at most; ask for fewer devices"):
        PoolSearch(PoolLedger(devices_of(many))).run([claim({"requests": {"count": 1_000}})], {"gpu": class_()})


def test_alternatives_that_no_device_suits_are_not_combined() -> None:
    """Ten alternatives of each of twelve needs have 10**12 combinations."""
    too_many = {"oneOf": [{"deviceClass": "gpu", "requests": {"count": 5}}] * 10}
    found = PoolSearch(PoolLedger(devices_of(GPUS)))
    assert found.run([claim(*[too_many] * 12)], {"gpu": class_()}, SearchSteps(10)) is None


def test_combinations_of_alternatives_are_steps() -> None:
    taken = {"oneOf": [{"deviceClass": "gpu", "requests": {"count": 4}}] * 10}
    with pytest.raises(SearchGaveUp, match="no answer after trying 500 ways"):
        PoolSearch(PoolLedger(devices_of(GPUS))).run([claim(*[taken] * 12)], {"gpu": class_()}, SearchSteps(500))


def test_devices_that_cannot_be_told_apart_are_tried_once() -> None:
    many = pool("many", *(device(f"d{n:02}", root=str(n % 2)) for n in range(40)))
    wanted = claim({"requests": {"count": 20}, "matchAttributes": ["root"]}, {"requests": {"count": 21}})
    searching = PoolSearch(PoolLedger(devices_of(many)))
    assert searching.run([wanted], {"gpu": class_()}, SearchSteps(2_000)) is None


def test_count_or_sum_out_of_reach_of_some_pools_ends_at_once() -> None:
    pools = [pool(f"p{n:02}", device("d", {}, [("memory", 8, 1)], uuid=str(n))) for n in range(64)]
    ledger = PoolLedger(one for each in pools for one in devices_of(each))
    for asked_ in ({"requests": {"count": 32}}, {"requests": {"memory": 240}, "limits": {"count": 64}}):
        found = PoolSearch(ledger).run([claim(asked_)], {"gpu": class_()}, SearchSteps(10_000))
        assert found is not None
        assert len(found.needs[0].devices) in (32, 30)
    too_much = claim({"requests": {"memory": 513}, "limits": {"count": 64}})
    assert PoolSearch(ledger).run([too_much], {"gpu": class_()}, SearchSteps(100)) is None
