"""Listening to rtnetlink on the loop: links, addresses and default routes of this network namespace.

Carrier, MTU, addresses and names change without a uevent. Most notifications do not matter here (statistics, lifetimes
of addresses, pods' links and routes to them), so the last state of each link is kept, and only a difference is a hint.
The judge of links' health gets every message at once: through a scan, it would notice a pulled cable half a second
late.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from node.events import EventBus
from node.inventory.live.passing import in_passing
from node.inventory.network.host import is_host_link
from node.inventory.network.rtnetlink import (
    DELADDR,
    DELLINK,
    DELROUTE,
    GROUPS,
    NEWADDR,
    NEWLINK,
    NEWROUTE,
    Address,
    Link,
    dump_addresses,
    dump_links,
    parse_address,
    parse_default_routes,
    parse_link,
)
from node.inventory.source import HardwareHint
from node.metrics import Counter
from node.netlink import NetlinkSocket, group_mask

log = logging.getLogger("ostler.live")

_AT_A_TIME = 64
"""Reads per turn of the loop."""
_AGAIN = 0.1
"""Seconds until links are listed again after messages were lost: a loss is mostly followed by more."""
_BUFFER = 1 << 20
"""Bytes of receive buffer to ask for; the kernel's limit is usually 208 KiB."""


class LinkListener(Protocol):
    """Receives all links on the loop, including those that do not matter for scans."""

    def relisted(self, links: Sequence[Link]) -> None:
        """Take in the list of all links; earlier reports no longer hold."""

    def link(self, link: Link, *, gone: bool) -> None:
        """Take a link that changed or is gone; more may follow at once."""

    def settle(self) -> None:
        """The burst of changes is over."""


class _Nobody:
    def relisted(self, links: Sequence[Link]) -> None: ...

    def link(self, link: Link, *, gone: bool) -> None: ...

    def settle(self) -> None: ...


_NOBODY = _Nobody()


class LinkTable:
    """The last state of the links that count, with their addresses; says whether a message changes it."""

    def __init__(self, counts: Callable[[Link], bool] = is_host_link, listener: LinkListener = _NOBODY) -> None:
        self._counts = counts
        self._listener = listener
        self._links: dict[int, Link | None] = {}
        self._addresses: set[Address] = set()

    def fill(self, links: tuple[Link, ...], addresses: tuple[Address, ...]) -> None:
        """Start with these links."""
        self._links = {link.index: link if self._counts(link) else None for link in links}
        self._addresses = {address for address in addresses if self._wanted(address)}

    def changes(self, kind: int, payload: bytes) -> bool:
        """Whether a notification changes a link that counts; raises NetlinkError."""
        if kind in {NEWLINK, DELLINK}:
            return self._link_changes(kind, parse_link(payload))
        if kind in {NEWADDR, DELADDR}:
            return self._address_changes(kind, parse_address(payload))
        if kind in {NEWROUTE, DELROUTE}:
            return any(self._of_counted(route.index) for route in parse_default_routes(payload))
        return False

    def _link_changes(self, kind: int, link: Link | None) -> bool:
        # Messages without a name come from wireless drivers: an event, not the link's state.
        if link is None or not link.name:
            return False
        self._listener.link(link, gone=kind == DELLINK)
        if kind == DELLINK:
            self._addresses = {address for address in self._addresses if address.index != link.index}
            return self._links.pop(link.index, None) is not None
        before, now = self._links.get(link.index), link if self._counts(link) else None
        self._links[link.index] = now
        return before != now

    def _address_changes(self, kind: int, address: Address | None) -> bool:
        if address is None:
            return False
        if kind == DELADDR:
            known = address in self._addresses
            self._addresses.discard(address)
            return known
        # An address is announced again whenever its lifetime is prolonged.
        if address in self._addresses or not self._wanted(address):
            return False
        self._addresses.add(address)
        return True

    def _wanted(self, address: Address) -> bool:
        return address.wide and self._of_counted(address.index)

    def _of_counted(self, index: int) -> bool:
        """Whether the link of that index counts; one that was never seen does."""
        return index not in self._links or self._links[index] is not None


class LinkMonitor:
    """Publishes ``HardwareHint`` when a link that ``counts``, its addresses or a default route through it change.

    ``messages`` and ``overflows`` are metrics, ``hints`` counts. ``listening`` is False while the kernel sends nothing.
    """

    name = "links"

    def __init__(
        self,
        bus: EventBus,
        *,
        counts: Callable[[Link], bool] = is_host_link,
        listener: LinkListener = _NOBODY,
        buffer: int = _BUFFER,
    ) -> None:
        self._bus = bus
        self._table = LinkTable(counts, listener)
        self._listener = listener
        self._buffer = buffer
        self._socket: NetlinkSocket | None = None
        self._ended: asyncio.Future[None] | None = None
        self.listening = False
        self.messages = Counter("ostler_link_messages", "Notifications of rtnetlink received.")
        self.hints = 0
        self.overflows = Counter("ostler_link_overflows", "Times that the kernel dropped notifications of rtnetlink.")

    async def run(self) -> None:
        """Listen until cancelled; raises NetlinkError and OSError when the socket breaks."""
        with NetlinkSocket(group_mask(*GROUPS), buffer=self._buffer) as netlink:
            self._socket = netlink
            try:
                while True:
                    await self._listen(netlink)
                    await asyncio.sleep(_AGAIN)
            except Exception:
                # Until it listens again only scans report links, and the last one may be older than the last
                # notification.
                self._listener.relisted(())
                self._bus.publish(HardwareHint())
                raise
            finally:
                self.listening = False
                self._socket = None

    async def _listen(self, netlink: NetlinkSocket) -> None:
        """Listen until messages were lost; raises what broke it."""
        loop = asyncio.get_running_loop()
        ended = self._ended = loop.create_future()
        # After the socket: what changes in between is in the table and, once more, in a notification. In a thread:
        # the kernel answers only when no driver holds its lock, which a reset may do for seconds.
        links, addresses = await in_passing(_tables)
        self._table.fill(links, addresses)
        self._listener.relisted(links)
        loop.add_reader(netlink.fileno(), self._drain)
        self.listening = True
        try:
            # What happened before somebody listened is not known.
            self._bus.publish(HardwareHint())
            await ended
        finally:
            loop.remove_reader(netlink.fileno())

    def _drain(self) -> None:
        if self._socket is None or self._ended is None or self._ended.done():
            return
        try:
            self._read(self._socket)
            self._listener.settle()
        except Exception as error:  # noqa: BLE001 - the part ends with it, its supervisor logs it and begins anew
            # Removed so that the loop does not spin until the part has ended.
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            if isinstance(error, OSError) and error.errno == errno.ENOBUFS:
                self._overflowed()
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)

    def _read(self, netlink: NetlinkSocket) -> None:
        for _ in range(_AT_A_TIME):
            messages = netlink.notifications()
            if not messages:
                return
            self.messages.add(by=len(messages))
            # Process every message, whatever the others say: the table must stay right.
            changes = [self._table.changes(kind, payload) for kind, payload in messages]
            if any(changes):
                self.hints += 1
                self._bus.publish(HardwareHint())

    def _overflowed(self) -> None:
        self.overflows.add()
        overflows = self.overflows.total
        level = logging.WARNING if overflows == 1 else logging.DEBUG
        log.log(level, "link changes were lost; scanning everything again", extra={"overflows": overflows})


def _tables() -> tuple[tuple[Link, ...], tuple[Address, ...]]:
    with NetlinkSocket() as netlink:
        return dump_links(netlink), dump_addresses(netlink)
