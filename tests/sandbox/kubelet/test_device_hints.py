"""Hints of the device manager, and pods admitted by a topology policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sandbox.kubelet.allocation import filter_by_affinity
from sandbox.kubelet.device_hints import device_nodes, generate_hints
from sandbox.kubelet.devices import HEALTHY, DeviceSet, PluginDevice
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.pods import Container, Pod
from sandbox.kubelet.topology import TopologyHint, TopologyManager
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import device

_TWO = frozenset({0, 1})


def _hint(*nodes: int, preferred: bool = True) -> TopologyHint:
    return TopologyHint(frozenset(nodes), preferred)


def _devices(numa: Mapping[str, tuple[int, ...] | None]) -> DeviceSet:
    known = {name: PluginDevice(name, HEALTHY, nodes) for name, nodes in numa.items()}
    return DeviceSet(known, frozenset(known))


_ONE_EACH: dict[str, tuple[int, ...] | None] = {"d0": (0,), "d1": (1,)}
_TWO_EACH: dict[str, tuple[int, ...] | None] = {**_ONE_EACH, "d2": (0,), "d3": (1,)}


@pytest.mark.parametrize(
    ("numa", "free", "required", "hints"),
    [
        pytest.param({"d2": (1,)}, {"d2"}, 1, [_hint(1)], id="only on node 1"),
        pytest.param(_ONE_EACH, {"d0", "d1"}, 1, [_hint(0), _hint(1), _hint(0, 1, preferred=False)], id="1 of 1+1"),
        pytest.param(_ONE_EACH, {"d0", "d1"}, 2, [_hint(0, 1)], id="2 of 1+1"),
        pytest.param(_TWO_EACH, _TWO_EACH, 2, [_hint(0), _hint(1), _hint(0, 1, preferred=False)], id="2 of 2+2"),
        pytest.param(_TWO_EACH, {"d0", "d1"}, 2, [_hint(0, 1, preferred=False)], id="2 of 2+2 with one of each taken"),
        pytest.param({**_ONE_EACH, "x": None}, {"d0", "x"}, 2, [], id="a device without a node counts for nothing"),
        pytest.param({"d0": (0, 1)}, {"d0"}, 1, [_hint(0), _hint(1), _hint(0, 1, preferred=False)], id="on both"),
    ],
)
def test_generated_hints(
    numa: Mapping[str, tuple[int, ...] | None], free: Collection[str], required: int, hints: list[TopologyHint]
) -> None:
    devices = _devices(numa)
    assert list(generate_hints(devices, free, (), required, device_nodes(devices, _TWO))) == hints


@pytest.mark.parametrize(
    ("reusable", "hints"),
    [
        ({"d0"}, [_hint(0), _hint(0, 1, preferred=False)]),
        ({"without"}, [_hint(0), _hint(1), _hint(0, 1, preferred=False)]),
        ({"empty"}, []),
        ({"vanished"}, [_hint(0), _hint(1), _hint(0, 1, preferred=False)]),
    ],
)
def test_every_reusable_device_has_to_touch_the_mask_unless_it_has_no_topology_message(
    reusable: set[str], hints: list[TopologyHint]
) -> None:
    devices = _devices({"d0": (0,), "d1": (1,), "d2": (0,), "without": None, "empty": ()})
    assert list(generate_hints(devices, {"d1", "d2"}, reusable, 1, _TWO)) == hints


def test_masks_range_over_the_nodes_with_devices_or_over_all_if_the_machine_has_none_of_them() -> None:
    assert device_nodes(_devices({"d0": (1,), "d1": (7,)}), _TWO) == {1}
    assert device_nodes(_devices({"d1": (7,), "d2": (-1,)}), _TWO) == _TWO


_MACHINE = frozenset(range(4))
_NUMA = st.dictionaries(
    st.sampled_from([f"d{number}" for number in range(8)]),
    st.none() | st.lists(st.integers(0, 4), max_size=3, unique=True).map(tuple),
    min_size=1,
)


@given(_NUMA, st.data())
def test_a_hint_never_excludes_a_set_that_fits(numa: dict[str, tuple[int, ...] | None], data: st.DataObject) -> None:
    devices = _devices(numa)
    nodes = device_nodes(devices, _MACHINE)
    free = data.draw(st.sets(st.sampled_from(sorted(numa))))
    usable = sorted(name for name in free if nodes.intersection(numa[name] or ()))
    assume(usable)
    chosen = data.draw(st.sets(st.sampled_from(usable), min_size=1))
    mask = frozenset(data.draw(st.sampled_from(sorted(nodes.intersection(numa[name] or ())))) for name in chosen)
    assert mask in [hint.nodes for hint in generate_hints(devices, free, (), len(chosen), nodes)]


@given(_NUMA, st.data())
def test_a_hint_excludes_no_set_that_fits_around_reusable_devices(
    numa: dict[str, tuple[int, ...] | None], data: st.DataObject
) -> None:
    devices = _devices(numa)
    nodes = device_nodes(devices, _MACHINE)
    placed = sorted(name for name in numa if nodes.intersection(numa[name] or ()))
    assume(placed)
    chosen = data.draw(st.sets(st.sampled_from(placed), min_size=1))
    reusable = data.draw(st.sets(st.sampled_from(sorted(chosen))))
    mask = frozenset(data.draw(st.sampled_from(sorted(nodes.intersection(numa[name] or ())))) for name in chosen)
    hints = generate_hints(devices, set(placed) - reusable, reusable, len(chosen), nodes)
    assert mask in [hint.nodes for hint in hints]


@given(_NUMA, st.integers(1, 4), st.data())
def test_every_hint_can_be_kept(numa: dict[str, tuple[int, ...] | None], required: int, data: st.DataObject) -> None:
    devices = _devices(numa)
    free = data.draw(st.sets(st.sampled_from(sorted(numa))))
    for hint in generate_hints(devices, free, (), required, device_nodes(devices, _MACHINE)):
        assert len(filter_by_affinity(devices, free, hint).aligned) >= required


@pytest.mark.parametrize(
    ("containers", "limits"),
    [
        ((), {}),
        ((Container("a"),), {}),
        ((Container("i", "init", {GPU: 3}), Container("a", "app", {GPU: 1, NIC: 2})), {GPU: 3, NIC: 2}),
        (
            (Container("i", "init", {GPU: 1}), Container("a", "app", {GPU: 2}), Container("b", "app", {GPU: 4})),
            {GPU: 6},
        ),
        (
            (
                Container("s", "sidecar", {GPU: 2}),
                Container("i", "init", {GPU: 3}),
                Container("t", "sidecar", {GPU: 1}),
                Container("a", "app", {GPU: 1}),
            ),
            {GPU: 5},
        ),
        ((Container("a", "app", {GPU: 0}),), {GPU: 0}),
    ],
)
def test_effective_limits(containers: tuple[Container, ...], limits: dict[str, int]) -> None:
    assert Pod("p", "p", "default", containers).effective_limits() == limits


_SPREAD = [device("d0", nodes=(0,)), device("d1", nodes=(1,)), device("d2", nodes=(1,))]


async def test_a_pod_that_the_policy_refuses_gets_nothing_and_the_reason_of_the_kubelet(node: KubeletNode) -> None:
    kubelet = await node.kubelet(topology=TopologyManager("single-numa-node", numa_nodes=(0, 1)))
    plugin = await node.plugin(_SPREAD)
    await kubelet.wait_for(GPU, healthy=3)
    refused = await kubelet.admit(pod("p", 3))
    assert (refused.admitted, refused.reason) == (False, "TopologyAffinityError")
    assert refused.message == "Resources cannot be allocated with Topology locality"
    assert (refused.container, refused.devices, plugin.calls) == ("c", {}, [])
    assert kubelet.pods() == ()
    admitted = await kubelet.admit(pod("q", 2))
    assert admitted.devices == {"c": {GPU: ("d1", "d2")}}
    assert admitted.affinity == {"c": _hint(1)}


async def test_without_a_policy_nothing_is_aligned(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(_SPREAD)
    await kubelet.wait_for(GPU, healthy=3)
    admitted = await kubelet.admit(pod("p", 2))
    assert admitted.devices == {"c": {GPU: ("d0", "d1")}}
    assert (admitted.hints, admitted.pod_hints) == ({}, None)


async def test_scope_pod_refuses_the_whole_pod_before_anything_is_allocated(node: KubeletNode) -> None:
    manager = TopologyManager("single-numa-node", "pod", numa_nodes=(0, 1))
    kubelet = await node.kubelet(topology=manager)
    plugin = await node.plugin(_SPREAD)
    await kubelet.wait_for(GPU, healthy=3)
    both = Pod("p", "p", "default", (Container("a", "app", {GPU: 1}), Container("b", "app", {GPU: 2})))
    refused = await kubelet.admit(both)
    assert (refused.admitted, refused.reason, refused.container) == (False, "TopologyAffinityError", "")
    assert plugin.calls == []


async def test_devices_are_allocated_late_by_the_affinity_of_the_admission(node: KubeletNode) -> None:
    kubelet = await node.kubelet(topology=TopologyManager("restricted", numa_nodes=(0, 1)))
    workload = pod("p", 2)
    assert (await kubelet.admit(workload, TopologyHint(frozenset({1}), preferred=True))).admitted
    await node.plugin(_SPREAD)
    await kubelet.wait_for(GPU, healthy=3)
    await kubelet.run_options(workload, "c")
    assert set(kubelet.allocated("p", "c")[GPU]) == {"d1", "d2"}


@pytest.mark.parametrize(("generation", "masks"), [("1.35", [{1}, {0, 1}]), ("1.36", [{1}])])
async def test_until_1_35_masks_range_over_the_whole_machine(
    node: KubeletNode, generation: Generation, masks: list[set[int]]
) -> None:
    kubelet = await node.kubelet(generation=generation, topology=TopologyManager("best-effort", numa_nodes=(0, 1)))
    await node.plugin([device("d0", nodes=(1,))])
    await kubelet.wait_for(GPU, healthy=1)
    hints = kubelet.topology_hints(pod("p"), "c")[GPU]
    assert hints is not None
    assert [set(hint.nodes or ()) for hint in hints] == masks
