"""Moves interfaces by the kernel's own means: rtnetlink, RDMA netlink, the ethtool ioctl, bpf(2) and /proc/sys.

An interface goes through these states, and a process may be killed between any two of them:

1. On the node, unmarked. ``look`` describes it, and the caller records that.
2. On the node with our alias. What must change before it moves does now: physical function's settings, programs.
3. In the pod, by one message that moves it and gives it its name, MTU and hardware address.
4. In the pod, set up: sysctls, features, addresses, up, routes, rules, neighbours, and last its RDMA device.

Back: RDMA device first, then one message that moves it and gives it its old name, MTU and hardware address, then the
rest is restored. The alias goes last, so an interface without it needs nothing more. Whoever repeats a call finds where
the interface is and changes only what differs.

What cannot be restored because the node changed meanwhile (a route whose gateway is gone, a name that is taken) does
not keep the device: it is logged, and the rest is restored.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_interface
from pathlib import Path
from typing import Protocol, TypeVar

from node.interfaces import addressing, ebpf, features, functions, rdma, sysctls
from node.interfaces.links import NAME_LIMIT, InterfaceLink, change_link, find_link, is_real_function, links, naming
from node.interfaces.model import (
    AttachedInterface,
    HostSetup,
    InterfaceError,
    MovableInterface,
    Route,
    RoutingRule,
    VfSettings,
)
from node.interfaces.mover import ALIAS, alias_of
from node.interfaces.namespace import NetworkNamespace
from node.netlink import Netlink, NetlinkError
from node.values import replace

log = logging.getLogger("ostler.interfaces")

_Result = TypeVar("_Result")
_Setting = TypeVar("_Setting", int, str)

_HERE = Path("/proc/thread-self/ns/net")


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


def _nothing(_: str) -> None:
    pass


class _Side:
    """One of the two namespaces during a call."""

    def __init__(self, namespace: NetworkNamespace, route: Netlink) -> None:
        self.namespace = namespace
        self.route = route

    def inside(self, function: Callable[[], _Result]) -> _Result:
        """What the function returns when it is called in this namespace."""
        return self.namespace.run(function)


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
        subject = _subject(interface)
        with naming(subject, "read what it has on the node"), self._side(_HERE) as host:
            present = links(host.route)
            link = find_link(present, interface, self._sys)
            if link is None and not is_real_function(interface, self._sys):
                link = next((each for each in present if each.name == interface.interface), None)
            if link is None:
                raise InterfaceError(
                    f"{subject}: it is not in the node's network namespace; another pod or plugin has it, or it is gone"
                )
            settings = interface.settings
            _check_mtu(subject, interface, link, present)
            routes = addressing.routes(host.route, link.index)
            missing = {key for key, _ in settings.sysctls} - {
                key for key, _ in sysctls.read_sysctls(link.name, [key for key, _ in settings.sysctls])
            }
            if missing:
                raise InterfaceError(f"{subject}: this kernel has no sysctl {min(missing)} of interfaces; leave it out")
            return HostSetup(
                interface=link.name,
                index=link.index,
                hardware_address=link.address,
                mtu=link.mtu,
                up=link.up,
                addresses=tuple(each.address for each in addressing.addresses(host.route) if each.index == link.index),
                routes=routes,
                rules=addressing.rules(host.route, {route.table for route in routes if route.table}),
                neighbors=addressing.neighbors(host.route, link.index),
                features=features.features_of(link.name, settings.features) if settings.features else (),
                vf=_function_before(host, interface, present),
                alias="" if link.alias.startswith(ALIAS) else link.alias,
                sysctls=sysctls.own_sysctls(link.name),
                programs=(*ebpf.xdp_ids(link), *ebpf.tcx_ids(link.index)),
                promiscuous=link.promiscuous,
            )

    def attach(self, interface: MovableInterface, setup: HostSetup, netns: Path) -> AttachedInterface:
        """See ``InterfaceMover``."""
        subject = _subject(interface)
        with self._side(_HERE) as host, self._pod(netns) as pod:
            if pod is None:
                raise InterfaceError(f"{subject}: the pod's network namespace {netns} is gone")
            if pod.namespace.inode == host.namespace.inode:
                raise InterfaceError(
                    f"{subject}: the pod uses the node's network namespace; "
                    "remove hostNetwork from the pod, or moveInterface from the rule"
                )
            try:
                if self._find(pod, interface, setup) is None:
                    self._move(subject, host, pod, interface, setup)
                return self._set_up(subject, host, pod, interface, setup)
            except InterfaceError as error:
                self._undo(error, interface, setup, netns)
                raise

    def detach(self, interface: MovableInterface, setup: HostSetup, netns: Path | None) -> bool:
        """See ``InterfaceMover``."""
        subject = _subject(interface)
        with self._side(_HERE) as host:
            with self._pod(netns) as pod:
                if pod is not None and pod.namespace.inode != host.namespace.inode:
                    self._take_back(subject, host, pod, interface, setup)
            link = self._find(host, interface, setup)
            if link is None:
                return False
            self._restore(subject, host, link, interface, setup)
            return True

    def marked(self, netns: Path | None = None) -> Mapping[str, str]:
        """See ``InterfaceMover``."""
        with naming(f"network namespace {netns or 'of the node'}", "list links"), self._pod(netns or _HERE) as side:
            present = links(side.route) if side is not None else ()
        return {link.alias.removeprefix(ALIAS): link.name for link in present if link.alias.startswith(ALIAS)}

    @contextmanager
    def _side(self, path: Path) -> Iterator[_Side]:
        with NetworkNamespace(path) as namespace, self._sockets.route(namespace) as route:
            yield _Side(namespace, route)

    @contextmanager
    def _pod(self, path: Path | None) -> Iterator[_Side | None]:
        """The pod's side; None if its namespace is gone."""
        try:
            namespace = NetworkNamespace(path) if path is not None else None
        except FileNotFoundError:
            namespace = None
        if namespace is None:
            yield None
            return
        with namespace, self._sockets.route(namespace) as route:
            yield _Side(namespace, route)

    def _find(self, side: _Side, interface: MovableInterface, setup: HostSetup) -> InterfaceLink | None:
        with naming(_subject(interface), "list links"):
            settings = interface.settings
            ours = (setup.hardware_address, settings.hardware_address, settings.vf and settings.vf.hardware_address)
            return find_link(
                links(side.route), interface, self._sys, index=setup.index, addresses=[each for each in ours if each]
            )

    def _move(self, subject: str, host: _Side, pod: _Side, interface: MovableInterface, setup: HostSetup) -> None:
        """From the node into the pod; an error may leave it in either."""
        settings = interface.settings
        link = self._find(host, interface, setup)
        if link is None:
            raise InterfaceError(f"{subject}: it is neither on the node nor in the pod's network namespace")
        _check_pod(subject, pod, interface, setup)
        with naming(subject, "mark it with an alias"):
            if link.alias != alias_of(interface.device):
                self._before("alias")
                change_link(host.route, link.index, alias=alias_of(interface.device))
        self._set_function(subject, host, interface, settings.vf)
        if not settings.keep_ebpf:
            with naming(subject, "detach eBPF programs", "detach them by hand, or set keepEbpf"):
                self._before("programs")
                host.inside(lambda: ebpf.detach_xdp_programs(host.route, link))
                host.inside(lambda: ebpf.detach_tcx_programs(link.index))
        name, address = settings.name or setup.interface, _address(interface)
        with naming(subject, f"move it into the pod as {name}"):
            self._before("move")
            change_link(
                host.route,
                link.index,
                namespace=pod.namespace.fileno(),
                name=name,
                mtu=_other(settings.mtu, link.mtu),
                address=_other(address, link.address),
            )

    def _set_up(
        self, subject: str, host: _Side, pod: _Side, interface: MovableInterface, setup: HostSetup
    ) -> AttachedInterface:
        """Give the interface in the pod what it lacks there."""
        link = self._find(pod, interface, setup)
        if link is None:
            raise InterfaceError(f"{subject}: it left the pod's network namespace while it was set up")
        settings, index = interface.settings, link.index
        name = settings.name or setup.interface
        mtu, address = settings.mtu or setup.mtu, _address(interface) or setup.hardware_address
        if any((_other(name, link.name), _other(mtu, link.mtu), _other(address, link.address))):
            with naming(subject, f"make it {name} with MTU {mtu} and hardware address {address} in the pod"):
                self._before("identity")
                change_link(
                    pod.route,
                    index,
                    name=_other(name, link.name),
                    mtu=_other(mtu, link.mtu),
                    address=_other(address, link.address),
                )
        if settings.sysctls:
            self._before("sysctls")
            pod.inside(lambda: sysctls.set_sysctls(name, settings.sysctls))
        if settings.features:
            with naming(subject, "set ethtool features"):
                self._before("features")
                pod.inside(lambda: features.set_features(name, settings.features))
        self._set_addresses(subject, pod, index, _wanted_addresses(interface, setup))
        if not link.up:
            with naming(subject, "set it up in the pod"):
                self._before("up")
                change_link(pod.route, index, up=True)
        self._set_routes(subject, pod, index, interface, setup)
        moved = self._move_rdma(subject, host, pod, interface, index)
        with naming(subject, "read what it has in the pod"):
            now = self._find(pod, interface, setup) or link
            has = tuple(each.address for each in addressing.addresses(pod.route) if each.index == index)
        return AttachedInterface(interface.device, now.name, now.address, has, now.mtu, moved)

    def _set_addresses(self, subject: str, pod: _Side, index: int, wanted: Iterable[str]) -> None:
        for each in wanted:
            with naming(subject, f"add address {each} in the pod"):
                self._before("address")
                addressing.add_address(pod.route, index, each)

    def _set_routes(self, subject: str, pod: _Side, index: int, interface: MovableInterface, setup: HostSetup) -> None:
        """Routes, rules and neighbours in the pod."""
        wanted, copied = _wanted_routes(interface, setup)
        for route in addressing.in_order(wanted):
            with _naming_route(subject, route):
                self._before("route")
                try:
                    addressing.add_route(pod.route, index, route)
                except NetlinkError as error:
                    # The pod's own route to the same destination wins over one that nobody asked for.
                    if not copied or error.number != errno.EEXIST:
                        raise
        for rule in _wanted_rules(interface, setup):
            with naming(subject, f"add the rule {_rule_text(rule)} in the pod"):
                self._before("rule")
                addressing.add_rule(pod.route, rule)
        for neighbor in interface.settings.neighbors:
            with naming(subject, f"add neighbour {neighbor.destination} in the pod"):
                self._before("neighbor")
                addressing.add_neighbor(pod.route, index, neighbor)

    def _move_rdma(self, subject: str, host: _Side, pod: _Side, interface: MovableInterface, index: int) -> str:
        """Move the RDMA device after its interface where RDMA devices belong to namespaces; its name if it moved."""
        name = interface.rdma_device
        if not name:
            return ""
        with (
            naming(subject, f"move its RDMA device {name} into the pod"),
            self._sockets.rdma(host.namespace) as here,
        ):
            if not rdma.is_exclusive(here):
                return ""
            with self._sockets.rdma(pod.namespace) as there:
                if _rdma_device(there, name, index) is not None:
                    return name
            device = next((each for each in rdma.devices(here) if each.name == name), None)
            if device is None:
                raise InterfaceError(
                    f"{subject}: its RDMA device {name} is not on the node; 'rdma dev' lists those that are"
                )
            self._before("rdma")
            rdma.move_device(here, device, pod.namespace.fileno())
            return name

    def _undo(self, error: InterfaceError, interface: MovableInterface, setup: HostSetup, netns: Path) -> None:
        """After a failure: back to the node; raises with both texts if that fails as well."""
        try:
            back = self.detach(interface, setup, netns)
        except InterfaceError as second:
            raise InterfaceError(f"{error}; taking it back failed, too, and is tried again: {second}") from error
        if not back:
            raise InterfaceError(f"{error}; it was not found afterwards, neither on the node nor in {netns}") from error

    def _take_back(self, subject: str, host: _Side, pod: _Side, interface: MovableInterface, setup: HostSetup) -> None:
        """From the pod to the node, the RDMA device first; nothing if they are not there."""
        link = self._find(pod, interface, setup)
        if interface.rdma_device:
            self._take_rdma_back(subject, host, pod, interface, link.index if link is not None else 0)
        if link is None:
            return
        with naming(subject, "mark it with an alias"):
            # The pod may have taken it away.
            if link.alias != alias_of(interface.device):
                self._before("alias")
                change_link(pod.route, link.index, alias=alias_of(interface.device))
        self._detach_strange(subject, pod, link, setup)
        for rule in _wanted_rules(interface, setup):
            with suppress(NetlinkError):
                self._before("rule")
                addressing.remove_rule(pod.route, rule)
        with naming(subject, "take it back to the node"):
            taken = {each.name for each in links(host.route)}
            name = _free_name(setup.interface, taken)
            self._before("move")
            change_link(
                pod.route,
                link.index,
                namespace=host.namespace.fileno(),
                name=name,
                mtu=_other(setup.mtu, link.mtu),
                address=_other(setup.hardware_address, link.address),
            )

    def _take_rdma_back(self, subject: str, host: _Side, pod: _Side, interface: MovableInterface, index: int) -> None:
        name = interface.rdma_device
        with naming(subject, f"take its RDMA device {name} back"), self._sockets.rdma(pod.namespace) as there:
            if not rdma.is_exclusive(there):
                return
            device = _rdma_device(there, name, index)
            if device is not None:
                self._before("rdma")
                rdma.move_device(there, device, host.namespace.fileno())

    def _detach_strange(self, subject: str, side: _Side, link: InterfaceLink, setup: HostSetup) -> None:
        """Take away programs that the node did not have, which would see the node's traffic."""
        with naming(subject, "detach the pod's eBPF programs"):
            tcx = side.inside(lambda: ebpf.tcx_ids(link.index))
            if {*ebpf.xdp_ids(link), *tcx} <= set(setup.programs):
                return
            self._before("programs")
            side.inside(lambda: ebpf.detach_xdp_programs(side.route, link, keep=setup.programs))
            side.inside(lambda: ebpf.detach_tcx_programs(link.index, keep=setup.programs))

    def _restore(
        self, subject: str, host: _Side, link: InterfaceLink, interface: MovableInterface, setup: HostSetup
    ) -> None:
        """Give the interface on the node what it had, and take the alias away."""
        self._detach_strange(subject, host, link, setup)
        name = self._restore_identity(subject, host, link, setup)
        if setup.vf is not None:
            with _logging(subject, "settings of the virtual function"):
                self._set_function(subject, host, interface, setup.vf)
        if setup.features:
            with _logging(subject, "ethtool features"):
                self._before("features")
                host.inside(lambda: features.set_features(name, setup.features))
        if setup.sysctls:
            with _logging(subject, "sysctls"):
                self._before("sysctls")
                host.inside(lambda: sysctls.set_sysctls(name, setup.sysctls))
        with naming(subject, "read what it has on the node"):
            has = {each.address for each in addressing.addresses(host.route) if each.index == link.index}
        for each in setup.addresses:
            if each not in has:
                with _logging(subject, f"address {each}"):
                    self._before("address")
                    addressing.add_address(host.route, link.index, each)
        if setup.up:
            with naming(subject, "set it up"):
                self._before("up")
                change_link(host.route, link.index, up=True)
        self._restore_routes(subject, host, link.index, setup)
        with naming(subject, "restore its alias"):
            self._before("alias")
            change_link(host.route, link.index, alias=setup.alias)

    def _restore_identity(self, subject: str, host: _Side, link: InterfaceLink, setup: HostSetup) -> str:
        """Name, MTU, hardware address, down if it was; the name that it has then."""
        with naming(subject, "restore its name, MTU and hardware address"):
            name = _free_name(setup.interface, {each.name for each in links(host.route)} - {link.name})
            if name != setup.interface:
                log.warning(
                    "another interface has the name of one that came back",
                    extra={"interface": setup.interface, "named": name, "reason": subject},
                )
            mtu, address = _other(setup.mtu, link.mtu), _other(setup.hardware_address, link.address)
            same = link.name == name and mtu is None and address is None
            if same and link.promiscuous is setup.promiscuous and (setup.up or not link.up):
                return name
            if link.up:
                # Many drivers refuse a new hardware address, and older kernels a new name, while it is up.
                self._before("down")
                change_link(host.route, link.index, up=False)
            self._before("identity")
            change_link(
                host.route,
                link.index,
                name=_other(name, link.name),
                mtu=mtu,
                address=address,
                promiscuous=setup.promiscuous,
            )
        return name

    def _restore_routes(self, subject: str, host: _Side, index: int, setup: HostSetup) -> None:
        # Rules name tables and addresses, not the interface: they stayed on the node.
        for route in addressing.in_order(setup.routes):
            with _logging(subject, f"route {_route_text(route)}"):
                self._before("route")
                try:
                    addressing.add_route(host.route, index, route)
                except NetlinkError as error:
                    if error.number != errno.EEXIST:
                        raise
        for neighbor in setup.neighbors:
            with _logging(subject, f"neighbour {neighbor.destination}"):
                self._before("neighbor")
                addressing.add_neighbor(host.route, index, neighbor)

    def _set_function(self, subject: str, host: _Side, interface: MovableInterface, wanted: VfSettings | None) -> None:
        """Set the virtual function at its physical one."""
        if wanted is None or interface.vf_index is None:
            return
        with naming(subject, f"set virtual function {interface.vf_index} of {interface.pf_interface}"):
            physical = _physical(subject, interface, links(host.route))
            state = functions.function_state(host.route, physical.index, interface.vf_index)
            if state is None:
                raise InterfaceError(f"{subject}: {physical.name} has no virtual function {interface.vf_index}")
            self._before("function")
            functions.set_function(host.route, physical.index, interface.vf_index, wanted, state)


def _subject(interface: MovableInterface) -> str:
    return f"interface {interface.interface} of device {interface.device}"


def _address(interface: MovableInterface) -> str:
    """The hardware address that the claim wants, empty for none; a function's own one follows its physical one's."""
    vf = interface.settings.vf
    return interface.settings.hardware_address or (vf.hardware_address if vf is not None else "")


def _other(wanted: _Setting, present: _Setting) -> _Setting | None:
    """What is wanted, None if it is so already or unknown (empty)."""
    return wanted if wanted and wanted != present else None


def _wanted_addresses(interface: MovableInterface, setup: HostSetup) -> tuple[str, ...]:
    wanted = interface.settings.addresses
    return setup.addresses if wanted is None else wanted


def _wanted_routes(interface: MovableInterface, setup: HostSetup) -> tuple[tuple[Route, ...], bool]:
    """The routes, and whether they are the node's (only with the node's addresses)."""
    settings = interface.settings
    if settings.routes is not None:
        return settings.routes, False
    if settings.addresses is not None:
        return (), False
    # Who made a route on the node does not matter in the pod.
    return tuple(replace(route, protocol=0) for route in setup.routes), True


def _wanted_rules(interface: MovableInterface, setup: HostSetup) -> tuple[RoutingRule, ...]:
    settings = interface.settings
    copied = settings.rules or settings.routes is not None or settings.addresses is not None
    return settings.rules if copied else setup.rules


def _check_mtu(
    subject: str, interface: MovableInterface, link: InterfaceLink, present: tuple[InterfaceLink, ...]
) -> None:
    """Refuse an MTU that the interface, or the physical function of a virtual one, cannot carry."""
    mtu = interface.settings.mtu
    if not mtu:
        return
    if interface.vf_index is not None:
        physical = _physical(subject, interface, present)
        if mtu > physical.mtu:
            raise InterfaceError(
                f"{subject}: mtu {mtu} is above the {physical.mtu} of its physical function {physical.name}; "
                f"ask for at most {physical.mtu}, or raise that of {physical.name} on the node"
            )
    if (link.max_mtu and mtu > link.max_mtu) or mtu < link.min_mtu:
        raise InterfaceError(f"{subject}: mtu {mtu} must be between {link.min_mtu} and {link.max_mtu} for its driver")


def _physical(subject: str, interface: MovableInterface, present: tuple[InterfaceLink, ...]) -> InterfaceLink:
    physical = next((each for each in present if each.name == interface.pf_interface), None)
    if physical is None:
        raise InterfaceError(
            f"{subject}: its physical function {interface.pf_interface or '(unknown)'} is not in the node's network "
            "namespace; a physical function must stay there while its virtual functions are in pods"
        )
    return physical


def _function_before(host: _Side, interface: MovableInterface, present: tuple[InterfaceLink, ...]) -> VfSettings | None:
    wanted = interface.settings.vf
    if wanted is None:
        return None
    subject = _subject(interface)
    if interface.vf_index is None:
        raise InterfaceError(
            f"{subject}: vf settings need a virtual function, and it is none; remove vf from the claim"
        )
    physical = _physical(subject, interface, present)
    state = functions.function_state(host.route, physical.index, interface.vf_index)
    if state is None:
        raise InterfaceError(f"{subject}: {physical.name} has no virtual function {interface.vf_index}")
    return functions.changed_by(wanted, state)


def _check_pod(subject: str, pod: _Side, interface: MovableInterface, setup: HostSetup) -> None:
    """Refuse a name or an address that the pod has already."""
    with naming(subject, "list the pod's links"):
        names = {each.index: each.name for each in links(pod.route)}
        has = {ip_interface(each.address).ip: each.index for each in addressing.addresses(pod.route)}
    name = interface.settings.name or setup.interface
    if name in names.values():
        raise InterfaceError(
            f"{subject}: the pod has an interface {name} already; set another interface.name in the claim"
        )
    for each in _wanted_addresses(interface, setup):
        index = has.get(ip_interface(each).ip)
        if index is not None:
            raise InterfaceError(
                f"{subject}: the pod's interface {names.get(index, index)} has the address {each} already; "
                "set other addresses in the claim"
            )


def _rdma_device(netlink: Netlink, name: str, index: int) -> rdma.RdmaDevice | None:
    """The RDMA device by its name or, if somebody renamed it, by the link of its port."""
    named = next((each for each in rdma.devices(netlink) if each.name == name), None)
    return named or (rdma.device_of(netlink, index) if index else None)


def _free_name(wanted: str, taken: set[str]) -> str:
    """The name, or a similar one if another interface has it."""
    if wanted not in taken:
        return wanted
    for number in range(1, len(taken) + 2):
        name = f"{wanted[: NAME_LIMIT - len(str(number)) - 1]}_{number}"
        if name not in taken:
            return name
    raise AssertionError("more names are taken than there are")


@contextmanager
def _naming_route(subject: str, route: Route) -> Iterator[None]:
    """As ``naming``, with the fix for what people get wrong in routes."""
    try:
        yield
    except NetlinkError as error:
        text, fix = f"add the route {_route_text(route)} in the pod", ""
        if error.number in {errno.ENETUNREACH, errno.EHOSTUNREACH} and route.gateway:
            fix = (
                f"no address of the interface reaches the gateway {route.gateway}; give the interface an address in "
                "the gateway's network, or add a route to the gateway with scope link"
            )
        elif error.number == errno.EEXIST:
            fix = "the pod has a route to this destination already; choose another destination or table"
        elif error.number == errno.EINVAL and route.source:
            fix = f"is the source {route.source} an address of the interface?"
        with naming(subject, text, fix):
            raise


@contextmanager
def _logging(subject: str, what: str) -> Iterator[None]:
    """Log that something cannot be restored, and go on."""
    try:
        with naming(subject, f"restore {what}"):
            yield
    except InterfaceError as error:
        log.warning("part of an interface's setup could not be restored", extra={"reason": str(error)})


def _route_text(route: Route) -> str:
    table = f" table {route.table}" if route.table else ""
    return route.destination + (f" via {route.gateway}" if route.gateway else "") + table


def _rule_text(rule: RoutingRule) -> str:
    source = f"from {rule.source or 'all'}"
    return f"{source}{f' to {rule.destination}' if rule.destination else ''} table {rule.table}"
