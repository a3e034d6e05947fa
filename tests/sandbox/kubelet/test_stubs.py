"""The stand-ins of the library: a plugin against the embedded kubelet, and a kubelet on a manager that is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import grpc
import grpc.aio
import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from protos.podresources.v1 import api_pb2 as pod_resources_pb2
from protos.podresources.v1 import api_pb2_grpc as pod_resources_grpc
from sandbox.kubelet.devicemanager import DeviceManager, DeviceManagerSettings, DeviceNodes
from sandbox.kubelet.errors import ContainerStartError, KubeletError, RegistrationError
from sandbox.kubelet.events import EventFeed
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pod_devices import RunOptions
from sandbox.kubelet.pods import ActivePods, Container, NodeCapacity, Pod
from sandbox.kubelet.stubs.manager import ManagerStub
from sandbox.kubelet.stubs.plugin import PluginStub, StubRefusal, listed
from sandbox.kubelet.topology import TopologyHint, TopologyManager
from tests.sandbox.kubelet.conftest import GPU, KubeletNode, pod
from tests.waiting import background, eventually

MakeStub = Callable[..., PluginStub]


@pytest.fixture
async def make_stub(node: KubeletNode) -> AsyncIterator[MakeStub]:
    """Makes stubs of two devices in the plugin folder, or in ``folder``, and ends them."""
    stubs: list[PluginStub] = []

    def make(folder: str = "device-plugins", *, pre_start: bool = False, preferred: bool = False) -> PluginStub:
        (node.root / folder).mkdir(exist_ok=True)
        devices = [listed("d0", numa=[0]), listed("d1")]
        stub = PluginStub(devices, node.root / folder / "s.sock", GPU, pre_start=pre_start, preferred=preferred)
        stubs.append(stub)
        return stub

    yield make
    for stub in stubs:
        await stub.stop()


def _socket(kubelet: Kubelet) -> Path:
    return kubelet.settings.device_plugin_dir / "kubelet.sock"


async def _started(node: KubeletNode, stub: PluginStub) -> Kubelet:
    """A kubelet at which the stub has registered."""
    kubelet = await node.kubelet()
    await stub.start()
    await stub.register(_socket(kubelet))
    await kubelet.wait_for(GPU, healthy=2)
    return kubelet


async def test_stub_registers_by_a_call(node: KubeletNode, make_stub: MakeStub) -> None:
    stub = make_stub()
    kubelet = await _started(node, stub)
    assert stub.is_serving()
    assert [call.method for call in stub.calls] == ["GetDevicePluginOptions", "ListAndWatch"]
    assert [(item.id, item.numa) for item in kubelet.devices(GPU)] == [("d0", (0,)), ("d1", None)]
    verdict = await kubelet.admit(pod("p1"))
    assert verdict.admitted
    assert await kubelet.run_options(pod("p1"), "c") == RunOptions()


async def test_stub_registers_by_the_plugin_watcher(node: KubeletNode, make_stub: MakeStub) -> None:
    kubelet = await node.kubelet()
    stub = make_stub("plugins_registry")
    await stub.start()
    await kubelet.wait_for(GPU, healthy=2)
    await eventually(lambda: [status.plugin_registered for status in stub.notified] == [True], "the verdict")


async def test_functions_answer_for_the_stub(node: KubeletNode, make_stub: MakeStub) -> None:
    stub = make_stub(pre_start=True, preferred=True)

    async def allocate(
        request: api_pb2.AllocateRequest, devices: Mapping[str, api_pb2.Device]
    ) -> api_pb2.AllocateResponse:
        ids = request.container_requests[0].devices_ids
        nodes = ",".join(f"{name}:{len(devices[name].topology.nodes)}" for name in ids)
        return api_pb2.AllocateResponse(container_responses=[api_pb2.ContainerAllocateResponse(envs={"GOT": nodes})])

    stub.set_alloc_func(allocate)
    stub.set_preferred_func(
        lambda _request, _devices: api_pb2.PreferredAllocationResponse(
            container_responses=[api_pb2.ContainerPreferredAllocationResponse(deviceIDs=["d1"])]
        )
    )
    started: list[list[str]] = []
    stub.set_pre_start_func(lambda ids: started.append(list(ids)))
    kubelet = await _started(node, stub)
    assert (await kubelet.admit(pod("p1"))).devices == {"c": {GPU: ("d1",)}}
    options = await kubelet.run_options(pod("p1"), "c")
    assert options is not None
    assert options.envs == {"GOT": "d1:0"}
    assert started == [["d1"]]


async def test_what_a_function_raises_is_the_plugins_error(node: KubeletNode, make_stub: MakeStub) -> None:
    stub = make_stub()
    kubelet = await _started(node, stub)

    def refuse(*_: object) -> api_pb2.AllocateResponse:
        raise StubRefusal(grpc.StatusCode.FAILED_PRECONDITION, "d0 is busy")

    def fail(*_: object) -> api_pb2.AllocateResponse:
        raise ValueError("no such thing")

    stub.set_alloc_func(refuse)
    assert (await kubelet.admit(pod("p1"))).error == "rpc error: code = FailedPrecondition desc = d0 is busy"
    stub.set_alloc_func(fail)
    assert (await kubelet.admit(pod("p1"))).error == "rpc error: code = Unknown desc = no such thing"


async def test_update_and_health_reach_every_stream_and_are_remembered(node: KubeletNode, make_stub: MakeStub) -> None:
    stub = make_stub()
    kubelet = await _started(node, stub)
    await stub.register(_socket(kubelet))
    await eventually(lambda: stub.streams == 2, "the second stream")
    await stub.set_health("d0", "Unhealthy")
    await kubelet.wait_for(GPU, healthy=1)
    await eventually(lambda: kubelet.list_messages[GPU] == 4, "both lists")
    await kubelet.restart()
    await stub.restart()
    await stub.register(_socket(kubelet))
    await kubelet.wait_for(GPU, healthy=1)
    with pytest.raises(KeyError):
        await stub.set_health("d9", "Healthy")


async def test_refused_registration_has_the_kubelets_text(node: KubeletNode, make_stub: MakeStub) -> None:
    kubelet = await node.kubelet()
    stub = make_stub()
    await stub.start()
    with pytest.raises(RegistrationError, match=r'^the ResourceName "gpu" is invalid$'):
        await stub.register(_socket(kubelet), resource="gpu")
    with pytest.raises(RegistrationError, match=r"no kubelet accepts connections at .*; start it first"):
        await stub.register(node.root / "none.sock", seconds=0.1)


async def test_marker_of_old_kubelets_makes_register_a_no_op(node: KubeletNode, make_stub: MakeStub) -> None:
    kubelet = await node.kubelet(generation="1.24")
    folder = kubelet.settings.device_plugin_dir
    assert (folder / "DEPRECATION").is_file()
    stub = make_stub()
    await stub.start()
    await stub.register(_socket(kubelet), marker_folder=folder)
    assert kubelet.register_calls[GPU] == 0
    await stub.register(_socket(kubelet))
    await kubelet.wait_for(GPU, healthy=2)


async def test_stub_that_watches_comes_back_after_a_restart_if_it_may(node: KubeletNode, make_stub: MakeStub) -> None:
    stub = make_stub()
    kubelet = await _started(node, stub)
    may = False
    stub.set_register_control(lambda: may)
    async with background(stub.watch(_socket(kubelet), interval=0.01, retry_seconds=0.01)):
        await kubelet.restart()
        await eventually(stub.is_serving, "the stub")
        assert kubelet.register_calls[GPU] == 0
        may = True
        await kubelet.restart()
        await kubelet.wait_for(GPU, healthy=2)


async def test_starts_and_stops_of_a_stub(make_stub: MakeStub) -> None:
    stub = make_stub()
    await stub.stop()
    await stub.start()
    with pytest.raises(KubeletError, match=r"the plugin stub at .*s\.sock serves already; stop it first"):
        await stub.start()
    other = make_stub()
    await other.start()
    await stub.stop()
    assert other.is_serving(), "a stub removes only its own socket"
    await other.stop()
    assert not other.socket.exists()


class _Told:
    """A kubelet on a ``ManagerStub``."""

    def __init__(self, kubelet: Kubelet, manager: ManagerStub) -> None:
        self.kubelet = kubelet
        self.manager = manager


@pytest.fixture
async def told(node: KubeletNode) -> _Told:
    manager = ManagerStub()
    topology = TopologyManager("restricted", "pod", numa_nodes=(0, 1))
    return _Told(await node.kubelet(device_manager=manager, topology=topology), manager)


async def test_manager_stub_that_was_told_nothing_does_nothing(told: _Told) -> None:
    kubelet = told.kubelet
    assert (await kubelet.admit(pod("p1"))).admitted
    assert await kubelet.run_options(pod("p1"), "c") is None
    assert kubelet.capacity() == NodeCapacity({}, {})
    assert kubelet.allocated("p1", "c") == {}
    manager = told.manager
    assert [call.method for call in manager.calls] == ["start", "allocate", "run_options"]
    assert manager.watcher_handler() is None
    assert (manager.should_reset_capacity(), manager.health_error()) == (False, "")
    assert manager.raised_allocatable("p1", {GPU: 1}) == {GPU: 1}
    await kubelet.stop()
    assert manager.calls[-1].method == "stop"


async def test_manager_stub_answers_what_it_is_told(told: _Told, node: KubeletNode) -> None:
    kubelet, manager = told.kubelet, told.manager
    hint = TopologyHint(frozenset({1}), preferred=True)
    manager.set_hints_func(lambda _pod, _container: {GPU: [hint]})
    given: list[TopologyHint] = []

    def allocate(workload: Pod, container: Container, affinity: TopologyHint) -> DeviceNodes:
        given.append(affinity)
        return {GPU: {"d0": (1,)}}

    manager.set_alloc_func(allocate)
    manager.set_options_func(lambda workload, _container: RunOptions(envs={"A": workload.uid}))
    manager.set_capacity(NodeCapacity({GPU: 2}, {GPU: 1}))
    manager.set_allocatable_devices({GPU: {"d0": (1,), "d1": None}})
    manager.set_status("p1", {"c": {GPU: {"d0": "Unhealthy"}}})
    manager.set_health_error("not today")
    manager.set_should_reset_capacity(reset=True)
    assert (await kubelet.admit(pod("p1"))).devices == {"c": {GPU: ("d0",)}}
    assert given == [hint]
    assert await kubelet.run_options(pod("p1"), "c") == RunOptions(envs={"A": "p1"})
    assert kubelet.allocatable() == {GPU: 1}
    assert manager.allocated_resources_status(pod("p1")) == {"c": {GPU: {"d0": "Unhealthy"}}}
    assert (manager.health_error(), manager.should_reset_capacity()) == ("not today", True)
    address = f"unix:{node.root}/pod-resources/kubelet.sock"
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        client = pod_resources_grpc.PodResourcesListerStub(channel)
        listed_pods = (await client.List(pod_resources_pb2.ListPodResourcesRequest())).pod_resources
        all_devices = await client.GetAllocatableResources(pod_resources_pb2.AllocatableResourcesRequest())
    assert [item.device_ids[0] for item in listed_pods[0].containers[0].devices] == ["d0"]
    assert [item.device_ids[0] for item in all_devices.devices] == ["d0", "d1"]


async def test_what_a_manager_stub_raises_refuses_the_pod_or_keeps_its_container_waiting(told: _Told) -> None:
    def fail(*_: object) -> None:
        raise ContainerStartError("not ready")

    told.manager.set_alloc_func(fail)
    verdict = await told.kubelet.admit(pod("p1"))
    assert verdict.message == "Allocate failed due to not ready, which is unexpected"
    told.manager.set_options_func(fail)
    with pytest.raises(ContainerStartError, match="not ready"):
        await told.kubelet.run_options(pod("p1"), "c")


async def test_looks_inside_name_the_manager_that_is_there(told: _Told) -> None:
    with pytest.raises(KubeletError, match="the kubelet runs with a ManagerStub of the caller's; ask that one"):
        told.kubelet.devices(GPU)


async def test_watcher_handler_of_a_manager_stub_is_asked(told: _Told, node: KubeletNode, make_stub: MakeStub) -> None:
    stub = make_stub("plugins_registry")
    await stub.start()
    await eventually(lambda: stub.notified, "the refusal")
    assert "no handler registered for plugin type: DevicePlugin" in stub.notified[0].error
    await told.kubelet.stop()
    registered: list[str] = []

    class Handler:
        def validate(self, name: str, socket: str, versions: object) -> None: ...

        async def register(self, name: str, socket: str, versions: object) -> None:
            registered.append(name)

        def deregister(self, name: str, socket: str) -> None: ...

    told.manager.set_watcher_handler(Handler())
    await told.kubelet.start()
    await eventually(lambda: registered == [GPU], "the registration")


async def test_device_manager_alone_needs_an_absolute_folder_and_stops_without_a_start(short_dir: Path) -> None:
    with pytest.raises(KubeletError, match=r"^bad socketPath, must be an absolute path: plugins/kubelet\.sock$"):
        DeviceManager(DeviceManagerSettings(Path("plugins")), ActivePods(), EventFeed())
    manager = DeviceManager(DeviceManagerSettings(short_dir), ActivePods(), EventFeed())
    await manager.stop()
    await manager.start()
    with pytest.raises(KubeletError, match="the device manager is already running; stop it first"):
        await manager.start()
    assert manager.health_error() == ""
    await asyncio.gather(manager.stop(), manager.stop())
    assert manager.health_error() == ""
