"""One move of an interface: the two namespaces, what is wanted in the pod, and how the interface is found in either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from node.interfaces import rdma
from node.interfaces.links import InterfaceLink, find_link, is_certain, link_at, link_named, links, naming
from node.interfaces.model import HostSetup, InterfaceError, MovableInterface, Route, RoutingRule
from node.interfaces.mover import alias_of, subject_of
from node.interfaces.namespace import NetworkNamespace
from node.netlink import Netlink, NetlinkError
from node.values import replace

_Result = TypeVar("_Result")
_Setting = TypeVar("_Setting", int, str)


class NetlinkSockets(Protocol):
    """Opens netlink sockets in a namespace; both raise NetlinkError and InterfaceError."""

    @contextmanager
    def route(self, namespace: NetworkNamespace) -> Iterator[Netlink]:
        """A socket of rtnetlink."""

    @contextmanager
    def rdma(self, namespace: NetworkNamespace) -> Iterator[Netlink]:
        """A socket of RDMA netlink."""


class KernelSockets:
    """``NetlinkSockets`` of the kernel."""

    @contextmanager
    def route(self, namespace: NetworkNamespace) -> Iterator[Netlink]:
        """See ``NetlinkSockets``."""
        with namespace.netlink() as netlink:
            yield netlink

    @contextmanager
    def rdma(self, namespace: NetworkNamespace) -> Iterator[Netlink]:
        """See ``NetlinkSockets``."""
        with namespace.netlink(protocol=rdma.NETLINK_RDMA) as netlink:
            yield netlink


class Side:
    """One of the two namespaces during a call; ``route`` is its rtnetlink socket."""

    def __init__(self, namespace: NetworkNamespace, route: Netlink, sockets: NetlinkSockets) -> None:
        self.namespace = namespace
        self.route = route
        self._sockets = sockets

    def inside(self, function: Callable[[], _Result]) -> _Result:
        """What the function returns when it is called in this namespace."""
        return self.namespace.run(function)

    @contextmanager
    def exclusive_rdma(self) -> Iterator[Netlink | None]:
        """The namespace's RDMA netlink; None unless each RDMA device belongs to one namespace, and without RDMA."""
        with ExitStack() as opened:
            try:
                netlink = opened.enter_context(self._sockets.rdma(self.namespace))
            except NetlinkError as error:
                # The kernel's protocol comes with the module ib_core.
                if error.number not in rdma.WITHOUT_RDMA:
                    raise
                yield None
                return
            yield netlink if rdma.is_exclusive(netlink) else None


@contextmanager
def side(path: Path | None, sockets: NetlinkSockets) -> Iterator[Side | None]:
    """The side of the namespace at the path; None if there is none (any more). Raises NetlinkError, InterfaceError."""
    try:
        namespace = NetworkNamespace(path) if path is not None else None
    except FileNotFoundError:
        namespace = None
    if namespace is None:
        yield None
        return
    with namespace, sockets.route(namespace) as route:
        yield Side(namespace, route, sockets)


class Move:
    """An interface with what it is to be in the pod and what it had on the node.

    ``before`` is called with a step's name before each kernel call that changes something.
    """

    def __init__(self, interface: MovableInterface, setup: HostSetup, sys: Path, before: Callable[[str], None]) -> None:
        self.interface = interface
        self.setup = setup
        self.before = before
        self._sys = sys

    @property
    def subject(self) -> str:
        """What errors begin with."""
        return subject_of(self.interface)

    @property
    def name(self) -> str:
        """The name in the pod."""
        return self.interface.settings.name or self.setup.interface

    @property
    def hardware_address(self) -> str:
        """The one that the claim wants, empty for none; a virtual function takes that of its ``vf`` settings."""
        settings = self.interface.settings
        return settings.hardware_address or (settings.vf.hardware_address if settings.vf is not None else "")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in the pod."""
        wanted = self.interface.settings.addresses
        return self.setup.addresses if wanted is None else wanted

    @property
    def has_nodes_routes(self) -> bool:
        """Whether the routes in the pod are those of the node, which nobody asked for."""
        settings = self.interface.settings
        return settings.routes is None and settings.addresses is None

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes in the pod."""
        if self.has_nodes_routes:
            # Who made a route on the node does not matter in the pod.
            return tuple(replace(route, protocol=0) for route in self.setup.routes)
        return self.interface.settings.routes or ()

    @property
    def rules(self) -> tuple[RoutingRule, ...]:
        """The rules in the pod: the node's go with its routes."""
        wanted = self.interface.settings.rules
        return self.setup.rules if self.has_nodes_routes and not wanted else wanted

    def find(self, side: Side) -> InterfaceLink | None:
        """The interface on this side, whatever it is called; raises InterfaceError."""
        interface, before = self.interface, self.setup
        known = {interface.settings.hardware_address, self.hardware_address} - {""}
        with naming(self.subject, "list links"):
            same = link_at(side.route, before.index) if before.index else None
            if same is not None and is_certain(same, interface, before, self._sys):
                return same
            return find_link(links(side.route, self._marks(known)), interface, self._sys, before, addresses=known)

    def _marks(self, addresses: set[str]) -> tuple[bytes, ...]:
        """Texts of which every message about the interface's link has one; empty if only its function identifies it."""
        before = self.setup
        if self.interface.pci_address and not before.parent:
            return ()
        known = {before.hardware_address, before.permanent_address, *addresses} - {""}
        raw = (bytes.fromhex(each.replace(":", "")) for each in known)
        named = (alias_of(self.interface.device), before.parent)
        return (*raw, *(each.encode() for each in named if each))


def differing(wanted: _Setting, present: _Setting) -> _Setting | None:
    """The wanted value; None if it is in force already, or unknown (empty)."""
    return wanted if wanted and wanted != present else None


def route_text(route: Route) -> str:
    """The route as ``ip route`` writes it."""
    table = f" table {route.table}" if route.table else ""
    return route.destination + (f" via {route.gateway}" if route.gateway else "") + table


def find_rdma(netlink: Netlink, name: str, index: int) -> rdma.IndexedRdmaDevice | None:
    """The RDMA device by its name or, if somebody renamed it, by the link of its port (0 for unknown)."""
    named = next((each for each in rdma.devices(netlink) if each.name == name), None)
    return named or (rdma.device_of(netlink, index) if index else None)


def physical_of(interface: MovableInterface, host: Side) -> InterfaceLink:
    """The link of the physical function of a virtual one; raises InterfaceError, NetlinkError."""
    physical = link_named(host.route, interface.pf_interface) if interface.pf_interface else None
    if physical is None:
        raise InterfaceError(
            f"{subject_of(interface)}: its physical function {interface.pf_interface or '(unknown)'} is not in the "
            "node's network namespace; a physical function must stay there while its virtual functions are in pods"
        )
    return physical
