"""Themes of the device manager's tests about allocation and container starts; ``test_table.py`` has them all."""

from __future__ import annotations

import asyncio

import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.allocation import filter_by_affinity
from sandbox.kubelet.devices import DeviceSet
from sandbox.kubelet.errors import DeviceAllocationError
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.pods import Container, Pod
from sandbox.kubelet.stubs.plugin import PluginStub
from sandbox.kubelet.topology import TopologyHint, TopologyManager
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, device, devices
from tests.sandbox.kubelet.upstream.conftest import Bare, list_of, pod_of
from tests.waiting import background, eventually

Preferred = api_pb2.PreferredAllocationResponse


async def test_pod_container_device_allocation(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 2))
    await node.plugin(devices("n", 2), resource=NIC, name="n.sock")
    await kubelet.wait_for(GPU, healthy=2)
    await kubelet.wait_for(NIC, healthy=2)
    both = Pod("p1", "p1", containers=(Container("c", limits={GPU: 2, NIC: 1}),))
    assert (await kubelet.admit(both)).admitted
    options = await kubelet.run_options(both, "c")
    assert options is not None
    assert (len(options.devices), len(options.mounts), len(options.envs)) == (3, 2, 2)
    refused = await kubelet.admit(pod("p2"))
    assert refused.error == f"requested number of devices unavailable for {GPU}. Requested: 1, Available: 0"
    assert await kubelet.manager.run_options(pod("p2"), Container("c")) is None
    assert (await kubelet.admit(pod("p3", resource=NIC))).devices == {"c": {NIC: ("n1",)}}


async def test_pod_container_device_to_allocate(bare: Bare) -> None:
    nodes = bare.manager
    bare.connect(GPU, device("d1", "Unhealthy"))
    bare.connect(NIC, device("n1"), device("n2", "Unhealthy"))
    held, gone = "c.example/held", "d.example/gone"
    bare.connect(held, device("h1"), device("h2"))
    for resource, ids in ((NIC, ("n2",)), (held, ("h1", "h2")), (gone, ("x",))):
        bare.record(pod("p1"), resource, resource, {-1: ids})

    async def error_of(resource: str, count: int, name: str = "new") -> str:
        with pytest.raises(DeviceAllocationError) as caught:
            await nodes.allocate(pod("p1"), Container(name, limits={resource: count}))
        return str(caught.value)

    assert await error_of(gone, 1) == f"cannot allocate unregistered device {gone}"
    assert await error_of(GPU, 1) == f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
    assert await error_of(NIC, 1, NIC) == (
        f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {NIC}"
    )
    await nodes.allocate(pod("p1"), Container(held, limits={held: 2}))
    assert nodes.devices_of("p1", held) == {held: {"h1": None, "h2": None}}


async def test_devices_to_allocate_conflict_with_update_allocated_devices(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def prefer(request: api_pb2.PreferredAllocationRequest, _devices: object) -> Preferred:
        asked.set()
        await go_on.wait()
        wanted = request.container_requests[0].available_deviceIDs[-2:]
        return Preferred(container_responses=[api_pb2.ContainerPreferredAllocationResponse(deviceIDs=wanted)])

    path = kubelet.settings.device_plugin_dir / "p.sock"
    async with PluginStub(devices("d", 5), path, GPU, preferred=True) as plugin:
        await plugin.register(kubelet.manager.socket)
        await kubelet.wait_for(GPU, healthy=5)
        go_on.set()
        assert (await kubelet.admit(pod("old", 1))).admitted
        asked.clear()
        go_on.clear()
        plugin.set_preferred_func(prefer)
        async with background(kubelet.admit(pod("new", 2))) as admission:
            await asked.wait()
            kubelet.terminate("old")
            kubelet.manager.collect_garbage()
            assert kubelet.manager.devices_of("old", "c") == {}
            go_on.set()
            assert (await admission).devices == {"c": {GPU: ("d3", "d4")}}
        assert kubelet.manager.records.taken(GPU) == {"d3", "d4"}


async def test_get_device_run_container_options(node: KubeletNode) -> None:
    active = pod("active", 1)
    kubelet = await node.kubelet(pods=[active])
    plugin = await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    options = await kubelet.run_options(active, "c")
    assert options is not None
    assert options.envs == {"IDS_gpu": "d0"}, "allocated on demand"
    assert await kubelet.run_options(pod("inactive"), "c") is None
    assert [call["rpc"] for call in plugin.calls] == ["Allocate"]


async def _given(node: KubeletNode, count: int, workload: Pod) -> dict[str, set[str]]:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", count))
    await kubelet.wait_for(GPU, healthy=count)
    verdict = await kubelet.admit(workload)
    assert verdict.admitted, verdict.message
    return {name: set(held.get(GPU, ())) for name, held in verdict.devices.items()}


async def test_init_container_device_allocation(node: KubeletNode) -> None:
    workload = pod_of(("i1", "init", 1), ("i2", "init", 2), ("a1", "app", 1), ("a2", "app", 1))
    given = await _given(node, 2, workload)
    assert given["i1"] <= given["i2"]
    assert given["a1"] | given["a2"] == given["i2"]
    assert not given["a1"] & given["a2"]


async def test_restartable_init_container_device_allocation(node: KubeletNode) -> None:
    workload = pod_of(("i", "init", 3), ("s1", "sidecar", 1), ("s2", "sidecar", 2), ("a1", "app", 1), ("a2", "app", 2))
    given = await _given(node, 6, workload)
    assert given["s1"] | given["s2"] == given["i"]
    own = [given[name] for name in ("s1", "s2", "a1", "a2")]
    assert len(frozenset().union(*own)) == sum(map(len, own)), "sidecars and apps share nothing"


@pytest.mark.parametrize("quantity", [2, 0])
async def test_device_pre_start_container(node: KubeletNode, quantity: int) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 2), script=PluginScript(pre_start_required=True))
    await kubelet.wait_for(GPU, healthy=2)
    workload = pod("p1", quantity)
    assert (await kubelet.admit(workload)).admitted
    options = await kubelet.run_options(workload, "c")
    started = [call["ids"] for call in plugin.calls if call["rpc"] == "PreStartContainer"]
    assert started == ([["d0", "d1"]] if quantity else [])
    assert (options is not None) is bool(quantity)


@pytest.mark.parametrize(
    ("available", "aligned", "unaligned"),
    [
        ({"dev1", "dev2"}, {"dev2"}, {"dev1"}),
        ({"dev1", "dev2", "dev3", "dev4"}, {"dev2", "dev3", "dev4"}, {"dev1"}),
    ],
)
def test_filter_by_affinity(available: set[str], aligned: set[str], unaligned: set[str]) -> None:
    nodes = {"dev1": [1], "dev2": [1, 2], "dev3": [2], "dev4": [2]}
    spread = DeviceSet.listed(list_of(*(device(name, nodes=own) for name, own in nodes.items())))
    found = filter_by_affinity(spread, available, TopologyHint(frozenset({2})))
    assert (set(found.aligned), set(found.unaligned), set(found.no_affinity)) == (aligned, unaligned, set())


async def test_get_topology_hints_with_updates(node: KubeletNode) -> None:
    kubelet = await node.kubelet(topology=TopologyManager("best-effort", numa_nodes=(0, 1)))
    many = [device(f"d{number}", nodes=[number % 2]) for number in range(1000)]
    plugin = await node.plugin(many)
    await kubelet.wait_for(GPU, healthy=1000)

    async def update() -> None:
        for number in range(5):
            await plugin.update([*many[number:], *many[:number]])

    async with background(update()) as updating:
        while not updating.done():
            hints = kubelet.topology_hints(pod("p", 1), "c")[GPU]
            assert hints is not None
            assert [set(hint.nodes or ()) for hint in hints] == [{0}, {1}, {0, 1}]
            await asyncio.sleep(0)
    assert (await kubelet.admit(pod("p", 500))).affinity["c"].preferred


@pytest.mark.parametrize(("generation", "admitted"), [("1.35", False), ("1.36", True)])
async def test_admit_pod_with_dra_resources(node: KubeletNode, generation: Generation, admitted: bool) -> None:
    kubelet = await node.kubelet(generation=generation)
    await node.plugin([device("d1", "Unhealthy")])
    await eventually(lambda: kubelet.list_messages[GPU], "the list")
    claimed = Pod("p1", "p1", "default", pod("p1").containers, claim_backed=frozenset({("c", GPU)}))
    verdict = await kubelet.admit(claimed)
    assert verdict.admitted is admitted
    assert verdict.error == ("" if admitted else f"no healthy devices present; cannot allocate unhealthy devices {GPU}")
