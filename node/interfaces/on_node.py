"""The node's side of a move: what an interface has before it leaves, how it leaves, and what it gets back.

What cannot be restored because the node changed meanwhile (a route whose gateway is gone, a name that is taken) does
not keep the device: it is logged, and the rest is restored. The alias goes last, so an interface without it needs
nothing more.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from node.interfaces import addressing, ebpf, features, functions, sysctls
from node.interfaces.in_pod import check_room, detach_strange, free_name, is_taken, remove_strange_names
from node.interfaces.links import (
    InterfaceLink,
    change_alternative_names,
    change_link,
    find_link,
    is_real_function,
    link_named,
    links,
    naming,
    pci_function,
)
from node.interfaces.model import HostSetup, InterfaceError, MovableInterface, VfSettings
from node.interfaces.move import Move, Side, differing, physical_of, route_text
from node.interfaces.mover import ALIAS, alias_of, subject_of
from node.netlink import NetlinkError

log = logging.getLogger("ostler.interfaces")


def look(interface: MovableInterface, host: Side, sys: Path) -> HostSetup:
    """What the interface has on the node now; raises InterfaceError, also if it cannot have what the claim wants."""
    subject = subject_of(interface)
    link = _present(interface, host, sys)
    if link is None:
        raise InterfaceError(
            f"{subject}: it is not in the node's network namespace; another pod or plugin has it, or it is gone"
        )
    _check_mtu(interface, link, host)
    _check_sysctls(interface, link)
    routes = addressing.routes(host.route, link.index)
    features.check_features(link.name, interface.settings.features)
    return HostSetup(
        interface=link.name,
        index=link.index,
        hardware_address=link.address,
        mtu=link.mtu,
        up=link.up,
        addresses=tuple(each.address for each in addressing.addresses(host.route, link.index)),
        routes=routes,
        rules=addressing.rules(host.route, {route.table for route in routes if route.table}),
        neighbors=addressing.neighbors(host.route, link.index),
        features=features.all_features(link.name),
        vf=_function_before(interface, host),
        alias="" if link.alias.startswith(ALIAS) else link.alias,
        sysctls=sysctls.own_sysctls(link.name),
        programs=(*ebpf.xdp_ids(link), *ebpf.tcx_ids(link.index)),
        promiscuous=link.promiscuous,
        alternative_names=link.alternative_names,
        switches=link.switches,
        tuning=link.tuning,
        broadcast=link.broadcast,
        parent=link.parent,
        permanent_address=link.permanent_address,
        kind=link.kind,
    )


def _present(interface: MovableInterface, host: Side, sys: Path) -> InterfaceLink | None:
    """The interface's link on the node: by name, which nobody forges here, then by what else identifies it."""
    named = link_named(host.route, interface.interface) if interface.interface else None
    if named is not None and (
        not is_real_function(interface, sys) or pci_function(named, sys) == interface.pci_address
    ):
        return named
    return find_link(links(host.route), interface, sys)


def send(move: Move, host: Side, pod: Side) -> None:
    """From the node into the pod; on InterfaceError it may be in either."""
    link, settings = move.find(host), move.interface.settings
    if link is None:
        raise InterfaceError(f"{move.subject}: it is neither on the node nor in the pod's network namespace")
    check_room(move, pod, link)
    with naming(move.subject, "mark it with an alias"):
        if link.alias != alias_of(move.interface.device):
            move.before("alias")
            change_link(host.route, link.index, alias=alias_of(move.interface.device))
    _set_function(move, host, settings.vf)
    if not settings.keep_ebpf:
        with naming(move.subject, "detach eBPF programs", "detach them by hand, or set keepEbpf"):
            move.before("programs")
            host.inside(lambda: ebpf.detach_xdp_programs(host.route, link))
            host.inside(lambda: ebpf.detach_tcx_programs(link.index))
    with naming(move.subject, f"move it into the pod as {move.name}"):
        move.before("move")
        change_link(
            host.route,
            link.index,
            namespace=pod.namespace.fileno(),
            name=move.name,
            mtu=differing(settings.mtu, link.mtu),
            address=differing(move.hardware_address, link.address),
        )


def restore(move: Move, host: Side, link: InterfaceLink) -> str:
    """Give the interface on the node what it had, and take the alias away; the name that it has then.

    Raises InterfaceError.
    """
    setup, subject = move.setup, move.subject
    detach_strange(move, host, link)
    name = _restore_identity(move, host, link)
    _restore_tuning(move, host, link)
    if setup.vf is not None:
        with _logging(subject, "settings of the virtual function"):
            _set_function(move, host, setup.vf)
    if setup.features:
        with _logging(subject, "ethtool features"):
            move.before("features")
            host.inside(lambda: features.restore_features(name, setup.features))
    if setup.sysctls:
        with _logging(subject, "sysctls"):
            move.before("sysctls")
            host.inside(lambda: sysctls.set_sysctls(name, setup.sysctls))
    with naming(subject, "read what it has on the node"):
        has = {each.address for each in addressing.addresses(host.route, link.index)}
    for each in setup.addresses:
        if each not in has:
            with _logging(subject, f"address {each}"):
                move.before("address")
                addressing.add_address(host.route, link.index, each)
    if setup.up:
        with naming(subject, "set it up"):
            move.before("up")
            change_link(host.route, link.index, up=True)
    _restore_routes(move, host, link.index)
    with naming(subject, "restore its alias"):
        move.before("alias")
        change_link(host.route, link.index, alias=setup.alias)
    return name


def _restore_identity(move: Move, host: Side, link: InterfaceLink) -> str:
    """Name, MTU, hardware address, down if it was; the name that it has then."""
    setup = move.setup
    with naming(move.subject, "restore its name, MTU and hardware address"):
        remove_strange_names(move, host, link, host)
        name = free_name(setup, host, link.index)
        if name != setup.interface:
            log.warning(
                "another interface has the name of one that came back",
                extra={"interface": setup.interface, "named": name, "reason": move.subject},
            )
        mtu, address = differing(setup.mtu, link.mtu), differing(setup.hardware_address, link.address)
        switches = setup.switches if setup.switches != link.switches else None
        broadcast = differing(setup.broadcast, link.broadcast)
        same = link.name == name and (mtu, address, switches, broadcast) == (None, None, None, None)
        if same and link.promiscuous is setup.promiscuous and (setup.up or not link.up):
            return name
        if link.up:
            # Many drivers refuse a new hardware address, and older kernels a new name, while it is up.
            move.before("down")
            change_link(host.route, link.index, up=False)
        move.before("identity")
        change_link(
            host.route,
            link.index,
            name=differing(name, link.name),
            mtu=mtu,
            address=address,
            promiscuous=setup.promiscuous,
            switches=switches,
            broadcast=broadcast,
        )
    return name


def _restore_tuning(move: Move, host: Side, link: InterfaceLink) -> None:
    """Alternative names that the pod took away, lengths of queues and packets, and the group."""
    missing = set(move.setup.alternative_names or ()) - set(link.alternative_names)
    if missing:
        with _logging(move.subject, "alternative names"):
            move.before("names")
            free = sorted(name for name in missing if not is_taken(host, name))
            change_alternative_names(host.route, link.index, add=free)
    tuning = sorted(set(move.setup.tuning) - set(link.tuning))
    if tuning:
        with _logging(move.subject, "lengths of queues and packets"):
            move.before("tuning")
            change_link(host.route, link.index, tuning=tuning)


def _restore_routes(move: Move, host: Side, index: int) -> None:
    # Rules name tables and addresses, not the interface: they stayed on the node.
    for route in addressing.in_order(move.setup.routes):
        with _logging(move.subject, f"route {route_text(route)}"):
            move.before("route")
            try:
                addressing.add_route(host.route, index, route)
            except NetlinkError as error:
                if error.number != errno.EEXIST:
                    raise
    for neighbor in move.setup.neighbors:
        with _logging(move.subject, f"neighbour {neighbor.destination}"):
            move.before("neighbor")
            addressing.add_neighbor(host.route, index, neighbor)


def _set_function(move: Move, host: Side, wanted: VfSettings | None) -> None:
    """Set the virtual function at its physical one."""
    interface = move.interface
    if wanted is None or interface.vf_index is None:
        return
    with naming(move.subject, f"set virtual function {interface.vf_index} of {interface.pf_interface}"):
        physical, state = _function(interface, interface.vf_index, host)
        move.before("function")
        functions.set_function(host.route, physical.index, interface.vf_index, wanted, state)


def _function(interface: MovableInterface, number: int, host: Side) -> tuple[InterfaceLink, VfSettings]:
    """The physical function's link, and what the virtual one has there; raises InterfaceError, NetlinkError."""
    physical = physical_of(interface, host)
    state = functions.function_state(host.route, physical.index, number)
    if state is None:
        raise InterfaceError(f"{subject_of(interface)}: {physical.name} has no virtual function {number}")
    return physical, state


def _function_before(interface: MovableInterface, host: Side) -> VfSettings | None:
    wanted = interface.settings.vf
    if wanted is None:
        return None
    if interface.vf_index is None:
        raise InterfaceError(
            f"{subject_of(interface)}: vf settings need a virtual function, and it is none; remove vf from the claim"
        )
    _, state = _function(interface, interface.vf_index, host)
    return functions.changed_by(wanted, state)


def _check_mtu(interface: MovableInterface, link: InterfaceLink, host: Side) -> None:
    """Refuse an MTU that the interface, or the physical function of a virtual one, cannot carry."""
    mtu, subject = interface.settings.mtu, subject_of(interface)
    if not mtu:
        return
    if interface.vf_index is not None:
        physical = physical_of(interface, host)
        if mtu > physical.mtu:
            raise InterfaceError(
                f"{subject}: mtu {mtu} is above the {physical.mtu} of its physical function {physical.name}; "
                f"ask for at most {physical.mtu}, or raise that of {physical.name} on the node"
            )
    if (link.max_mtu and mtu > link.max_mtu) or mtu < link.min_mtu:
        raise InterfaceError(f"{subject}: mtu {mtu} must be between {link.min_mtu} and {link.max_mtu} for its driver")


def _check_sysctls(interface: MovableInterface, link: InterfaceLink) -> None:
    wanted = [key for key, _ in interface.settings.sysctls]
    missing = set(wanted) - dict(sysctls.read_sysctls(link.name, wanted)).keys()
    if missing:
        raise InterfaceError(
            f"{subject_of(interface)}: this kernel has no sysctl {min(missing)} of interfaces; leave it out"
        )


@contextmanager
def _logging(subject: str, what: str) -> Iterator[None]:
    """Log that something cannot be restored, and go on."""
    try:
        with naming(subject, f"restore {what}"):
            yield
    except InterfaceError as error:
        log.warning("part of an interface's setup could not be restored", extra={"reason": str(error)})
