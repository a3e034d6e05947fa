"""Network namespaces for a node in a box and its pods, with veth pairs in the place of NICs' interfaces.

Real ones of the kernel, so what moves an interface into a pod is the agent's own code for that. The network of the
machine is not touched: the agent runs in a namespace of its own, each pod has one, and the other ends of the pairs are
in a third one, which stands for the switch. They are held by descriptors and end with this process, however it ends,
but for those that a killed agent has pinned by a mount (``release_pins``). Making them needs root's rights; without
these there is no such network, and ``NotAllowed`` says why.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from node.interfaces.addressing import add_address, addresses
from node.interfaces.links import LINK, NEWLINK, change_link, link_named, links
from node.interfaces.namespace import NetworkNamespace
from node.interfaces.pins import NamespacePins
from node.netlink import CREATE, EXCLUSIVE, NetlinkError, NetlinkSocket, attribute
from sandbox.kubelet.pods import Pod
from sandbox.nri import NriRuntime, SandboxFailed, pod_sandbox

T = TypeVar("T")

NODE, SWITCH = "node", "switch"
GATEWAY, POD_ADDRESS = "10.77.0.1/24", "10.77.0.2/24"
"""Addresses of the tour: at the switch's end of a pair, and of the interface in the pod."""
PATIENCE = 5.0
"""Seconds for a datagram to come back."""
_CLONE_NEWNET = 0x40000000
_NAME, _NETNS_FD, _LINK_INFO, _KIND, _DATA, _PEER = 3, 28, 18, 1, 2, 1
"""IFLA_IFNAME, IFLA_NET_NS_FD, IFLA_LINKINFO and what is nested in it for a pair."""


def release_pins(root: Path) -> None:
    """Let the network namespaces end that the agent of the node in this folder keeps alive by mounts; it has ended."""
    NamespacePins(root / "state" / "interfaces" / "namespaces").keep_only(())


class NotAllowed(Exception):
    """This process may not make network namespaces or veth pairs; the text says what the kernel said."""


class BoxedNamespace:
    """A namespace of this sandbox's own; ``path`` names it to every process of the same user."""

    def __init__(self) -> None:
        made: list[int] = []
        problem: list[str] = []

        def make() -> None:
            # In a thread that ends: nothing else may run in there by chance.
            if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
                problem.append(os.strerror(ctypes.get_errno()))
            else:
                made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if problem:
            raise NotAllowed(f"network namespaces cannot be made here: {problem[0]}; run the sandbox as root")
        (self._descriptor,) = made
        self.path = Path(f"/proc/{os.getpid()}/fd/{self._descriptor}")
        self.namespace = NetworkNamespace(self.path)
        with self.namespace.netlink() as netlink:
            change_link(netlink, _index(netlink, "lo"), up=True)

    def close(self) -> None:
        """Let it go, with the interfaces in it."""
        self.namespace.close()
        os.close(self._descriptor)

    def run(self, function: Callable[[], T]) -> T:
        """What the function returns, called inside."""
        return self.namespace.run(function)

    def interfaces(self) -> dict[str, list[str]]:
        """The interfaces inside, without loopback, each with its addresses."""
        with self.namespace.netlink() as netlink:
            found = {link.index: link.name for link in links(netlink) if link.name != "lo"}
            own = [each for each in addresses(netlink) if each.index in found]
        return {name: [each.address for each in own if each.index == index] for index, name in sorted(found.items())}


class SandboxNetwork:
    """The namespaces of the node and of the switch, and those of pods; raises ``NotAllowed``."""

    def __init__(self) -> None:
        self.node = BoxedNamespace()
        try:
            self.switch = BoxedNamespace()
            self.wire("probe")
        except NotAllowed:
            self.node.close()
            raise
        self.pods: dict[str, BoxedNamespace] = {}
        """By ``NAMESPACE/NAME``."""

    def close(self) -> None:
        """End all of it."""
        for each in (self.node, self.switch, *self.pods.values()):
            each.close()
        self.pods.clear()

    def wire(self, interface: str) -> None:
        """Give the node an interface of this name, unless it has one; the pair's other end is at the switch."""
        if interface in self.switch.interfaces():
            return
        peer = LINK.pack(0, 0, 0, 0, 0) + _named(interface)
        peer += attribute(_NETNS_FD, self.switch.namespace.fileno().to_bytes(4, sys.byteorder))
        info = attribute(_KIND, b"veth") + attribute(_DATA, attribute(_PEER, peer))
        body = LINK.pack(0, 0, 0, 0, 0) + _named(interface) + attribute(_LINK_INFO, info)
        try:
            with self.node.namespace.netlink() as netlink:
                netlink.request(NEWLINK, body, f"making the pair {interface}", flags=CREATE | EXCLUSIVE)
            for side in (self.node, self.switch):
                with side.namespace.netlink() as netlink:
                    change_link(netlink, _index(netlink, interface), up=True)
        except NetlinkError as error:
            raise NotAllowed(f"veth pairs cannot be made here: {error}") from error

    def address_switch(self, interface: str, address: str = GATEWAY) -> None:
        """Give the switch's end of a pair an address."""
        with self.switch.namespace.netlink() as netlink:
            add_address(netlink, _index(netlink, interface), address)

    def echo(self, pod: str, address: str = GATEWAY) -> str:
        """Send a datagram from the pod to an address of the switch and back; how it went, in words."""
        host = address.partition("/")[0]
        with self.switch.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as there:
            there.bind((host, 0))
            there.settimeout(PATIENCE)
            with self.pods[pod].run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as here:
                here.settimeout(PATIENCE)
                try:
                    here.sendto(b"here", there.getsockname())
                    content, source = there.recvfrom(16)
                    there.sendto(content, source)
                    here.recv(16)
                except OSError as error:
                    return f"nothing came back from {host}: {error.strerror or error}"
        return f"a datagram from {source[0]} came back from {host}"

    def view(self) -> dict[str, dict[str, list[str]]]:
        """Every namespace with its interfaces and their addresses."""
        named = {NODE: self.node, SWITCH: self.switch, **{f"pod {name}": pod for name, pod in self.pods.items()}}
        return {name: _without_probe(each.interfaces()) for name, each in named.items()}


def _without_probe(interfaces: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in interfaces.items() if name != "probe"}


def _named(interface: str) -> bytes:
    return attribute(_NAME, interface.encode() + b"\0")


def _index(netlink: NetlinkSocket, name: str) -> int:
    link = link_named(netlink, name)
    assert link is not None, f"the interface {name} was just made"
    return link.index


class PodNetworks:
    """The runtime's part: a namespace for every pod, reported by NRI before its containers start."""

    def __init__(self, network: SandboxNetwork, runtime: NriRuntime) -> None:
        self.network = network
        self.runtime = runtime

    async def start(self, pod: Pod) -> None:
        """Make the pod's sandbox unless it is there; raises ``SandboxFailed``."""
        name = f"{pod.namespace}/{pod.name}"
        if name in self.network.pods:
            return
        self.network.pods[name] = made = BoxedNamespace()
        try:
            await self.runtime.run(pod_sandbox(f"sandbox-{pod.uid}", pod.uid, name, str(made.path)))
        except SandboxFailed:
            self.network.pods.pop(name).close()
            raise

    async def end(self, pod: Pod) -> None:
        """Stop and remove the pod's sandbox."""
        name = f"{pod.namespace}/{pod.name}"
        namespace = self.network.pods.get(name)
        if namespace is None:
            return
        sandbox = pod_sandbox(f"sandbox-{pod.uid}", pod.uid, name, str(namespace.path))
        with suppress(SandboxFailed):  # The runtime removes it anyway.
            await self.runtime.stop_pod(sandbox)
        self.network.pods.pop(name).close()
        with suppress(SandboxFailed):
            await self.runtime.remove(sandbox)


class PortRelay:
    """Makes a port of this machine's loopback reachable at the same port of a namespace's."""

    def __init__(self, namespace: BoxedNamespace, port: int) -> None:
        self._listening = namespace.run(lambda: socket.create_server(("127.0.0.1", port)))
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Relay from now on."""
        self._server = await asyncio.start_server(self._accept, sock=self._listening)

    async def stop(self) -> None:
        """End every connection."""
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.close()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        ends = {writer}
        self._open.add(writer)
        try:
            answers, beyond = await asyncio.open_connection("127.0.0.1", self._port)
            ends.add(beyond)
            self._open.add(beyond)
            await asyncio.gather(_copy(reader, beyond), _copy(answers, writer))
        except OSError:
            pass  # The agent meets a connection that ends, as from a server that is gone.
        finally:
            self._open -= ends
            for each in ends:
                each.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    with suppress(OSError, RuntimeError):
        target.write_eof()
