"""Moves interfaces by the kernel's own means: rtnetlink, RDMA netlink, the ethtool ioctl, bpf(2) and /proc/sys.

An interface goes through these states, and a process may be killed between any two of them:

1. On the node, unmarked. ``look`` describes it, and the caller records that.
2. On the node with our alias. What must change before the move changes now: settings of the physical function,
   programs.
3. In the pod, by one message that moves it and gives it its name, MTU and hardware address.
4. In the pod, set up: sysctls, features, addresses, up, routes, rules, neighbours, and last its RDMA device.

Back: RDMA device first, then one message that moves it and gives it its old name, MTU and hardware address, then the
rest is restored, and the alias goes last. Whoever repeats a call finds where the interface is and changes only what
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from node.interfaces import in_pod, on_node
from node.interfaces.links import link_named, links, naming
from node.interfaces.model import AttachedInterface, HostSetup, InterfaceError, MovableInterface
from node.interfaces.move import KernelSockets, Move, NetlinkSockets, Side, side
from node.interfaces.mover import alias_of, subject_of

_HERE = Path("/proc/thread-self/ns/net")


def _nothing(_: str) -> None:
    pass


class KernelMover:
    """``InterfaceMover`` whose host namespace is the one that the calling thread is in.

    ``sys`` is where sysfs is mounted. ``before`` is called with a name before each call that changes something.
    """

    def __init__(
        self,
        sys: Path = Path("/sys"),
        *,
        sockets: NetlinkSockets | None = None,
        before: Callable[[str], None] = _nothing,
    ) -> None:
        self._sys = sys
        self._sockets = sockets or KernelSockets()
        self._before = before

    def look(self, interface: MovableInterface) -> HostSetup:
        """See ``InterfaceMover``."""
        subject = subject_of(interface)
        with self._host(subject) as host, naming(subject, "read what it has on the node"):
            return on_node.look(interface, host, self._sys)

    def attach(self, interface: MovableInterface, setup: HostSetup, netns: Path) -> AttachedInterface:
        """See ``InterfaceMover``."""
        move = Move(interface, setup, self._sys, self._before)
        with self._host(move.subject) as host, self._pod(move.subject, netns) as pod:
            if pod is None:
                raise InterfaceError(f"{move.subject}: the pod's network namespace {netns} is gone")
            if pod.namespace.inode == host.namespace.inode:
                raise InterfaceError(
                    f"{move.subject}: the pod uses the node's network namespace; "
                    "remove hostNetwork from the pod, or moveInterface from the rule"
                )
            try:
                if move.find(pod) is None:
                    on_node.send(move, host, pod)
                return in_pod.set_up(move, host, pod)
            except InterfaceError as error:
                _undo(error, move, host, pod)
                raise

    def detach(self, interface: MovableInterface, setup: HostSetup, netns: Path | None) -> str:
        """See ``InterfaceMover``."""
        move = Move(interface, setup, self._sys, self._before)
        with self._host(move.subject) as host, self._pod(move.subject, netns) as pod:
            return _detach(move, host, pod)

    def is_gone(self, interface: MovableInterface, setup: HostSetup) -> bool:
        """See ``InterfaceMover``."""
        address = interface.pci_address
        if address and (self._sys / "bus/pci/devices" / address).exists():
            return False
        if address and setup.parent:
            return True
        subject = subject_of(interface)
        with self._host(subject) as host, naming(subject, "look for its name on the node"):
            return link_named(host.route, setup.interface) is not None

    def marked(self, devices: Collection[str], netns: Path | None = None) -> Mapping[str, str]:
        """See ``InterfaceMover``."""
        subject = f"network namespace {netns or 'of the node'}"
        wanted = {alias_of(device): device for device in devices}
        with self._pod(subject, netns or _HERE) as there, naming(subject, "list links"):
            present = links(there.route, [alias.encode() for alias in wanted]) if there is not None else ()
            return {wanted[link.alias]: link.name for link in present if link.alias in wanted}

    @contextmanager
    def _host(self, subject: str) -> Iterator[Side]:
        with self._pod(subject, _HERE) as host:
            assert host is not None, "a thread has a network namespace"
            yield host

    @contextmanager
    def _pod(self, subject: str, path: Path | None) -> Iterator[Side | None]:
        """The side of the namespace; None if it is gone."""
        with ExitStack() as stack:
            with naming(subject, f"open a netlink socket in the network namespace {path}"):
                there = stack.enter_context(side(path, self._sockets))
            yield there


def _detach(move: Move, host: Side, pod: Side | None) -> str:
    if pod is not None and pod.namespace.inode != host.namespace.inode:
        in_pod.take_back(move, host, pod)
    link = move.find(host)
    if link is None:
        return ""
    return on_node.restore(move, host, link)


def _undo(error: InterfaceError, move: Move, host: Side, pod: Side) -> None:
    """After a failure: back to the node; raises with both texts if that fails as well."""
    try:
        back = _detach(move, host, pod)
    except InterfaceError as second:
        raise InterfaceError(f"{error}; taking it back failed, too, and is tried again: {second}") from error
    if not back:
        raise InterfaceError(f"{error}; it was not found afterwards, neither on the node nor in the pod") from error
