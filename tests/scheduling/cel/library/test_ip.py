from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.cel.library.ip import IpAddress, Network, NetworkError, is_address, parse_address, parse_network
from scheduling.cel.values import CelFault
from tests.making.cel import CALLS

MAPPED = ipaddress.ip_network("::ffff:0:0/96")
v4 = st.ip_addresses(v=4)
v6 = st.ip_addresses(v=6).filter(lambda address: address not in MAPPED)
addresses = st.one_of(v4, v6)


@given(addresses)
def test_an_address_is_written_canonically(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    read = parse_address(address.exploded)
    assert (read.number, read.family) == (int(address), address.version)
    assert str(read) == address.compressed.lower()
    assert parse_address(str(read)) == read


@given(addresses, st.integers(0, 32), addresses)
def test_a_network_contains_what_has_its_prefix(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
    bits: int,
    other: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    network = parse_network(f"{address}/{bits}")
    judge = ipaddress.ip_network(f"{address}/{bits}", strict=False)
    assert str(network.masked().address) == judge.network_address.compressed
    assert network.contains(parse_address(str(other))) == (other in judge)
    assert network.covers(network.masked())
    assert network.covers(Network(network.address, network.address.width))


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4", "1..2.3", ".1.2.3", "1.2.3.", "1.2.3.a", "1.2.3.4 "),
        *(":", ":::", "1::2::3", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:8::", "12345::", "g::", "1:"),
        *("1:2:3:4:5:6:7:1.2.3.4", "::1.2.3", "1.2.3.4::", "\u0661.2.3.4"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(NetworkError, match="is not an IP address"):
        parse_address(text)
    assert not is_address(text)


def test_a_zone_is_refused_but_known() -> None:
    with pytest.raises(NetworkError, match="it must not have a zone"):
        parse_address("fe80::1%eth0")
    assert is_address("fe80::1%eth0")
    assert not is_address("fe80::1%")
    assert not is_address("1.2.3.4%eth0")


def test_an_ipv4_mapped_address_is_refused() -> None:
    for read, text in ((parse_address, "::ffff:1.2.3.4"), (parse_network, "::ffff:1.2.3.4/128")):
        with pytest.raises(NetworkError) as caught:
            read(text)
        assert (
            str(caught.value)
            == f'"{text}" is an IPv4-mapped IPv6 address, which is not allowed: write the IPv4 address'
        )


@pytest.mark.parametrize(
    "text", ["1.2.3.4/33", "::1/129", "1.2.3.4/08", "1.2.3.4/+8", "1.2.3.4/", "1.2.3.4/-1", "1.2.3.4/9999"]
)
def test_bits_must_be_a_number_within_the_address(text: str) -> None:
    with pytest.raises(NetworkError, match="must be a number of bits from 0 to"):
        parse_network(text)


def test_a_network_needs_a_slash() -> None:
    with pytest.raises(NetworkError, match=r'"1\.2\.3\.4" is not a network: it has no "/"'):
        parse_network("1.2.3.4")


def _what(text: str) -> set[str]:
    address = parse_address(text)
    names = ("unspecified", "loopback", "multicast", "link_local_multicast", "link_local_unicast", "global_unicast")
    return {name for name in names if getattr(address, f"is_{name}")}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0.0.0.0", {"unspecified"}),
        ("::", {"unspecified"}),
        ("127.1.2.3", {"loopback"}),
        ("::1", {"loopback"}),
        ("224.0.0.7", {"multicast", "link_local_multicast"}),
        ("224.0.1.7", {"multicast"}),
        ("ff02::1", {"multicast", "link_local_multicast"}),
        ("ff12::1", {"multicast", "link_local_multicast"}),
        ("ff05::1", {"multicast"}),
        ("169.254.0.1", {"link_local_unicast"}),
        ("fe80::1", {"link_local_unicast"}),
        ("febf::1", {"link_local_unicast"}),
        ("fec0::1", {"global_unicast"}),
        ("255.255.255.255", set()),
        ("10.0.0.1", {"global_unicast"}),
        ("2001:db8::1", {"global_unicast"}),
    ],
)
def test_kinds_of_addresses(text: str, what: set[str]) -> None:
    assert _what(text) == what


def test_sizes_are_bytes() -> None:
    assert (parse_address("1.2.3.4").cel_size(), parse_address("::1").cel_size()) == (4, 16)
    assert [parse_network(f"::/{bits}").cel_size() for bits in (0, 1, 8, 9, 128)] == [0, 1, 1, 2, 16]


def test_host_bits_count_in_equality() -> None:
    assert not parse_network("10.0.0.1/8").cel_equal(parse_network("10.0.0.0/8"))
    assert parse_network("10.0.0.1/8").masked().cel_equal(parse_network("10.0.0.0/8"))


def test_addresses_are_equal_within_a_family() -> None:
    assert parse_address("::1").cel_equal(parse_address("0::1"))
    assert not parse_address("::1").cel_equal(parse_address("0.0.0.1"))
    with pytest.raises(CelFault, match="no such overload"):
        parse_address("::1").cel_equal("::1")


def test_functions_read_texts_as_second_argument() -> None:
    network = CALLS["string_to_cidr"]("10.0.0.0/8")
    assert CALLS["cidr_contains_ip_string"](network, "10.1.2.3") is True
    assert CALLS["cidr_contains_ip_ip"](network, IpAddress(1, 128)) is False
    assert CALLS["cidr_contains_cidr_string"](network, "10.1.0.0/16") is True
    assert CALLS["cidr_contains_cidr_string"](network, "10.0.0.0/7") is False
    assert CALLS["is_ip"]("1") is False
    assert CALLS["is_cidr"]("1") is False
    assert CALLS["ip_is_canonical"]("::0") is False
    assert CALLS["is_ip"]("::1") is True
    assert CALLS["is_cidr"]("::1/64") is True
    assert CALLS["cidr_to_string"](network) == "10.0.0.0/8"
    with pytest.raises(CelFault, match='"1" is not a network'):
        CALLS["cidr_contains_cidr_string"](network, "1")
    with pytest.raises(CelFault, match='"x" is not an IP address'):
        CALLS["cidr_contains_ip_string"](network, "x")
    with pytest.raises(CelFault, match="no such overload"):
        network.cel_equal("10.0.0.0/8")
