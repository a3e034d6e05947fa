"""A pod's interface from the runtime's call to the kernel: real sockets, real namespaces, and a veth pair for a NIC."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from driver.interfaces.moving import InterfaceStep
from driver.nri import service
from driver.nri.plugin import NriPlugin
from node.clocks import SYSTEM
from node.events import EventBus
from node.interfaces.kernel import KernelMover
from node.interfaces.model import AttachedInterface, HostSetup, MovableInterface
from sandbox.nri import NriRuntime, SandboxFailed, pod_sandbox, serving
from tests.making.claim_service import Killed, reference
from tests.making.moved_interfaces import NIC1, NIC2, InterfaceNode
from tests.making.network_namespaces import TestNamespace, namespaces
from tests.waiting import background, eventually


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes wait for their interfaces, however long this machine needs to move them."""
    monkeypatch.setattr(service, "ANSWER_WITHIN", 120.0)


class MoverInside:
    """``KernelMover`` as an agent in the namespace ``host`` has it."""

    def __init__(self, host: TestNamespace) -> None:
        self._host = host
        self._mover = KernelMover()

    def look(self, interface: MovableInterface) -> HostSetup:
        return self._host.run(lambda: self._mover.look(interface))

    def attach(self, interface: MovableInterface, setup: HostSetup, netns: Path) -> AttachedInterface:
        return self._host.run(lambda: self._mover.attach(interface, setup, netns))

    def detach(self, interface: MovableInterface, setup: HostSetup, netns: Path | None) -> str:
        return self._host.run(lambda: self._mover.detach(interface, setup, netns))

    def is_gone(self, interface: MovableInterface, setup: HostSetup) -> bool:
        return self._host.run(lambda: self._mover.is_gone(interface, setup))

    def marked(self, devices: Collection[str], netns: Path | None = None) -> Mapping[str, str]:
        return self._host.run(lambda: self._mover.marked(devices, netns))


class KernelNode(InterfaceNode):
    """A node whose NICs ``eth1`` and ``eth2`` are ends of veth pairs, with addresses of their own."""

    def __init__(self, root: Path, host: TestNamespace, pod: TestNamespace) -> None:
        super().__init__(root)
        self.host, self.pod = host, pod
        self.mover = MoverInside(host)  # type: ignore[assignment]  # the same calls, another namespace
        for number in (1, 2):
            host.ip(
                f"link add eth{number} type veth peer name far{number}",
                f"link set far{number} up",
                f"addr add 10.0.{number}.1/24 dev eth{number}",
                f"link set eth{number} up",
            )
        self.before = self.links(host)

    def links(self, namespace: TestNamespace) -> dict[str, tuple[str, int, list[str]]]:
        """By name of an interface: hardware address, MTU, addresses; without those of the other ends."""
        found = {}
        for each in namespace.shows("addr"):
            addresses = [f"{one['local']}/{one['prefixlen']}" for one in each["addr_info"] if one["family"] == "inet"]
            if each["ifname"].startswith("eth"):
                found[each["ifname"]] = each["address"], each["mtu"], addresses
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[KernelNode]:
    with namespaces(2) as (host, pod):
        yield KernelNode(tmp_path, host, pod)


async def test_a_pod_of_a_real_runtime_gets_its_interfaces_and_the_node_has_them_back(place: KernelNode) -> None:
    place.put(1, NIC1, NIC2)
    service = await place.agent()
    await service.prepare(reference())
    socket = place.node.root / "nri.sock"
    plugin = NriPlugin(socket, place.interfaces, bus=EventBus(), clocks=SYSTEM)
    pod = pod_sandbox("sandbox-1", "pod-1", "default/pod-1", str(place.pod.path))
    async with (
        serving(NriRuntime(socket, request_timeout=120.0, registration_timeout=120.0)) as runtime,
        background(plugin.run()),
    ):
        await eventually(lambda: runtime.plugins)
        await runtime.run(pod)
        assert place.links(place.pod) == place.before
        assert place.links(place.host) == {}
        names = [each["name"] for each in json.loads(place.guard().read_text())["interfaces"]]
        assert names == ["eth1", "eth2"]
        await runtime.stop_pod(pod)
        assert place.links(place.host) == place.before
        assert not place.guard().exists()
        await service.unprepare(reference())


async def test_the_runtime_fails_a_sandbox_whose_interface_cannot_move(place: KernelNode) -> None:
    place.put(1, NIC1, NIC2)
    place.pod.ip("link add eth2 type veth peer name taken")
    service = await place.agent()
    await service.prepare(reference())
    socket = place.node.root / "nri.sock"
    plugin = NriPlugin(socket, place.interfaces, bus=EventBus(), clocks=SYSTEM)
    async with (
        serving(NriRuntime(socket, request_timeout=120.0, registration_timeout=120.0)) as runtime,
        background(plugin.run()),
    ):
        await eventually(lambda: runtime.plugins)
        with pytest.raises(SandboxFailed, match=f"claim default/claim-1: interface eth2 of device {NIC2}: .*eth2"):
            await runtime.run(pod_sandbox("sandbox-1", "pod-1", "default/pod-1", str(place.pod.path)))
    await place.interfaces.close()
    assert place.links(place.host) == place.before


async def test_killed_at_random_steps_and_then_nothing_is_lost(place: KernelNode) -> None:
    """Rounds of one seed; each ends the agent once, at a random step of the way in and back."""
    chance = random.Random(25)
    ways = list(itertools.product(InterfaceStep, (1, 2)))
    sandbox = place.sandbox()
    sandbox = type(sandbox)(sandbox.id, sandbox.uid, "default", "pod-1", str(place.pod.path))
    place.put(1, NIC1, NIC2)
    for _ in range(8):
        service = await place.agent(steps=_DieAt(*chance.choice(ways)))
        await service.prepare(reference())
        try:
            await place.interfaces.run(sandbox)
            await place.interfaces.stop(sandbox)
        except Killed:
            pass
        service = await place.agent()
        is_alive = chance.random() < 0.5
        await place.interfaces.synchronize([sandbox] if is_alive else [])
        held = place.pod if is_alive else place.host
        assert place.links(held) == place.before
        assert place.guard().exists() is is_alive
        await service.unprepare(reference())
        assert place.links(place.host) == place.before
        assert place.journal == []


class _DieAt:
    def __init__(self, step: InterfaceStep, times: int) -> None:
        self.step, self.left = step, times

    def reached(self, step: InterfaceStep, uid: str) -> None:
        self.left -= step is self.step
        if step is self.step and self.left == 0:
            raise Killed(step)


async def test_two_agents_one_after_the_other_agree(place: KernelNode) -> None:
    """A standby takes over while the pod runs: the runtime lists the sandbox to it, and it takes the interface back."""
    place.put(1, NIC1)
    service = await place.agent()
    await service.prepare(reference())
    sandbox = place.sandbox()
    sandbox = type(sandbox)(sandbox.id, sandbox.uid, "default", "pod-1", str(place.pod.path))
    await place.interfaces.run(sandbox)
    await service.close()
    service = await place.agent()
    await place.interfaces.synchronize([sandbox])
    assert list(place.links(place.pod)) == ["eth1"]
    await asyncio.gather(place.interfaces.stop(sandbox), service.unprepare(reference()))
    assert place.links(place.host) == place.before
