"""What the node itself uses its network interfaces for: links, addresses and default routes, by rtnetlink.

A device that serves the node's own traffic must not be given away, so this source is cautious: a table that cannot be
read keeps its last content, with a line in ``errors``. It shows the network namespace that the agent runs in; in a pod
without ``hostNetwork: true`` that is the pod's.

Loopback, and the kinds of links that never stand on hardware and come and go with every pod or service, are left out,
so that neither the facts nor the wake-ups grow with the number of pods.

Driver and firmware version of an interface come from the ioctl behind ``ethtool -i`` (linux/ethtool.h): the driver
answers it from memory, in microseconds, to everybody, and ethtool's netlink family lacks it.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array
from collections.abc import Callable
from operator import attrgetter
from typing import Protocol, TypeVar

from node.inventory.facts import NodeFacts
from node.inventory.net_facts import HostAddress, HostLink, HostRoute, NetworkFacts
from node.inventory.network.rtnetlink import (
    Address,
    DefaultRoute,
    Link,
    dump_addresses,
    dump_default_routes,
    dump_links,
)
from node.netlink import NetlinkError, NetlinkSocket
from node.values import Value, value

_Row = TypeVar("_Row")

POD_KINDS = frozenset({"veth", "netkit", "dummy", "ifb"})
"""Ends of pods' links, and links that lead nowhere (kube-proxy keeps one with every service's address)."""


def is_host_link(link: Link) -> bool:
    """Whether the node can use its hardware through this link."""
    return not link.loopback and link.kind not in POD_KINDS


class Tables(Protocol):
    """The tables that are read; each call raises NetlinkError."""

    def links(self) -> tuple[Link, ...]:
        """All links."""

    def addresses(self) -> tuple[Address, ...]:
        """All addresses."""

    def default_routes(self) -> tuple[DefaultRoute, ...]:
        """All default routes."""


class KernelTables:
    """The tables of the network namespace of the thread that asks; the socket lasts for one scan."""

    def links(self) -> tuple[Link, ...]:
        """All links."""
        with NetlinkSocket() as netlink:
            return dump_links(netlink)

    def addresses(self) -> tuple[Address, ...]:
        """All addresses."""
        with NetlinkSocket() as netlink:
            return dump_addresses(netlink)

    def default_routes(self) -> tuple[DefaultRoute, ...]:
        """All default routes."""
        with NetlinkSocket() as netlink:
            return dump_default_routes(netlink)


@value
class DriverInfo(Value):
    """Name and versions of a driver; None where it gives none (some write ``N/A``)."""

    driver: str | None = None
    firmware_version: str | None = None


def driver_info(interface: str) -> DriverInfo:
    """Ask the driver of an interface in the network namespace of this thread.

    Empty for an interface without the call, one that is gone, or one whose name is no UTF-8.
    """
    name = interface.encode()
    if len(name) > _NAME_LIMIT:
        return DriverInfo()
    info = array("B", _INFO.pack(_GDRVINFO, b"", b"", b"", b"", b"", b"", 0, 0, 0, 0, 0))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
            fcntl.ioctl(handle, _SIOCETHTOOL, _REQUEST.pack(name, info.buffer_info()[0]))
    except OSError:
        # No answer is a fact as well: a link may be gone since it was listed, or its driver may not know the call.
        return DriverInfo()
    _, driver, _, firmware, *_ = _INFO.unpack(info.tobytes())
    return DriverInfo(_text(driver), _text(firmware))


def _text(raw: bytes) -> str | None:
    text = raw.split(b"\0", 1)[0].decode(errors="replace").strip()
    return None if text in {"", "N/A", "n/a", "Unknown"} else text


class HostNetwork:
    """Source of ``NodeFacts.network``; ``counts`` selects the links that matter, and with them their addresses and
    routes."""

    name = "network"

    def __init__(
        self,
        tables: Tables | None = None,
        *,
        counts: Callable[[Link], bool] = is_host_link,
        driver: Callable[[str], DriverInfo] = driver_info,
    ) -> None:
        self._tables = tables or KernelTables()
        self._counts = counts
        self._driver = driver
        # None: never read.
        self._links: tuple[Link, ...] | None = None
        self._addresses: tuple[Address, ...] | None = None
        self._routes: tuple[DefaultRoute, ...] | None = None
        self._last: NodeFacts | None = None

    def read(self) -> NodeFacts:
        """The node's links, addresses and default routes."""
        self._last = self._read()
        return self._last

    def read_gpus(self, _: frozenset[str]) -> NodeFacts:
        """See ``GpuReader``: what happens to GPUs changes nothing of the network."""
        return self.read() if self._last is None else self._last

    def _read(self) -> NodeFacts:
        errors: list[str] = []
        unread: list[str] = []
        self._links = _kept(self._tables.links, self._links, errors, unread)
        self._addresses = _kept(self._tables.addresses, self._addresses, errors, unread)
        self._routes = _kept(self._tables.default_routes, self._routes, errors, unread)
        links = [link for link in self._links or () if self._counts(link)]
        names = {link.index: link.name for link in links}
        addresses = {
            HostAddress(names[each.index], each.address)
            for each in self._addresses or ()
            if each.wide and each.index in names
        }
        routes = {
            HostRoute(names[each.index], each.family, each.metric) for each in self._routes or () if each.index in names
        }
        return NodeFacts(
            network=NetworkFacts(
                links=tuple(sorted((self._host_link(link, names) for link in links), key=attrgetter("name"))),
                addresses=tuple(sorted(addresses, key=attrgetter("interface", "address"))),
                default_routes=tuple(sorted(routes, key=attrgetter("interface", "family", "metric"))),
                errors=tuple(errors),
                unread=next(iter(unread), None),
            )
        )

    def close(self) -> None:
        """Forget the last tables."""
        self._links = self._addresses = self._routes = self._last = None

    def _host_link(self, link: Link, names: dict[int, str]) -> HostLink:
        driver = self._driver(link.name) if not link.kind else DriverInfo()
        return HostLink(
            name=link.name,
            kind=link.kind,
            up=link.up,
            master=names.get(link.master) if link.master is not None else None,
            lower=names.get(link.lower) if link.lower is not None else None,
            permanent_address=link.permanent_address or None,
            driver=driver.driver,
            firmware_version=driver.firmware_version,
        )


def _kept(
    read: Callable[[], tuple[_Row, ...]], last: tuple[_Row, ...] | None, errors: list[str], unread: list[str]
) -> tuple[_Row, ...] | None:
    """The current table; if it cannot be read, its last content, with a line in ``errors``, and in ``unread`` if there
    is none.
    """
    try:
        return read()
    except NetlinkError as error:
        if last is None:
            unread.append(str(error))
        errors.append(str(error) if last is None else f"{error}; the last content counts")
        return last


_SIOCETHTOOL = 0x8946
_GDRVINFO = 3
_INFO = struct.Struct("=I32s32s32s32s32s12s5I")
"""ethtool_drvinfo: command, driver, its version, firmware's version, bus address, ROM's version, reserved, counts."""
_REQUEST = struct.Struct("16sP16x")
"""ifreq: the interface's name, then a union of 24 bytes that begins with a pointer here."""
_NAME_LIMIT = 15
