"""Bytes to values: attributes, links, addresses, default routes, and what is nonsense."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inventory.network.rtnetlink import (
    Address,
    DefaultRoute,
    parse_address,
    parse_default_routes,
    parse_hop_objects,
    parse_link,
)
from node.netlink import NetlinkError, attribute, attributes, group_mask
from tests.making.netlink_messages import address, link, route


@given(st.dictionaries(st.integers(0, 0x3FFF), st.binary(max_size=300), max_size=20))
def test_attributes_are_read_as_they_were_written(wanted: dict[int, bytes]) -> None:
    raw = b"".join(attribute(kind, content) for kind, content in wanted.items())
    assert attributes(b"1234" + raw, 4) == wanted


@given(st.binary(max_size=64))
def test_any_bytes_are_parsed_or_refused_with_one_error(raw: bytes) -> None:
    for parse in (parse_link, parse_address, parse_default_routes):
        with suppress(NetlinkError):
            parse(raw)


def test_an_attribute_past_the_end_is_refused_with_its_place() -> None:
    with pytest.raises(NetlinkError, match=r"netlink: a link: an attribute of 99 bytes at offset 16 of 20"):
        parse_link(bytes(16) + struct.pack("=HH", 99, 3))


def test_a_link_has_kind_state_and_neighbours() -> None:
    found = parse_link(link(7, "bond0.100", kind="vlan", lower=5, master=9, mtu=9000))
    assert found is not None
    assert (found.index, found.name, found.kind, found.lower, found.master) == (7, "bond0.100", "vlan", 5, 9)
    assert (found.up, found.operstate, found.carrier, found.mtu) == (True, 6, True, 9000)


def test_the_lower_link_of_another_namespace_is_not_one_of_this_one() -> None:
    found = parse_link(link(7, "mv0", kind="macvlan", lower=5, namespace=1))
    assert found is not None
    assert found.lower is None


def test_a_bridges_message_about_a_port_is_not_a_link() -> None:
    assert parse_link(link(7, family=socket.AF_BRIDGE)) is None


def test_a_name_that_is_no_utf8_is_written_out() -> None:
    raw = struct.pack("=BxHiII", 0, 1, 3, 0, 0) + attribute(3, b"odd\xff!\0")
    found = parse_link(raw)
    assert found is not None
    assert found.name == "odd\\xff!"


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (address(3, "10.0.0.7"), Address(3, "10.0.0.7/24")),
        (address(3, "fd00::7", 64), Address(3, "fd00::7/64")),
        (address(3, "fe80::1", 64, scope=253), Address(3, "fe80::1/64", wide=False)),
        (address(3, "10.0.0.7", scope=253), Address(3, "10.0.0.7/24")),
        (address(1, "::1", 128), Address(1, "::1/128", wide=False)),
        (address(3, "169.254.1.1", 16), Address(3, "169.254.1.1/16", wide=False)),
        (address(1, "127.0.0.2", 8), Address(1, "127.0.0.2/8", wide=False)),
    ],
)
def test_addresses_say_whether_they_reach_beyond_the_link(raw: bytes, wanted: Address) -> None:
    assert parse_address(raw) == wanted


def test_an_address_of_a_wrong_length_is_refused() -> None:
    with pytest.raises(NetlinkError, match="3 bytes for family 2"):
        parse_address(struct.pack("=BBBBI", 2, 24, 0, 0, 3) + attribute(1, b"123"))


def test_only_unicast_routes_to_everything_are_default_routes() -> None:
    assert parse_default_routes(route(4, metric=100)) == (DefaultRoute(4, 4, 100),)
    assert parse_default_routes(route(4, family=socket.AF_INET6)) == (DefaultRoute(4, 6),)
    assert parse_default_routes(route(4, length=8)) == ()
    assert parse_default_routes(route(1, kind=7)) == ()
    assert parse_default_routes(route(4, flags=0x200)) == ()


def test_an_equal_cost_route_goes_through_all_its_links() -> None:
    assert parse_default_routes(route(4, 5, 4)) == (DefaultRoute(4, 4), DefaultRoute(5, 4))


def hop(number: int, *rest: bytes) -> bytes:
    return struct.pack("=BBBBI", 2, 0, 0, 0, 0) + attribute(1, struct.pack("=I", number)) + b"".join(rest)


def test_a_route_through_a_next_hop_object_goes_through_its_links() -> None:
    hops = parse_hop_objects(
        [
            hop(9, attribute(2, struct.pack("=IBBHIBBH", 7, 0, 0, 0, 8, 0, 0, 0))),
            hop(7, attribute(5, struct.pack("=I", 4))),
            hop(8, attribute(5, struct.pack("=I", 5))),
        ]
    )
    assert hops == {7: (4,), 8: (5,), 9: (4, 5)}

    def through(number: int) -> bytes:
        return route() + attribute(30, struct.pack("=I", number))

    assert parse_default_routes(through(7), hops) == (DefaultRoute(4, 4),)
    assert parse_default_routes(through(9), hops) == (DefaultRoute(4, 4), DefaultRoute(5, 4))
    assert parse_default_routes(through(6), hops) == parse_default_routes(through(7)) == (DefaultRoute(0, 4),)


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_of_next_hops_are_parsed_or_refused_with_one_error(payloads: list[bytes]) -> None:
    with suppress(NetlinkError):
        parse_hop_objects(payloads)


def test_groups_become_a_mask() -> None:
    assert group_mask(1, 5, 7, 9, 11) == 0x551
