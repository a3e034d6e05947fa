"""Addresses, routes, rules and permanent neighbours of an interface (linux/rtnetlink.h): read, and set.

Everything is set so that setting it again changes nothing. What the kernel makes by itself is never read as an
operator's: routes of an address's own network, link-local ones, those of router advertisements, and local tables.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_interface, ip_network

from node.interfaces.links import NUMBER, number
from node.interfaces.model import Neighbor, Route, RoutingRule
from node.netlink import CREATE, EXCLUSIVE, REPLACE, Netlink, NetlinkError, attribute, attributes
from node.values import Value, value

_NEWADDR, _GETADDR = 20, 22
_NEWROUTE, _DELROUTE, _GETROUTE = 24, 25, 26
_NEWNEIGH, _GETNEIGH = 28, 30
_NEWRULE, _DELRULE, _GETRULE = 32, 33, 34

_ADDRESS = struct.Struct("=BBBBI")
"""ifaddrmsg: family, length of the prefix, flags, scope, index."""
_ROUTE = struct.Struct("=BBBBBBBBI")
"""rtmsg: family, destination's and source's lengths, TOS, table, protocol, scope, type, flags."""
_NEIGHBOR = struct.Struct("=BxxxiHBB")
"""ndmsg: family, index, state, flags, type."""
_RULE = struct.Struct("=BBBBBxxBI")
"""fib_rule_hdr: family, lengths of destination and source, TOS, table, action, flags."""

_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST, _IFA_FLAGS, _IFA_PROTOCOL = 1, 2, 4, 8, 11
_TEMPORARY, _NO_DAD, _IPV6_FROM_ROUTER = 0x01, 0x02, 2
_RTA_DESTINATION, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_PREFERRED_SOURCE = 1, 4, 5, 6, 7
_RTA_TABLE, _RTA_VIA = 15, 18
_MAIN, _LOCAL, _BYTE = 254, 255, 252
"""Tables; one whose number needs more than a byte is named by an attribute, and by RT_TABLE_COMPAT in the header."""
_PROTOCOL_KERNEL, _PROTOCOL_STATIC, _PROTOCOL_ROUTER = 2, 4, 9
_UNIVERSE, _LINK_SCOPE = 0, 253
_SCOPES = {"": None, "global": _UNIVERSE, "link": _LINK_SCOPE}
_UNICAST, _CLONED, _ONLINK = 1, 0x200, 4
_FRA_DESTINATION, _FRA_SOURCE, _FRA_PRIORITY, _FRA_SUPPRESS, _FRA_TABLE, _FRA_PROTOCOL = 1, 2, 6, 14, 15, 21
_FRA_PLAIN = frozenset({_FRA_DESTINATION, _FRA_SOURCE, _FRA_PRIORITY, _FRA_SUPPRESS, _FRA_TABLE, _FRA_PROTOCOL})
_NOTHING = b"\xff" * 4
"""What FRA_SUPPRESS_PREFIXLEN says of a rule that suppresses nothing."""
_TO_TABLE = 1
_NDA_DESTINATION, _NDA_ADDRESS, _NDA_INDEX = 1, 2, 8
_PERMANENT, _PROXY = 0x80, 0x8
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_VERSIONS = {family: version for version, family in _FAMILIES.items()}
_NO_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EOPNOTSUPP})
"""Errors of a kernel without IPv6."""


@value
class LinkAddress(Value):
    """An address (``10.0.0.7/24``) of the link with that index."""

    index: int
    address: str


def addresses(netlink: Netlink, only: int = 0) -> Iterator[LinkAddress]:
    """The addresses of global scope that somebody gave to links, or to the ``only`` one; one may come again.

    Read it to its end before the socket is used again. Raises NetlinkError.
    """
    for payload in netlink.stream(_GETADDR, _ADDRESS.pack(0, 0, 0, 0, only), "addresses"):
        family, length, flags, _, index = _ADDRESS.unpack_from(payload)
        if family not in _VERSIONS or (only and index != only):
            continue
        parts = attributes(payload, _ADDRESS.size, "an address")
        flags = number(parts.get(_IFA_FLAGS, b"")) or flags
        by_itself = flags & _TEMPORARY or parts.get(_IFA_PROTOCOL, b"\0")[0] == _IPV6_FROM_ROUTER
        if family == socket.AF_INET6 and by_itself:
            continue
        address = ip_address(parts.get(_IFA_LOCAL) or parts[_IFA_ADDRESS])
        if not address.is_link_local and not address.is_loopback:
            yield LinkAddress(index, f"{address}/{length}")


def add_address(netlink: Netlink, index: int, address: str) -> None:
    """Give the link this address, in use at once (no duplicate address detection); raises NetlinkError."""
    interface = ip_interface(address)
    flags = _NO_DAD if interface.version == 6 else 0
    body = _ADDRESS.pack(_FAMILIES[interface.version], interface.network.prefixlen, flags, _UNIVERSE, index)
    body += attribute(_IFA_LOCAL, interface.packed) + attribute(_IFA_ADDRESS, interface.packed)
    if interface.version == 4 and interface.network.num_addresses > 2:
        body += attribute(_IFA_BROADCAST, interface.network.broadcast_address.packed)
    netlink.request(_NEWADDR, body, f"address {address}", flags=CREATE | REPLACE)


def routes(netlink: Netlink, index: int) -> tuple[Route, ...]:
    """The unicast routes through this link alone that somebody made; raises NetlinkError.

    A route through several links stays with the others. It is not restored.
    """
    found = (route for through, route in _all_routes(netlink, index) if through == index and not _is_automatic(route))
    return tuple(dict.fromkeys(found))


def add_route(netlink: Netlink, index: int, route: Route) -> None:
    """Add the route unless the link has it; raises NetlinkError, EEXIST if it leads through another link."""
    try:
        netlink.request(_NEWROUTE, _route(index, route), f"route {route.destination}", flags=CREATE | EXCLUSIVE)
    except NetlinkError as error:
        if error.number != errno.EEXIST or index not in _through(netlink, route):
            raise


def in_order(wanted: Iterable[Route]) -> list[Route]:
    """The routes so that each gateway is reachable by those before: networks on the link first."""
    return sorted(wanted, key=lambda route: (bool(route.gateway), route.table))


def rules(netlink: Netlink, tables: Iterable[int]) -> tuple[RoutingRule, ...]:
    """The rules for these tables by source and destination alone; raises NetlinkError."""
    wanted = set(tables)
    found: list[RoutingRule] = []
    for version, family in _FAMILIES.items() if wanted else ():
        for payload in _dump(netlink, _GETRULE, _RULE.pack(family, 0, 0, 0, 0, 0, 0), f"IPv{version} rules"):
            _, to, source, tos, table, action, flags = _RULE.unpack_from(payload)
            parts = attributes(payload, _RULE.size, "a rule")
            table = number(parts.get(_FRA_TABLE, b"")) or table
            plain = parts.keys() <= _FRA_PLAIN and parts.get(_FRA_SUPPRESS, _NOTHING) == _NOTHING
            if table in wanted and action == _TO_TABLE and plain and not (tos or flags):
                found.append(
                    RoutingRule(
                        table,
                        _network(parts.get(_FRA_SOURCE), source),
                        _network(parts.get(_FRA_DESTINATION), to),
                        number(parts.get(_FRA_PRIORITY, b"")),
                    )
                )
    return tuple(dict.fromkeys(found))


def add_rule(netlink: Netlink, rule: RoutingRule) -> None:
    """Add the rule unless it exists; one without addresses is for IPv4 and IPv6. Raises NetlinkError."""
    for family, body in _rules(rule):
        try:
            netlink.request(_NEWRULE, body, "rule", flags=CREATE | EXCLUSIVE)
        except NetlinkError as error:
            if error.number != errno.EEXIST and not (family == socket.AF_INET6 and error.number in _NO_FAMILY):
                raise


def remove_rule(netlink: Netlink, rule: RoutingRule) -> None:
    """Remove the rule if it exists; raises NetlinkError."""
    for _, body in _rules(rule):
        try:
            netlink.request(_DELRULE, body, "rule")
        except NetlinkError as error:
            if error.number not in {errno.ENOENT, *_NO_FAMILY}:
                raise


def neighbors(netlink: Netlink, index: int) -> tuple[Neighbor, ...]:
    """The permanent neighbours at this link; raises NetlinkError."""
    found = []
    request = _NEIGHBOR.pack(0, 0, 0, 0, 0) + attribute(_NDA_INDEX, NUMBER.pack(index))
    for payload in netlink.stream(_GETNEIGH, request, "neighbours"):
        family, link, state, flags, _ = _NEIGHBOR.unpack_from(payload)
        if link == index and family in _VERSIONS and state & _PERMANENT and not flags & _PROXY:
            parts = attributes(payload, _NEIGHBOR.size, "a neighbour")
            if parts.get(_NDA_ADDRESS):
                found.append(Neighbor(str(ip_address(parts[_NDA_DESTINATION])), parts[_NDA_ADDRESS].hex(":")))
    return tuple(dict.fromkeys(found))


def add_neighbor(netlink: Netlink, index: int, neighbor: Neighbor) -> None:
    """Set the permanent neighbour; raises NetlinkError."""
    address = ip_address(neighbor.destination)
    body = _NEIGHBOR.pack(_FAMILIES[address.version], index, _PERMANENT, 0, 0)
    body += attribute(_NDA_DESTINATION, address.packed)
    body += attribute(_NDA_ADDRESS, bytes.fromhex(neighbor.hardware_address.replace(":", "")))
    netlink.request(_NEWNEIGH, body, f"neighbour {address}", flags=CREATE | REPLACE)


def _dump(netlink: Netlink, kind: int, request: bytes, asked: str) -> Iterator[bytes]:
    """A dump of one family; a kernel without IPv6 has none of it."""
    try:
        yield from netlink.stream(kind, request, asked)
    except NetlinkError as error:
        if request[0] != socket.AF_INET6 or error.number not in _NO_FAMILY:
            raise


def _all_routes(netlink: Netlink, only: int = 0) -> Iterator[tuple[int, Route]]:
    """Every unicast route through one link, with the link's index; ``only``: leave out others where that is cheap."""
    filtered = attribute(_RTA_OIF, NUMBER.pack(only)) if only else b""
    for version, family in _FAMILIES.items():
        request = _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0) + filtered
        for payload in _dump(netlink, _GETROUTE, request, f"IPv{version} routes"):
            _, length, source, tos, table, protocol, scope, kind, flags = _ROUTE.unpack_from(payload)
            parts = attributes(payload, _ROUTE.size, "a route")
            table = number(parts.get(_RTA_TABLE, b"")) or table
            if kind != _UNICAST or flags & _CLONED or source or tos or table == _LOCAL or _RTA_OIF not in parts:
                continue
            gateway = parts.get(_RTA_GATEWAY) or parts.get(_RTA_VIA, b"")[2:]
            preferred = parts.get(_RTA_PREFERRED_SOURCE)
            yield (
                number(parts[_RTA_OIF]),
                Route(
                    destination=_network(parts.get(_RTA_DESTINATION), length) or _everything(version),
                    gateway=str(ip_address(gateway)) if gateway else "",
                    source=str(ip_address(preferred)) if preferred else "",
                    scope="link" if version == 4 and scope == _LINK_SCOPE else "",
                    table=0 if table == _MAIN else table,
                    metric=number(parts.get(_RTA_PRIORITY, b"")),
                    protocol=protocol,
                    onlink=bool(flags & _ONLINK),
                ),
            )


def _through(netlink: Netlink, route: Route) -> set[int]:
    """The links that routes to the same destination in the same table lead through."""
    wanted = (str(ip_network(route.destination)), route.table, route.gateway)
    return {index for index, each in _all_routes(netlink) if (each.destination, each.table, each.gateway) == wanted}


def _is_automatic(route: Route) -> bool:
    destination = ip_network(route.destination)
    return (
        route.protocol in {_PROTOCOL_KERNEL, _PROTOCOL_ROUTER}
        or destination.is_multicast
        or (destination.prefixlen > 0 and destination.is_link_local)
    )


def _route(index: int, route: Route) -> bytes:
    destination = ip_network(route.destination)
    table = route.table or _MAIN
    scope = _SCOPES[route.scope]
    if scope is None:
        scope = _UNIVERSE if route.gateway or destination.version == 6 else _LINK_SCOPE
    body = _ROUTE.pack(
        _FAMILIES[destination.version],
        destination.prefixlen,
        0,
        0,
        table if table <= _LOCAL else _BYTE,
        route.protocol or _PROTOCOL_STATIC,
        scope,
        _UNICAST,
        _ONLINK if route.onlink else 0,
    )
    body += attribute(_RTA_TABLE, NUMBER.pack(table)) + attribute(_RTA_OIF, NUMBER.pack(index))
    if destination.prefixlen:
        body += attribute(_RTA_DESTINATION, destination.network_address.packed)
    if route.gateway:
        gateway = ip_address(route.gateway)
        if gateway.version == destination.version:
            body += attribute(_RTA_GATEWAY, gateway.packed)
        else:
            body += attribute(_RTA_VIA, struct.pack("=H", _FAMILIES[gateway.version]) + gateway.packed)
    if route.source:
        body += attribute(_RTA_PREFERRED_SOURCE, ip_address(route.source).packed)
    if route.metric:
        body += attribute(_RTA_PRIORITY, NUMBER.pack(route.metric))
    return body


def _rules(rule: RoutingRule) -> Iterator[tuple[int, bytes]]:
    """Family and message of the rule in each family that it is for."""
    source = ip_network(rule.source) if rule.source else None
    destination = ip_network(rule.destination) if rule.destination else None
    versions = {each.version for each in (source, destination) if each is not None} or {4, 6}
    for version in sorted(versions):
        table = rule.table if rule.table <= _LOCAL else _BYTE
        lengths = [each.prefixlen if each is not None else 0 for each in (destination, source)]
        body = _RULE.pack(_FAMILIES[version], *lengths, 0, table, _TO_TABLE, 0)
        body += attribute(_FRA_TABLE, NUMBER.pack(rule.table))
        for kind, each in ((_FRA_DESTINATION, destination), (_FRA_SOURCE, source)):
            if each is not None and each.prefixlen:
                body += attribute(kind, each.network_address.packed)
        if rule.priority:
            body += attribute(_FRA_PRIORITY, NUMBER.pack(rule.priority))
        yield _FAMILIES[version], body


def _network(raw: bytes | None, length: int) -> str:
    return f"{ip_address(raw)}/{length}" if raw else ""


def _everything(version: int) -> str:
    return "0.0.0.0/0" if version == 4 else "::/0"
