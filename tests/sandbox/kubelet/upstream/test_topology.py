"""Themes of the topology tests on a machine with the NUMA nodes 0 and 1, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.devicemanager import DeviceManager, DeviceManagerSettings
from sandbox.kubelet.events import EventFeed
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_clients import PluginEndpoint
from sandbox.kubelet.pod_devices import AllocationRecord, ContainerResource
from sandbox.kubelet.pods import ActivePods, Container, Pod
from sandbox.kubelet.stubs.plugin import PluginStub, listed
from sandbox.kubelet.topology import TopologyHint, TopologyManager
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode, pod

Spread = Mapping[str, Sequence[int] | None]
Hints = list[tuple[set[int], bool]]

ONE_EACH: Spread = {"d0": [0], "d1": [1]}
TWO_EACH: Spread = {"d0": [0], "d1": [1], "d2": [0], "d3": [1]}


def _manager(folder: Path, spread: Mapping[str, Spread], generation: Generation = "1.36") -> DeviceManager:
    settings = DeviceManagerSettings(folder, generation=generation, numa_nodes=(0, 1))
    manager = DeviceManager(settings, ActivePods(), EventFeed())
    for resource, devices in spread.items():
        manager.state.connected(PluginEndpoint(resource, f"/{resource}.sock"))
        items = [listed(name, numa=nodes) for name, nodes in devices.items()]
        manager.state.received(resource, api_pb2.ListAndWatchResponse(devices=items))
    return manager


def _hold(manager: DeviceManager, uid: str, container: str, *ids: str, resource: str = GPU) -> None:
    manager._pods.by_uid[uid] = pod(uid)
    holder = ContainerResource(uid, container, resource)
    manager.records.reserve(holder)
    manager.records.commit(holder, AllocationRecord({-1: ids}, api_pb2.ContainerAllocateResponse()))


def _plain(hints: Sequence[TopologyHint] | None) -> Hints | None:
    return None if hints is None else [(set(hint.nodes or ()), hint.preferred) for hint in hints]


BOTH_FIRST: Hints = [({0}, True), ({1}, True), ({0, 1}, False)]
CASES = [
    pytest.param({"d0": None, "d1": None}, 1, {}, None, id="no alignment"),
    pytest.param({"d1": None, "d2": [1]}, 1, {}, [({1}, True)], id="only Dev2 on node 1"),
    pytest.param(ONE_EACH, 1, {}, BOTH_FIRST, id="one per node, request 1"),
    pytest.param(ONE_EACH, 2, {}, [({0, 1}, True)], id="one per node, request 2"),
    pytest.param(TWO_EACH, 2, {}, BOTH_FIRST, id="two per node, request 2"),
    pytest.param(TWO_EACH, 2, {"other": ("d0", "d1")}, [({0, 1}, False)], id="one of each node taken by another"),
    pytest.param(ONE_EACH, 3, {}, [], id="more requested than exist"),
    pytest.param(
        {"d0": [0], "d1": [0], "d2": [1]},
        2,
        {"own": ("d0", "d1")},
        [({0}, True), ({0, 1}, False)],
        id="all already allocated",
    ),
    pytest.param(TWO_EACH, 2, {"own": ("d0",)}, [], id="fewer allocated than requested"),
    pytest.param(TWO_EACH, 1, {"own": ("d0", "d1")}, [], id="more allocated than requested"),
]


@pytest.mark.parametrize(("spread", "count", "held", "hints"), CASES)
def test_get_topology_hints(
    short_dir: Path, spread: Spread, count: int, held: Mapping[str, tuple[str, ...]], hints: Hints | None
) -> None:
    manager = _manager(short_dir, {GPU: spread})
    for who, ids in held.items():
        _hold(manager, "p" if who == "own" else who, "c", *ids)
    workload = pod("p", count)
    manager._pods.by_uid["p"] = workload
    assert _plain(manager.container_hints(workload, workload.containers[0])[GPU]) == hints
    assert _plain(manager.pod_hints(workload)[GPU]) == hints, "a pod of one container gets the same"


def test_get_topology_hints_before_1_36(short_dir: Path) -> None:
    manager = _manager(short_dir, {GPU: {"d1": None, "d2": [1]}}, "1.35")
    hints = manager.container_hints(pod("p"), Container("c", limits={GPU: 1}))[GPU]
    assert _plain(hints) == [({1}, True), ({0, 1}, False)]


def test_numa_ids_that_the_machine_does_not_have_are_ignored_with_a_line_in_the_log(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    manager = _manager(short_dir, {GPU: {"d0": [0, 7], "d1": [-1]}})
    hints = manager.container_hints(pod("p"), Container("c", limits={GPU: 1}))[GPU]
    assert _plain(hints) == [({0}, True)]
    assert "Ignoring NUMA node IDs reported by device plugin that are unknown to cadvisor" in caplog.text


def test_get_topology_hints_two_resource_types_mixed(short_dir: Path) -> None:
    manager = _manager(short_dir, {GPU: ONE_EACH, NIC: TWO_EACH})
    hints = manager.container_hints(pod("p"), Container("c", limits={GPU: 1, NIC: 2, "x.example/unknown": 1}))
    assert {resource: _plain(offered) for resource, offered in hints.items()} == {GPU: BOTH_FIRST, NIC: BOTH_FIRST}
    assert manager.container_hints(pod("p"), Container("c")) == {}


def _workload(*containers: Container) -> Pod:
    return Pod("p", "p", containers=containers)


@pytest.mark.parametrize(
    ("containers", "held", "hints"),
    [
        pytest.param(
            (Container("a", limits={GPU: 1}), Container("b", limits={GPU: 1, NIC: 1})),
            {},
            {GPU: BOTH_FIRST, NIC: BOTH_FIRST},
            id="two types, user containers only",
        ),
        pytest.param(
            (Container("i", "init", {GPU: 2}), Container("a", limits={GPU: 1})),
            {},
            {GPU: BOTH_FIRST},
            id="init and user containers",
        ),
        pytest.param(
            (Container("a", limits={GPU: 1}), Container("b", limits={GPU: 1})),
            {("other", "c"): ("d0", "d1")},
            {GPU: [({0, 1}, False)]},
            id="optimal on one node but forced across nodes",
        ),
        pytest.param(
            (Container("a", limits={GPU: 1}), Container("b", limits={GPU: 1})),
            {("p", "a"): ("d0",), ("p", "b"): ("d2",)},
            {GPU: [({0}, True), ({0, 1}, False)]},
            id="all already allocated to the pod",
        ),
        pytest.param(
            (Container("a", limits={GPU: 1}), Container("b", limits={GPU: 1})),
            {("p", "a"): ("d0",)},
            {GPU: []},
            id="fewer already allocated to the pod",
        ),
        pytest.param(
            (Container("a", limits={GPU: 1}), Container("b", limits={GPU: 1})),
            {("p", "a"): ("d0", "d1"), ("p", "b"): ("d2",)},
            {GPU: []},
            id="more already allocated to the pod",
        ),
    ],
)
def test_get_pod_topology_hints(
    short_dir: Path,
    containers: tuple[Container, ...],
    held: Mapping[tuple[str, str], tuple[str, ...]],
    hints: Mapping[str, Hints],
) -> None:
    manager = _manager(short_dir, {GPU: TWO_EACH, NIC: ONE_EACH})
    for (uid, container), ids in held.items():
        _hold(manager, uid, container, *ids)
    offered = manager.pod_hints(_workload(*containers))
    assert {resource: _plain(own) for resource, own in offered.items()} == hints


@pytest.mark.parametrize(
    ("containers", "limits"),
    [
        pytest.param((), {}, id="empty pod"),
        pytest.param((Container("a"),), {}, id="no device resources"),
        pytest.param(
            (
                Container("i1", "init", {GPU: 3}),
                Container("i2", "init", {NIC: 2}),
                Container("a", limits={GPU: 1, NIC: 1}),
            ),
            {GPU: 3, NIC: 2},
            id="init above app",
        ),
        pytest.param(
            (
                Container("i", "init", {GPU: 1, NIC: 1}),
                Container("a", limits={GPU: 2, NIC: 2}),
                Container("b", limits={GPU: 4, NIC: 2}),
            ),
            {GPU: 6, NIC: 4},
            id="app above init",
        ),
    ],
)
def test_pod_request_computation(containers: tuple[Container, ...], limits: Mapping[str, int]) -> None:
    assert _workload(*containers).effective_limits() == limits


THREE_EACH: Spread = {f"d{number}": [number // 3] for number in range(6)}
FOUR_NODES: Spread = {f"n{node}-{number}": [node] for node in range(4) for number in range(2)}


async def _given(
    node: KubeletNode, spread: Spread, count: int, mask: set[int] | None, preferred: Sequence[str] | None = None
) -> set[str]:
    """The devices of a container with a stored affinity, on a kubelet whose plugin prefers ``preferred``."""
    kubelet = await node.kubelet(topology=TopologyManager("best-effort", numa_nodes=range(4)))
    items = [listed(name, numa=nodes) for name, nodes in spread.items()]
    socket = kubelet.settings.device_plugin_dir / "p.sock"
    async with PluginStub(items, socket, GPU, preferred=preferred is not None) as plugin:
        ids = api_pb2.ContainerPreferredAllocationResponse(deviceIDs=preferred or ())
        plugin.set_preferred_func(
            lambda _request, _devices: api_pb2.PreferredAllocationResponse(container_responses=[ids])
        )
        await plugin.register(kubelet.manager.socket)
        await kubelet.wait_for(GPU, healthy=len(items))
        hint = TopologyHint(None if mask is None else frozenset(mask), preferred=True)
        verdict = await kubelet.admit(pod("p", count), hint)
        assert verdict.admitted, verdict.message
        return set(verdict.devices["c"][GPU])


@pytest.mark.parametrize(
    ("spread", "count", "mask", "always", "per_node"),
    [
        pytest.param({"d0": None, "d1": None}, 1, {0}, set(), {}, id="no topology"),
        pytest.param({"d0": None, "d1": [0], "d2": None}, 2, {0}, {"d1"}, {}, id="partial alignment"),
        pytest.param(ONE_EACH, 1, {1}, {"d1"}, {1: 1}, id="one on a given node"),
        pytest.param(TWO_EACH, 2, {1}, {"d1", "d3"}, {1: 2}, id="two on a given node"),
        pytest.param(THREE_EACH, 4, {0}, {"d0", "d1", "d2"}, {0: 3, 1: 1}, id="four of 3+3 with hint 0"),
        pytest.param(FOUR_NODES, 4, {1, 3}, set(), {1: 2, 3: 2}, id="four nodes with hint 1 and 3"),
    ],
)
async def test_topology_aligned_allocation(
    node: KubeletNode, *, spread: Spread, count: int, mask: set[int], always: set[str], per_node: Mapping[int, int]
) -> None:
    given = await _given(node, spread, count, mask)
    assert len(given) == count
    assert always <= given
    for numa, expected in per_node.items():
        assert sum(numa in (spread[name] or ()) for name in given) == expected


FIVE: Spread = {f"{node}-{number}": [node] for node in (0, 1) for number in range(6)}


@pytest.mark.parametrize(
    ("mask", "preferred", "given"),
    [
        pytest.param({0}, ["0-1", "0-2", "0-3", "0-4", "0-5"], {"0-1", "0-2", "0-3", "0-4", "0-5"}, id="accepted"),
        pytest.param({0}, ["1-0", "1-1", "0-5", "1-2", "1-3"], {"0-5"}, id="unaligned ids ignored"),
        pytest.param({0}, ["bogus", "0-5", "", "0-4"], {"0-5", "0-4"}, id="bogus ids ignored"),
        pytest.param(
            {0, 1},
            ["0-3", "0-4", "0-5", "1-4", "1-5"],
            {"0-3", "0-4", "0-5", "1-4", "1-5"},
            id="several nodes accepted: three on 0, two on 1",
        ),
    ],
)
async def test_topology_aligned_allocation_with_a_preference(
    node: KubeletNode, mask: set[int], preferred: list[str], given: set[str]
) -> None:
    chosen = await _given(node, FIVE, 5, mask, preferred)
    assert len(chosen) == 5
    assert given <= chosen
    assert {numa for name in chosen for numa in FIVE[name] or ()} <= mask


@pytest.mark.parametrize(
    ("init", "count", "taken", "asked"),
    [
        pytest.param(0, 2, 0, ({"d0", "d1", "d2", "d3"}, set(), 2), id="nothing allocated"),
        pytest.param(0, 2, 1, ({"d1", "d2", "d3"}, set(), 2), id="some taken by another pod"),
        pytest.param(1, 2, 0, ({"d0", "d1", "d2", "d3"}, {"d0"}, 2), id="one reusable"),
        pytest.param(2, 3, 1, ({"d1", "d2", "d3"}, {"d1", "d2"}, 3), id="two reusable, one taken"),
        pytest.param(2, 2, 0, None, id="the reusable ones suffice"),
        pytest.param(0, 4, 0, ({"d0", "d1", "d2", "d3"}, set(), 4), id="all of them, without a mask"),
    ],
)
async def test_get_preferred_allocation_parameters(
    node: KubeletNode, init: int, count: int, taken: int, asked: tuple[set[str], set[str], int] | None
) -> None:
    kubelet = await node.kubelet()
    requests: list[tuple[set[str], set[str], int]] = []

    def prefer(request: api_pb2.PreferredAllocationRequest, _devices: object) -> api_pb2.PreferredAllocationResponse:
        (wanted,) = request.container_requests
        requests.append((set(wanted.available_deviceIDs), set(wanted.must_include_deviceIDs), wanted.allocation_size))
        return api_pb2.PreferredAllocationResponse()

    socket = kubelet.settings.device_plugin_dir / "p.sock"
    async with PluginStub([listed(f"d{number}") for number in range(4)], socket, GPU, preferred=True) as plugin:
        plugin.set_preferred_func(prefer)
        await plugin.register(kubelet.manager.socket)
        await kubelet.wait_for(GPU, healthy=4)
        if taken:
            assert (await kubelet.admit(pod("other", taken))).admitted
        containers = [Container("i", "init", {GPU: init})] if init else []
        workload = _workload(*containers, Container("c", limits={GPU: count}))
        requests.clear()
        assert (await kubelet.admit(workload)).admitted
    for_app = requests[1:] if init else requests
    assert for_app == ([] if asked is None else [asked])
