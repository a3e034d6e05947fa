"""Kubernetes' library of networks (CIDR): `cidr`, `isCIDR`, what lies in a network and its parts.

Source of the rules as for addresses (see `ip`); `ipaddress` would also read netmasks after the slash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import ClassVar

from scheduling.cel.library.function import Library, function, is_readable, method, reader
from scheduling.cel.library.ip import ADDRESS, IpAddress, NetworkError, read_address, refuse_mapped
from scheduling.cel.library.prices import ONE, READS_TEXT, TEXT, CallEstimate, CallOperand, CostRange, Price
from scheduling.cel.types import BOOL, CIDR, INT, IP, STRING, Type
from scheduling.cel.values import Opaque, Value, size_of

_BITS = re.compile(r"0|[1-9][0-9]*")


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
    function("cidr", "string_to_cidr", STRING, result=CIDR, call=_READ, price=READS_TEXT),
    function("isCIDR", "is_cidr", STRING, result=BOOL, call=is_readable(parse_network, NetworkError), price=READS_TEXT),
    method("containsIP", "cidr_contains_ip_string", CIDR, STRING, result=BOOL, call=_contains, price=_CONTAINS_TEXT),
    method("containsIP", "cidr_contains_ip_ip", CIDR, IP, result=BOOL, call=Network.contains, price=_CONTAINS),
    method("containsCIDR", "cidr_contains_cidr_string", CIDR, STRING, result=BOOL, call=_covers, price=_COVERS_TEXT),
    method("containsCIDR", "cidr_contains_cidr", CIDR, CIDR, result=BOOL, call=Network.covers, price=_COVERS),
    method("ip", "cidr_ip", CIDR, result=IP, call=lambda network: network.address),
    method("prefixLength", "cidr_prefix_length", CIDR, result=INT, call=lambda network: network.bits),
    method("masked", "cidr_masked", CIDR, result=CIDR, call=Network.masked),
    function("string", "cidr_to_string", CIDR, result=STRING, call=str),
)
