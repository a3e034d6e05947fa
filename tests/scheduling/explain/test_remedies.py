"""Every remedy that is told is done to the input, and then the claims fit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduling.allocator.allocated import AllocatedState
from scheduling.explain.cluster import Cluster
from scheduling.explain.obstacles import NotTogether, Tainted
from scheduling.explain.remedies import EVERY_REQUEST
from scheduling.explain.verdict import NodeFinding, NodeOutcome, Remedy, RemedyKind
from tests.judge.generate import allocation_case
from tests.making.clusters import (
    GPU,
    GPU_CLASS,
    MODEL,
    claim,
    device,
    gpus,
    holder,
    match,
    node,
    pod,
    request,
    resource_slice,
)
from tests.making.diagnoses import diagnose
from tests.scheduling.explain.cases import CaseAnswers
from tests.scheduling.explain.clusters import cluster_of_case

Json = dict[str, Any]
TAINTS = {RemedyKind.TOLERATE, RemedyKind.FREE_AND_TOLERATE}


def requests(claims: list[Json]) -> Iterator[tuple[str, str, Json]]:
    """Claim and request by the names that are told, with the part of the manifest that a person would edit."""
    for each in claims:
        title = f"{each['metadata'].get('namespace') or 'default'}/{each['metadata']['name']}"
        for one in each["spec"]["devices"].get("requests") or ():
            for alternative in one.get("firstAvailable") or ():
                yield title, f"{one['name']}/{alternative['name']}", alternative
            if one.get("exactly"):
                yield title, one["name"], one["exactly"]


def done(remedy: Remedy, finding: NodeFinding, claims: list[Json], cluster: Cluster) -> tuple[list[Json], Cluster]:
    """The claims and the cluster after somebody did as told, from what is told alone."""
    claims = copy.deepcopy(claims)
    parts = {(title, name): part for title, name, part in requests(claims)}
    if remedy.change in (RemedyKind.FREE, RemedyKind.FREE_AND_TOLERATE):
        cluster = replace(cluster, allocated=AllocatedState())
    if remedy.change in TAINTS and remedy.what == EVERY_REQUEST:
        for part in parts.values():
            part["tolerations"] = [{"operator": "Exists"}]
    elif remedy.change in TAINTS:
        for told in finding.requests:
            more = [each.toleration for each in told.obstacles if isinstance(each, Tainted)]
            part = parts[told.claim, told.request]
            part["tolerations"] = [*(part.get("tolerations") or ()), *more]
    if remedy.change is RemedyKind.FEWER:
        parts[remedy.claim, remedy.request]["count"] = remedy.count
    if remedy.change is RemedyKind.NO_SELECTOR:
        del parts[remedy.claim, remedy.request]["selectors"][remedy.index]
    if remedy.change is RemedyKind.NO_CONSTRAINT:
        (one,) = (each for each in claims if remedy.claim.endswith(f"/{each['metadata']['name']}"))
        del one["spec"]["devices"]["constraints"][remedy.index]
    return claims, cluster


def patience(_: bool) -> Callable[[], bool]:
    """Gives up a search after some 10,000 steps: a few generated cases are too hard for any search."""
    asked = count()
    return lambda: next(asked) >= 40


@settings(max_examples=125, deadline=None)
@given(st.integers(0, 1_000_000))
@example(2475)  # Without a constraint its claims have no answer within minutes.
def test_every_remedy_that_is_told_works(number: int) -> None:
    case = allocation_case(23, number)
    cluster = replace(cluster_of_case(case), patience=patience)
    finding = diagnose(case["claims"], case["node"], cluster)
    for remedy in finding.remedies:
        claims, after = done(remedy, finding, case["claims"], cluster)
        assert diagnose(claims, case["node"], after, remedy=False).outcome is NodeOutcome.FITS, remedy


def answer(objects: list[Json], answers: CaseAnswers, ask: str = "claim/train") -> str:
    return answers(node("node-a"), GPU_CLASS, *objects, ask=ask)


def test_a_remedy_names_the_claim_where_there_are_several(answers: CaseAnswers) -> None:
    rule = match("x.example.com/y")
    claims = [claim(request(count=2), name=name) for name in ("a", "b")]
    objects = [resource_slice("node-a", gpus(3)), *claims, pod(claims=["a", "b"])]
    assert 'with count: 1 in request "gpu" of claim team/a\n' in answer(objects, answers, "pod/train-0")
    objects[1:3] = [claim(request(), name="a"), claim(request(), name="b", constraints=[rule])]
    printed = answer(objects, answers, "pod/train-0")
    assert "  claim team/b, constraint 1, matchAttribute: x.example.com/y" in printed
    assert 'claim team/b, request "gpu": 3 of 3 devices suit, 1 wanted' in printed
    assert "without constraint 1 (matchAttribute x.example.com/y) of claim team/b\n" in printed
    wanting = request("gpu", GPU, 1, f'{MODEL} == "H200"')
    objects = [
        resource_slice("node-a", gpus(3, model="A")),
        claim(request(), name="a"),
        claim(wanting, name="b"),
        objects[-1],
    ]
    assert 'without selector 1 of request "gpu" of claim team/b\n' in answer(objects, answers, "pod/train-0")


def test_taints_that_are_not_told_are_counted_where_they_are_needed(answers: CaseAnswers) -> None:
    """Request a needs a taint tolerated; b then needs the other device, whose taint nothing told of b's."""
    taint = {"taints": [{"key": "sick", "effect": "NoSchedule"}]}
    devices = [device("sick-0", kind="x", more=taint), device("sick-1", kind="y", more=taint), device("well", kind="y")]
    kind = f'device.attributes["{GPU}"].kind'
    asked = claim(request("a", GPU, 1, f'{kind} == "x"'), request("b", GPU, 2, f'{kind} == "y"'), name="train")
    printed = answer([resource_slice("node-a", devices), asked], answers)
    assert "it would fit here with the taints tolerated\n" in printed
    three = claim(
        request("a", GPU, 1, f'{kind} == "x"'),
        request("b", GPU, 1, f'{kind} == "y"'),
        request("c", GPU, 1, f'{kind} == "y"'),
    )
    printed = answer([resource_slice("node-a", devices), three], answers)
    assert "it would fit here with all taints tolerated in every request\n" in printed


def test_who_uses_a_counter_is_told_though_none_of_it_is_a_device_that_suits(answers: CaseAnswers) -> None:
    def part(name: str, kind: str) -> Json:
        draws = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "20Gi"}}}]
        return device(name, kind=kind, more={"consumesCounters": draws})

    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "60Gi"}}}]
    slices = [
        resource_slice(
            "node-a", [part("big", "big"), *(part(f"s{i}", "small") for i in range(3))], pool={"resourceSliceCount": 2}
        ),
        resource_slice("node-a", [], name="counters", sharedCounters=counters, pool={"resourceSliceCount": 2}),
    ]
    asked = claim(request("gpu", GPU, 3, f'device.attributes["{GPU}"].kind == "small"'))
    printed = answer([*slices, holder("node-a", "big"), asked], answers)
    assert (
        '    at most 2 of them are available at the same time: they share counter "memory" of "gpu-0"\n'
        "      20Gi used by big, held by claim team/other (pod team/busy)\n"
    ) in printed
    assert "it would fit here if nothing were held by others\n" in printed
    assert NotTogether.kind == "not-together"


def test_a_counter_that_is_overdrawn_is_said_to_be(answers: CaseAnswers) -> None:
    draws = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "50Gi"}}}]
    parts = [device(f"p{i}", more={"consumesCounters": draws}) for i in range(3)]
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    two = {"resourceSliceCount": 2}
    slices = [
        resource_slice("node-a", parts, pool=two),
        resource_slice("node-a", [], name="counters", sharedCounters=counters, pool=two),
    ]
    printed = answer([*slices, holder("node-a", "p0", "p1"), claim(request())], answers)
    assert (
        ' counter "memory" of "gpu-0" (pool node-a): overdrawn, 20Gi more than its 80Gi are in use\n'
        "      50Gi used by p0, held by claim team/other (pod team/busy)\n"
    ) in printed


def test_a_broken_selector_names_the_claim_where_there_are_several(answers: CaseAnswers) -> None:
    broken = claim(request("gpu", GPU, 1, f"{MODEL}.size() > 1"), name="b")
    objects = [resource_slice("node-a", gpus(1)), claim(request(), name="a"), broken, pod(claims=["a", "b"])]
    printed = answer(objects, answers, "pod/train-0")
    assert "can each be met" not in printed
    assert (
        'claim team/b, request "gpu": 0 of 1 device suits, 1 wanted\n    request "gpu", selector 1 fails with'
        in printed
    )
    objects[0] = resource_slice("node-a", gpus(2))
    printed = answer(objects, answers, "pod/train-0")
    assert 'every node:\n  request "gpu" of claim team/b, selector 1 fails with an error on gpu-1: ' in printed
