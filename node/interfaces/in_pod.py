"""The pod's side of a move: what an interface gets there, and how it leaves.

Everything is set so that setting it again changes nothing: an earlier process may have done a part of it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_interface

from node.interfaces import addressing, ebpf, features, rdma, sysctls
from node.interfaces.links import (
    NAME_LIMIT,
    InterfaceLink,
    change_alternative_names,
    change_link,
    link_at,
    link_named,
    naming,
)
from node.interfaces.model import AttachedInterface, HostSetup, InterfaceError, Route, RoutingRule
from node.interfaces.move import Move, Side, differing, find_rdma, route_text
from node.interfaces.mover import alias_of
from node.netlink import NetlinkError


def check_room(move: Move, pod: Side, link: InterfaceLink) -> None:
    """Refuse a name or an address that the pod has already; ``link`` is the interface on the node."""
    wanted = {ip_interface(each).ip: each for each in move.addresses}
    with naming(move.subject, "list the pod's links"):
        is_named = is_taken(pod, move.name)
        of_pod = addressing.addresses(pod.route) if wanted else ()
        has = {each.address: each.index for each in of_pod if ip_interface(each.address).ip in wanted}
        names = {index: each.name for index in has.values() if (each := link_at(pod.route, index)) is not None}
    if is_named:
        raise InterfaceError(
            f"{move.subject}: the pod has an interface {move.name} already; set another interface.name in the claim"
        )
    if move.name in link.alternative_names:
        raise InterfaceError(
            f"{move.subject}: {move.name} is an alternative name that the interface keeps, and cannot be its name as "
            "well; set another interface.name in the claim"
        )
    for address, index in has.items():
        raise InterfaceError(
            f"{move.subject}: the pod's interface {names.get(index, index)} has the address "
            f"{wanted[ip_interface(address).ip]} already; set other addresses in the claim"
        )


def set_up(move: Move, host: Side, pod: Side) -> AttachedInterface:
    """Give the interface in the pod what it lacks there; raises InterfaceError."""
    link = move.find(pod)
    if link is None:
        raise InterfaceError(f"{move.subject}: it left the pod's network namespace while it was set up")
    settings, name, index = move.interface.settings, move.name, link.index
    _identify(move, pod, link)
    if settings.sysctls:
        move.before("sysctls")
        pod.inside(lambda: sysctls.set_sysctls(name, settings.sysctls))
    if settings.features:
        with naming(move.subject, "set ethtool features"):
            move.before("features")
            pod.inside(lambda: features.set_features(name, settings.features))
    for each in move.addresses:
        with naming(move.subject, f"add address {each} in the pod"):
            move.before("address")
            addressing.add_address(pod.route, index, each)
    if not link.up:
        with naming(move.subject, "set it up in the pod"):
            move.before("up")
            change_link(pod.route, index, up=True)
    _set_routes(move, pod, index)
    moved = _send_rdma(move, host, pod, index)
    with naming(move.subject, "read what it has in the pod"):
        now = move.find(pod) or link
        has = tuple(each.address for each in addressing.addresses(pod.route, index))
    return AttachedInterface(move.interface.device, now.name, now.address, has, now.mtu, moved)


def _identify(move: Move, pod: Side, link: InterfaceLink) -> None:
    """Name, MTU and hardware address, for one whose move was cut short or that somebody changed since."""
    name = differing(move.name, link.name)
    mtu = differing(move.interface.settings.mtu or move.setup.mtu, link.mtu)
    address = differing(move.hardware_address or move.setup.hardware_address, link.address)
    if (name, mtu, address) != (None, None, None):
        with naming(move.subject, "set its name, MTU and hardware address in the pod"):
            move.before("identity")
            change_link(pod.route, link.index, name=name, mtu=mtu, address=address)


def _set_routes(move: Move, pod: Side, index: int) -> None:
    """Routes, rules and neighbours."""
    for route in addressing.in_order(move.routes):
        with _naming_route(move.subject, route):
            move.before("route")
            try:
                addressing.add_route(pod.route, index, route)
            except NetlinkError as error:
                # The pod's own route to the same destination wins over one that nobody asked for.
                if not move.has_nodes_routes or error.number != errno.EEXIST:
                    raise
    for rule in move.rules:
        with naming(move.subject, f"add the rule {_rule_text(rule)} in the pod"):
            move.before("rule")
            addressing.add_rule(pod.route, rule)
    for neighbor in move.interface.settings.neighbors:
        with naming(move.subject, f"add neighbour {neighbor.destination} in the pod"):
            move.before("neighbor")
            addressing.add_neighbor(pod.route, index, neighbor)


def _send_rdma(move: Move, host: Side, pod: Side, index: int) -> str:
    """Move the RDMA device after its interface where RDMA devices belong to namespaces; its name if it moved."""
    name = move.interface.rdma_device
    if not name:
        return ""
    with naming(move.subject, f"move its RDMA device {name} into the pod"), host.exclusive_rdma() as here:
        if here is None:
            return ""
        with pod.exclusive_rdma() as there:
            if there is not None and find_rdma(there, name, index) is not None:
                return name
        device = next((each for each in rdma.devices(here) if each.name == name), None)
        if device is None:
            raise InterfaceError(
                f"{move.subject}: its RDMA device {name} is not on the node; 'rdma dev' lists those that are"
            )
        move.before("rdma")
        rdma.move_device(here, device, pod.namespace.fileno())
    return name


def take_back(move: Move, host: Side, pod: Side) -> None:
    """From the pod to the node, the RDMA device first; nothing if they are not there. Raises InterfaceError."""
    link, setup = move.find(pod), move.setup
    _take_rdma_back(move, host, pod, link.index if link is not None else 0)
    if link is None:
        return
    with naming(move.subject, "mark it with an alias"):
        # The pod may have taken it away.
        if link.alias != alias_of(move.interface.device):
            move.before("alias")
            change_link(pod.route, link.index, alias=alias_of(move.interface.device))
    detach_strange(move, pod, link)
    if setup.switches is not None and setup.switches != link.switches:
        with naming(move.subject, "restore its flags"):
            # Before it moves: for a link without ARP the kernel chooses other sysctls.
            move.before("flags")
            change_link(pod.route, link.index, switches=setup.switches)
    for rule in move.rules:
        with suppress(NetlinkError):
            move.before("rule")
            addressing.remove_rule(pod.route, rule)
    with naming(move.subject, "take it back to the node"):
        name = free_name(setup, host)
        remove_strange_names(move, pod, link, host)
        move.before("move")
        change_link(
            pod.route,
            link.index,
            namespace=host.namespace.fileno(),
            name=name,
            mtu=differing(setup.mtu, link.mtu),
            address=differing(setup.hardware_address, link.address),
        )


def _take_rdma_back(move: Move, host: Side, pod: Side, index: int) -> None:
    name = move.interface.rdma_device
    if not name:
        return
    with naming(move.subject, f"take its RDMA device {name} back"), pod.exclusive_rdma() as there:
        device = find_rdma(there, name, index) if there is not None else None
        if there is not None and device is not None:
            move.before("rdma")
            rdma.move_device(there, device, host.namespace.fileno())


def detach_strange(move: Move, side: Side, link: InterfaceLink) -> None:
    """Take away programs that the node did not have, which would see the node's traffic; raises InterfaceError."""
    keep = move.setup.programs
    with naming(move.subject, "detach the pod's eBPF programs"):
        tcx = side.inside(lambda: ebpf.tcx_ids(link.index))
        if {*ebpf.xdp_ids(link), *tcx} <= set(keep):
            return
        move.before("programs")
        side.inside(lambda: ebpf.detach_xdp_programs(side.route, link, keep=keep))
        side.inside(lambda: ebpf.detach_tcx_programs(link.index, keep=keep))


def remove_strange_names(move: Move, side: Side, link: InterfaceLink, host: Side) -> None:
    """Take away alternative names that the link did not have on the node, and those that another link has there.

    The kernel moves no link one of whose names is taken, so a pod could keep its interface by the name of another.
    """
    known, own = move.setup.alternative_names, link.index if side is host else 0
    strange = [
        each
        for each in link.alternative_names
        if (known is not None and each not in known) or is_taken(host, each, but=own)
    ]
    if strange:
        move.before("names")
        change_alternative_names(side.route, link.index, remove=strange)


def is_taken(side: Side, name: str, *, but: int = 0) -> bool:
    """Whether a link there has this name or alternative name, other than the one with the index ``but``."""
    link = link_named(side.route, name)
    return link is not None and link.index != but


def free_name(setup: HostSetup, host: Side, own: int = 0) -> str:
    """The name that the interface had on the node, or a similar one if another link has it there.

    ``own``: its index if it is on the node.
    """
    wanted = name = setup.interface
    number = 0
    while is_taken(host, name, but=own):
        number += 1
        name = f"{wanted[: NAME_LIMIT - len(str(number)) - 1]}_{number}"
    return name


@contextmanager
def _naming_route(subject: str, route: Route) -> Iterator[None]:
    """As ``naming``, with the fix for what people get wrong in routes."""
    try:
        yield
    except NetlinkError as error:
        fix = ""
        if error.number in {errno.ENETUNREACH, errno.EHOSTUNREACH} and route.gateway:
            fix = (
                f"no address of the interface reaches the gateway {route.gateway}; give the interface an address in "
                "the gateway's network, or add a route to the gateway with scope link"
            )
        elif error.number == errno.EEXIST:
            fix = "the pod has a route to this destination already; choose another destination or table"
        elif error.number == errno.EINVAL and route.source:
            fix = f"the source {route.source} must be an address of the interface"
        with naming(subject, f"add the route {route_text(route)} in the pod", fix):
            raise


def _rule_text(rule: RoutingRule) -> str:
    destination = f" to {rule.destination}" if rule.destination else ""
    return f"from {rule.source or 'all'}{destination} table {rule.table}"
