"""What holds of every answer, on generated clusters: sound, as explain would say, one by one, in any run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings

from kube.bodies import JsonObject, text_at
from scheduling.explain.nodes import Hindrance, HindranceKind
from scheduling.explain.question import Question
from scheduling.explain.state import Kind, State, name_of
from scheduling.explain.subject import subject_of
from scheduling.explain.survey import survey
from scheduling.explain.verdict import NodeOutcome
from scheduling.fit.answer import FitAnswer, PlacedPod
from scheduling.fit.fitting import FitOptions, NodeTemplate, fit
from scheduling.fit.supply import node_of, slice_for
from scheduling.fit.wanted import PodSource, with_more
from tests.making.fits import NAMESPACE, clusters, entered, source
from tests.scheduling.allocator.worlds import CAPACITY, DRIVER

Case = tuple[State, list[PodSource]]


def in_order(sources: Sequence[PodSource]) -> Iterator[tuple[str, str]]:
    """PodSource and name of every pod, in the order in which they are placed."""
    for each in sources:
        name = each.question.name
        for number in range(each.count or 0):
            yield name, name if each.count == 1 else f"{name}-{number}"


def placed(answer: FitAnswer) -> dict[str, PlacedPod]:
    return {pod.name.partition("/")[2]: pod for each in answer.nodes for pod in each.pods}


@given(clusters())
@settings(max_examples=40)
def test_no_device_is_given_twice_and_no_amount_is_exceeded(made: Case) -> None:
    state, sources = made
    answer = fit(state, sources)
    devices = {
        (DRIVER, _spec(body)["pool"]["name"], device["name"]): device
        for body in state.slices
        for device in _spec(body).get("devices", ())
    }
    results = [result for pod in placed(answer).values() for each in pod.claims for result in _results(each.allocation)]
    ordinary = [each for each in results if not each.get("adminAccess")]
    whole = Counter((each["driver"], each["pool"], each["device"]) for each in ordinary if not each.get("shareID"))
    assert max(whole.values(), default=1) == 1
    amounts: Counter[tuple[str, str, str]] = Counter()
    for each in ordinary:
        key = (each["driver"], each["pool"], each["device"])
        if each.get("shareID"):
            assert devices[key]["allowMultipleAllocations"]
            assert key not in whole
            amounts[key] += int(each.get("consumedCapacity", {}).get(CAPACITY, 0))
    assert all(amount <= int(devices[key]["capacity"][CAPACITY]["value"]) for key, amount in amounts.items())
    _check_counters(state, {*whole, *amounts}, devices)


def _spec(body: JsonObject) -> Any:
    return body["spec"]


def _results(allocation: JsonObject) -> list[Any]:
    devices: Any = allocation["devices"]
    return list(devices.get("results", ()))


def _check_counters(state: State, used: set[tuple[str, str, str]], devices: dict[tuple[str, str, str], Any]) -> None:
    for body in state.slices:
        spec = _spec(body)
        for declared in spec.get("sharedCounters", ()):
            for name, each in declared["counters"].items():
                taken = sum(
                    int(counters["counters"].get(name, {"value": 0})["value"])
                    for key in used
                    if key[1] == spec["pool"]["name"]
                    for counters in devices[key].get("consumesCounters", ())
                )
                assert taken <= int(each["value"])


@given(clusters())
@settings(max_examples=20)
def test_every_pod_gets_what_a_fresh_explain_gives_it_after_those_before_it(made: Case) -> None:
    state, sources = made
    answer = fit(state, sources)
    got = placed(answer)
    assert answer.placed + sum(each.count for each in answer.leftovers) == answer.wanted
    cpu: dict[str, float] = {}
    for of, name in in_order(sources):
        body = state.find(Kind.POD, of, NAMESPACE)
        assert body is not None
        pod: JsonObject = {**body, "metadata": {"name": name, "namespace": NAMESPACE}}
        wanted = _cpu(pod)

        def room(_: JsonObject, node: JsonObject, wanted: float = wanted) -> Sequence[Hindrance]:
            has = float(text_at(node, "status", "allocatable", "cpu") or "99")
            full = cpu.get(name_of(node), 0.0) + wanted > has
            return [Hindrance(HindranceKind.RESOURCE, "cpu")] if full else []

        now = with_more(state, Kind.POD, [pod])
        found = survey(now, subject_of(now, Question(Kind.POD, NAMESPACE, name)), room=room)
        assert found.fits == (name in got)
        if name not in got:
            continue
        fitting = {node for group in found.groups if group.finding.outcome is NodeOutcome.FITS for node in group.nodes}
        mine = got[name]
        assert mine.node == next(name_of(node) for node in state.nodes if name_of(node) in fitting)
        there = survey(now, subject_of(now, Question(Kind.POD, NAMESPACE, name)), [mine.node], room=room)
        expected = [(each.driver, each.pool, each.device) for each in there.groups[0].finding.placements]
        assert [device for each in mine.claims for device in each.devices] == expected
        cpu[mine.node] = cpu.get(mine.node, 0.0) + wanted
        state = entered(state, replace(answer, nodes=(replace(answer.nodes[0], pods=(mine,)),)))


def _cpu(pod: JsonObject) -> float:
    container = _spec(pod)["containers"][0]
    text = container.get("resources", {"requests": {"cpu": "0"}})["requests"]["cpu"]
    return 0.5 if text == "500m" else float(text)


@given(clusters())
@settings(max_examples=20)
def test_so_many_copies_are_placed_as_one_by_one(made: Case) -> None:
    state, sources = made
    state = with_more(state, Kind.NODE, [{**node, "status": {}} for node in state.nodes])
    together = placed(fit(state, sources))
    for of, name in in_order(sources):
        body = state.find(Kind.POD, of, NAMESPACE)
        assert body is not None
        state = with_more(state, Kind.POD, [{**body, "metadata": {"name": name, "namespace": NAMESPACE}}])
        alone = fit(state, [source(name)])
        mine = placed(alone).get(name)
        assert _gained(mine) == _gained(together.get(name))
        state = entered(state, alone)


def _gained(pod: PlacedPod | None) -> object:
    return None if pod is None else (pod.node, [(each.name, each.devices) for each in pod.claims])


@given(clusters())
@settings(max_examples=20)
def test_the_answer_is_the_same_in_every_run(made: Case) -> None:
    state, sources = made
    for options in (FitOptions(), FitOptions(spread=True), FitOptions(copies=2)):
        assert fit(state, sources, options) == fit(state, sources, options)


@given(clusters())
@settings(max_examples=20)
def test_nodes_of_a_template_are_as_nodes_that_exist(made: Case) -> None:
    state, sources = made
    template = _template(state)
    bare = replace(state, nodes=(), slices=())
    names = [f"{template.name}-{number}" for number in (1, 2)]
    nodes = tuple(node_of(template.node, name) for name in names)
    slices = tuple(slice_for(body, template.name, name) for name in names for body in template.slices)
    real = fit(replace(state, nodes=nodes, slices=slices), sources)
    copied = fit(bare, sources, FitOptions(template=replace(template, count=2)))
    assert [each.pods for each in copied.nodes] == [each.pods for each in real.nodes]
    assert [(each.devices, each.in_use) for each in copied.nodes] == [(e.devices, e.in_use) for e in real.nodes]
    assert (copied.leftovers, copied.why) == (real.leftovers, real.why)


@given(clusters())
@settings(max_examples=20)
def test_the_number_of_nodes_it_takes_is_enough_and_one_less_is_not(made: Case) -> None:
    state, sources = made
    template = _template(state)
    bare = replace(state, nodes=(), slices=())
    answer = fit(bare, sources, FitOptions(template=template))
    if answer.leftovers:
        # What does not fit on any number of nodes does not fit on an empty one, or shares a claim.
        assert answer.why is not None
        assert not answer.why.fits
        return
    assert answer.added == len(answer.nodes) > 0
    assert fit(bare, sources, FitOptions(template=replace(template, count=answer.added))).fits
    if answer.added > 1:
        assert not fit(bare, sources, FitOptions(template=replace(template, count=answer.added - 1))).fits


def _template(state: State) -> NodeTemplate:
    """The first node, with one pool that is named after it."""
    node = state.nodes[0]
    name = name_of(node)
    own = [body for body in state.slices if _spec(body).get("nodeName") == name]
    pool = _spec(own[0])["pool"]
    slices: list[JsonObject] = [
        {**body, "spec": {**_spec(body), "pool": {**_spec(body)["pool"], "name": name}}}
        for body in own
        if _spec(body)["pool"]["name"] == pool["name"]
    ]
    return NodeTemplate(node, tuple(slices))
