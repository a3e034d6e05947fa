"""Plugins that misbehave: none may harm the kubelet, other plugins, or the books."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from protos.podresources.v1 import api_pb2 as resources
from protos.podresources.v1 import api_pb2_grpc as resources_grpc
from sandbox.kubelet.errors import ContainerStartError, DeviceAllocationError
from sandbox.kubelet.events import PodWarning
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pod_devices import ContainerResource, PodDevices
from sandbox.kubelet.pods import Container, Pod
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode, next_event, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, device, devices, register
from tests.waiting import eventually

RawPlugin = Callable[[Path, dict[str, bytes]], Awaitable[None]]

NONSENSE = b"\xff\xff\xff\xff\xff"


@pytest.fixture
async def raw_plugin() -> AsyncIterator[RawPlugin]:
    """Starts a server that answers every call with the given bytes, ListAndWatch with them as its only message."""
    servers = []

    async def start(path: Path, answers: dict[str, bytes]) -> None:
        server = grpc.aio.server()
        handlers = {name: _handler(name, answer) for name, answer in answers.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        servers.append(server)

    yield start
    for server in servers:
        await server.stop(None)


def _handler(name: str, answer: bytes) -> grpc.RpcMethodHandler[Any, Any]:
    async def unary(_request: bytes, _context: object) -> bytes:
        return answer

    async def stream(_request: bytes, _context: object) -> AsyncIterator[bytes]:
        yield answer
        await asyncio.Event().wait()

    if name == "ListAndWatch":
        return grpc.unary_stream_rpc_method_handler(stream)
    return grpc.unary_unary_rpc_method_handler(unary)


async def test_options_that_are_no_message_fail_the_registration(node: KubeletNode, raw_plugin: RawPlugin) -> None:
    kubelet = await node.kubelet()
    folder = kubelet.settings.device_plugin_dir
    await raw_plugin(folder / "p.sock", {"GetDevicePluginOptions": NONSENSE})
    assert await register(folder, GPU, "p.sock") == (
        "failed to get device plugin options: rpc error: code = Internal "
        "desc = grpc: failed to unmarshal the received message"
    )


async def test_service_without_the_calls_is_refused(node: KubeletNode, raw_plugin: RawPlugin) -> None:
    kubelet = await node.kubelet()
    folder = kubelet.settings.device_plugin_dir
    await raw_plugin(folder / "p.sock", {})
    message = await register(folder, GPU, "p.sock")
    assert message.startswith("failed to get device plugin options: rpc error: code = Unimplemented desc = ")


async def test_list_that_is_no_message_ends_the_connection(node: KubeletNode, raw_plugin: RawPlugin) -> None:
    kubelet = await node.kubelet()
    folder = kubelet.settings.device_plugin_dir
    await raw_plugin(folder / "p.sock", {"GetDevicePluginOptions": b"", "ListAndWatch": NONSENSE})
    assert await register(folder, GPU, "p.sock") == ""
    await eventually(lambda: kubelet.open_streams(GPU) == 0, "the end of the stream")
    assert kubelet.capacity().capacity == {}


async def test_allocate_answer_that_is_no_message_refuses_the_pod(node: KubeletNode, raw_plugin: RawPlugin) -> None:
    kubelet = await node.kubelet()
    folder = kubelet.settings.device_plugin_dir
    answers = {
        "GetDevicePluginOptions": b"",
        "ListAndWatch": api_pb2.ListAndWatchResponse(devices=devices("d", 1)).SerializeToString(),
        "Allocate": NONSENSE,
    }
    await raw_plugin(folder / "p.sock", answers)
    assert await register(folder, GPU, "p.sock") == ""
    await kubelet.wait_for(GPU, healthy=1)
    verdict = await kubelet.admit(pod("p1"))
    assert verdict.error == "rpc error: code = Internal desc = grpc: failed to unmarshal the received message"
    assert kubelet.manager.records.taken(GPU) == frozenset()


async def test_list_over_4_mib_ends_the_connection_and_nothing_retries(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await plugin.update([device(f"{number:063}") for number in range(60_000)])
    await kubelet.wait_for(GPU, healthy=0)
    assert kubelet.capacity().capacity == {GPU: 1}
    assert kubelet.open_streams(GPU) == 0


async def test_plugin_that_dies_in_allocate_gives_the_reservation_back(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 2), script=PluginScript(allocate="hang"))
    await kubelet.wait_for(GPU, healthy=2)
    admission = asyncio.create_task(kubelet.admit(pod("p1", 2)))
    await plugin.called.wait()
    assert kubelet.manager.records.taken(GPU) == {"d0", "d1"}
    assert kubelet.allocated("p1", "c") == {}
    await plugin.stop()
    verdict = await admission
    assert (verdict.admitted, verdict.container, verdict.devices) == (False, "c", {})
    assert verdict.error.startswith("rpc error: code = ")
    assert kubelet.manager.records.taken(GPU) == frozenset()
    assert kubelet.pods() == ()
    await node.plugin(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    assert (await kubelet.admit(pod("p2", 2))).admitted


async def test_cancelled_admission_gives_the_reservation_back(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1), script=PluginScript(allocate="hang"))
    await kubelet.wait_for(GPU, healthy=1)
    admission = asyncio.create_task(kubelet.admit(pod("p1")))
    await plugin.called.wait()
    admission.cancel()
    with pytest.raises(asyncio.CancelledError):
        await admission
    assert kubelet.manager.records.taken(GPU) == frozenset()
    assert kubelet.pods() == ()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (PluginScript(allocate="empty"), "no containers return in allocation response "),
        (PluginScript(allocate="error"), "rpc error: code = Unknown desc = cannot allocate today"),
        (
            PluginScript(preferred="error", preferred_available=True),
            (
                "device plugin GetPreferredAllocation rpc failed with err: "
                "rpc error: code = Unknown desc = no preference today"
            ),
        ),
    ],
)
async def test_error_while_allocating_gives_every_id_back(
    node: KubeletNode, script: PluginScript, message: str
) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 3), script=script)
    await kubelet.wait_for(GPU, healthy=3)
    assert (await kubelet.admit(pod("p1", 2))).error == message
    assert kubelet.manager.records.taken(GPU) == frozenset()
    plugin.script.allocate = plugin.script.preferred = "ok"
    assert (await kubelet.admit(pod("p2", 3))).admitted


async def test_known_hole_keeps_ids_after_an_empty_answer(node: KubeletNode) -> None:
    kubelet = await node.kubelet(keep_known_holes=True)
    plugin = await node.plugin(devices("d", 2), script=PluginScript(allocate="empty"))
    await kubelet.wait_for(GPU, healthy=2)
    await kubelet.admit(pod("p1", 1))
    plugin.script.allocate = "ok"
    assert (await kubelet.admit(pod("p2", 2))).error == (
        "requested number of devices unavailable for a.example/gpu. Requested: 2, Available: 1"
    )


async def test_vanished_socket_does_not_break_the_connection(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    plugin.path.unlink()
    await plugin.update(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)
    assert (await kubelet.admit(pod("p1"))).admitted


async def test_preference_for_unknown_devices_is_ignored(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    script = PluginScript(preferred="fixed", preferred_available=True, preferred_ids=("x", "d2", "d2", "", "d9"))
    await node.plugin(devices("d", 3), script=script)
    await kubelet.wait_for(GPU, healthy=3)
    verdict = await kubelet.admit(pod("p1", 2))
    assert verdict.devices == {"c": {GPU: ("d0", "d2")}}


async def test_strange_ids_and_health_strings_are_taken_as_they_are(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    strange = ["", "²", "9" * 5000, "a b]:[", "\u2028<&>"]
    await node.plugin([*(device(name) for name in strange), device("x", "healthy"), device("y", "")])
    await kubelet.wait_for(GPU, healthy=len(strange))
    assert kubelet.capacity().capacity == {GPU: len(strange) + 2}
    verdict = await kubelet.admit(pod("p1", len(strange)))
    assert set(verdict.devices["c"][GPU]) == set(strange)
    assert (await kubelet.restart())["p1"].admitted
    assert set(kubelet.allocated("p1", "c")[GPU]) == set(strange)


async def test_one_bad_plugin_does_not_touch_another(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1), script=PluginScript(allocate="error"))
    await node.plugin(devices("n", 1), resource=NIC, name="n.sock")
    await kubelet.wait_for(GPU, healthy=1)
    await kubelet.wait_for(NIC, healthy=1)
    assert not (await kubelet.admit(pod("p1"))).admitted
    assert (await kubelet.admit(pod("p2", resource=NIC))).admitted


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize("socket", ["device-plugins/kubelet.sock", "pod-resources/kubelet.sock"])
async def test_bytes_that_are_no_call_harm_nobody(node: KubeletNode, socket: str) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("n", 1), resource=NIC, name="n.sock")
    noise = random.Random(7)
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", noise.randbytes(1 << 20), PREFACE, PREFACE + noise.randbytes(4096)):
        _, writer = await asyncio.open_unix_connection(node.root / socket)
        writer.write(data)
        with contextlib.suppress(ConnectionError):  # The kubelet closes it before all is read.
            await writer.drain()
        writer.close()
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    await kubelet.wait_for(NIC, healthy=1)
    assert (await kubelet.admit(pod("p1"))).admitted
    async with grpc.aio.insecure_channel(f"unix:{node.root}/pod-resources/kubelet.sock") as channel:
        listed = await resources_grpc.PodResourcesListerStub(channel).List(resources.ListPodResourcesRequest())
    assert [each.name for each in listed.pod_resources] == ["p1"]


async def test_failing_pre_start_keeps_the_container_waiting(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    script = PluginScript(pre_start_required=True, pre_start="error")
    plugin = await node.plugin(devices("d", 1), script=script)
    await kubelet.wait_for(GPU, healthy=1)
    assert (await kubelet.admit(pod("p1"))).admitted
    stream = kubelet.events()
    with pytest.raises(ContainerStartError) as caught:
        await kubelet.run_options(pod("p1"), "c")
    assert str(caught.value) == (
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = not ready"
    )
    assert caught.value.reason == "CreateContainerConfigError"
    assert await next_event(stream, PodWarning) == PodWarning("p1", "Failed", f"Error: {caught.value}")
    plugin.script.pre_start = "ok"
    options = await kubelet.run_options(pod("p1"), "c")
    assert options is not None
    assert options.envs == {"IDS_gpu": "d0"}


async def test_pre_start_without_an_allocation_is_an_error(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1), script=PluginScript(pre_start_required=True))
    await kubelet.wait_for(GPU, healthy=1)
    with pytest.raises(ContainerStartError) as caught:
        await kubelet.run_options(pod("p1"), "c")
    assert str(caught.value) == (
        "no devices found allocated in local cache for pod p1, container c, resource a.example/gpu"
    )


async def test_checkpoint_that_cannot_be_written_refuses_the_pod(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    checkpoint = kubelet.settings.device_plugin_dir / "kubelet_internal_checkpoint"
    checkpoint.unlink()
    checkpoint.mkdir()
    verdict = await kubelet.admit(pod("p1"))
    assert verdict.error.startswith('failed to write checkpoint file "kubelet_internal_checkpoint": ')


def test_second_reservation_of_one_holder_is_refused() -> None:
    records, holder = PodDevices(), ContainerResource("p1", "c", GPU)
    records.reserve(holder)
    with pytest.raises(DeviceAllocationError, match=r"pod p1 container c is already being given a\.example/gpu"):
        records.reserve(holder)


async def test_pod_that_changed_its_request_is_refused(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    await node.plugin(devices("d", 3))
    await kubelet.wait_for(GPU, healthy=3)
    assert (await kubelet.admit(pod("p1", 1))).admitted
    assert (await kubelet.admit(pod("p1", 2))).error == (
        'pod "p1" container "c" changed request for resource "a.example/gpu" from 1 to 2'
    )


async def test_unknown_resource_is_none_of_its_business(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    assert (await kubelet.admit(pod("p1", resource="cpu"))).admitted
    assert await kubelet.run_options(pod("p1", resource="cpu"), "c") is None


def test_asking_for_a_container_that_is_not_there_names_it() -> None:
    with pytest.raises(KeyError, match="pod 'p1' has no container 'x'"):
        Pod("u", "p1", containers=(Container("c"),)).container("x")


async def test_kubelet_closes_when_left(short_dir: Path) -> None:
    async with Kubelet(short_dir) as kubelet:
        socket = kubelet.settings.device_plugin_dir / "kubelet.sock"
        assert socket.is_socket()
    assert not socket.exists()
