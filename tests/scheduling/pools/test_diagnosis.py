"""Each reason why a claim has no way on a node, and the remedies that help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.diagnosis import PoolFinding, PoolOutcome, diagnose, invalid_needs
from scheduling.pools.documents import DevicePool
from scheduling.pools.obstacles import (
    AmountGoal,
    AmountShort,
    AmountUsedUp,
    AttributeRead,
    AttributesDiffer,
    ConstraintBroken,
    ConstraintUnmet,
    DevicesTaken,
    DriverElsewhere,
    EqualDevices,
    NeedInvalid,
    NeedsCompete,
    NotAtOnce,
    PoolDevicesTainted,
    PoolObstacle,
    PoolResourceShort,
    StepsSpent,
    TooFewDevices,
    gist,
)
from scheduling.pools.publication import published_pools
from scheduling.pools.published import DeviceUser
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.questions import PoolJudge
from scheduling.pools.remedies import PoolRemedy, PoolRemedyKind, remedies
from tests.making.clusters import GPU, GPU_CLASS, gpus, holder, node, resource_slice
from tests.making.pool_documents import claim, device, pool
from tests.scheduling.pools.small_cases import (
    judge_of,
)

GPUS = pool(
    "gpus",
    *(device(f"gpu-{n}", {}, [("memory", "80Gi", "10Gi")], root=f"r{n // 2}", model="a100") for n in range(4)),
)


def why(*needs: Any, pools: Sequence[DevicePool] = (GPUS,), others: Any = (), **spec: Any) -> PoolFinding:
    return diagnose([claim(*needs, **spec)], "node-1", judge_of(pools, others))


def reasons(*needs: Any, **more: Any) -> list[PoolObstacle]:
    return why(*needs, **more).every_obstacle()


def holding(device_: str, memory: str = "", pods: Sequence[str] = ()) -> DeviceClaim:
    amounts = [{"name": "memory", "allocation": memory}] if memory else []
    made = claim(
        {}, name="other", allocations=[{"devicePoolName": "gpus", "deviceName": device_, "allocations": amounts}]
    )
    return replace(made, status=replace(made.status, pod_names=tuple(pods)))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)), st.integers(1, 5))
def test_devices_of_a_cluster_are_free_in_use_or_tainted(
    count: int, held: set[int], tainted: set[int], wanted: int
) -> None:
    taint = {"key": "xid", "effect": "NoSchedule"}
    devices = [{**each, **({"taints": [taint]} if n in tainted else {})} for n, each in enumerate(gpus(count))]
    names = [f"gpu-{n}" for n in sorted(held) if n < count]
    published = published_pools(
        [resource_slice("node-1", devices)], [holder("node-1", *names)] if names else [], [node("node-1")]
    )
    judge = PoolJudge(published, ClusterClasses([GPU_CLASS], published))
    finding = diagnose([claim({"deviceClass": GPU, "requests": {"count": wanted}})], "node-1", judge)
    free = [n for n in range(count) if n not in held | tainted]
    assert (finding.outcome is PoolOutcome.FITS) == (len(free) >= wanted) == (not finding.every_obstacle())
    for obstacle in finding.every_obstacle():
        match obstacle:
            case DevicesTaken():
                assert obstacle.devices == tuple(each for each in names if int(each[-1]) not in tainted)
            case PoolDevicesTainted():
                assert obstacle.devices == tuple(f"gpu-{n}" for n in sorted(tainted) if n < count)
            case _:
                assert obstacle == TooFewDevices(wanted, count)


def test_claim_with_a_way_has_no_reasons() -> None:
    found = why({"requests": {"count": 4}})
    assert found.outcome is PoolOutcome.FITS
    assert found.solution is not None
    assert found.every_obstacle() == []


def test_class_that_is_not_there_is_a_reason_on_every_node() -> None:
    judge = judge_of([GPUS])
    (found,) = invalid_needs([claim({"deviceClass": "gpux"})], judge.classes)
    assert (found.need, found.what) == ("claims[0]", "class gpux")
    assert found.obstacles == (NeedInvalid("there is no DeviceClass gpux; the classes are: gpu, nic, watch"),)


def test_node_without_devices_of_the_driver() -> None:
    assert reasons({"deviceClass": "nic"}) == [DriverElsewhere(("nic.example.com",), ("gpu.example.com",))]


def test_constraint_that_is_false_names_its_first_false_condition_and_the_values() -> None:
    need = {"constraints": "device.model == 'h100' && device.root != 'r0'"}
    assert reasons(need) == [
        ConstraintUnmet(
            ("gpu-2", "gpu-3"), 2, "the claim", "device.model == 'h100'", (AttributeRead("model", '"a100"'),), 0
        ),
        ConstraintUnmet(
            ("gpu-0", "gpu-1"), 2, "the claim", "device.model == 'h100'", (AttributeRead("model", '"a100"'),), 1
        ),
    ]


def test_many_values_of_one_condition_become_one_reason() -> None:
    many = pool("gpus", *(device(f"gpu-{n}", serial=f"s{n}") for n in range(6)))
    (found,) = reasons({"constraints": "device.serial == 'x'"}, pools=[many])
    assert isinstance(found, ConstraintUnmet)
    assert (found.count, found.reads) == (6, (AttributeRead("serial", '"s0", "s1", "s2" … 3 more'),))


def test_attribute_that_a_condition_guards_is_shown_as_missing() -> None:
    (found,) = reasons({"constraints": "has(device.speed) && device.speed > 1"})
    assert isinstance(found, ConstraintUnmet)
    assert (found.condition, found.reads) == ("has(device.speed)", (AttributeRead("speed", None),))


def test_constraint_that_fails_is_an_error_of_the_node() -> None:
    found = why({"constraints": "device.speed > 1"})
    assert found.outcome is PoolOutcome.ERROR
    advice = "the device has no attribute speed; guard it with has(device.speed)"
    names = ("gpu-0", "gpu-1", "gpu-2", "gpu-3")
    assert found.obstacles == (ConstraintBroken(names, 4, "the claim", "device.speed > 1", advice),)


def test_devices_in_use_are_named_with_their_users() -> None:
    found = reasons({"requests": {"count": 4}}, others=[holding("gpu-1", pods=["train-0"])])
    assert found == [DevicesTaken(("gpu-1",), 1, ((DeviceUser("other", ("train-0",)),),))]


def test_amount_that_is_used_up_on_a_device() -> None:
    need = {"requests": {"count": 4, "memory": "40Gi"}}
    (found,) = reasons(need, others=[holding("gpu-1", "75Gi")])
    assert found == AmountUsedUp(("gpu-1",), 1, "memory", "0", "80Gi", "10Gi", (DeviceUser("other"),))


def test_resource_of_the_pool_that_is_used_up() -> None:
    card = pool("gpus", device("gpu", {"slice": 2}), device("half-0", {"slice": 1}), resources=[("slice", 2)])
    found = reasons({"requests": {"count": 2}}, pools=[card], others=[holding("half-0")])
    assert found == [
        DevicesTaken(("half-0",), 1, ((DeviceUser("other"),),)),
        PoolResourceShort(("gpu",), 1, "gpus", "slice", "2", "1", "2", (DeviceUser("other"),)),
    ]


def test_devices_that_exclude_each_other_are_not_available_at_once() -> None:
    card = pool("gpus", *(device(f"d{n}", {"slice": 1}) for n in range(3)), resources=[("slice", 2)])
    assert reasons({"requests": {"count": 3}}, pools=[card]) == [NotAtOnce(3, 2, ("slice",))]


def test_too_few_devices() -> None:
    assert reasons({"requests": {"count": 5}}) == [TooFewDevices(5, 4)]


def test_attributes_that_differ_are_counted() -> None:
    values = (EqualDevices(("r0",), 2), EqualDevices(("r1",), 2))
    need = {"requests": {"count": 3}}
    assert reasons({**need, "matchAttributes": ["root"]}) == [AttributesDiffer(("root",), 3, 2, values)]
    assert reasons(need, matchAttributes=["root"]) == [AttributesDiffer(("root",), 3, 2, values)]


def test_attribute_that_no_device_has_cannot_match() -> None:
    (found,) = reasons({"matchAttributes": ["slot"]})
    assert found == AttributesDiffer(("slot",), 1, 0, (EqualDevices((None,), 4),))


def test_amount_that_is_short_says_how_much_there_is() -> None:
    need = {"requests": {"memory": "200Gi"}, "limits": {"count": 2}}
    assert reasons(need) == [AmountShort((AmountGoal("memory", "200Gi", "160Gi"),), 2, "320Gi")]


def test_amount_of_devices_that_must_match_is_short() -> None:
    need = {"requests": {"memory": "200Gi"}, "limits": {"count": 4}, "matchAttributes": ["root"]}
    differ, short = reasons(need)
    assert isinstance(differ, AttributesDiffer)
    assert short == AmountShort((AmountGoal("memory", "200Gi", "160Gi"),), 4, "320Gi", ("root",))


def test_needs_that_are_met_alone_and_not_together() -> None:
    three = {"requests": {"count": 3}}
    found = why(three, {"requests": {"count": 1}}, three)
    assert found.obstacles == (NeedsCompete((("claim", "claims[0]"), ("claim", "claims[2]"))),)
    assert [each.need for each in found.needs] == ["claims[0]", "claims[2]"]


def test_attribute_across_the_claim_keeps_needs_apart() -> None:
    pair = {"requests": {"count": 2}}
    found = why(pair, pair, matchAttributes=["root"])
    assert found.obstacles == (NeedsCompete((("claim", "claims[0]"), ("claim", "claims[1]")), ("root",)),)


def test_every_alternative_of_one_of_is_explained() -> None:
    found = why({"oneOf": [{"deviceClass": "gpu", "requests": {"count": 5}}, {"deviceClass": "nic"}]})
    assert [each.need for each in found.needs] == ["claims[0].oneOf[0]", "claims[0].oneOf[1]"]
    assert [type(each) for each in found.every_obstacle()] == [TooFewDevices, DriverElsewhere]


def test_need_with_admin_access_is_not_told_of_use() -> None:
    assert reasons({"deviceClass": "watch", "requests": {"count": 4}}, others=[holding("gpu-1")]) == []


def test_search_that_gives_up_says_so() -> None:
    many = pool("gpus", *(device(f"d{n:02}", {}, [("memory", 7 + n, 3)], uuid=f"u{n}") for n in range(24)))
    needs = [{"requests": {"count": 11, "memory": 190}, "matchAttributes": []} for _ in range(2)]
    judge = judge_of([many])
    finding = diagnose([claim(*needs)], "node-1", replace_steps(judge, 50))
    assert finding.outcome is PoolOutcome.UNKNOWN
    (found,) = finding.every_obstacle()
    assert isinstance(found, StepsSpent)
    assert "no answer after trying 50 ways" in found.message


def test_questions_about_one_node_are_limited_together() -> None:
    judge = replace_steps(judge_of([GPUS]), 10)
    wanted = [claim({})]
    answers = [judge.possible(wanted) for _ in range(20)]
    assert answers[0] is True
    assert answers[-1] is None


def replace_steps(judge: PoolJudge, steps: int) -> PoolJudge:
    return PoolJudge(judge.pools, judge.classes, most_steps=steps)


def helps(*needs: Any, others: Any = (), pools: Sequence[DevicePool] = (GPUS,), **spec: Any) -> list[PoolRemedy]:
    judge = judge_of(pools, others)
    claims = [claim(*needs, **spec)]
    return list(remedies(claims, diagnose(claims, "node-1", judge), judge))


def at(change: PoolRemedyKind, **more: str) -> PoolRemedy:
    return PoolRemedy(change, "claim", "claims[0]", **more)


def test_remedies_are_those_that_cost_least() -> None:
    four = {"requests": {"count": 4}}
    assert helps(four, others=[holding("gpu-1")]) == [
        PoolRemedy(PoolRemedyKind.FREE),
        at(PoolRemedyKind.FEWER, value="3"),
    ]
    assert helps({**four, "matchAttributes": ["root"]}) == [at(PoolRemedyKind.FEWER, value="2")]
    assert helps({"matchAttributes": ["slot"]}) == [at(PoolRemedyKind.NO_MATCH, what="slot")]
    assert helps({}, matchAttributes=["slot"]) == [PoolRemedy(PoolRemedyKind.NO_MATCH, "claim", what="slot")]
    unmet = "device.model == 'h100'"
    assert helps({"constraints": unmet}) == [at(PoolRemedyKind.NO_CONSTRAINT, what=unmet)]
    assert helps({"requests": {"memory": "128Gi"}}) == [
        at(PoolRemedyKind.LESS, what="memory", value="80Gi"),
        at(PoolRemedyKind.MORE_DEVICES, value="2"),
    ]
    assert helps({"deviceClass": "nic"}) == []
    assert helps({}) == []


def test_gist_leaves_names_out() -> None:
    one = DevicesTaken(("gpu-1",), 1, ((DeviceUser("a"),),))
    other = DevicesTaken(("gpu-7",), 1, ((DeviceUser("b"),),))
    assert gist(one) == gist(other)
    assert gist(one) != gist(DevicesTaken(("gpu-1", "gpu-2"), 2, ((DeviceUser("a"),),) * 2))
