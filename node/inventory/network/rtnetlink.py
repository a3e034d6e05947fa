"""Links, addresses and default routes out of rtnetlink messages (linux/rtnetlink.h, if_link.h, if_addr.h).

Only what the agent needs of each is parsed, from bytes to values, without I/O; the dumps below take a socket. Bytes of
an interface's name that are no UTF-8 are written as ``\\xff``, as the sysfs source writes them, so names are equal.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Mapping

from node.netlink import Attributes, NetlinkError, NetlinkSocket, attribute, attributes
from node.values import Value, quick, value

NEWLINK, DELLINK, GETLINK = 16, 17, 18
NEWADDR, DELADDR, GETADDR = 20, 21, 22
NEWROUTE, DELROUTE, GETROUTE = 24, 25, 26
GETNEXTHOP = 106
GROUPS = (1, 5, 7, 9, 11)
"""RTNLGRP_LINK, IPV4_IFADDR, IPV4_ROUTE, IPV6_IFADDR, IPV6_ROUTE."""

_LINK = struct.Struct("=BxHiII")
"""ifinfomsg: family, ARP hardware type, index, flags, mask of changed flags."""
_ADDRESS = struct.Struct("=BBBBI")
"""ifaddrmsg: family, length of the prefix, flags, scope, index."""
_ROUTE = struct.Struct("=BBBBBBBBI")
"""rtmsg: family, destination's and source's lengths, TOS, table, protocol, scope, type, flags."""
_NEXT_HOP = struct.Struct("=HBBi")
"""rtnexthop: length, flags, hops, index."""
_HOP_OBJECT = struct.Struct("=BBBBI")
"""nhmsg: family, scope, protocol, reserved, flags."""
_HOP_MEMBER = struct.Struct("=IBBH")
"""nexthop_grp: the member's id, its weight, reserved."""
_NUMBER = struct.Struct("=I")
_SIGNED = struct.Struct("=i")

_IFLA_ADDRESS, _IFLA_NAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER = 1, 3, 4, 5, 10
_IFLA_OPERSTATE, _IFLA_LINKINFO, _IFLA_EXT_MASK, _IFLA_CARRIER = 16, 18, 29, 33
_IFLA_NETNSID, _IFLA_PERMANENT_ADDRESS, _INFO_KIND = 37, 54, 1
_SKIP_STATISTICS = 8
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_OIF, _RTA_PRIORITY, _RTA_MULTIPATH, _RTA_HOP_OBJECT = 4, 6, 9, 30
_NHA_ID, _NHA_GROUP, _NHA_OIF = 1, 2, 5
_UP, _LOOPBACK = 0x1, 0x8
_SCOPE_GLOBAL_AT_MOST = 200
"""RT_SCOPE_SITE; link (253), host (254) and nowhere (255) are beyond it."""
_UNICAST, _CLONED = 1, 0x200
_VERSIONS = {socket.AF_INET: 4, socket.AF_INET6: 6}

HopObjects = Mapping[int, tuple[int, ...]]
"""Indexes of the links that next-hop objects lead through, by the objects' ids."""
_UNRESOLVED = 0
"""The index that no link has."""


@quick
@value
class Link(Value):
    """A link as the kernel shows it; ``master`` and ``lower`` are indexes in the same namespace, None for none.

    ``kind`` is empty for hardware and loopback; ``operstate`` is the number of RFC 2863 (6 is up).
    """

    index: int
    name: str
    kind: str = ""
    loopback: bool = False
    up: bool = False
    operstate: int = 0
    carrier: bool = False
    mtu: int = 0
    address: str = ""
    permanent_address: str = ""
    master: int | None = None
    lower: int | None = None


@value
class Address(Value):
    """An address of the link with that index, with its prefix (``10.0.0.7/24``); ``wide``: no link-local or loopback.

    The administrator chooses the scope of an IPv4 address, so it says nothing.
    """

    index: int
    address: str
    wide: bool = True


@value
class DefaultRoute(Value):
    """A unicast route to everything through the link with that index; ``family`` is 4 or 6."""

    index: int
    family: int
    metric: int = 0


def dump_links(netlink: NetlinkSocket) -> tuple[Link, ...]:
    """All links of the socket's namespace; raises NetlinkError."""
    request = _LINK.pack(0, 0, 0, 0, 0) + attribute(_IFLA_EXT_MASK, _NUMBER.pack(_SKIP_STATISTICS))
    found = (parse_link(payload) for payload in netlink.dump(GETLINK, request, "links"))
    return tuple(link for link in found if link is not None)


def dump_addresses(netlink: NetlinkSocket) -> tuple[Address, ...]:
    """All IPv4 and IPv6 addresses; raises NetlinkError."""
    payloads = netlink.dump(GETADDR, _ADDRESS.pack(0, 0, 0, 0, 0), "addresses")
    found = (parse_address(payload) for payload in payloads)
    return tuple(address for address in found if address is not None)


def dump_default_routes(netlink: NetlinkSocket) -> tuple[DefaultRoute, ...]:
    """Default routes of all tables, IPv4 and IPv6; raises NetlinkError.

    For a route through a next-hop object the kernel names the links only while the sysctl ``nexthop_compat_mode`` is on
    (the default); otherwise the objects are read.
    """
    payloads: list[bytes] = []
    for family, version in _VERSIONS.items():
        request = _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
        try:
            payloads += netlink.dump(GETROUTE, request, f"IPv{version} routes")
        except NetlinkError as error:
            # A kernel without IPv6 has no such routes.
            if version == 6 and error.number in {errno.EAFNOSUPPORT, errno.EOPNOTSUPP}:
                continue
            raise
    found = [route for payload in payloads for route in parse_default_routes(payload)]
    if any(route.index == _UNRESOLVED for route in found):
        hops = parse_hop_objects(netlink.dump(GETNEXTHOP, _HOP_OBJECT.pack(0, 0, 0, 0, 0), "next hops"))
        found = [route for payload in payloads for route in parse_default_routes(payload, hops)]
    if any(route.index == _UNRESOLVED for route in found):
        raise NetlinkError("default routes", "one goes through a next hop that is not listed", errno.ENOENT)
    return tuple(found)


def parse_link(payload: bytes) -> Link | None:
    """The link of a RTM_NEWLINK or RTM_DELLINK; None for a bridge's message about one of its ports."""
    if len(payload) < _LINK.size:
        raise NetlinkError("a link", f"{len(payload)} bytes are too few", errno.EBADMSG)
    family, _, index, flags, _ = _LINK.unpack_from(payload)
    if family != socket.AF_UNSPEC:
        return None
    found = attributes(payload, _LINK.size, "a link")
    info = attributes(found[_IFLA_LINKINFO], 0, "a link's kind") if _IFLA_LINKINFO in found else {}
    # The lower link of one whose lower link is in another namespace has an index of that namespace.
    lower = None if _IFLA_NETNSID in found else _number(found, _IFLA_LINK)
    return Link(
        index=index,
        name=_text(found, _IFLA_NAME),
        kind=_text(info, _INFO_KIND),
        loopback=bool(flags & _LOOPBACK),
        up=bool(flags & _UP),
        operstate=found[_IFLA_OPERSTATE][0] if found.get(_IFLA_OPERSTATE) else 0,
        carrier=bool(found[_IFLA_CARRIER][0]) if found.get(_IFLA_CARRIER) else False,
        mtu=_number(found, _IFLA_MTU) or 0,
        address=found.get(_IFLA_ADDRESS, b"").hex(":"),
        permanent_address=found.get(_IFLA_PERMANENT_ADDRESS, b"").hex(":"),
        master=_number(found, _IFLA_MASTER) or None,
        lower=lower if lower not in (0, index) else None,
    )


def parse_address(payload: bytes) -> Address | None:
    """The address of a RTM_NEWADDR or RTM_DELADDR; None for another family than IPv4 and IPv6."""
    if len(payload) < _ADDRESS.size:
        raise NetlinkError("an address", f"{len(payload)} bytes are too few", errno.EBADMSG)
    family, prefix, _, scope, index = _ADDRESS.unpack_from(payload)
    if family not in _VERSIONS:
        return None
    found = attributes(payload, _ADDRESS.size, "an address")
    # On a point-to-point link IFA_ADDRESS is the other end's; IPv6 has IFA_LOCAL only there.
    raw = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS) or b""
    try:
        text = socket.inet_ntop(family, raw)
    except ValueError as error:
        raise NetlinkError("an address", f"{len(raw)} bytes for family {family}", errno.EBADMSG) from error
    if family == socket.AF_INET:
        wide = not text.startswith(("127.", "169.254."))
    else:
        wide = scope <= _SCOPE_GLOBAL_AT_MOST and text != "::1"
    return Address(index, f"{text}/{prefix}", wide)


def parse_default_routes(payload: bytes, hops: HopObjects | None = None) -> tuple[DefaultRoute, ...]:
    """The default routes in a RTM_NEWROUTE or RTM_DELROUTE, one for each link it goes through; mostly none.

    The index is 0 if only a next-hop object names the link and ``hops`` lacks it.
    """
    if len(payload) < _ROUTE.size:
        raise NetlinkError("a route", f"{len(payload)} bytes are too few", errno.EBADMSG)
    family, length, _, _, _, _, _, kind, flags = _ROUTE.unpack_from(payload)
    if length or kind != _UNICAST or flags & _CLONED or family not in _VERSIONS:
        return ()
    found = attributes(payload, _ROUTE.size, "a route")
    metric = _number(found, _RTA_PRIORITY) or 0
    indexes = [index for index in (_number(found, _RTA_OIF),) if index] or _next_hops(found.get(_RTA_MULTIPATH, b""))
    through = _number(found, _RTA_HOP_OBJECT)
    if not indexes and through is not None:
        indexes = list((hops or {}).get(through, (_UNRESOLVED,)))
    return tuple(DefaultRoute(index, _VERSIONS[family], metric) for index in dict.fromkeys(indexes))


def parse_hop_objects(payloads: Iterable[bytes]) -> HopObjects:
    """The next-hop objects of RTM_NEWNEXTHOP messages; a group has the links of its members."""
    hops: dict[int, tuple[int, ...]] = {}
    groups: dict[int, bytes] = {}
    for payload in payloads:
        found = attributes(payload, _HOP_OBJECT.size, "a next hop")
        number, index = _number(found, _NHA_ID), _number(found, _NHA_OIF)
        if number is not None and index is not None:
            hops[number] = (index,)
        elif number is not None:
            groups[number] = found.get(_NHA_GROUP, b"")
    for number, raw in groups.items():
        whole = raw[: len(raw) - len(raw) % _HOP_MEMBER.size]
        members = [member for member, *_ in _HOP_MEMBER.iter_unpack(whole)]
        hops[number] = tuple(index for member in members for index in hops.get(member, (_UNRESOLVED,)))
    return hops


def _next_hops(raw: bytes) -> list[int]:
    """Indexes of the links that an equal-cost route goes through."""
    indexes, start = [], 0
    while start + _NEXT_HOP.size <= len(raw):
        length, _, _, index = _NEXT_HOP.unpack_from(raw, start)
        if length < _NEXT_HOP.size:
            raise NetlinkError("a route", f"a next hop of {length} bytes", errno.EBADMSG)
        indexes.append(index)
        start += (length + 3) & ~3
    return indexes


def _number(found: Attributes, kind: int) -> int | None:
    raw = found.get(kind, b"")
    return _SIGNED.unpack_from(raw)[0] & 0xFFFFFFFF if len(raw) >= _SIGNED.size else None


def _text(found: Attributes, kind: int) -> str:
    return found.get(kind, b"").split(b"\0", 1)[0].decode(errors="backslashreplace")
