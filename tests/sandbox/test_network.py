"""Real network namespaces in the sandbox: a NIC's interface moves into a pod, the agent dies, and it comes back."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.interfaces.pins import NamespacePins
from sandbox import claimtour
from sandbox.claimprompt import ClaimCommands
from sandbox.cluster import samples
from sandbox.cluster.cluster import SandboxCluster
from sandbox.cluster.samples import DRIVER
from sandbox.configuration import configuration, with_moved_interface
from sandbox.network import BoxedNamespace, NotAllowed, PortRelay, SandboxNetwork
from sandbox.node import SandboxNode
from sandbox.nodes import recording
from tests.waiting import eventually

NAME, INTERFACE = "nic-0000-aa-00-1", "enp170s0f1np1"
TEXT = configuration(mig=False, both=True)


@pytest.fixture
def network() -> Iterator[SandboxNetwork]:
    made = SandboxNetwork()
    yield made
    made.close()


@pytest.mark.needs_root
def test_a_pair_joins_the_node_and_the_switch(network: SandboxNetwork) -> None:
    network.wire("eth7")
    network.wire("eth7")
    network.address_switch("eth7")
    assert network.view() == {"node": {"eth7": []}, "switch": {"eth7": ["10.77.0.1/24"]}}


@pytest.mark.needs_root
def test_traffic_that_does_not_come_back_is_told(network: SandboxNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    network.wire("eth7")
    network.address_switch("eth7")
    network.pods["default/lost"] = BoxedNamespace()
    assert network.echo("default/lost") == "nothing came back from 10.77.0.1: Network is unreachable"


async def test_who_may_make_no_namespace_is_told_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing:
        def unshare(self, _: int) -> int:
            ctypes.set_errno(errno.EPERM)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Refusing())
    with pytest.raises(NotAllowed) as refused:
        SandboxNetwork()
    assert str(refused.value) == (
        "network namespaces cannot be made here: Operation not permitted; run the sandbox as root"
    )
    node = SandboxNode(recording("l4-2"), configuration=TEXT, cluster=True, network=True)
    assert node.network is None
    assert node.unconnected == str(refused.value)
    assert node.server is not None
    node.server.stop()
    await ClaimCommands(node).commands["move"](())
    assert capsys.readouterr().out == f"   {refused.value}\n"


@pytest.mark.needs_root
async def test_a_port_outside_is_reached_from_inside() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    inside = BoxedNamespace()
    relay = PortRelay(inside, port)
    await relay.start()

    def ask() -> bytes:
        import socket

        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(b"loud")
            client.shutdown(socket.SHUT_WR)
            return client.recv(16)

    assert await asyncio.to_thread(inside.run, ask) == b"LOUD"
    await relay.stop()
    server.close()
    inside.close()


# Above a second: it starts the agent twice, as a process in a network namespace of its own.
@pytest.mark.needs_root
async def test_an_interface_moves_into_a_pod_and_comes_back_also_after_the_agent_was_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(claimtour, "SECONDS", 120.0)
    node = SandboxNode(recording("h100-sxm-8"), configuration=TEXT, reconcile_interval=0.05, cluster=True, network=True)
    async with node:
        await node.registered()
        assert node.cluster is not None
        assert node.network is not None
        await _check_command(node, capsys)
        await _check_kill(node, node.cluster, node.network)


async def _check_command(node: SandboxNode, capsys: pytest.CaptureFixture[str]) -> None:
    """The prompt's command."""
    capsys.readouterr()
    await ClaimCommands(node).commands["move"](())
    lines = capsys.readouterr().out.splitlines()
    title = f"== A pod got the interface {INTERFACE} of {NAME} as net1, in real network namespaces"
    assert lines[:2] == [title, f"   moved-1: Running: {NAME}"]
    assert lines[2:] == [
        "   node: no interface",
        f"   switch: {INTERFACE} 10.77.0.1/24",
        "   pod default/moved-1: net1 10.77.0.2/24",
        "   a datagram from 10.77.0.2 came back from 10.77.0.1; the claim's status: net1 10.77.0.2/24",
        f"   after the pod, node: {INTERFACE}",
    ]


async def _check_kill(node: SandboxNode, cluster: SandboxCluster, network: SandboxNetwork) -> None:
    """The agent dies while the interface is in the pod; the next one takes it back when the pod ends."""
    await node.change_configuration(with_moved_interface(node.configuration or "", NAME, "example.com/moved"))
    await eventually(lambda: _is_published(cluster), "the NIC is published under its new name")
    choosing = f"device.attributes['{DRIVER}'].resource == 'example.com/moved'"
    await cluster.apply([samples.template("moved", kind="nic", choosing=choosing)])
    outcome = await claimtour.run_until_running(cluster, samples.pod("one", "moved"))
    assert outcome.running, outcome.message
    assert network.view()["pod default/one"] == {INTERFACE: []}
    await node.restart_agent()
    await node.registered()
    await eventually(lambda: node.runtime.plugins == ["10-ostler"], "the new agent is registered with the runtime")
    assert network.view()["pod default/one"] == {INTERFACE: []}
    await cluster.end("one")
    assert network.view()["node"] == {INTERFACE: []}


async def _is_published(cluster: SandboxCluster) -> bool:
    slices = await cluster.slices(DRIVER)
    devices = (each for one in slices for each in one["spec"].get("devices") or () if not each.get("taints"))
    return any(each["attributes"]["resource"]["string"] == "example.com/moved" for each in devices)


PROGRAM = """
import sys, time
from pathlib import Path
from node.interfaces.pins import NamespacePins
from sandbox.network import BoxedNamespace
from sandbox.node import SandboxNode
node = SandboxNode(None, network=True)
NamespacePins(node.root / "state" / "interfaces" / "namespaces").pin("uid-1", BoxedNamespace().path)
print(node.root, flush=True)
time.sleep(600)
"""


@pytest.mark.needs_root
def test_namespaces_that_a_killed_sandbox_had_pinned_end_with_the_next_one() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        try:
            root = Path(killed.stdout.readline().strip())
            pins = NamespacePins(root / "state/interfaces/namespaces")
            assert pins.path("uid-1")
            remove(SandboxNode(None, network=True))
            assert pins.path("uid-1"), "its sandbox lives"
        finally:
            killed.kill()
    remove(SandboxNode(None, network=True))
    assert pins.path("uid-1") is None
    assert root.exists(), "its log may be wanted"
    shutil.rmtree(root)


def remove(node: SandboxNode) -> None:
    """A node that was never started."""
    shutil.rmtree(node.root)
