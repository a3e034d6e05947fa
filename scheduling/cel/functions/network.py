"""The functions of addresses and networks: `ip`, `cidr` and what they can be asked."""

from __future__ import annotations

from scheduling.cel.functions.registry import Implementation
from scheduling.cel.network import Address, Network, NetworkError, parse_address, parse_network
from scheduling.cel.types import CIDR, IP, STRING
from scheduling.cel.values import Fault, Value


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except NetworkError as error:
        raise Fault(str(error)) from error


def _network(text: str) -> Network:
    try:
        return parse_network(text)
    except NetworkError as error:
        raise Fault(str(error)) from error


def _is_address(text: str) -> Value:
    try:
        parse_address(text)
    except NetworkError:
        return False
    return True


def _is_network(text: str) -> Value:
    try:
        parse_network(text)
    except NetworkError:
        return False
    return True


_IP = (IP,)
_CIDR = (CIDR,)

IMPLEMENTATIONS = (
    Implementation("string_to_ip", "ip", (STRING,), _address),
    Implementation("is_ip", "isIP", (STRING,), _is_address),
    Implementation("ip_is_canonical", "ip.isCanonical", (STRING,), lambda text: str(_address(text)) == text),
    Implementation("ip_family", "family", _IP, lambda address: address.family),
    Implementation("ip_is_unspecified", "isUnspecified", _IP, lambda address: address.is_unspecified),
    Implementation("ip_is_loopback", "isLoopback", _IP, lambda address: address.is_loopback),
    Implementation(
        "ip_is_link_local_multicast", "isLinkLocalMulticast", _IP, lambda address: address.is_link_local_multicast
    ),
    Implementation(
        "ip_is_link_local_unicast", "isLinkLocalUnicast", _IP, lambda address: address.is_link_local_unicast
    ),
    Implementation("ip_is_global_unicast", "isGlobalUnicast", _IP, lambda address: address.is_global_unicast),
    Implementation("ip_to_string", "string", _IP, str),
    Implementation("string_to_cidr", "cidr", (STRING,), _network),
    Implementation("is_cidr", "isCIDR", (STRING,), _is_network),
    Implementation(
        "cidr_contains_ip_string", "containsIP", (CIDR, STRING), lambda one, text: one.contains(_address(text))
    ),
    Implementation("cidr_contains_ip_ip", "containsIP", (CIDR, IP), Network.contains),
    Implementation(
        "cidr_contains_cidr_string", "containsCIDR", (CIDR, STRING), lambda one, text: one.covers(_network(text))
    ),
    Implementation("cidr_contains_cidr", "containsCIDR", (CIDR, CIDR), Network.covers),
    Implementation("cidr_ip", "ip", _CIDR, lambda network: network.address),
    Implementation("cidr_prefix_length", "prefixLength", _CIDR, lambda network: network.bits),
    Implementation("cidr_masked", "masked", _CIDR, Network.masked),
    Implementation("cidr_to_string", "string", _CIDR, str),
)
