"""Themes of the device manager's tests. Each test is named after its theme; ``test_table.py`` has them all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from node.kubelet.checkpoint import Checkpoint, CheckpointEntry, decode, encode
from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.allocation import filter_by_affinity
from sandbox.kubelet.devicemanager import DeviceManager, DeviceManagerSettings
from sandbox.kubelet.devices import DeviceSet
from sandbox.kubelet.errors import DeviceAllocationError
from sandbox.kubelet.events import EventFeed
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_clients import PluginEndpoint
from sandbox.kubelet.pod_devices import AllocationRecord, ContainerResource
from sandbox.kubelet.pods import ActivePods, Container, Kind, Pod
from sandbox.kubelet.stubs.plugin import PluginStub
from sandbox.kubelet.topology import TopologyHint, TopologyManager
from tests.making.clock import ManualClock
from tests.sandbox.kubelet.conftest import GPU, NIC, Node, pod
from tests.sandbox.kubelet.scripted_plugin import Script, device, devices
from tests.waiting import background, eventually

Preferred = api_pb2.PreferredAllocationResponse
Door = Literal["register", "watcher"]


def _listed(*items: api_pb2.Device) -> api_pb2.ListAndWatchResponse:
    return api_pb2.ListAndWatchResponse(devices=items)


def _healthy(*ids: str) -> api_pb2.ListAndWatchResponse:
    return _listed(*(device(name) for name in ids))


class Bare:
    """A device manager without plugins: lists and records are put into it."""

    def __init__(self, folder: Path, generation: Generation = "1.36") -> None:
        self.clock = ManualClock(1000.0)
        self.pods = ActivePods()
        settings = DeviceManagerSettings(folder, generation=generation, clock=self.clock)
        self.manager = DeviceManager(settings, self.pods, EventFeed())

    def connect(self, resource: str, *items: api_pb2.Device) -> PluginEndpoint:
        """An endpoint that answered, and its first list."""
        endpoint = PluginEndpoint(resource, f"/{resource}.sock")
        self.manager.state.connected(endpoint)
        self.manager.state.received(resource, _listed(*items))
        return endpoint

    def record(
        self,
        workload: Pod,
        container: str,
        resource: str,
        buckets: Mapping[int, tuple[str, ...]],
        answer: api_pb2.ContainerAllocateResponse | None = None,
    ) -> None:
        """Devices that a container holds."""
        self.pods.by_uid[workload.uid] = workload
        holder = ContainerResource(workload.uid, container, resource)
        self.manager.records.reserve(holder)
        record = AllocationRecord(buckets, answer or api_pb2.ContainerAllocateResponse())
        self.manager.records.commit(holder, record)


@pytest.fixture
def bare(short_dir: Path) -> Bare:
    return Bare(short_dir)


async def test_new_manager_impl(short_dir: Path) -> None:
    manager = Bare(short_dir).manager
    assert manager.socket == short_dir / "kubelet.sock"
    assert manager.capacity().capacity == {}


@pytest.mark.parametrize("watch_plugins", [False, True])
async def test_new_manager_impl_start(node: Node, watch_plugins: bool) -> None:
    kubelet = await node.kubelet(watch_plugins=watch_plugins)
    manager = kubelet.manager
    assert manager.health_error() == ""
    await asyncio.gather(kubelet.stop(), kubelet.stop())
    await manager.stop()


@pytest.mark.parametrize("door", ["register", "watcher"])
@pytest.mark.parametrize("pre_start", [False, True])
async def test_device_plugin_re_registration(node: Node, door: Door, pre_start: bool) -> None:
    kubelet = await node.kubelet(generation="1.37")
    script = Script(pre_start_required=pre_start)
    two = [device("Dev1"), device("Dev2")]
    await node.plugin(two, door=door, name="1.sock", script=script)
    await kubelet.wait_for(GPU, healthy=2)
    await node.plugin(two, door=door, name="2.sock", script=script)
    await eventually(lambda: kubelet.list_messages[GPU] == 2, "the second instance's list")
    assert kubelet.capacity().capacity == kubelet.allocatable() == {GPU: 2}
    await node.plugin([device("Dev3")], door=door, name="3.sock", script=script)
    await kubelet.wait_for(GPU, healthy=1)
    assert [item.id for item in kubelet.devices(GPU)] == ["Dev3"], "the old ids are gone"
    assert kubelet.capacity().capacity == {GPU: 1}


def test_update_capacity_allocatable(bare: Bare) -> None:
    state = bare.manager.state
    endpoint = bare.connect(GPU, device("D1"), device("D2"), device("D3", "Unhealthy"))

    def seen() -> tuple[int, int, tuple[str, ...]]:
        capacity = bare.manager.capacity()
        return capacity.capacity.get(GPU, 0), capacity.allocatable.get(GPU, 0), capacity.deleted

    assert seen() == (3, 2, ())
    state.received(GPU, _healthy("D1", "D2"))
    assert seen() == (2, 2, ())
    state.received(GPU, _listed(device("D1"), device("D2", "Unhealthy"), device("D3", "Unhealthy")))
    assert seen() == (3, 1, ())
    state.received(GPU, _listed(device("D2", "Unhealthy"), device("D3", "Unhealthy")))
    assert seen() == (2, 0, ())
    bare.connect(NIC, device("D1"), device("D2"))
    assert bare.manager.capacity().capacity == {GPU: 2, NIC: 2}
    endpoint.stop(bare.clock())
    bare.clock.now += 300.5
    assert seen() == (0, 0, (GPU,))
    assert state.resources() == (NIC,)
    assert seen() == (0, 0, ())
    endpoint = bare.connect(GPU, device("1"), device("2", "Unhealthy"))
    state.disconnected(endpoint, None)
    assert seen() == (2, 0, ())
    other = Bare(bare.manager.socket.parent)
    other.manager.state.recover(())
    assert other.manager.capacity().capacity == {GPU: 0, NIC: 0}
    remembered = other.manager.state.endpoint(GPU)
    assert remembered is not None
    assert remembered.stopped_at == other.clock()
    assert other.manager.allocator.is_device_resource(GPU)


def test_get_allocatable_devices_multiple_resources(bare: Bare) -> None:
    bare.connect(GPU, device("g1"), device("g2", "Unhealthy"))
    bare.connect(NIC, device("n1", nodes=[0]), device("n2", nodes=[0, 1]))
    assert bare.manager.allocatable_devices() == {GPU: {"g1": None}, NIC: {"n1": (0,), "n2": (0, 1)}}


def test_get_allocatable_devices_health_transition(bare: Bare) -> None:
    bare.connect(GPU, device("g1"), device("g2", "Unhealthy"))
    bare.manager.state.received(GPU, _healthy("g1", "g2"))
    assert bare.manager.allocatable_devices() == {GPU: {"g1": None, "g2": None}}


async def test_checkpoint(bare: Bare) -> None:
    def answer(number: int) -> api_pb2.ContainerAllocateResponse:
        return api_pb2.ContainerAllocateResponse(
            envs={f"E{number}": "1"},
            devices=[api_pb2.DeviceSpec(host_path=f"/dev/h{number}", container_path=f"/dev/c{number}")],
            mounts=[api_pb2.Mount(host_path=f"/h{number}", container_path=f"/c{number}")],
            cdi_devices=[api_pb2.CDIDevice(name=f"v/c={number}")],
        )

    first, second = (Pod(uid, uid, containers=(Container("c1"), Container("c2"))) for uid in ("p1", "p2"))
    bare.connect(GPU, device("d1"), device("d2"), device("d3"), device("d4", "Unhealthy"))
    bare.connect(NIC, device("n1"), device("n2"))
    bare.record(first, "c1", GPU, {0: ("d1", "d2")}, answer(1))
    bare.record(first, "c1", NIC, {-1: ("n1",)}, answer(2))
    bare.record(first, "c2", GPU, {-1: ("d3",), 1: ("d4",)}, answer(3))
    bare.record(second, "c1", GPU, {0: ("d5",), 1: ("d5",)}, answer(4))
    bare.manager.state.write_checkpoint()
    other = Bare(bare.manager.socket.parent)
    other.manager.state.recover(())
    for uid in ("p1", "p2"):
        for container in ("c1", "c2"):
            assert other.manager.devices_of(uid, container) == bare.manager.devices_of(uid, container)
    assert other.manager.devices_of("p2", "c1") == {GPU: {"d5": (0, 1)}}
    options = await other.manager.run_options(first, Container("c1"))
    assert options is not None
    assert options == await bare.manager.run_options(first, Container("c1"))
    assert (len(options.envs), len(options.mounts), len(options.devices), len(options.cdi_devices)) == (2, 2, 2, 2)
    written = decode((bare.manager.socket.parent / "kubelet_internal_checkpoint").read_bytes())
    assert written.registered == {GPU: ("d1", "d2", "d3"), NIC: ("n1", "n2")}
    assert other.manager.state.resources() == (GPU, NIC)


async def test_pod_container_device_allocation(node: Node) -> None:
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


async def test_devices_to_allocate_conflict_with_update_allocated_devices(node: Node) -> None:
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


async def test_get_device_run_container_options(node: Node) -> None:
    active = pod("active", 1)
    kubelet = await node.kubelet(pods=[active])
    plugin = await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    options = await kubelet.run_options(active, "c")
    assert options is not None
    assert options.envs == {"IDS_gpu": "d0"}, "allocated on demand"
    assert await kubelet.run_options(pod("inactive"), "c") is None
    assert [call["rpc"] for call in plugin.calls] == ["Allocate"]


def _kinds(*parts: tuple[str, Kind, int]) -> Pod:
    return Pod("p", "p", containers=tuple(Container(name, kind, {GPU: count}) for name, kind, count in parts))


async def _given(node: Node, count: int, workload: Pod) -> dict[str, set[str]]:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", count))
    await kubelet.wait_for(GPU, healthy=count)
    verdict = await kubelet.admit(workload)
    assert verdict.admitted, verdict.message
    return {name: set(held.get(GPU, ())) for name, held in verdict.devices.items()}


async def test_init_container_device_allocation(node: Node) -> None:
    workload = _kinds(("i1", "init", 1), ("i2", "init", 2), ("a1", "app", 1), ("a2", "app", 1))
    given = await _given(node, 2, workload)
    assert given["i1"] <= given["i2"]
    assert given["a1"] | given["a2"] == given["i2"]
    assert not given["a1"] & given["a2"]


async def test_restartable_init_container_device_allocation(node: Node) -> None:
    workload = _kinds(("i", "init", 3), ("s1", "sidecar", 1), ("s2", "sidecar", 2), ("a1", "app", 1), ("a2", "app", 2))
    given = await _given(node, 6, workload)
    assert given["s1"] | given["s2"] == given["i"]
    own = [given[name] for name in ("s1", "s2", "a1", "a2")]
    assert len(frozenset().union(*own)) == sum(map(len, own)), "sidecars and apps share nothing"


def test_update_plugin_resources(bare: Bare) -> None:
    bare.record(pod("p1"), "c", GPU, {-1: ("d1",)})
    bare.record(pod("p1"), "c", NIC, {-1: ("n1",)})
    assert bare.manager.raised_allocatable("p1", {GPU: 2}) == {GPU: 2, NIC: 1}
    assert bare.manager.raised_allocatable("p2", {GPU: 0}) == {GPU: 0}


@pytest.mark.parametrize("quantity", [2, 0])
async def test_device_pre_start_container(node: Node, quantity: int) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 2), script=Script(pre_start_required=True))
    await kubelet.wait_for(GPU, healthy=2)
    workload = pod("p1", quantity)
    assert (await kubelet.admit(workload)).admitted
    options = await kubelet.run_options(workload, "c")
    started = [call["ids"] for call in plugin.calls if call["rpc"] == "PreStartContainer"]
    assert started == ([["d0", "d1"]] if quantity else [])
    assert (options is not None) is bool(quantity)


def test_reset_extended_resource(bare: Bare) -> None:
    bare.manager.state.write_checkpoint()
    assert not bare.manager.should_reset_capacity()
    (bare.manager.socket.parent / "kubelet_internal_checkpoint").unlink()
    assert bare.manager.should_reset_capacity()


@pytest.mark.parametrize(
    ("available", "aligned", "unaligned"),
    [
        ({"dev1", "dev2"}, {"dev2"}, {"dev1"}),
        ({"dev1", "dev2", "dev3", "dev4"}, {"dev2", "dev3", "dev4"}, {"dev1"}),
    ],
)
def test_filter_by_affinity(available: set[str], aligned: set[str], unaligned: set[str]) -> None:
    nodes = {"dev1": [1], "dev2": [1, 2], "dev3": [2], "dev4": [2]}
    spread = DeviceSet.listed(_listed(*(device(name, nodes=own) for name, own in nodes.items())))
    found = filter_by_affinity(spread, available, TopologyHint(frozenset({2})))
    assert (set(found.aligned), set(found.unaligned), set(found.no_affinity)) == (aligned, unaligned, set())


async def test_get_topology_hints_with_updates(node: Node) -> None:
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


def test_update_allocated_resources_status(bare: Bare) -> None:
    workload = _kinds(("i", "init", 1), ("s", "sidecar", 1), ("a", "app", 1))
    bare.connect(GPU, device("d1"), device("d2"))
    for name, ids in (("i", ("d1",)), ("s", ("d1",)), ("a", ("d1", "d2", "vanished"))):
        bare.record(workload, name, GPU, {-1: ids})
    bare.manager.state.received(GPU, _listed(device("d1", "Broken"), device("d2")))
    status = bare.manager.allocated_resources_status(workload)
    assert status == {"a": {GPU: {"d1": "Unhealthy", "d2": "Healthy", "vanished": "Healthy"}}}


@pytest.mark.parametrize(("generation", "has_status"), [("1.35", False), ("1.36", True)])
def test_feature_gate_resource_health_status(short_dir: Path, generation: Generation, has_status: bool) -> None:
    bare = Bare(short_dir, generation)
    bare.connect(GPU, device("d1"))
    bare.record(pod("p1"), "c", GPU, {-1: ("d1",)})
    bare.manager.updates.drain()
    state = bare.manager.state
    state.received(GPU, _healthy("d1"))
    assert bare.manager.updates.drain() == (), "nothing changed"
    for number in range(101):
        state.received(GPU, _listed(device("d1", f"{number}")))
    assert bare.manager.updates.dropped == (1 if has_status else 0)
    assert bare.manager.updates.drain() == ((("p1",),) * 100 if has_status else ())
    assert bool(bare.manager.allocated_resources_status(pod("p1"))) is has_status


@pytest.mark.parametrize(("generation", "admitted"), [("1.35", False), ("1.36", True)])
async def test_admit_pod_with_dra_resources(node: Node, generation: Generation, admitted: bool) -> None:
    kubelet = await node.kubelet(generation=generation)
    await node.plugin([device("d1", "Unhealthy")])
    await eventually(lambda: kubelet.list_messages[GPU], "the list")
    claimed = Pod("p1", "p1", "default", pod("p1").containers, claim_backed=frozenset({("c", GPU)}))
    verdict = await kubelet.admit(claimed)
    assert verdict.admitted is admitted
    assert verdict.error == ("" if admitted else f"no healthy devices present; cannot allocate unhealthy devices {GPU}")


def test_endpoint_sync_on_disconnect(bare: Bare) -> None:
    state = bare.manager.state
    endpoint = bare.connect(GPU, device("d1"), device("d2"))
    state.disconnected(endpoint, None)
    listed = state.device_set(GPU)
    assert listed is not None
    assert not listed.healthy
    assert listed.unhealthy == {"d1", "d2"}
    bare.clock.now += 301
    assert bare.manager.capacity().deleted == (GPU,)
    assert (state.device_set(GPU), state.endpoint(GPU), state.resources()) == (None, None, ())


def test_checkpoint_of_the_pre_1_20_form_is_not_read(bare: Bare) -> None:
    entry = CheckpointEntry("p", "c", GPU, {-1: ("d0",)}, b"")
    text = encode(Checkpoint((entry,), {GPU: ("d0",)})).replace(b'{"-1":["d0"]}', b'["d0"]')
    (bare.manager.socket.parent / "kubelet_internal_checkpoint").write_bytes(text)
    bare.manager.state.recover(())
    assert bare.manager.state.resources() == ()
