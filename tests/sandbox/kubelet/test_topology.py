"""The topology manager against recorded answers of a real one, and its rules for any hints."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.kubelet.topology import (
    ProviderHints,
    TopologyAffinityError,
    TopologyConfigError,
    TopologyHint,
    TopologyManager,
)
from tests.making.recorded_cases import cases_in

Json = dict[str, Any]

_CASES = cases_in(Path(__file__).parents[2] / "vectors" / "kubelet" / "topology.jsonl")
_POLICIES = ("best-effort", "restricted", "single-numa-node")


def _manager(case: Json) -> TopologyManager:
    distances = case.get("distances")
    return TopologyManager(
        case["policy"],
        case.get("scope", "container" if case["kind"] == "merge" else ""),
        options=case.get("options") or {},
        numa_nodes=case["numa_nodes"],
        distances=None if distances is None else {int(node): row for node, row in distances.items()},
    )


def _construction_error(construct: Callable[[], TopologyManager]) -> str | None:
    try:
        construct()
    except TopologyConfigError as error:
        return str(error)
    return None


def _provider(data: Json | None) -> ProviderHints:
    return {
        resource: None
        if hints is None
        else [
            TopologyHint(None if hint["nodes"] is None else frozenset(hint["nodes"]), hint["preferred"])
            for hint in hints
        ]
        for resource, hints in (data or {}).items()
    }


def test_all_recorded_cases_are_there() -> None:
    kinds = [case["kind"] for case in _CASES]
    assert len(_CASES) == 348
    assert set(kinds) == {"merge", "construct"}


@pytest.mark.parametrize("case", [case for case in _CASES if case["kind"] == "merge"], ids=lambda case: case["id"])
def test_recorded_merge(case: Json) -> None:
    manager, expected = _manager(case), case["expect"]
    merged = manager.merge(_provider(provider) for provider in case.get("providers") or ())
    assert {
        "nodes": None if merged.nodes is None else sorted(merged.nodes),
        "preferred": merged.preferred,
        "admit": manager.admits(merged),
    } == expected, case["theme"]


@pytest.mark.parametrize("case", [case for case in _CASES if case["kind"] == "construct"], ids=lambda case: case["id"])
def test_recorded_construction(case: Json) -> None:
    assert _construction_error(lambda: _manager(case)) == case["expect"]["error"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"max-allowable-numa-nodes": "7"},
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
        (
            {"max-allowable-numa-nodes": "99999999999999999999"},
            (
                'unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: '
                'parsing "99999999999999999999": value out of range'
            ),
        ),
        ({"max-allowable-numa-nodes": "8"}, "unsupported on machines with more than 8 NUMA Nodes"),
        ({"max-allowable-numa-nodes": "+16"}, None),
        (
            {"prefer-closest-numa-nodes": "1", "max-allowable-numa-nodes": "9"},
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor",
        ),
    ],
)
def test_options_on_a_machine_with_nine_nodes(options: Mapping[str, str], error: str | None) -> None:
    assert _construction_error(lambda: TopologyManager("restricted", options=options, numa_nodes=range(9))) == error


def test_a_refusal_has_the_words_of_the_kubelet() -> None:
    manager = TopologyManager("single-numa-node", numa_nodes=(0, 1))
    with pytest.raises(TopologyAffinityError) as caught:
        manager.decide([{"a.example/gpu": [TopologyHint(frozenset({0, 1}), preferred=True)]}])
    assert str(caught.value) == "Resources cannot be allocated with Topology locality"


_NODES = 4
_HINT = st.builds(
    TopologyHint, st.none() | st.frozensets(st.integers(0, _NODES), max_size=_NODES).map(frozenset), st.booleans()
)
_PROVIDERS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.none() | st.lists(_HINT, max_size=4), max_size=2), max_size=3
)


@st.composite
def _machines(draw: st.DrawFn) -> TopologyManager:
    row = st.lists(st.integers(1, 40), min_size=_NODES, max_size=_NODES)
    return TopologyManager(
        draw(st.sampled_from(_POLICIES)),
        options={"prefer-closest-numa-nodes": draw(st.sampled_from(("true", "false")))},
        numa_nodes=range(draw(st.integers(1, _NODES))),
        distances={node: draw(row) for node in range(_NODES)},
    )


@given(_machines(), _PROVIDERS, st.randoms(use_true_random=False))
def test_order_does_not_matter(manager: TopologyManager, providers: list[ProviderHints], chance: random.Random) -> None:
    shuffled: list[ProviderHints] = [
        {
            resource: None if hints is None else chance.sample(hints, len(hints))
            for resource, hints in chance.sample(list(provider.items()), len(provider))
        }
        for provider in chance.sample(providers, len(providers))
    ]
    assert manager.merge(shuffled) == manager.merge(providers)


@given(_machines(), _PROVIDERS)
def test_a_preferred_result_is_a_preferred_hint_of_every_list(
    manager: TopologyManager, providers: list[ProviderHints]
) -> None:
    merged = manager.merge(providers)
    if not merged.preferred:
        return
    nodes = manager.numa_nodes if merged.nodes is None else merged.nodes
    for hints in _lists(providers):
        assert any(
            hint.preferred and (hint.nodes is None or hint.nodes & manager.numa_nodes == nodes) for hint in hints
        )


@given(_machines(), _PROVIDERS)
def test_the_result_lies_within_a_hint_of_every_list_or_is_the_whole_machine(
    manager: TopologyManager, providers: list[ProviderHints]
) -> None:
    merged = manager.merge(providers)
    if merged.nodes in (None, manager.numa_nodes):
        return
    assert merged.nodes is not None
    for hints in _lists(providers):
        assert any(hint.nodes is None or merged.nodes <= hint.nodes for hint in hints)


@given(_machines(), _PROVIDERS)
def test_merging_equals_trying_every_combination(manager: TopologyManager, providers: list[ProviderHints]) -> None:
    assert manager.merge(providers) == _tried(manager, providers)


def _lists(providers: Sequence[ProviderHints]) -> list[Sequence[TopologyHint]]:
    indifferent, impossible = [TopologyHint(None, preferred=True)], [TopologyHint(None, preferred=False)]
    return [
        indifferent if hints is None else hints or impossible
        for provider in providers
        for hints in (provider or {"": None}).values()
    ]


def _tried(manager: TopologyManager, providers: Sequence[ProviderHints]) -> TopologyHint:
    """The best of the whole product, candidate by candidate, as a kubelet compares them."""
    machine = manager.numa_nodes
    lists = _lists(providers)
    is_single = manager.policy == "single-numa-node"
    if is_single:
        lists = [[hint for hint in hints if hint.preferred and len(hint.nodes or {0}) == 1] for hints in lists]
        lists = [[hint for hint in hints if hint.nodes is None or hint.nodes] for hints in lists]
    sizes = [[len(hint.nodes) for hint in hints if hint.nodes is not None] for hints in lists]
    aim = max((min(found) for found in sizes if found), default=0)
    best: TopologyHint | None = None
    for members in itertools.product(*lists):
        masks = [hint.nodes for hint in members if hint.nodes is not None]
        nodes = machine.intersection(*masks)
        candidate = TopologyHint(nodes, all(hint.preferred for hint in members) and len(set(masks)) <= 1)
        if nodes and (best is None or _is_better(candidate, best, aim, manager._distances)):
            best = candidate
    best = best or TopologyHint(machine, preferred=False)
    return TopologyHint(None, best.preferred) if is_single and best.nodes == machine else best


def _is_better(
    candidate: TopologyHint, current: TopologyHint, aim: int, distances: Mapping[int, Sequence[int]] | None
) -> bool:
    assert candidate.nodes is not None
    assert current.nodes is not None
    if candidate.preferred != current.preferred:
        return candidate.preferred
    new, old = len(candidate.nodes), len(current.nodes)
    is_fitter = _fitness(candidate.nodes, distances) < _fitness(current.nodes, distances)
    if candidate.preferred or new == old or old > aim:
        return is_fitter
    if old == aim:
        return False
    return old < new <= aim


def _fitness(nodes: frozenset[int], distances: Mapping[int, Sequence[int]] | None) -> tuple[int, Fraction, int]:
    pairs = [(one, other) for one in nodes for other in nodes]
    mean = Fraction(0) if distances is None else Fraction(sum(distances[a][b] for a, b in pairs), len(pairs))
    return len(nodes), mean, sum(1 << node for node in nodes)
