"""The links of interfaces in pods are followed in real namespaces, without keeping a namespace alive."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from node.events import EventBus
from node.health.kernel.links import LiveLink
from node.health.signal import Condition, Look, Trouble
from node.interfaces import watch as watch_module
from node.interfaces.watch import PodLinkWatch
from node.inventory.live.hardware import LiveHardware
from node.inventory.live.udev import EventState, Reach
from node.inventory.source import ScanWanted
from node.netlink import NetlinkError, NetlinkSocket
from node.values import replace
from tests.making.events import heard
from tests.making.kernel_devices import CARING, nic, snapshot
from tests.making.network_namespaces import TestNamespace
from tests.node.interfaces.conftest import DEVICE, PodsNode
from tests.node.live.streams import FakeStream
from tests.waiting import background, eventually

pytestmark = pytest.mark.needs_root

UP, CUT = LiveLink(up=True, carrier=True, name="rail0"), LiveLink(up=True, carrier=False, name="rail0")


class _Links:
    """A ``PodLinkListener`` that keeps the last link of each device."""

    def __init__(self) -> None:
        self.links: dict[str, LiveLink | None] = {}

    def pod_link(self, device: str, link: LiveLink | None) -> None:
        self.links[device] = link

    async def show(self, link: LiveLink | None, device: str = DEVICE) -> None:
        await eventually(lambda: device in self.links and self.links[device] == link)


def follow(node: PodsNode, scenario: Callable[[PodLinkWatch, _Links], Awaitable[None]], most: int = 4096) -> None:
    """Run the scenario in the node's namespace beside a watch that runs."""

    async def run() -> None:
        links = _Links()
        watch = PodLinkWatch(links, most=most, pause=0.05)
        task = asyncio.get_running_loop().create_task(watch.run())
        try:
            await scenario(watch, links)
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled()
        assert not [link for link in links.links.values() if link is not None]

    node.host.run(lambda: asyncio.run(run()))


def moved(node: PodsNode) -> Mapping[str, Path]:
    node.attach(node.interface(name="rail0", addresses=()))
    return {DEVICE: node.pod.path}


def test_a_cable_that_is_pulled_while_a_pod_has_the_nic_is_seen(node: PodsNode) -> None:
    places = moved(node)

    async def scenario(watch: PodLinkWatch, links: _Links) -> None:
        watch.follow(places)
        await links.show(UP)
        node.host.ip("link set v1 down")
        await links.show(CUT)
        node.host.ip("link set v1 up")
        await links.show(UP)
        node.pod.ip("link set rail0 down")
        await links.show(LiveLink(up=False, carrier=False, name="rail0"))

    follow(node, scenario)


def test_one_that_goes_back_is_followed_no_more(node: PodsNode) -> None:
    interface = node.interface(name="rail0", addresses=())
    setup = node.look(interface)
    node.attach(interface, setup)
    next_pod = TestNamespace()

    async def scenario(watch: PodLinkWatch, links: _Links) -> None:
        watch.follow({DEVICE: node.pod.path})
        await links.show(UP)
        assert node.detach(interface, setup)
        await links.show(None)
        # The next pod that gets it, and the first one again.
        for pod in (next_pod, node.pod):
            node.attach(interface, setup, pod)
            watch.follow({DEVICE: pod.path})
            await links.show(UP)
            assert node.detach(interface, setup, pod)
            await links.show(None)
        node.attach(interface, setup)
        watch.follow({DEVICE: node.pod.path})
        await links.show(UP)
        watch.follow({})
        await links.show(None)

    follow(node, scenario)
    next_pod.close()


def test_the_namespace_is_not_kept_alive(node: PodsNode) -> None:
    places = moved(node)

    async def scenario(watch: PodLinkWatch, links: _Links) -> None:
        watch.follow(places)
        await links.show(UP)
        node.pod.close()
        # The kernel destroys veth links with their namespace.
        await links.show(None)
        await eventually(lambda: "v1" not in node.host.names())

    follow(node, scenario)


def test_one_that_is_added_beside_another_is_found_and_one_without_namespace_left_out(node: PodsNode) -> None:
    places = moved(node)

    async def scenario(watch: PodLinkWatch, links: _Links) -> None:
        watch.follow({"nic-9": Path("/proc/self/fd/none")})
        watch.follow({"nic-9": Path("/proc/self/fd/none"), **places})
        await links.show(UP)
        node.attach(replace(node.interface(name="rail1", addresses=()), interface="v1", device="nic-2"))
        watch.follow({**places, "nic-2": node.pod.path})
        await links.show(LiveLink(up=True, carrier=True, name="rail1"), "nic-2")
        assert "nic-9" not in links.links

    follow(node, scenario)


def test_after_lost_messages_everything_is_read_again(node: PodsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    places = moved(node)
    cut: list[bool] = []
    overflows = [OSError(errno.ENOBUFS, "No buffer space available")]

    def lossy(netlink: NetlinkSocket) -> list[tuple[int | None, int, bytes]]:
        found = received(netlink)
        if cut and overflows:
            raise overflows.pop()
        return found

    received = NetlinkSocket.numbered_notifications
    monkeypatch.setattr(NetlinkSocket, "numbered_notifications", lossy)

    async def scenario(watch: PodLinkWatch, links: _Links) -> None:
        watch.follow(places)
        await links.show(UP)
        cut.append(True)
        node.host.ip("link set v1 down")
        await links.show(CUT)
        assert not overflows

    follow(node, scenario)


def test_a_pod_that_floods_the_socket_is_read_now_and_then(node: PodsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    places = moved(node)
    listened: list[NetlinkSocket] = []

    def listening() -> NetlinkSocket:
        listened.append(opened())
        return listened[-1]

    opened = watch_module._listening
    monkeypatch.setattr(watch_module, "_listening", listening)

    async def scenario(watch: PodLinkWatch, links: _Links) -> None:
        watch.follow(places)
        await links.show(UP)
        node.pod.ip("link set rail0 down")
        await links.show(LiveLink(up=False, carrier=False, name="rail0"))
        await eventually(lambda: len(listened) > 1)

    # One message is a flood here: how many arrive in a pause depends on the machine.
    follow(node, scenario, most=0)


def test_without_the_capability_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(socket.socket):
        def setsockopt(self, level: int, option: int, setting: int) -> None:  # type: ignore[override]
            if (level, option) == (270, 8):
                raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("node.netlink.socket.socket", Refusing)
    watch = PodLinkWatch(_Links())

    async def run() -> None:
        watch.follow({DEVICE: Path("/proc/self/ns/net")})
        await watch.run()

    with pytest.raises(NetlinkError, match="the agent needs the capability NET_BROADCAST"):
        asyncio.run(run())


@pytest.mark.parametrize("early", [True, False])
def test_a_link_that_is_down_in_its_pod_makes_the_device_ill(node: PodsNode, tmp_path: Path, early: bool) -> None:
    device = replace(nic(inPod=True), name=DEVICE)
    places = moved(node)

    async def run() -> None:
        bus = EventBus()
        looks, scans = heard(bus, Look), heard(bus, ScanWanted)
        hardware = LiveHardware(
            bus,
            sys=tmp_path,
            proc=tmp_path,
            dev_root=tmp_path,
            sweeps=False,
            reach=lambda: Reach(EventState.UDEV),
            open_stream=FakeStream().open,
        )
        hardware.observe(snapshot(device), CARING)
        if early:
            hardware.follow(places)
        async with background(hardware.run()):
            await eventually(lambda: scans)
            hardware.follow(places)
            node.host.ip("link set v1 down")
            ill = {DEVICE: (Condition(Trouble.CARRIER, "rail0 in its pod has no carrier"),)}
            await eventually(lambda: looks and looks[-1].found == ill)
            hardware.follow({})
            # What is not followed is not known to be ill.
            await eventually(lambda: looks[-1].found == {DEVICE: ()})

    node.host.run(lambda: asyncio.run(run()))
