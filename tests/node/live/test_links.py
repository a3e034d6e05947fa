"""Which notifications are hints: differences of links that count, and nothing else."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

import pytest

from node.events import EventBus
from node.inventory.live.links import LinkMonitor, LinkTable
from node.inventory.network.rtnetlink import (
    DELADDR,
    DELLINK,
    DELROUTE,
    NEWADDR,
    NEWLINK,
    NEWROUTE,
    Link,
    parse_address,
    parse_link,
)
from node.inventory.source import HardwareHint
from tests.making.events import heard
from tests.making.netlink_messages import address, link, route
from tests.waiting import eventually


def table(*links: bytes, addresses: tuple[bytes, ...] = ()) -> LinkTable:
    made = LinkTable()
    known = tuple(found for found in (parse_link(raw) for raw in links) if found is not None)
    used = tuple(found for found in (parse_address(raw) for raw in addresses) if found is not None)
    made.fill(known, used)
    return made


def test_statistics_alone_are_no_hint() -> None:
    seen = table(link(2))
    assert not seen.changes(NEWLINK, link(2, statistics=b"12345678"))


def test_each_property_that_counts_is_a_hint_once() -> None:
    seen = table(link(2))
    for changed in (
        link(2, operstate=2, carrier=False),
        link(2, operstate=2, carrier=False, flags=0),
        link(2, mtu=9000),
        link(2, mtu=9000, master=7),
        link(2, "other", mtu=9000, master=7),
    ):
        assert seen.changes(NEWLINK, changed)
        assert not seen.changes(NEWLINK, changed)


def test_a_links_end_is_a_hint_and_its_beginning_too() -> None:
    seen = table(link(2))
    assert seen.changes(DELLINK, link(2))
    assert not seen.changes(DELLINK, link(2))
    assert seen.changes(NEWLINK, link(2))


def test_pods_links_are_none() -> None:
    seen = table(link(2))
    assert not seen.changes(NEWLINK, link(9, "cali1", kind="veth"))
    assert not seen.changes(NEWADDR, address(9, "10.1.1.1", 32))
    assert not seen.changes(NEWROUTE, route(9))
    assert not seen.changes(DELLINK, link(9, "cali1", kind="veth"))


def test_messages_of_bridges_and_wireless_drivers_are_none() -> None:
    seen = table(link(2))
    assert not seen.changes(NEWLINK, link(2, master=5, family=7))
    assert not seen.changes(NEWLINK, link(2, name="", mtu=1))
    assert not seen.changes(NEWLINK, link(2))


def test_an_address_is_a_hint_when_it_comes_and_goes_and_not_when_it_is_prolonged() -> None:
    seen = table(link(2), addresses=(address(2, "10.0.0.1"),))
    assert not seen.changes(NEWADDR, address(2, "10.0.0.1"))
    assert seen.changes(NEWADDR, address(2, "fd00::1", 64))
    assert not seen.changes(NEWADDR, address(2, "fe80::1", 64, scope=253))
    assert seen.changes(DELADDR, address(2, "10.0.0.1"))
    assert not seen.changes(DELADDR, address(2, "10.0.0.1"))


def test_addresses_go_with_their_link() -> None:
    seen = table(link(2), addresses=(address(2, "10.0.0.1"),))
    assert seen.changes(DELLINK, link(2))
    assert seen.changes(NEWLINK, link(2))
    assert seen.changes(NEWADDR, address(2, "10.0.0.1"))


def test_default_routes_are_hints_and_other_routes_are_none() -> None:
    seen = table(link(2))
    assert seen.changes(NEWROUTE, route(2))
    assert seen.changes(DELROUTE, route(2, metric=5))
    assert not seen.changes(NEWROUTE, route(2, length=24))


def test_a_link_that_was_never_seen_counts() -> None:
    assert table().changes(NEWROUTE, route(77))
    assert not table().changes(4711, b"")


class _Listener:
    """What it is told to be all links."""

    def __init__(self) -> None:
        self.told: list[Sequence[Link]] = []

    def relisted(self, links: Sequence[Link]) -> None:
        self.told.append(links)

    def link(self, link: Link, *, gone: bool) -> None: ...

    def settle(self) -> None: ...


async def test_while_nobody_tells_of_links_what_was_told_does_not_count_and_a_scan_is_asked_for() -> None:
    listener, bus = _Listener(), EventBus()
    hints = heard(bus, HardwareHint)
    monitor = LinkMonitor(bus, listener=listener)
    listening = asyncio.create_task(monitor.run())
    await eventually(lambda: monitor.listening)
    assert listener.told[0]
    before = len(hints)
    assert monitor._ended is not None
    monitor._ended.set_exception(OSError(errno.EBADF, "Bad file descriptor"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        await listening
    assert list(listener.told[1:]) == [()]
    assert len(hints) == before + 1


async def test_at_the_end_what_was_told_of_links_still_counts() -> None:
    listener = _Listener()
    monitor = LinkMonitor(EventBus(), listener=listener)
    listening = asyncio.create_task(monitor.run())
    await eventually(lambda: monitor.listening)
    listening.cancel()
    await asyncio.wait([listening])
    assert len(listener.told) == 1
