"""Kubernetes' libraries of IP addresses (`ip`, `isIP`) and of networks (`cidr`, `isCIDR`).

Source of the rules: Go's net/netip, and the refusals of the API server's library (zones, IPv4-mapped IPv6 addresses).
Python's `ipaddress` differs in detail (leading zeros by version, zones, netmasks after the slash), so reading and
writing are done here; an address is an integer and a width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from operator import attrgetter
from typing import ClassVar

from scheduling.cel.errors import TextError
from scheduling.cel.library.function import Library, Overload, function, is_readable, method, reader
from scheduling.cel.library.prices import ONE, READS_TEXT, TEXT, CallEstimate, CallOperand, CostRange, Price, reads
from scheduling.cel.types import BOOL, CIDR, INT, IP, STRING, Type
from scheduling.cel.values import Opaque, Value, size_of

_V4, _V6 = 32, 128
_GROUP = re.compile(r"[0-9a-fA-F]{1,4}")
_OCTET = re.compile(r"0|[1-9][0-9]{0,2}")
_BITS = re.compile(r"0|[1-9][0-9]*")


class NetworkError(TextError):
    """A text that is neither an address nor a network."""


@dataclass(frozen=True, slots=True)
class IpAddress(Opaque):
    """One address: `number` of `width` bits (32 or 128)."""

    cel_type: ClassVar[Type] = IP

    number: int
    width: int

    def __str__(self) -> str:
        """The canonical text: RFC 5952 for IPv6."""
        if self.width == _V4:
            return _octets(self.number)
        groups = [self.number >> shift & 0xFFFF for shift in range(112, -16, -16)]
        start, length = _longest_zeros(groups)
        if length < 2:
            return ":".join(f"{each:x}" for each in groups)
        head = ":".join(f"{each:x}" for each in groups[:start])
        tail = ":".join(f"{each:x}" for each in groups[start + length :])
        return f"{head}::{tail}"

    @property
    def family(self) -> int:
        """4 or 6."""
        return 4 if self.width == _V4 else 6

    def cel_size(self) -> int:
        """Bytes."""
        return self.width // 8

    @property
    def is_unspecified(self) -> bool:
        """Whether it is 0.0.0.0 or ::."""
        return self.number == 0

    @property
    def is_loopback(self) -> bool:
        """Whether it is in 127.0.0.0/8 or is ::1."""
        return self.number >> 24 == 127 if self.width == _V4 else self.number == 1

    @property
    def is_multicast(self) -> bool:
        """Whether it is in 224.0.0.0/4 or ff00::/8."""
        return self.number >> 28 == 0xE if self.width == _V4 else self.number >> 120 == 0xFF

    @property
    def is_link_local_multicast(self) -> bool:
        """Whether it is in 224.0.0.0/24, or ff.2::/16 whatever its flags."""
        if self.width == _V4:
            return self.number >> 8 == 0xE00000
        return self.number >> 112 & 0xFF0F == 0xFF02

    @property
    def is_link_local_unicast(self) -> bool:
        """Whether it is in 169.254.0.0/16 or fe80::/10."""
        if self.width == _V4:
            return self.number >> 16 == 0xA9FE
        return self.number >> 118 == 0xFE80 >> 6

    @property
    def is_global_unicast(self) -> bool:
        """Whether it is of no other class; private addresses are global in this sense."""
        if self.width == _V4 and self.number == 0xFFFFFFFF:
            return False
        return not (self.is_unspecified or self.is_loopback or self.is_multicast or self.is_link_local_unicast)


@lru_cache(maxsize=4096)
def parse_address(text: str) -> IpAddress:
    """Read an address. Raises NetworkError, also for zones and for IPv4-mapped IPv6 addresses."""
    address = read_address(text)
    refuse_mapped(text, address)
    return address


def is_address(text: str) -> bool:
    """Whether net/netip reads the text, zones and IPv4-mapped addresses included, as for the host of a URL."""
    before, zone, name = text.partition("%")
    try:
        read_address(before if zone and name and ":" in before else text)
    except NetworkError:
        return False
    return True


def refuse_mapped(text: str, address: IpAddress) -> None:
    """Raises NetworkError for an IPv4-mapped IPv6 address."""
    if address.width == _V6 and address.number >> 32 == 0xFFFF:
        raise NetworkError(text, "is an IPv4-mapped IPv6 address, which is not allowed: write the IPv4 address")


def read_address(text: str) -> IpAddress:
    """Read an address, IPv4-mapped ones too. Raises NetworkError."""
    if "%" in text:
        raise NetworkError(text, "is not a valid IP address: it must not have a zone")
    if ":" in text:
        return IpAddress(_v6(text), _V6)
    if "." in text:
        return IpAddress(_v4(text, text), _V4)
    raise NetworkError(text, "is not an IP address")


def _v4(text: str, part: str) -> int:
    octets = part.split(".")
    if len(octets) != 4 or not all(_OCTET.fullmatch(each) and int(each) < 256 for each in octets):
        raise NetworkError(
            text, "is not an IP address: an IPv4 address is four numbers from 0 to 255 without leading zeros"
        )
    return int.from_bytes(map(int, octets))


def _v6(text: str) -> int:
    """Eight groups; `::` means one or more groups of zeros, once; the last two may be written as IPv4."""
    before, gap, after = text.partition("::")
    head = before.split(":") if before else []
    tail = after.split(":") if after else []
    groups = head + tail
    if groups and "." in groups[-1] and (tail or not gap):
        v4 = _v4(text, groups[-1])
        last = [f"{v4 >> 16:x}", f"{v4 & 0xFFFF:x}"]
        groups[-1:] = last
        if tail:
            tail[-1:] = last
        else:
            head[-1:] = last
    if not all(_GROUP.fullmatch(each) for each in groups):
        raise NetworkError(text, "is not an IP address: a group of an IPv6 address is one to four hexadecimal digits")
    if len(groups) > 7 if gap else len(groups) != 8:
        raise NetworkError(text, "is not an IP address: an IPv6 address has eight groups, or fewer and one ::")
    filled = head + ["0"] * (8 - len(groups)) + tail
    return int("".join(each.zfill(4) for each in filled), 16)


def _octets(number: int) -> str:
    return ".".join(str(number >> shift & 0xFF) for shift in (24, 16, 8, 0))


def _longest_zeros(groups: list[int]) -> tuple[int, int]:
    """Start and length of the first longest run of zeros."""
    best, start = (0, 0), 0
    for position, group in enumerate([*groups, 1]):
        if group:
            if position - start > best[1]:
                best = (start, position - start)
            start = position + 1
    return best


ADDRESS = reader(parse_address, NetworkError)
"""`ip(text)`."""


def _is_canonical(text: str) -> Value:
    return str(ADDRESS(text)) == text


def _property(name: str, identifier: str, call: Callable[[IpAddress], Value]) -> Overload:
    return method(name, identifier, IP, result=BOOL, call=call)


@dataclass(frozen=True, slots=True)
class Network(Opaque):
    """A network: an address, whose host bits may be set, and the number of leading bits that count."""

    cel_type: ClassVar[Type] = CIDR

    address: IpAddress
    bits: int

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    def cel_size(self) -> int:
        """Bytes that the prefix touches."""
        return (self.bits + 7) // 8

    def masked(self) -> Network:
        """The same network with the host bits cleared."""
        host = self.address.width - self.bits
        return Network(IpAddress(self.address.number >> host << host, self.address.width), self.bits)

    def contains(self, address: IpAddress) -> bool:
        """Whether the address lies in it; never one of the other family."""
        host = self.address.width - self.bits
        return address.width == self.address.width and address.number >> host == self.address.number >> host

    def covers(self, other: Network) -> bool:
        """Whether all of the other network lies in it."""
        return self.bits <= other.bits and self.contains(other.address)


@lru_cache(maxsize=4096)
def parse_network(text: str) -> Network:
    """Read a network: an address, a slash, a number of bits. Raises NetworkError."""
    before, slash, bits = text.rpartition("/")
    if not slash:
        raise NetworkError(text, 'is not a network: it has no "/"')
    address = read_address(before)
    if not _BITS.fullmatch(bits) or len(bits) > 3 or int(bits) > address.width:
        raise NetworkError(text, f'is not a network: "{bits}" must be a number of bits from 0 to {address.width}')
    refuse_mapped(text, address)
    return Network(address, int(bits))


_ADDRESS_BYTES = CostRange(4, 16)


def _containment(*, masks: bool, parses: bool) -> Price:
    """The price of comparing two addresses; a network is masked before, a text is read before."""

    def cost(arguments: Sequence[Value], _result: Value) -> int:
        size = size_of(arguments[0])
        units = ceil((size + size) * TEXT)
        if masks:
            units += ceil(size * TEXT) + 1
        if parses:
            units += ceil(size_of(arguments[1]) * TEXT)
        return units

    def estimate(operands: Sequence[CallOperand]) -> CallEstimate:
        units = (_ADDRESS_BYTES + _ADDRESS_BYTES).times(TEXT)
        if masks:
            units += _ADDRESS_BYTES.times(TEXT) + ONE
        if parses:
            units += operands[1].range().times(TEXT)
        return CallEstimate(units)

    return Price(cost, estimate, by_name=not parses)


_READ = reader(parse_network, NetworkError)


def _contains(network: Network, text: str) -> Value:
    return network.contains(ADDRESS(text))


def _covers(network: Network, text: str) -> Value:
    return network.covers(_READ(text))


_CONTAINS, _CONTAINS_TEXT = _containment(masks=False, parses=False), _containment(masks=False, parses=True)
_COVERS, _COVERS_TEXT = _containment(masks=True, parses=False), _containment(masks=True, parses=True)

LIBRARY: Library = (
    function("ip", "string_to_ip", STRING, result=IP, call=ADDRESS, price=READS_TEXT),
    function("isIP", "is_ip", STRING, result=BOOL, call=is_readable(parse_address, NetworkError), price=READS_TEXT),
    function("ip.isCanonical", "ip_is_canonical", STRING, result=BOOL, call=_is_canonical, price=reads(2 * TEXT)),
    method("family", "ip_family", IP, result=INT, call=attrgetter("family")),
    _property("isUnspecified", "ip_is_unspecified", attrgetter("is_unspecified")),
    _property("isLoopback", "ip_is_loopback", attrgetter("is_loopback")),
    _property("isLinkLocalMulticast", "ip_is_link_local_multicast", attrgetter("is_link_local_multicast")),
    _property("isLinkLocalUnicast", "ip_is_link_local_unicast", attrgetter("is_link_local_unicast")),
    _property("isGlobalUnicast", "ip_is_global_unicast", attrgetter("is_global_unicast")),
    function("string", "ip_to_string", IP, result=STRING, call=str),
    function("cidr", "string_to_cidr", STRING, result=CIDR, call=_READ, price=READS_TEXT),
    function("isCIDR", "is_cidr", STRING, result=BOOL, call=is_readable(parse_network, NetworkError), price=READS_TEXT),
    method("containsIP", "cidr_contains_ip_string", CIDR, STRING, result=BOOL, call=_contains, price=_CONTAINS_TEXT),
    method("containsIP", "cidr_contains_ip_ip", CIDR, IP, result=BOOL, call=Network.contains, price=_CONTAINS),
    method("containsCIDR", "cidr_contains_cidr_string", CIDR, STRING, result=BOOL, call=_covers, price=_COVERS_TEXT),
    method("containsCIDR", "cidr_contains_cidr", CIDR, CIDR, result=BOOL, call=Network.covers, price=_COVERS),
    method("ip", "cidr_ip", CIDR, result=IP, call=attrgetter("address")),
    method("prefixLength", "cidr_prefix_length", CIDR, result=INT, call=attrgetter("bits")),
    method("masked", "cidr_masked", CIDR, result=CIDR, call=Network.masked),
    function("string", "cidr_to_string", CIDR, result=STRING, call=str),
)
