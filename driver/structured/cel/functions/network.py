"""The functions of addresses and networks: `ip`, `cidr` and what they can be asked."""

from __future__ import annotations

from driver.structured.cel.functions.registry import Overload
from driver.structured.cel.network import Address, Network, NetworkError, parse_address, parse_network
from driver.structured.cel.types import CIDR, IP, STRING
from driver.structured.cel.values import Fault, Value


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

OVERLOADS = (
    Overload("string_to_ip", "ip", (STRING,), _address),
    Overload("is_ip", "isIP", (STRING,), _is_address),
    Overload("ip_is_canonical", "ip.isCanonical", (STRING,), lambda text: str(_address(text)) == text),
    Overload("ip_family", "family", _IP, lambda address: address.family),
    Overload("ip_is_unspecified", "isUnspecified", _IP, lambda address: address.is_unspecified),
    Overload("ip_is_loopback", "isLoopback", _IP, lambda address: address.is_loopback),
    Overload(
        "ip_is_link_local_multicast", "isLinkLocalMulticast", _IP, lambda address: address.is_link_local_multicast
    ),
    Overload("ip_is_link_local_unicast", "isLinkLocalUnicast", _IP, lambda address: address.is_link_local_unicast),
    Overload("ip_is_global_unicast", "isGlobalUnicast", _IP, lambda address: address.is_global_unicast),
    Overload("ip_to_string", "string", _IP, str),
    Overload("string_to_cidr", "cidr", (STRING,), _network),
    Overload("is_cidr", "isCIDR", (STRING,), _is_network),
    Overload("cidr_contains_ip_string", "containsIP", (CIDR, STRING), lambda one, text: one.contains(_address(text))),
    Overload("cidr_contains_ip_ip", "containsIP", (CIDR, IP), Network.contains),
    Overload("cidr_contains_cidr_string", "containsCIDR", (CIDR, STRING), lambda one, text: one.covers(_network(text))),
    Overload("cidr_contains_cidr", "containsCIDR", (CIDR, CIDR), Network.covers),
    Overload("cidr_ip", "ip", _CIDR, lambda network: network.address),
    Overload("cidr_prefix_length", "prefixLength", _CIDR, lambda network: network.bits),
    Overload("cidr_masked", "masked", _CIDR, Network.masked),
    Overload("cidr_to_string", "string", _CIDR, str),
)
