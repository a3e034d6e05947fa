"""The answer for all nodes: as if each were asked about alone, in few groups, the nearest to a way first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.constraints import attributes_read
from scheduling.pools.diagnosis import PoolOutcome, diagnose
from scheduling.pools.documented import documented_pools
from scheduling.pools.documents import DevicePool
from scheduling.pools.obstacles import NeedInvalid, gist
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.questions import PoolJudge
from scheduling.pools.search import PoolSolution
from scheduling.pools.survey import NETWORK, PoolExplanation, pools_by_node, survey_pools
from tests.making.pool_documents import claim, device, pool
from tests.scheduling.pools.small_cases import BUSY, CLAIMS, CLASSES, POOLS, in_use, small_claims, small_pools


@settings(max_examples=20, deadline=None)
@given(POOLS, POOLS, CLAIMS, BUSY, st.sampled_from([0, 2]))
def test_answer_is_that_of_each_node_alone(one: Any, other: Any, claims_: Any, busy: Any, block: int) -> None:
    pools = [*small_pools(one, block), *on_node(small_pools(other, block), "node-2")]
    claims = small_claims(claims_)
    published = documented_pools(pools, CLASSES, in_use(busy))
    classes = ClusterClasses((), published, written=CLASSES)
    answer = survey_pools(claims, published, classes)
    assert sorted(name for group in answer.groups for name in group.nodes) == sorted(pools_by_node(published))
    for group in answer.groups:
        for name in group.nodes:
            alone = diagnose(claims, name, PoolJudge(pools_by_node(published)[name], classes))
            assert gist(alone) == gist(group.finding)
            if name == group.nodes[0]:
                assert replace(alone, solution=None) == replace(group.finding, solution=None)
                assert given_to(claims, alone.solution) == given_to(claims, group.finding.solution)


def given_to(claims: Sequence[DeviceClaim], solution: PoolSolution | None) -> Any:
    return solution and [solution.allocations(each) for each in claims]


def on_node(pools: list[DevicePool], name: str) -> list[DevicePool]:
    """The pools under other names on another node."""
    return [
        replace(
            each,
            metadata=replace(each.metadata, name=f"{name}-{each.metadata.name}"),
            spec=replace(each.spec, node_name=name),
        )
        for each in pools
    ]


def answered(
    *pools: DevicePool, need: Any = None, others: list[DeviceClaim] | None = None, nodes: list[str] | None = None
) -> PoolExplanation:
    published = documented_pools(pools, CLASSES, others or [])
    classes = ClusterClasses((), published, written=CLASSES)
    return survey_pools([claim(need or {})], published, classes, nodes or ())


def gpus(node: str, count: int, model: str = "a100") -> DevicePool:
    made = (device(f"gpu-{n}", model=model, uuid=f"{node}-{n}") for n in range(count))
    return pool(f"{node}-gpus", *made, node=node)


def test_nodes_that_have_a_way_come_first_then_the_nearest() -> None:
    answer = answered(gpus("a", 1), gpus("b", 2), gpus("c", 3), gpus("d", 2), need={"requests": {"count": 3}})
    assert [(each.nodes, each.finding.outcome) for each in answer.groups] == [
        (("c",), PoolOutcome.FITS),
        (("b", "d"), PoolOutcome.BLOCKED),
        (("a",), PoolOutcome.BLOCKED),
    ]
    assert (answer.nodes, answer.fitting) == (4, 1)


def test_nodes_whose_constraints_read_other_values_are_not_one_group() -> None:
    need = {"constraints": "device.model == 'h100'"}
    answer = answered(gpus("a", 2), gpus("b", 2), gpus("c", 2, "l4"), need=need)
    assert [each.nodes for each in answer.groups] == [("a", "b"), ("c",)]


def test_only_the_named_nodes_are_looked_at() -> None:
    assert [each.nodes for each in answered(gpus("a", 1), gpus("b", 1), nodes=["b", "b"]).groups] == [("b",)]


def test_pools_of_the_network_are_asked_about_without_any_node() -> None:
    answer = answered(pool("remote", device("d"), node=None))
    assert [each.nodes for each in answer.groups] == [(NETWORK,)]
    assert answer.fitting == 1
    assert answered().nodes == 1


def test_need_that_no_node_can_judge_stops_the_survey() -> None:
    answer = answered(gpus("a", 1), need={"deviceClass": "none"})
    assert answer.groups == ()
    assert [type(one) for each in answer.stops for one in each.obstacles] == [NeedInvalid]


def test_progress_is_told_before_each_node() -> None:
    published = documented_pools([gpus("a", 1), gpus("b", 1)], CLASSES)
    said: list[tuple[int, int]] = []
    survey_pools(
        [claim({})],
        published,
        ClusterClasses((), published, written=CLASSES),
        progress=lambda done, all_: said.append((done, all_)),
    )
    assert said == [(0, 2), (1, 2)]


def test_attributes_that_a_constraint_can_read() -> None:
    assert attributes_read("device.a == 'x' && (has(device.b) || device['c'] > 1)") == frozenset("abc")
    assert attributes_read("device.exists(key, key == 'a')") is None
    assert attributes_read("device.a =") is None


def test_searches_on_all_nodes_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node has other devices, so that each is searched; the steps are enough for the first one."""
    monkeypatch.setattr("scheduling.pools.survey.MOST_STEPS_IN_ALL", 20)
    pools = [pool(f"p{n}", *(device(f"d{k}") for k in range(5 + n)), node=f"node-{n}") for n in range(3)]
    published = documented_pools(pools, CLASSES)
    answer = survey_pools(
        [claim({"requests": {"count": 5}})], published, ClusterClasses((), published, written=CLASSES)
    )
    assert [each.finding.outcome for each in answer.groups] == [PoolOutcome.FITS, PoolOutcome.UNKNOWN]
    assert "no answer after trying 20 ways" in str(answer.groups[1].finding.obstacles[0])
