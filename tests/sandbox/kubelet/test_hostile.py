"""Plugins that hang, lie, flood, vanish and misname themselves: the kubelet lives on, tells of it, leaks nothing.

What a single wrong answer does is in ``test_garbage.py``.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.dialling import DIAL_SECONDS, UNREADABLE
from sandbox.kubelet.errors import CallFault, ContainerStartError
from sandbox.kubelet.events import (
    KubeletEvent,
    PluginCallFailed,
    PluginCallPending,
    PluginDeregistered,
    RegistrationFailed,
)
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.plugin_calls import advice
from sandbox.kubelet.plugin_clients import MAX_STREAMS
from sandbox.kubelet.stubs.plugin import PluginStub, listed
from tests.sandbox.kubelet.conftest import GPU, NIC, KubeletNode, next_event, pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, devices, register
from tests.waiting import background, eventually


def _census() -> tuple[int, int]:
    """Tasks and open files of this process."""
    return len(asyncio.all_tasks()), sum(1 for _ in Path("/proc/self/fd").iterdir())


@asynccontextmanager
async def nothing_leaks() -> AsyncIterator[None]:
    """Fail if tasks or files are left of what happens inside."""
    tasks, files = _census()
    for _ in range(20):
        await asyncio.sleep(0.01)  # Tasks that were made just now make theirs, and open their files.
        tasks, files = (max(pair) for pair in zip((tasks, files), _census(), strict=True))
    yield

    def is_back() -> bool:
        now = _census()
        return now[0] <= tasks and now[1] <= files

    await eventually(is_back, f"{tasks} tasks and {files} files as before", within=120)


async def _hang(*_: object) -> Any:
    await asyncio.Event().wait()


@asynccontextmanager
async def _stub(kubelet: Kubelet, *, pre_start: bool = False, preferred: bool = False) -> AsyncIterator[PluginStub]:
    """A registered plugin of three devices."""
    path = kubelet.settings.device_plugin_dir / "stub.sock"
    items = [listed(f"d{number}") for number in range(3)]
    async with PluginStub(items, path, GPU, pre_start=pre_start, preferred=preferred) as stub:
        await stub.register(kubelet.manager.socket)
        await kubelet.wait_for(GPU, healthy=3)
        yield stub


@pytest.mark.parametrize("call", ["Allocate", "GetPreferredAllocation", "PreStartContainer"])
async def test_hanging_call_is_reported_while_it_hangs_and_when_it_is_given_up(node: KubeletNode, call: str) -> None:
    kubelet = await node.kubelet(call_timeout=5, pending_after=0.05)
    stream = kubelet.events()
    is_start = call == "PreStartContainer"
    async with _stub(kubelet, pre_start=is_start, preferred=call == "GetPreferredAllocation") as stub:
        stub.set_alloc_func(_hang) if call == "Allocate" else None
        stub.set_preferred_func(_hang)
        stub.set_pre_start_func(_hang)
        verdict = await kubelet.admit(pod("p1"))
        assert verdict.admitted is is_start
        if is_start:
            with pytest.raises(ContainerStartError, match="PreStartContainer rpc failed with err: "):
                await kubelet.run_options(pod("p1"), "c")
        # On a slow machine other calls are pending for a moment, too.
        while (pending := await next_event(stream, PluginCallPending)).fault.call != call:
            pass
        failed = await next_event(stream, PluginCallFailed)
        for fault in (pending.fault, failed.fault):
            assert (fault.resource, fault.socket, fault.call) == (GPU, str(stub.socket), call)
            assert f"process {os.getpid()} (" in fault.advice
        assert 0.04 < pending.fault.seconds < failed.fault.seconds
        assert str(pending).startswith(f"no answer yet: {call} of the plugin of {GPU} at {stub.socket}, ")
        every_pod = "no kubelet sets a deadline for it, so it holds up the admission of every pod"
        assert str(pending).endswith("the container waits for it, for at most 30 s" if is_start else every_pod)
        assert "the plugin took the call and did not answer; see what process" in str(failed)
    if not is_start:
        assert kubelet.manager.records.taken(GPU) == frozenset()


async def test_without_a_call_timeout_a_hanging_allocate_holds_up_every_admission_until_the_plugin_ends(
    node: KubeletNode,
) -> None:
    kubelet = await node.kubelet(pending_after=0.02)
    await node.plugin(devices("n", 1), resource=NIC, name="n.sock")
    await kubelet.wait_for(NIC, healthy=1)
    stream = kubelet.events()
    async with _stub(kubelet) as stub:
        stub.set_alloc_func(_hang)
        async with (
            background(kubelet.admit(pod("p1"))) as hanging,
            background(kubelet.admit(pod("p2", resource=NIC))) as waiting,
        ):
            await next_event(stream, PluginCallPending)
            assert not hanging.done()
            assert not waiting.done()
            await stub.stop()
            assert not (await hanging).admitted
            assert (await waiting).admitted


async def test_plugin_that_never_lists_is_no_resource_and_ends_with_its_stream(node: KubeletNode) -> None:
    kubelet = await node.kubelet()

    class Silent(PluginStub):
        async def ListAndWatch(self, request: object, context: object) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
            await asyncio.Event().wait()
            yield api_pb2.ListAndWatchResponse()

    async with nothing_leaks():
        async with Silent([], kubelet.settings.device_plugin_dir / "s.sock", GPU) as stub:
            await stub.register(kubelet.manager.socket)
            await eventually(lambda: kubelet.open_streams(GPU) == 1, "the stream")
            assert kubelet.resources() == ()
            assert (await kubelet.admit(pod("p1"))).devices == {}, "an unknown resource is not the kubelet's business"
        await eventually(lambda: kubelet.open_streams(GPU) == 0, "its end")


async def test_hang_in_the_options_of_one_socket_keeps_no_other_plugin_away(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    script = PluginScript(options_error="hang")
    await node.plugin(devices("d", 1), door="watcher", name="hangs.sock", script=script)
    await node.plugin(devices("n", 1), door="watcher", name="works.sock", resource=NIC)
    await kubelet.wait_for(NIC, healthy=1)
    assert kubelet.registrations[GPU] == 0
    async with nothing_leaks():
        pass
    await kubelet.stop()


async def test_socket_that_accepts_and_says_nothing_fails_the_dial(node: KubeletNode) -> None:
    kubelet = await node.kubelet(dial_timeout=0.1)
    stream = kubelet.events()
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(kubelet.settings.device_plugin_dir / "mute.sock"))
        mute.listen()
        message = await register(kubelet.settings.device_plugin_dir, GPU, "mute.sock")
    assert message == "failed to dial device plugin: context deadline exceeded"
    event = await next_event(stream, RegistrationFailed)
    assert str(event.fault) == (
        f"dial of the plugin of {GPU} at {kubelet.settings.device_plugin_dir}/mute.sock, 0.1 s: "
        "nothing accepted a connection; see whether the plugin serves before it registers, whether Register names the "
        "file only, and whether the folder and not a single socket is mounted"
    )


async def test_slow_get_info_names_the_call_and_the_process(node: KubeletNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.kubelet.plugin_watcher.GET_INFO_SECONDS", 0.05)
    kubelet = await node.kubelet()
    stream = kubelet.events()
    plugin = await node.plugin(devices("d", 1), door="watcher", script=PluginScript(info_seconds=30.0))
    event = await next_event(stream, RegistrationFailed)
    assert (event.fault.call, event.fault.socket) == ("GetInfo", str(plugin.path))
    assert str(event.fault).startswith(f"GetInfo of the plugin at {plugin.path}, 0.")
    assert f"see what process {os.getpid()} (" in event.fault.advice


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (grpc.StatusCode.INTERNAL, "the plugin refused the call; see the log of the plugin at this time"),
        (grpc.StatusCode.UNAVAILABLE, "the plugin ended or closed its socket; see the end of its log"),
        (grpc.StatusCode.UNIMPLEMENTED, "the plugin does not serve Allocate; see which options it announces"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "exceeds the kubelet's limit of 4 MiB; send fewer or shorter device ids"),
        (grpc.StatusCode.CANCELLED, "see whether the kubelet stopped or the plugin registered again"),
        (grpc.StatusCode.UNKNOWN, "the plugin refused the call; see the log of the plugin at this time"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "did not answer; see what the plugin waits for"),
    ],
)
def test_every_kind_of_failure_says_what_to_look_at(code: grpc.StatusCode, words: str) -> None:
    assert words in advice("Allocate", "/no/such.sock", code, "its own words")


def test_bytes_that_are_no_response_are_told_from_an_internal_error_of_the_plugin() -> None:
    found = advice("Allocate", "/no/such.sock", grpc.StatusCode.INTERNAL, UNREADABLE)
    assert found == "the plugin's bytes are no valid response; see which .proto file it is built from"


def test_fault_is_one_sentence() -> None:
    fault = CallFault(GPU, "/p.sock", "Allocate", 2.04, "see its log")
    assert str(fault) == "Allocate of the plugin of a.example/gpu at /p.sock, 2.0 s: see its log"


async def test_hundred_thousand_devices_are_listed_allocated_and_forgotten(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    path = kubelet.settings.device_plugin_dir / "big.sock"
    async with PluginStub([listed(f"d{number}") for number in range(100_000)], path, GPU) as stub:
        await stub.register(kubelet.manager.socket)
        await kubelet.wait_for(GPU, healthy=100_000)
        verdict = await kubelet.admit(pod("p1", 3))
        assert verdict.devices == {"c": {GPU: ("d0", "d1", "d2")}}
        await stub.update([listed("d1")])
        await kubelet.wait_for(GPU, healthy=1)
    assert kubelet.capacity().capacity == {GPU: 1}


async def test_lies_about_ids_are_taken_for_what_they_are(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    async with _stub(kubelet, preferred=True) as stub:
        lie = api_pb2.ContainerPreferredAllocationResponse(deviceIDs=["d9", "", "d2", "d2", "d0", "d1"])
        stub.set_preferred_func(
            lambda _request, _devices: api_pb2.PreferredAllocationResponse(container_responses=[lie, lie])
        )
        first = (await kubelet.admit(pod("p1", 1))).devices["c"][GPU]
        second = (await kubelet.admit(pod("p2", 1))).devices["c"][GPU]
        assert (first, second) == (("d2",), ("d0",)), "what another pod holds is not given on a plugin's word"
        await stub.update([listed("d1"), listed("d1", "Unhealthy"), listed("d3")])
        await eventually(lambda: len(kubelet.devices(GPU)) == 2, "the new list")
        assert kubelet.allocated("p1", "c") == {GPU: {"d2": None}}, "an id that vanished stays its pod's"


class CutConnection:
    """Stands between kubelet and plugin and ends every connection after so many bytes of the plugin's."""

    def __init__(self, plugin: Path, after: int) -> None:
        self._plugin = plugin
        self._after = after

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            plugin_reader, plugin_writer = await asyncio.open_unix_connection(str(self._plugin))
        except OSError:  # The plugin is gone, and the kubelet dials once more.
            writer.transport.abort()
            return
        left = self._after

        async def up() -> None:
            while data := await reader.read(65536):
                plugin_writer.write(data)

        forwarding = asyncio.create_task(up())
        try:
            while left > 0 and (data := await plugin_reader.read(min(left, 65536))):
                left -= len(data)
                writer.write(data)
        finally:
            writer.transport.abort()
            forwarding.cancel()
            plugin_writer.transport.abort()


@pytest.mark.parametrize("after", [20, 80, 300, 5_000])
async def test_connection_that_breaks_in_mid_message_ends_the_plugin_and_nothing_else(
    node: KubeletNode, after: int
) -> None:
    # Time enough for the plugin that works, on a machine that has much else to do.
    kubelet = await node.kubelet(dial_timeout=5.0)
    stream = kubelet.events()
    hidden, shown = node.root / "hidden.sock", kubelet.settings.device_plugin_dir / "cut.sock"
    await node.plugin(devices("n", 1), resource=NIC, name="n.sock")
    await kubelet.wait_for(NIC, healthy=1)
    # Closed last: asyncio before 3.12 loses a connection accepted just before its server closes (cpython#109564).
    server = await asyncio.start_unix_server(CutConnection(hidden, after), str(shown))
    async with nothing_leaks():
        async with PluginStub([listed(f"{number:060}") for number in range(1000)], hidden, GPU):
            message = await register(kubelet.settings.device_plugin_dir, GPU, shown.name)
            event = await next_event(stream, RegistrationFailed, PluginDeregistered)
        if isinstance(event, RegistrationFailed):
            assert message.startswith(("failed to dial device plugin: ", "failed to get device plugin options: "))
        else:
            assert "the plugin ended or closed its socket; see the end of its log and its exit status" in event.reason
        assert kubelet.allocatable().get(GPU, 0) == 0
        assert kubelet.open_streams(GPU) == 0
    server.close()
    await server.wait_closed()
    assert (await kubelet.admit(pod("p1", resource=NIC))).admitted


async def test_plugin_that_registers_without_end_keeps_a_bounded_number_of_streams(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    plugin = await node.plugin(devices("d", 1))
    folder = kubelet.settings.device_plugin_dir
    for _ in range(MAX_STREAMS + 20):
        assert await register(folder, GPU, plugin.path.name) == ""
    assert kubelet.open_streams(GPU) <= MAX_STREAMS
    await eventually(lambda: plugin.streams <= MAX_STREAMS, "closed streams")
    await plugin.update(devices("d", 2))
    await kubelet.wait_for(GPU, healthy=2)


async def test_instances_that_come_and_go_leave_nothing_behind(node: KubeletNode) -> None:
    kubelet = await node.kubelet()
    folder = kubelet.settings.device_plugin_dir
    async with nothing_leaks():
        for number in range(15):
            async with PluginStub([listed("d0")], folder / f"{number}.sock", GPU) as stub:
                await stub.register(kubelet.manager.socket)
                await kubelet.wait_for(GPU, healthy=1)
            await kubelet.wait_for(GPU, healthy=0)
        await eventually(lambda: kubelet.open_streams(GPU) == 0, "the last end")


async def test_list_that_the_kubelet_fails_on_ends_its_plugin_only(
    node: KubeletNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet = await node.kubelet()
    stream = kubelet.events()
    await node.plugin(devices("n", 1), resource=NIC, name="n.sock")
    await kubelet.wait_for(NIC, healthy=1)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr("sandbox.kubelet.plugin_resources.DeviceSet.listed", fail)
    await node.plugin(devices("d", 1))
    event = await next_event(stream, PluginDeregistered)
    assert event.reason == "the kubelet failed on the plugin's list: ZeroDivisionError('a mistake')"
    assert "the kubelet failed on a list" in caplog.text
    assert kubelet.allocatable() == {NIC: 1}


async def test_callback_that_fails_harms_nobody(node: KubeletNode, caplog: pytest.LogCaptureFixture) -> None:
    kubelet = await node.kubelet()
    seen: list[object] = []

    def fail(event: KubeletEvent) -> None:
        raise ZeroDivisionError(event)

    kubelet.on_event(fail)
    kubelet.on_event(seen.append)
    await node.plugin(devices("d", 1))
    await kubelet.wait_for(GPU, healthy=1)
    assert seen
    assert "a callback for the kubelet's events failed" in caplog.text


Act = Callable[[Kubelet, Path], Awaitable[None]]


async def _cancelled_register(kubelet: Kubelet, folder: Path) -> None:
    async with background(register(folder, GPU, "nobody.sock")):
        await asyncio.sleep(0)


async def _refused_name(kubelet: Kubelet, folder: Path) -> None:
    await register(folder, "gpu", "p.sock")


async def _failing_dial(kubelet: Kubelet, folder: Path) -> None:
    await register(folder, GPU, "nobody.sock")


async def _hanging_allocate(kubelet: Kubelet, folder: Path) -> None:
    async with _stub(kubelet) as stub:
        stub.set_alloc_func(_hang)
        async with background(kubelet.admit(pod("p1"))):
            await eventually(lambda: any(call.method == "Allocate" for call in stub.calls), "the call")


async def _sudden_end(kubelet: Kubelet, folder: Path) -> None:
    async with _stub(kubelet):
        pass
    await kubelet.wait_for(GPU, healthy=0)


@pytest.mark.parametrize("act", [_cancelled_register, _refused_name, _failing_dial, _hanging_allocate, _sudden_end])
async def test_nothing_is_left_of_what_went_wrong(node: KubeletNode, act: Act) -> None:
    # The last two dial a plugin that is there, which takes as long as it takes.
    kubelet = await node.kubelet(dial_timeout=DIAL_SECONDS if act in (_hanging_allocate, _sudden_end) else 0.02)
    folder = kubelet.settings.device_plugin_dir
    await act(kubelet, folder)
    async with nothing_leaks():
        for _ in range(5):
            await act(kubelet, folder)
