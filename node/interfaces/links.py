"""Links as moving them needs them (linux/if_link.h): read, found again after a move, and changed by one message.

A link is found by what a pod cannot make up. Whoever has NET_ADMIN in a pod can give any link there our alias, a name
and a hardware address, but no other kind, parent device or permanent hardware address. So a PCI function's
link is sought at its function; among several (ports or subfunctions of one function) the parent device and the
permanent address decide, and the alias only where both are unknown.

A pod can make a hundred thousand links in its namespace. So one link is asked for where its index or name is known, and
else the links are read one after the other and none is kept but the one that is sought.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from sys import byteorder

from node.interfaces.model import HostSetup, InterfaceError, MovableInterface
from node.interfaces.mover import alias_of
from node.netlink import Netlink, NetlinkError, attribute, attribute_list, attributes
from node.values import Value, value

NEWLINK, GETLINK = 16, 18
_NEWLINKPROP, _DELLINKPROP = 108, 109
LINK = struct.Struct("=BxHiII")
"""ifinfomsg: family, ARP hardware type, index, flags, mask of changed flags."""
NUMBER = struct.Struct("=I")
EXT_MASK = 29
_SKIP_STATISTICS = 8
_ADDRESS, _BROADCAST, _NAME, _MTU, _LINKINFO, _ALIAS, _NETNS_FD, _CARRIER, _XDP = 1, 2, 3, 4, 18, 20, 28, 33, 43
_MIN_MTU, _MAX_MTU, _PERMANENT_ADDRESS, _PARENT, _PARENT_BUS = 50, 51, 54, 56, 57
_INFO_KIND, _PROPERTIES, _ALTERNATIVE_NAME = 1, 52, 53
_ABSENT = frozenset({errno.ENODEV, errno.EINVAL, errno.ENOENT, errno.ERANGE})
"""Errors about a link that does not exist, the second and the last about a name that none can have."""
_NESTED = 0x8000
_TUNING = (13, 17, 27, 39, 40, 41, 58, 63, 64)
"""IFLA_TXQLEN, LINKMODE, GROUP, PROTO_DOWN, and GSO and GRO_MAX_SEGS, _MAX_SIZE and IPV4_MAX_SIZE."""
_OF_ONE_BYTE = frozenset({17, 39})
_XDP_PROGRAMS = {5: 4, 6: 2, 7: 8}
"""IFLA_XDP_DRV_PROG_ID, SKB and HW, with the flag of the mode (XDP_FLAGS_*)."""
_UP, _PROMISCUOUS, _ALL_MULTICAST = 0x1, 0x100, 0x200
_SWITCHES = 0xF0A4
"""IFF_DEBUG, NOTRAILERS, NOARP, MULTICAST, PORTSEL, AUTOMEDIA and DYNAMIC."""
_ANY_FAMILY = bytes([socket.AF_UNSPEC])
NAME_LIMIT = 15
_NAMES_PARENTS = (5, 14)
"""The Linux version that began to name the device below a link."""
UNKNOWN = HostSetup("", 0, "", 0)
"""Of an interface of which nothing is on record."""
_BY_CERTAINTY = ("permanent", "function", "marked", "address")
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@value
class InterfaceLink(Value):
    """A link with everything that decides about a move.

    ``parent`` and ``parent_bus`` name the device below it: the address and ``pci`` for a PCI function. ``max_mtu``: 0
    for no limit. ``xdp``: by mode (XDP_FLAGS_*), the ids of XDP programs. ``switches``: flags that anybody may set
    (IFF_NOARP, IFF_MULTICAST and their like). ``tuning``: by attribute, numbers that anybody may set (lengths of queues
    and packets, the group). Bytes of alternative names that are no UTF-8 are surrogates, so each can be named again.
    """

    index: int
    name: str
    kind: str = ""
    up: bool = False
    carrier: bool = False
    promiscuous: bool = False
    mtu: int = 0
    min_mtu: int = 0
    max_mtu: int = 0
    address: str = ""
    permanent_address: str = ""
    alias: str = ""
    alternative_names: tuple[str, ...] = ()
    parent: str = ""
    parent_bus: str = ""
    xdp: tuple[tuple[int, int], ...] = ()
    switches: int = 0
    tuning: tuple[tuple[int, int], ...] = ()
    broadcast: str = ""


@contextmanager
def naming(subject: str, doing: str, fix: str = "") -> Iterator[None]:
    """Turn errors of the kernel into an InterfaceError: ``SUBJECT: cannot DOING: REASON``, and the fix if there is one.

    Without rights, the fix is the capabilities that are missing.
    """
    try:
        yield
    except NetlinkError as error:
        raise InterfaceError(_sentence(subject, doing, error.reason, fix, error.number)) from error
    except OSError as error:
        raise InterfaceError(_sentence(subject, doing, error.strerror or str(error), fix, error.errno or 0)) from error


def _sentence(subject: str, doing: str, reason: str, fix: str, number: int) -> str:
    if number in {errno.EPERM, errno.EACCES} and not fix:
        fix = "the agent needs the capabilities NET_ADMIN and SYS_ADMIN to move interfaces"
    return f"{subject}: cannot {doing}: {reason}" + (f"; {fix}" if fix else "")


def links(netlink: Netlink, marks: Collection[bytes] = ()) -> Iterator[InterfaceLink]:
    """The links of the socket's namespace, one after the other; a link may come again. Raises NetlinkError.

    ``marks``: without them all; else those in whose messages one of these is found (an alias, an address), and maybe
    others. Read it to its end before the socket is used again.
    """
    request = LINK.pack(0, 0, 0, 0, 0) + attribute(EXT_MASK, NUMBER.pack(_SKIP_STATISTICS))
    for payload in netlink.stream(GETLINK, request, "links"):
        if payload[:1] == _ANY_FAMILY and (not marks or any(mark in payload for mark in marks)):
            yield parse_interface_link(payload)


def link_at(netlink: Netlink, index: int) -> InterfaceLink | None:
    """The link with this index; None if there is none. Raises NetlinkError."""
    return _one_link(netlink, index, b"")


def link_named(netlink: Netlink, name: str) -> InterfaceLink | None:
    """The link with this name or alternative name; None if there is none. Raises NetlinkError."""
    raw = os.fsencode(name)
    long = len(raw) > NAME_LIMIT
    return _one_link(netlink, 0, attribute(_ALTERNATIVE_NAME if long else _NAME, raw + b"\0"))


def _one_link(netlink: Netlink, index: int, named: bytes) -> InterfaceLink | None:
    request = LINK.pack(0, 0, index, 0, 0) + attribute(EXT_MASK, NUMBER.pack(_SKIP_STATISTICS)) + named
    try:
        payloads = netlink.request(GETLINK, request, "a link")
    except NetlinkError as error:
        if error.number not in _ABSENT:
            raise
        return None
    return parse_interface_link(payloads[0]) if payloads else None


def parse_interface_link(payload: bytes) -> InterfaceLink:
    """The link of a RTM_NEWLINK; raises NetlinkError."""
    if len(payload) < LINK.size:
        raise NetlinkError("a link", f"{len(payload)} bytes are too few", errno.EBADMSG)
    _, _, index, flags, _ = LINK.unpack_from(payload)
    found = attributes(payload, LINK.size, "a link")
    xdp = attributes(found.get(_XDP, b""), 0, "XDP programs")
    names = found.get(_PROPERTIES, b"")
    return InterfaceLink(
        index=index,
        name=text(found.get(_NAME, b"")),
        kind=text(attributes(found.get(_LINKINFO, b""), 0, "a link's kind").get(_INFO_KIND, b"")),
        up=bool(flags & _UP),
        carrier=bool(found.get(_CARRIER, b"\0")[0]),
        promiscuous=bool(flags & (_PROMISCUOUS | _ALL_MULTICAST)),
        mtu=number(found.get(_MTU, b"")),
        min_mtu=number(found.get(_MIN_MTU, b"")),
        max_mtu=number(found.get(_MAX_MTU, b"")),
        address=found.get(_ADDRESS, b"").hex(":"),
        permanent_address=found.get(_PERMANENT_ADDRESS, b"").hex(":"),
        alias=text(found.get(_ALIAS, b"")),
        alternative_names=tuple(
            os.fsdecode(raw.split(b"\0", 1)[0]) for kind, raw in attribute_list(names, 0) if kind == _ALTERNATIVE_NAME
        ),
        parent=text(found.get(_PARENT, b"")),
        parent_bus=text(found.get(_PARENT_BUS, b"")),
        xdp=tuple((mode, number(xdp[kind])) for kind, mode in _XDP_PROGRAMS.items() if kind in xdp),
        switches=flags & _SWITCHES,
        tuning=tuple((kind, int.from_bytes(found[kind], byteorder)) for kind in _TUNING if kind in found),
        broadcast=found.get(_BROADCAST, b"").hex(":"),
    )


def text(raw: bytes) -> str:
    """A string of the kernel's; bytes that are no UTF-8 as the inventory writes them."""
    return raw.split(b"\0", 1)[0].decode(errors="backslashreplace")


def number(raw: bytes) -> int:
    """A number of 32 bits; 0 if it is missing."""
    return int(NUMBER.unpack_from(raw)[0]) if len(raw) >= NUMBER.size else 0


def find_link(
    present: Iterable[InterfaceLink],
    interface: MovableInterface,
    sys: Path,
    before: HostSetup = UNKNOWN,
    *,
    addresses: Iterable[str] = (),
) -> InterfaceLink | None:
    """The interface's link among those of one namespace, whatever it is called there; None if it is not there.

    ``before``: what it had on the node. ``addresses``: further hardware addresses that it may have; with its index they
    decide when the alias is lost. Reads ``present`` to its end and keeps none of it.
    """
    known = frozenset(filter(None, (before.hardware_address, *addresses)))
    real, alias = is_real_function(interface, sys), alias_of(interface.device)
    candidates: dict[str, InterfaceLink] = {}
    indices: set[int] = set()
    for link in present:
        if (real and pci_function(link, sys) != interface.pci_address) or _is_another(link, interface, before):
            continue
        if real and len(indices) <= 1:
            indices.add(link.index)
            candidates["function"] = link
        is_made = before.kind is None and bool(link.kind)
        if before.permanent_address and not is_made and link.permanent_address == before.permanent_address:
            candidates["permanent"] = link
        if link.alias == alias and ("marked" not in candidates or link.index == before.index):
            candidates["marked"] = link
        if link.index == before.index and {link.address, link.permanent_address} & known:
            candidates["address"] = link
    if len(indices) > 1:
        del candidates["function"]
    return next((candidates[each] for each in _BY_CERTAINTY if each in candidates), None)


def is_certain(link: InterfaceLink, interface: MovableInterface, before: HostSetup, sys: Path) -> bool:
    """Whether the link with the index of ``before`` is the interface's, so that no other needs to be read."""
    if _is_another(link, interface, before):
        return False
    if not is_real_function(interface, sys):
        return link.alias == alias_of(interface.device)
    is_same = bool(before.permanent_address) and link.permanent_address == before.permanent_address
    return (is_same or interface.vf_index is not None) and pci_function(link, sys) == interface.pci_address


def _is_another(link: InterfaceLink, interface: MovableInterface, before: HostSetup) -> bool:
    """Whether the link is surely not the one that had ``before`` on the node, whatever a pod says of it."""
    if before.kind is not None and link.kind != before.kind:
        return True
    permanent = before.permanent_address, link.permanent_address
    if all(permanent) and permanent[0] != permanent[1]:
        # That of a virtual function may follow the address that its physical one gives it.
        return interface.vf_index is None
    # The number of a subfunction's device changes when its driver is loaded anew.
    return bool(before.parent) and link.parent != before.parent and not all(permanent)


def is_real_function(interface: MovableInterface, sys: Path) -> bool:
    """Whether the interface is sought at its PCI function: this machine has the function, and the kernel names it.

    A recorded node's function is not there; whatever stands for its interface is found by name, then by alias.
    """
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    there = bool(interface.pci_address) and (sys / "bus/pci/devices" / interface.pci_address).exists()
    return there and release >= _NAMES_PARENTS


def pci_function(link: InterfaceLink, sys: Path) -> str:
    """The PCI address of the function that the link stands on, empty for none."""
    if link.parent_bus == "pci":
        return link.parent
    if not link.parent_bus:
        return ""
    # Of virtio's and the auxiliary bus's devices the function is a parent; this part of sysfs knows no namespaces.
    device = sys / "bus" / link.parent_bus / "devices" / link.parent
    return next((part for part in reversed(device.resolve().parts) if _PCI.fullmatch(part)), "")


def change_link(
    netlink: Netlink,
    index: int,
    *,
    name: str | None = None,
    mtu: int | None = None,
    address: str | None = None,
    alias: str | None = None,
    namespace: int | None = None,
    up: bool | None = None,
    promiscuous: bool | None = None,
    switches: int | None = None,
    tuning: Iterable[tuple[int, int]] = (),
    broadcast: str | None = None,
) -> None:
    """Change what is given of a link, by one message; ``namespace`` is a descriptor of the one to move it to.

    The kernel moves first, and changes the rest there: an error may leave the link moved. Raises NetlinkError.
    """
    flags, mask = 0, 0
    if up is not None:
        flags, mask = _UP if up else 0, _UP
    if promiscuous is not None:
        mask |= _PROMISCUOUS | _ALL_MULTICAST
        flags |= _PROMISCUOUS | _ALL_MULTICAST if promiscuous else 0
    if switches is not None:
        mask |= _SWITCHES
        flags |= switches & _SWITCHES
    body = LINK.pack(0, 0, index, flags, mask)
    if namespace is not None:
        body += attribute(_NETNS_FD, NUMBER.pack(namespace))
    if name is not None:
        body += attribute(_NAME, name.encode() + b"\0")
    if mtu is not None:
        body += attribute(_MTU, NUMBER.pack(mtu))
    if address is not None:
        body += attribute(_ADDRESS, bytes.fromhex(address.replace(":", "")))
    if alias is not None:
        # Without any content the kernel takes the alias away.
        body += attribute(_ALIAS, alias.encode())
    for kind, setting in tuning:
        body += attribute(kind, setting.to_bytes(1 if kind in _OF_ONE_BYTE else 4, byteorder))
    if broadcast is not None:
        body += attribute(_BROADCAST, bytes.fromhex(broadcast.replace(":", "")))
    netlink.request(NEWLINK, body, f"changing link {index}")


def change_alternative_names(
    netlink: Netlink, index: int, *, add: Iterable[str] = (), remove: Iterable[str] = ()
) -> None:
    """Give the link these alternative names, or take them away; raises NetlinkError."""
    for kind, names in ((_DELLINKPROP, remove), (_NEWLINKPROP, add)):
        content = b"".join(attribute(_ALTERNATIVE_NAME, os.fsencode(name) + b"\0") for name in names)
        if content:
            body = LINK.pack(0, 0, index, 0, 0) + attribute(_PROPERTIES | _NESTED, content)
            netlink.request(kind, body, f"alternative names of link {index}")


def detach_xdp(netlink: Netlink, index: int, mode: int) -> None:
    """Take away the XDP program of this mode; raises NetlinkError (EBUSY while a BPF link holds it)."""
    content = attribute(1, struct.pack("=i", -1)) + attribute(3, NUMBER.pack(mode))
    netlink.request(
        NEWLINK, LINK.pack(0, 0, index, 0, 0) + attribute(_XDP, content), f"detaching XDP from link {index}"
    )
