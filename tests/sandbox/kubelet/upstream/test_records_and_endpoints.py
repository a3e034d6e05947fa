"""Themes of the tests of endpoints, records, handler and registration server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.devices import DeviceSet
from sandbox.kubelet.errors import RegistrationError
from sandbox.kubelet.events import EventFeed
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.plugin_calls import PluginCalls
from sandbox.kubelet.plugin_clients import PluginEndpoint
from sandbox.kubelet.pod_devices import AllocationRecord, ContainerResource, PodDevices, RunOptions, merge
from sandbox.kubelet.stubs.plugin import PluginStub, listed
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, devices, register
from tests.waiting import background, eventually

Response = api_pb2.ContainerAllocateResponse
Connect = Callable[[PluginStub], Awaitable[PluginEndpoint]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Starts a stub and connects an endpoint to it; ends both."""
    ends: list[Callable[[], Awaitable[None]]] = []

    async def connected(stub: PluginStub) -> PluginEndpoint:
        await stub.start()
        endpoint = PluginEndpoint(stub.resource, str(stub.socket), PluginCalls(EventFeed()))
        ends.extend((endpoint.close, stub.stop))
        await endpoint.connect(5.0)
        return endpoint

    yield connected
    for end in ends:
        await end()


@pytest.fixture
def stub(node: KubeletNode) -> PluginStub:
    return PluginStub([listed("d0"), listed("d1", "Unhealthy")], node.root / "s.sock", GPU, preferred=True)


async def test_new_endpoint(stub: PluginStub, connect: Connect) -> None:
    endpoint = await connect(stub)
    assert (endpoint.resource, endpoint.socket, endpoint.stopped_at) == (GPU, str(stub.socket), None)
    assert endpoint.options is not None
    assert endpoint.options.get_preferred_allocation_available


async def test_run(stub: PluginStub, connect: Connect) -> None:
    endpoint = await connect(stub)
    snapshots: list[list[tuple[str, str]]] = []

    async def read() -> None:
        async for message in endpoint.lists():
            snapshots.append([(device.ID, device.health) for device in message.devices])  # noqa: PERF401 - seen as they come

    async with background(read()):
        await eventually(lambda: len(snapshots) == 1, "the first list")
        await stub.update([listed("d1"), listed("d2", "Unhealthy")])
        await eventually(lambda: len(snapshots) == 2, "the second list")
    assert snapshots == [[("d0", "Healthy"), ("d1", "Unhealthy")], [("d1", "Healthy"), ("d2", "Unhealthy")]]


async def test_allocate(stub: PluginStub, connect: Connect) -> None:
    endpoint = await connect(stub)
    answer = api_pb2.AllocateResponse(container_responses=[Response(envs={"A": "1"}), Response(envs={"B": "2"})])
    asked: list[list[str]] = []

    def allocate(request: api_pb2.AllocateRequest, _devices: object) -> api_pb2.AllocateResponse:
        asked.extend(list(each.devices_ids) for each in request.container_requests)
        return answer

    stub.set_alloc_func(allocate)
    assert await endpoint.allocate(["d0", "d1"]) == answer
    assert asked == [["d0", "d1"]]


@pytest.mark.parametrize(
    ("available", "must_include", "size"), [(["d0", "d1"], ["d0"], 2), ([], [], -1)], ids=["usual", "empty and -1"]
)
async def test_get_preferred_allocation(
    stub: PluginStub, connect: Connect, available: list[str], must_include: list[str], size: int
) -> None:
    endpoint = await connect(stub)
    asked: list[tuple[list[str], list[str], int]] = []

    def prefer(request: api_pb2.PreferredAllocationRequest, _devices: object) -> api_pb2.PreferredAllocationResponse:
        (wanted,) = request.container_requests
        asked.append((list(wanted.available_deviceIDs), list(wanted.must_include_deviceIDs), wanted.allocation_size))
        ids = api_pb2.ContainerPreferredAllocationResponse(deviceIDs=["d1", "other"])
        return api_pb2.PreferredAllocationResponse(container_responses=[ids])

    stub.set_preferred_func(prefer)
    assert await endpoint.preferred(available, must_include, size) == ("d1", "other")
    assert asked == [(available, must_include, size)]


def test_get_container_devices() -> None:
    record = AllocationRecord({0: ("d0",), 1: ("d0",)}, Response())
    assert record.numa == {"d0": (0, 1)}
    assert record.ids == {"d0"}


def test_resource_device_instance_filter() -> None:
    devices = DeviceSet.listed(api_pb2.ListAndWatchResponse(devices=[listed("d0"), listed("d1"), listed("d2")]))
    assert list(devices.only({"d2", "d0", "unknown"})) == ["d0", "d2"]
    assert devices.only(()) == {}


def test_device_run_container_options() -> None:
    names = [api_pb2.CDIDevice(name=f"v/c={number}") for number in (1, 2, 1)]
    other = [api_pb2.CDIDevice(name="v/c=2"), api_pb2.CDIDevice(name="v/c=3")]
    assert merge({GPU: Response()}) == RunOptions()
    assert merge({GPU: Response(cdi_devices=names)}).cdi_devices == ("v/c=1", "v/c=2")
    both = merge({NIC: Response(cdi_devices=other), GPU: Response(cdi_devices=names)})
    assert both.cdi_devices == ("v/c=1", "v/c=2", "v/c=3")
    assert both.conflicts == ()


def test_get_pod_and_container_for_device() -> None:
    records = PodDevices()
    for uid, resource in (("p1", NIC), ("p2", GPU)):
        holder = ContainerResource(uid, "c", resource)
        records.reserve(holder)
        records.commit(holder, AllocationRecord({-1: ("d0",)}, Response()))
    assert records.pod_with("unknown", None) is None
    assert records.pod_with("d0", GPU) == "p2", "from 1.37 on within the resource"
    assert records.pod_with("d0", None) == "p1", "up to 1.36 of any resource"


@pytest.mark.parametrize(("generation", "message"), [("1.36", ""), ("1.37", "device plugin already connected: {path}")])
async def test_handler_duplicate_registration(node: KubeletNode, generation: Generation, message: str) -> None:
    kubelet = await node.kubelet(generation=generation)
    plugin = await node.plugin(devices("d", 1))
    folder = kubelet.settings.device_plugin_dir
    assert await register(folder, GPU, plugin.path.name) == message.format(path=plugin.path)
    await kubelet.wait_for(GPU, healthy=1)


@pytest.mark.parametrize("generation", ["1.24", "1.36", "1.37"])
async def test_handler_connect_failure_cleanup(node: KubeletNode, generation: Generation) -> None:
    kubelet = await node.kubelet(generation=generation, dial_timeout=0.5)
    with pytest.raises(RegistrationError, match="failed to dial device plugin: context deadline exceeded"):
        await kubelet.manager.connect(GPU, f"{node.root}/none.sock", "register")
    assert kubelet.manager.connections.connected(GPU) == ()
    assert (kubelet.open_streams(GPU), kubelet.resources()) == (0, ())
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)


async def test_handler_coexist(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.37")
    for name in ("1.sock", "2.sock"):
        await node.plugin(devices("d", 1), name=name)
    await eventually(lambda: kubelet.open_streams(GPU) == 2, "both streams")


@pytest.mark.parametrize(("generation", "healthy"), [("1.36", 0), ("1.37", 1)])
async def test_handler_deregister_wrong_socket_no_op(node: KubeletNode, generation: Generation, healthy: int) -> None:
    kubelet = await node.kubelet(generation=generation)
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    handler = kubelet.manager.watcher_handler()
    handler.deregister(NIC, "/any.sock")
    handler.deregister(GPU, "/other.sock")
    assert kubelet.allocatable() == {GPU: healthy}, "up to 1.36 only the name counts"


async def test_handler_reconnect_after_clean_disconnect(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.37")
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    kubelet.manager.watcher_handler().deregister(GPU, str(plugin.path))
    await kubelet.wait_for(GPU, healthy=0)
    assert await register(kubelet.settings.device_plugin_dir, GPU, plugin.path.name) == ""
    await kubelet.wait_for(GPU, healthy=1)


async def test_serve_with_retry(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    manager = kubelet.manager
    assert manager._server is not None
    await manager._server.stop(None)
    await eventually(manager.health_error, "the end of the server")
    assert manager.health_error().startswith(
        "device registration error: device plugin registration gRPC server failed and no device plugins can register: "
    ), "released kubelets do not serve again"
    await kubelet.stop()


async def test_register_of_1_24_answers_before_the_dial_back_and_takes_the_options_of_the_request(
    node: KubeletNode,
) -> None:
    kubelet = await node.kubelet(generation="1.24", dial_timeout=0.5)
    stream = kubelet.events()
    folder = kubelet.settings.device_plugin_dir
    assert await register(folder, GPU, "none.sock") == "", "success proves nothing"
    event = await anext(stream)
    assert getattr(event, "message", "") == "failed to dial device plugin: context deadline exceeded"
    assert await register(folder, "gpu", "none.sock") == 'the ResourceName "gpu" is invalid'
    await node.plugin(
        devices("d", 1), door=None, script=PluginScript(options_error="never asked", pre_start_required=False)
    )
    assert await register(folder, GPU, "p.sock", options={"pre_start_required": True}) == ""
    await kubelet.wait_for(GPU, healthy=1)
    endpoint = kubelet.manager.state.endpoint(GPU)
    assert endpoint is not None
    assert endpoint.options == api_pb2.DevicePluginOptions(pre_start_required=True)


async def test_end_of_a_replaced_instance_harms_nobody_in_1_24(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.24")
    old = await node.plugin(devices("d", 2), name="old.sock")
    await kubelet.wait_for(GPU, healthy=2)
    await node.plugin(devices("d", 3), name="new.sock")
    await kubelet.wait_for(GPU, healthy=3)
    await old.stop()
    await eventually(lambda: kubelet.open_streams(GPU) == 1, "the end of the old instance")
    assert kubelet.allocatable() == {GPU: 3}


async def test_cdi_devices_of_an_answer_reach_no_container_in_1_24(node: KubeletNode) -> None:
    kubelet = await node.kubelet(generation="1.24")
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    assert (await kubelet.admit(pod("p1"))).admitted
    options = await kubelet.run_options(pod("p1"), "c")
    assert options is not None
    assert options.envs
    assert options.cdi_devices == ()
