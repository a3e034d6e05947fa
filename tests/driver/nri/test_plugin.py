"""The plugin and a runtime over a real socket: registration, events in order, deadlines, and coming back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from driver.nri import plugin as plugin_module
from driver.nri import service
from driver.nri.sandboxes import Sandbox, SandboxContainer
from driver.nri.sequence import SandboxSequence
from driver.nri.service import PLUGIN_SERVICE, PluginService
from driver.nri.status import NriState
from protos.nri.v1alpha1.nri_pb2 import CONTAINER_RUNNING, CONTAINER_STOPPED, ConfigureRequest, Container
from protos.ttrpc.v1.ttrpc_pb2 import Request
from sandbox.nri import Dialect, NriRuntime, SandboxFailed, pod_sandbox, serving
from tests.making.nri import NETNS, ScriptedSandboxes, pod, running
from tests.waiting import eventually


@pytest.fixture
def socket(short_dir: Path) -> Path:
    return short_dir / "nri.sock"


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is late because this machine is slow."""
    monkeypatch.setattr(service, "ANSWER_WITHIN", 60.0)


@contextmanager
def hurried() -> Iterator[None]:
    """Calls that are held are late soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "ANSWER_WITHIN", 0.05)
        yield


def runtime_at(socket: Path, **more: Any) -> NriRuntime:
    """A runtime that waits for a slow machine."""
    return NriRuntime(socket, **{"request_timeout": 120.0, "registration_timeout": 120.0, **more})


@pytest.mark.parametrize("dialect", Dialect)
async def test_a_sandbox_is_reported_from_start_to_end(socket: Path, dialect: Dialect) -> None:
    async with serving(runtime_at(socket, dialect=dialect)) as runtime, running(socket) as watched:
        status = await watched.reach(NriState.CONNECTED)
        assert (status.runtime, status.reason) == ("containerd v2.1.0", "")
        await eventually(lambda: runtime.plugins == ["10-ostler"])
        await runtime.run(pod())
        await runtime.stop_pod(pod())
        await runtime.remove(pod())
        assert watched.sandboxes.ended == ["synchronize", "run s1", "stop s1", "removed s1"]
        assert watched.sandboxes.seen["s1"] == Sandbox("s1", "uid-1", "default", "pod-1", NETNS, pid=1)


@pytest.mark.parametrize("dialect", Dialect)
async def test_a_refused_sandbox_fails_with_the_reason(socket: Path, dialect: Dialect) -> None:
    async with serving(runtime_at(socket, dialect=dialect)) as runtime, running(socket) as watched:
        await eventually(lambda: runtime.plugins)
        watched.sandboxes.refuse("run s1", "interface eth1 has no carrier")
        with pytest.raises(SandboxFailed) as failed:
            await runtime.run(pod())
        assert str(failed.value) == (
            "ostler cannot start the sandbox of pod default/pod-1: interface eth1 has no carrier"
        )
        # The runtime takes back what it could not make, and the plugin stays.
        assert watched.sandboxes.ended == ["synchronize", "stop s1", "removed s1"]
        assert not runtime.dropped


async def test_a_bug_fails_the_sandbox_too(socket: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(runtime_at(socket)) as runtime, running(socket) as watched:
        await eventually(lambda: runtime.plugins)
        watched.sandboxes.refusals["run s1"] = KeyError("eth1")
        with pytest.raises(SandboxFailed, match="sandbox of pod default/pod-1: KeyError: 'eth1'"):
            await runtime.run(pod())
    assert "a bug: work for a sandbox failed" in caplog.text


async def test_a_slow_call_is_answered_in_time_and_goes_on(socket: Path) -> None:
    async with serving(runtime_at(socket)) as runtime, running(socket) as watched:
        await eventually(lambda: runtime.plugins)
        gate = watched.sandboxes.hold("run s1")
        with hurried(), pytest.raises(SandboxFailed, match=r"pod-1: not finished after 0.05 s; ostler continues"):
            await runtime.run(pod())
        assert not runtime.dropped
        gate.set()
        await eventually(lambda: watched.sandboxes.ended == ["synchronize", "run s1", "stop s1", "removed s1"])


async def test_calls_for_one_sandbox_wait_for_each_other_and_others_do_not(socket: Path) -> None:
    async with serving(runtime_at(socket)) as runtime, running(socket) as watched:
        await eventually(lambda: runtime.plugins)
        gate = watched.sandboxes.hold("run s1")
        with hurried():
            with pytest.raises(SandboxFailed):
                await runtime.run(pod(1))
            with pytest.raises(SandboxFailed, match="cannot stop the sandbox of pod default/pod-1: not finished"):
                await runtime.stop_pod(pod(1))
        await runtime.run(pod(2))
        assert watched.sandboxes.calls == ["synchronize", "run s1", "run s2"]
        gate.set()
        await eventually(lambda: watched.sandboxes.ended[2:] == ["run s1", "stop s1", "removed s1", "stop s1"])


async def test_nothing_begins_before_the_sandboxes_are_synchronized(socket: Path) -> None:
    sandboxes = ScriptedSandboxes()
    gate = sandboxes.hold("synchronize")
    sandboxes.unconcerned.add("s2")
    async with serving(runtime_at(socket)) as runtime, running(socket, sandboxes) as watched:
        # A slow synchronization does not keep the plugin from being registered.
        with hurried():
            await watched.reach(NriState.CONNECTED)
            await eventually(lambda: runtime.plugins)
            with pytest.raises(SandboxFailed, match="not finished"):
                await runtime.run(pod(1))
        await runtime.run(pod(2))
        assert sandboxes.calls == ["synchronize"]
        gate.set()
        await eventually(lambda: sandboxes.ended == ["synchronize", "run s1", "stop s1", "removed s1"])


async def test_a_failed_synchronization_keeps_the_plugin(socket: Path, caplog: pytest.LogCaptureFixture) -> None:
    sandboxes = ScriptedSandboxes()
    sandboxes.refusals["synchronize"] = ValueError("no")
    async with serving(runtime_at(socket)) as runtime, running(socket, sandboxes):
        await eventually(lambda: runtime.plugins)
        await runtime.run(pod())
        assert sandboxes.ended == ["run s1"]
    assert "could not be synchronized" in caplog.text


async def test_all_sandboxes_are_listed_in_however_many_messages(socket: Path) -> None:
    runtime = runtime_at(socket, per_message=2)
    runtime.pods = {f"s{number}": pod(number) for number in range(5)}
    runtime.pods["host"] = pod_sandbox("host", "uid-h", "kube-system/host")
    runtime.pods["ended"] = pod_sandbox("ended", "uid-e", "default/ended", pid=0)
    runtime.containers = {
        "c1": Container(id="c1", pod_sandbox_id="s4", name="main", state=CONTAINER_RUNNING),
        "c2": Container(id="c2", pod_sandbox_id="s4", name="side", state=CONTAINER_STOPPED),
    }
    async with serving(runtime), running(socket) as watched:
        await watched.reach(NriState.CONNECTED)
    (listed,) = watched.sandboxes.listed
    assert [each.id for each in listed] == ["s0", "s1", "s2", "s3", "s4", "host", "ended"]
    assert listed[4].containers == (SandboxContainer("c1", "main", True), SandboxContainer("c2", "side", False))
    assert [each.host_network for each in listed] == [False] * 5 + [True, False]
    assert listed[5].pod == "kube-system/host"


async def test_a_large_synchronization_is_read(socket: Path) -> None:
    runtime = runtime_at(socket)
    runtime.pods = {"s1": pod()}
    runtime.containers = {"c": Container(id="c", pod_sandbox_id="s1", name="x" * (3 << 20))}
    async with serving(runtime), running(socket) as watched:
        await watched.reach(NriState.CONNECTED)
        assert len(watched.sandboxes.listed[0][0].containers[0].name) == 3 << 20


async def test_the_plugin_comes_back_after_the_runtime_and_synchronizes_again(socket: Path) -> None:
    async with running(socket) as watched:
        absent = await watched.reach(NriState.ABSENT, "does not exist")
        assert absent.reason == (
            f"{socket} does not exist: the container runtime does not run, or its NRI is switched off"
        )
        for _ in range(3):
            async with serving(runtime_at(socket)):
                await watched.reach(NriState.CONNECTED)
            await watched.reach(NriState.ABSENT)
        await watched.reach(NriState.ABSENT, f"cannot connect to {socket}: Connection refused")
    assert watched.sandboxes.calls == ["synchronize"] * 3
    states = [status.state for status in watched.published]
    assert states.count(NriState.CONNECTED) == 3
    # What is published is news: no two alike follow each other.
    assert all(one != two for one, two in zip(watched.published, watched.published[1:], strict=False))


async def test_the_time_is_that_of_the_last_change_of_the_state(socket: Path) -> None:
    async with running(socket) as watched:
        since = watched.plugin.state().since
        await watched.reach(NriState.ABSENT, "does not exist")
        assert watched.plugin.state().since == since
        async with serving(runtime_at(socket)):
            assert (await watched.reach(NriState.CONNECTED)).since > since


async def test_a_folder_that_does_not_exist_yet_is_found_later(short_dir: Path) -> None:
    socket = short_dir / "nri" / "nri.sock"
    async with running(socket) as watched:
        await watched.reach(NriState.ABSENT, "does not exist")
        socket.parent.mkdir()
        async with serving(runtime_at(socket)):
            await watched.reach(NriState.CONNECTED)


async def test_a_refused_registration_is_told_with_the_runtimes_words(socket: Path) -> None:
    async with running(socket) as watched:
        async with serving(runtime_at(socket, refusal="plugin ostler is there already")):
            status = await watched.reach(NriState.REFUSED)
            assert status.reason == (
                "the container runtime refuses the plugin 10-ostler: plugin ostler is there already"
            )
        async with serving(runtime_at(socket)):
            await watched.reach(NriState.CONNECTED)


async def test_a_dropped_plugin_comes_back(socket: Path) -> None:
    async with serving(runtime_at(socket)) as runtime, running(socket) as watched:
        await eventually(lambda: runtime.plugins)
        runtime.drop("10-ostler")
        await eventually(lambda: runtime.plugins == ["10-ostler"] and len(watched.sandboxes.listed) == 2)


async def test_a_sandbox_that_is_of_no_concern_is_not_asked_about(socket: Path) -> None:
    async with serving(runtime_at(socket)) as runtime, running(socket) as watched:
        await eventually(lambda: runtime.plugins)
        watched.sandboxes.unconcerned.add("s1")
        await runtime.run(pod())
        assert watched.sandboxes.calls == ["synchronize"]


async def test_fifty_sandboxes_at_once(socket: Path) -> None:
    async with serving(runtime_at(socket)) as runtime, running(socket) as watched:
        await eventually(lambda: runtime.plugins)
        await asyncio.gather(*(runtime.run(pod(number)) for number in range(50)))
        assert sorted(watched.sandboxes.ended[1:]) == sorted(f"run s{number}" for number in range(50))


async def test_the_end_of_the_plugin_cancels_what_it_began(socket: Path) -> None:
    async with serving(runtime_at(socket)) as runtime:
        async with running(socket) as watched:
            await eventually(lambda: runtime.plugins)
            watched.sandboxes.hold("run s1")
            reporting = asyncio.create_task(runtime.run(pod()))
            await eventually(lambda: "run s1" in watched.sandboxes.calls)
        # The runtime goes on without a plugin that is gone: it fails open.
        await reporting
        assert runtime.dropped == ["10-ostler"]
    assert watched.sandboxes.ended == ["synchronize"]


async def test_a_handshake_that_does_not_end_is_given_up(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_module, "HANDSHAKE", 0.05)
    async with scripted(socket, []), running(socket) as watched:
        await watched.reach(NriState.ABSENT, "the container runtime did not finish the registration within 0.05 s")


NOISE = {
    "noise": (b"GET / HTTP/1.1\r\n\r\n", "it announced a frame of 790644820 bytes; the limit is 4194314"),
    "large": (pack(">IIIIBB", 1, 10, 5 << 20, 1, 1, 0), "it announced a message of 5242880 bytes"),
    "type": (pack(">IIIIBB", 1, 10, 0, 1, 200, 0), "it sent a message of the unknown type 200"),
    "half": (b"\0\0\0\1\0\0\0\5ab", "it ended the connection in the middle of a frame"),
    "request": (pack(">IIIIBB", 1, 11, 1, 1, 1, 0) + b"\xff", "it sent a request that is not a ttRPC request"),
    "response": (pack(">IIIIBB", 2, 11, 1, 1, 2, 0) + b"\xff", "it sent a response that is not a ttRPC response"),
    "data": (pack(">IIIIBB", 1, 10, 0, 1, 3, 0), "it sent something else where only requests are allowed"),
    "asks": (pack(">IIIIBB", 2, 10, 0, 1, 1, 0), "it sent a request where only responses are allowed"),
}


@pytest.mark.parametrize(("content", "told"), NOISE.values(), ids=NOISE)
async def test_noise_ends_the_connection_with_one_line_and_the_next_one_works(
    socket: Path, content: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ostler.nri")
    connections: list[bytes] = []
    async with running(socket) as watched:
        async with scripted(socket, connections, content):
            await watched.reach(NriState.ABSENT, f"the connection to the container runtime is broken: {told}")
            await eventually(lambda: len(connections) > 2)
        assert sum(told in str(vars(record).get("reason")) for record in caplog.records) == 1
        async with serving(runtime_at(socket)) as runtime:
            await eventually(lambda: runtime.plugins)


async def test_a_connection_that_ends_during_the_registration_counts_as_refused(socket: Path) -> None:
    async with scripted(socket, [], b""), running(socket) as watched:
        await watched.reach(
            NriState.REFUSED,
            "the container runtime ended the connection while it registered the plugin 10-ostler; its log says why",
        )


@asynccontextmanager
async def scripted(socket: Path, connections: list[bytes], content: bytes | None = None) -> AsyncIterator[None]:
    """A peer that reads once, writes ``content`` and ends the connection; with None it is silent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(await reader.read(1 << 16))
        if content is None:
            await reader.read()
        else:
            writer.write(content)
        writer.close()

    socket.unlink(missing_ok=True)
    async with await asyncio.start_unix_server(answer, socket):
        yield


@pytest.mark.parametrize(
    ("waits", "configured", "within"),
    [(2.0, 2.0, 1.5), (1.0, 2.0, 0.75), (0, 1.0, 0.75), (0, 0, 1.5), (60.0, 60.0, 1.5)],
)
async def test_answers_come_before_the_runtime_gives_up(
    waits: float, configured: float, within: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "ANSWER_WITHIN", 1.5)
    limits: list[float] = []

    class Recorded(SandboxSequence):
        async def run(self, sandbox: Sandbox, within: float) -> None:
            limits.append(within)

    served = PluginService(Recorded(ScriptedSandboxes()), lambda _: None)
    payload = ConfigureRequest(request_timeout=int(configured * 1000)).SerializeToString()
    await served.serve(Request(service=PLUGIN_SERVICE, method="Configure", payload=payload))
    await served.serve(Request(service=PLUGIN_SERVICE, method="RunPodSandbox", timeout_nano=int(waits * 1e9)))
    assert limits == [within]
