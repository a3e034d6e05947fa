"""The process is killed between kernel calls that move an interface; the next one finishes, and nothing is lost.

Each call happens in a child that ends without a word right before one of its kernel calls. A process of its own forks
these children: pytest has threads.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from node.interfaces.kernel import KernelMover
from node.interfaces.links import links
from node.interfaces.model import HostSetup, InterfaceSettings, MovableInterface, Neighbor, Route, RoutingRule
from node.interfaces.namespace import NetworkNamespace
from node.values import replace
from tests.making.network_namespaces import TestNamespace, missing
from tests.node.interfaces.conftest import PodsNode

pytestmark = pytest.mark.needs_root

DEVICE = "nic-0000-86-00-0"
WANTED = InterfaceSettings(
    name="rail0",
    addresses=("192.168.1.5/24", "fd00:1::5/64"),
    routes=(Route("10.5.0.0/16", gateway="192.168.1.1"), Route("172.16.0.0/12", scope="link", table=300)),
    rules=(RoutingRule(300, source="192.168.1.0/24", priority=500),),
    neighbors=(Neighbor("192.168.1.1", "02:00:00:00:00:01"),),
    mtu=9000,
    hardware_address="02:00:00:00:00:77",
    features=(("tso", False),),
    sysctls=(("ipv4/arp_announce", "2"),),
    keep_ebpf=False,
)
INTERFACE = MovableInterface(DEVICE, "v0", WANTED)
KILLED = 9
ROUNDS, HOSTILE_ROUNDS = 200, 25


class Children:
    """Calls of the mover in children that are killed before a step; ``path`` of the pod."""

    def __init__(self, node: PodsNode) -> None:
        self.node = node
        self.setup: HostSetup = node.look(INTERFACE)

    def call(self, back: bool, fatal: int) -> bool:
        """Attach, or take ``back``, killed before the step of that number; whether the call finished before."""
        child = os.fork()
        if child == 0:
            self._child(back, fatal)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in {0, KILLED}, f"the child ended with {code}"
        return code == 0

    def _child(self, back: bool, fatal: int) -> None:
        left = fatal

        def before(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(KILLED)

        code = 1
        try:
            host = NetworkNamespace(self.node.host.path)
            host.enter()
            mover, pod = KernelMover(before=before), self.node.pod.path
            if back:
                assert mover.detach(INTERFACE, self.setup, pod)
            else:
                mover.attach(INTERFACE, self.setup, pod)
            code = 0
        finally:
            os._exit(code)

    def check(self) -> None:
        """The interface is in one of the two namespaces; in the pod only with the alias by which it is found."""
        host = self.node.host.run(lambda: self.node.mover.marked({DEVICE}))
        pod = self.node.host.run(lambda: self.node.mover.marked({DEVICE}, self.node.pod.path))
        if "v0" not in self._on_the_node():
            assert DEVICE in {**host, **pod}, "lost"

    def finish(self, back: bool) -> None:
        """The next process makes the call again, and it has its full effect."""
        if back:
            assert self.node.detach(INTERFACE, self.setup)
            # The index is the kernel's choice.
            assert replace(self.node.look(INTERFACE), index=self.setup.index) == self.setup
            assert not self.node.host.run(lambda: self.node.mover.marked({DEVICE}, self.node.pod.path))
        else:
            attached = self.node.attach(INTERFACE, self.setup)
            assert attached.name == "rail0"
            assert attached.addresses == WANTED.addresses
            assert self._on_the_node() == {"lo", "v1"}

    def _on_the_node(self) -> set[str]:
        with NetworkNamespace(self.node.host.path) as namespace, namespace.netlink() as netlink:
            return {link.name for link in links(netlink)}


def every_step() -> None:
    """Attach and back, killed once before every step."""
    children = Children(made())
    for back in (False, True):
        fatal = 0
        while not children.call(back, fatal):
            children.check()
            children.finish(back)
            children.finish(not back)
            if back:
                children.finish(back=False)
            fatal += 1
        children.finish(back)
        assert fatal >= 8, f"only {fatal} steps"
    os.write(1, b"done\n")


def random_rounds() -> None:
    """Many calls in random directions, most of them killed; at the end all is as it was."""
    seed = int.from_bytes(os.urandom(4))
    chance = random.Random(seed)
    children = Children(made())
    killed = 0
    try:
        while killed < ROUNDS:
            killed += not children.call(chance.random() < 0.5, chance.randrange(12))
            children.check()
        children.finish(back=True)
        children.finish(back=False)
        children.finish(back=True)
    except BaseException:
        os.write(2, f"seed {seed}\n".encode())
        raise
    os.write(1, b"done\n")


ACTS = (
    "link set {0} down\nlink set {0} name mine\nlink set mine up",
    "link set {0} mtu 1300 txqueuelen 7 promisc on",
    "link set {0} arp off multicast off",
    "link set {0} address 02:66:00:00:00:66",
    "link property add dev {0} altname v1",
    "link property add dev {0} altname v0",
    "link add upper0 type bridge\nlink set {0} master upper0",
    "link add link {0} name {0}.7 type vlan id 7",
    "link add m0 link {0} type macvlan",
    "address flush dev {0}",
    "link add v0 type veth peer name v9",
)
"""What a pod does to its interface; some of them fail where another came before."""


def hostile_rounds() -> None:
    """As ``random_rounds``, with a pod that does to its interface whatever it can between two kills."""
    seed = int.from_bytes(os.urandom(4))
    chance = random.Random(seed)
    children = Children(made())
    killed = 0
    try:
        while killed < HOSTILE_ROUNDS:
            killed += not children.call(chance.random() < 0.5, chance.randrange(14))
            name = children.node.host.run(lambda: children.node.mover.marked({DEVICE}, children.node.pod.path))
            if name:
                _in_pod(children.node.pod, chance.choice(ACTS).format(name[DEVICE]))
        assert children.node.detach(INTERFACE, children.setup)
        assert replace(children.node.look(INTERFACE), index=children.setup.index) == children.setup
    except BaseException:
        os.write(2, f"seed {seed}\n".encode())
        raise
    os.write(1, b"done\n")


def _in_pod(pod: TestNamespace, batch: str) -> None:
    """Commands of ``ip``, some of which may fail."""
    command = ["ip", "-force", "-batch", "-"]
    pod.run(lambda: subprocess.run(command, input=batch, capture_output=True, text=True, check=False))


def made() -> PodsNode:
    """A node whose NIC has something to lose."""
    node = PodsNode(TestNamespace(), TestNamespace())
    node.host.ip(
        "link set v0 alias rail-of-the-fabric",
        "address add 10.7.0.2/24 dev v0",
        "link set v0 up",
        "route add 10.9.0.0/16 via 10.7.0.1",
        "neighbor add 10.7.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent",
    )
    return node


@pytest.mark.parametrize("scenario", [every_step, random_rounds, hostile_rounds])
def test_nothing_is_lost_by_kills_between_kernel_calls(scenario: object) -> None:
    if reason := missing():
        pytest.skip(reason)
    program = f"from {__name__} import {scenario.__name__}; {scenario.__name__}()"  # type: ignore[attr-defined]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
