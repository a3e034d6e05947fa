"""Which notifications are hints: differences of links that count, and nothing else."""

from __future__ import annotations

from node.inventory.live.links import LinkTable
from node.inventory.network.rtnetlink import (
    DELADDR,
    DELLINK,
    DELROUTE,
    NEWADDR,
    NEWLINK,
    NEWROUTE,
    parse_address,
    parse_link,
)
from tests.netlink.making import address, link, route


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
