"""Themes of the device manager's tests. Each test is named after its theme; ``test_table.py`` has them all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from node.kubelet.checkpoint import Checkpoint, CheckpointEntry, decode, encode
from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.pods import Container, Pod
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, device
from tests.sandbox.kubelet.upstream.conftest import Bare, healthy_list, list_of, pod_of
from tests.waiting import eventually

Preferred = api_pb2.PreferredAllocationResponse
Door = Literal["register", "watcher"]


async def test_new_manager_impl(short_dir: Path) -> None:
    manager = Bare(short_dir).manager
    assert manager.socket == short_dir / "kubelet.sock"
    assert manager.capacity().capacity == {}


@pytest.mark.parametrize("watch_plugins", [False, True])
async def test_new_manager_impl_start(node: KubeletNode, watch_plugins: bool) -> None:
    kubelet = await node.kubelet(watch_plugins=watch_plugins)
    manager = kubelet.manager
    assert manager.health_error() == ""
    await asyncio.gather(kubelet.stop(), kubelet.stop())
    await manager.stop()


@pytest.mark.parametrize("door", ["register", "watcher"])
@pytest.mark.parametrize("pre_start", [False, True])
async def test_device_plugin_re_registration(node: KubeletNode, door: Door, pre_start: bool) -> None:
    kubelet = await node.kubelet(generation="1.37")
    script = PluginScript(pre_start_required=pre_start)
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
    state.received(GPU, healthy_list("D1", "D2"))
    assert seen() == (2, 2, ())
    state.received(GPU, list_of(device("D1"), device("D2", "Unhealthy"), device("D3", "Unhealthy")))
    assert seen() == (3, 1, ())
    state.received(GPU, list_of(device("D2", "Unhealthy"), device("D3", "Unhealthy")))
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
    bare.manager.state.received(GPU, healthy_list("g1", "g2"))
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


def test_update_plugin_resources(bare: Bare) -> None:
    bare.record(pod("p1"), "c", GPU, {-1: ("d1",)})
    bare.record(pod("p1"), "c", NIC, {-1: ("n1",)})
    assert bare.manager.raised_allocatable("p1", {GPU: 2}) == {GPU: 2, NIC: 1}
    assert bare.manager.raised_allocatable("p2", {GPU: 0}) == {GPU: 0}


def test_reset_extended_resource(bare: Bare) -> None:
    bare.manager.state.write_checkpoint()
    assert not bare.manager.should_reset_capacity()
    (bare.manager.socket.parent / "kubelet_internal_checkpoint").unlink()
    assert bare.manager.should_reset_capacity()


def test_update_allocated_resources_status(bare: Bare) -> None:
    workload = pod_of(("i", "init", 1), ("s", "sidecar", 1), ("a", "app", 1))
    bare.connect(GPU, device("d1"), device("d2"))
    for name, ids in (("i", ("d1",)), ("s", ("d1",)), ("a", ("d1", "d2", "vanished"))):
        bare.record(workload, name, GPU, {-1: ids})
    bare.manager.state.received(GPU, list_of(device("d1", "Broken"), device("d2")))
    status = bare.manager.allocated_resources_status(workload)
    assert status == {"a": {GPU: {"d1": "Unhealthy", "d2": "Healthy", "vanished": "Healthy"}}}


@pytest.mark.parametrize(("generation", "has_status"), [("1.35", False), ("1.36", True)])
def test_feature_gate_resource_health_status(short_dir: Path, generation: Generation, has_status: bool) -> None:
    bare = Bare(short_dir, generation)
    bare.connect(GPU, device("d1"))
    bare.record(pod("p1"), "c", GPU, {-1: ("d1",)})
    bare.manager.updates.drain()
    state = bare.manager.state
    state.received(GPU, healthy_list("d1"))
    assert bare.manager.updates.drain() == (), "nothing changed"
    for number in range(101):
        state.received(GPU, list_of(device("d1", f"{number}")))
    assert bare.manager.updates.dropped == (1 if has_status else 0)
    assert bare.manager.updates.drain() == ((("p1",),) * 100 if has_status else ())
    assert bool(bare.manager.allocated_resources_status(pod("p1"))) is has_status


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
