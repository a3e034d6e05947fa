"""The values that parameters give an interface, each checked alone; ostler's own spelling and DRANET's use the same.

Pure. ``refusal`` makes the error for a field below the parameters. Lists are bounded, because the kernel gets every
entry in a call of its own while the container runtime waits.

Who may write what: an interface in a pod reaches a network outside the cluster. A claim's author may say what
concerns the pod alone. Whatever changes the physical function, takes an administrator's protection off, or lets the
pod act for others on that network is the administrator's (``CLASS_ONLY``, ``SYSCTLS``, ``FEATURES``): a DeviceClass may
have it, a claim may not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import TypeVar

from driver.parameters.errors import shown, shown_key
from driver.parameters.values import Refusal, list_of, number_of, object_of, text_of, truth_of, unknown_field
from kube.bodies import Json, JsonObject
from node.interfaces.model import Neighbor, Route, RoutingRule
from node.values import Value, value

MOST: Mapping[str, int] = {"addresses": 16, "routes": 64, "rules": 32, "neighbors": 64}
"""Entries of each list."""
MOST_FEATURES = 32
LONGEST_NAME = 15
"""Characters of an interface's name (IFNAMSIZ less the closing zero)."""
LEAST_MTU, MOST_MTU = 68, 65535
LEAST_MTU_IPV6 = 1280
LOCAL_TABLE, MOST_TABLE = 255, 2**32 - 1
MOST_PRIORITY = 32767

CLASS_ONLY = "leave it out; an administrator writes it into a DeviceClass"
_RESERVED = {
    "lo": "the loopback interface",
    "eth0": "the pod's own interface",
    "all": "the kernel's word for every interface",
    "default": "the kernel's word for new interfaces",
}

OF_NODES = re.compile(
    r"cni|docker|cbr|br-|virbr|kube-|nodelocaldns|flannel|cilium|lxc|cali|tunl|vxlan|genev|ovs|ovn|veth"
)
"""Names of interfaces that network plugins make on nodes.

If a pod's network namespace vanishes, the kernel moves its interfaces to the node under the names that they have, and a
plugin that finds one in the place of its own serves no pod of the node until ostler has renamed it.
"""

_Entry = TypeVar("_Entry")
_Four = TypeVar("_Four")
_Six = TypeVar("_Six")


@value
class Sysctl(Value):
    """The values that a setting may have. ``class_only``: a claim may not set it."""

    values: tuple[int, ...]
    class_only: bool = False


SYSCTLS: Mapping[str, Sysctl] = {
    "ipv4.accept_local": Sysctl((0, 1)),
    "ipv4.arp_announce": Sysctl((0, 1, 2)),
    "ipv4.arp_filter": Sysctl((0, 1)),
    "ipv4.arp_ignore": Sysctl((0, 1, 2, 3, 8)),
    "ipv4.forwarding": Sysctl((0, 1), class_only=True),
    "ipv4.proxy_arp": Sysctl((0, 1), class_only=True),
    "ipv4.rp_filter": Sysctl((0, 1, 2)),
    "ipv4.src_valid_mark": Sysctl((0, 1)),
    "ipv6.accept_ra": Sysctl((0, 1, 2)),
    "ipv6.autoconf": Sysctl((0, 1)),
    "ipv6.disable_ipv6": Sysctl((0, 1)),
    "ipv6.forwarding": Sysctl((0, 1), class_only=True),
    "ipv6.proxy_ndp": Sysctl((0, 1), class_only=True),
}
"""Settings below ``net/ipv4/conf/<name>`` and ``net/ipv6/conf/<name>``: each is the interface's own in the pod."""

FEATURES = re.compile(
    r"rx|tx|sg|tso|gso|gro|lro|rxvlan|txvlan|rxhash|rx-checksum|rx-hashing|rx-lro|rx-gro(-hw|-list)?|rx-udp-gro-forwarding|rx-vlan-hw-parse|"
    r"tx-checksum-[a-z0-9-]+|tx-scatter-gather(-fraglist)?|tx-[a-z0-9-]*segmentation|tx-vlan-hw-insert|"
    r"tx-nocache-copy"
)
"""Offloads, which a claim may set; any other feature of a driver may do more (``rx-all``, ``rx-vlan-filter`` off)."""
SHORT_NAMES = {
    "rx-checksumming": "rx",
    "tx-checksumming": "tx",
    "scatter-gather": "sg",
    "tcp-segmentation-offload": "tso",
    "generic-segmentation-offload": "gso",
    "generic-receive-offload": "gro",
    "large-receive-offload": "lro",
    "rx-vlan-offload": "rxvlan",
    "tx-vlan-offload": "txvlan",
    "ntuple-filters": "ntuple",
    "receive-hashing": "rxhash",
}
"""The names of ``ethtool -k`` by those of ``ethtool -K``."""
_FEATURE = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def entries_of(
    refusal: Refusal, setting: str, field: str, content: Json, entry: Callable[[Refusal, str, Json], _Entry]
) -> tuple[_Entry, ...]:
    """A list of ``MOST``, each entry read by ``entry``; raises what ``refusal`` makes."""
    return list_of(refusal, field, content, entry, most=MOST[setting], what=setting)


def mtu_of(refusal: Refusal, field: str, content: Json) -> int:
    """A size that an interface can have; raises what ``refusal`` makes."""
    return number_of(refusal, field, content, LEAST_MTU, MOST_MTU)


def name_of(refusal: Refusal, field: str, content: Json) -> str:
    """The name of an interface in its pod."""
    fix = f"write 1 to {LONGEST_NAME} letters, digits, '-', '_' and '.', as net1"
    name = text_of(refusal, field, content, fix)
    if not re.fullmatch(rf"[A-Za-z0-9_.-]{{1,{LONGEST_NAME}}}", name) or name in (".", ".."):
        raise refusal(field, f"{shown(name)} cannot be the name of an interface", fix)
    if name in _RESERVED:
        raise refusal(field, f"{shown(name)} is {_RESERVED[name]}", "write another name, as net1")
    if OF_NODES.match(name):
        found = (
            f"{shown(name)} is a name of the node's own network, and the interface may come back to the node under it"
        )
        raise refusal(field, found, "write another name, as net1")
    return name


def is_reserved(name: str) -> bool:
    """Whether no interface that moves into a pod can have this name."""
    return name in _RESERVED


def address_of(refusal: Refusal, field: str, content: Json) -> str:
    """An address with the length of its network's prefix, in its shortest form."""
    fix = "write an address with its prefix length, as 10.0.0.2/24"
    text = text_of(refusal, field, content, fix)
    found = _parsed(IPv4Interface, IPv6Interface, text) if "/" in text else None
    if found is None:
        raise refusal(field, f"{shown(text)} is not an address with a prefix length", fix)
    address, network = found.ip, found.network
    problem = _not_of_an_interface(address)
    if not problem and network.prefixlen == 0:
        problem = "has the prefix length 0, which makes every address its neighbour"
    if not problem and network.prefixlen < address.max_prefixlen - 1:
        if address == network.network_address:
            problem = f"is the network {network} itself, and no address in it"
        elif isinstance(network, IPv4Network) and address == network.broadcast_address:
            problem = f"is the broadcast address of {network}"
    if problem:
        raise refusal(field, f"{shown(text)} {problem}", "write an address of the interface's own, as 10.0.0.2/24")
    return str(found)


def _parsed(four: Callable[[str], _Four], six: Callable[[str], _Six], text: str) -> _Four | _Six | None:
    """The text as IPv4 or IPv6, with nothing but digits behind a slash (no netmask) and no zone; None for others."""
    if not re.fullmatch(r"[0-9A-Fa-f.:]{2,45}(/[0-9]{1,3})?", text):
        return None
    try:
        return six(text) if ":" in text else four(text)
    except ValueError:
        return None


def _not_of_an_interface(address: IPv4Address | IPv6Address) -> str:
    """Why no interface, and no gateway, can have the address; empty if one can."""
    if address.is_multicast:
        return "is a multicast address"
    if address.is_loopback:
        return "is a loopback address"
    if address.is_unspecified or (isinstance(address, IPv4Address) and address in IPv4Network("0.0.0.0/8")):
        return "means this host, and no address"
    if isinstance(address, IPv4Address) and address in IPv4Network("240.0.0.0/4"):
        return "is reserved"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return f"stands for an IPv4 address ({address.ipv4_mapped})"
    return ""


def host_of(refusal: Refusal, field: str, content: Json) -> str:
    """An address without a prefix, of a host that can be reached."""
    fix = "write an address without prefix length, as 10.0.0.1"
    text = text_of(refusal, field, content, fix)
    found = _parsed(IPv4Address, IPv6Address, text) if "/" not in text else None
    problem = "is not an address" if found is None else _not_of_an_interface(found)
    if problem:
        raise refusal(field, f"{shown(text)} {problem}", fix)
    return str(found)


def network_of(refusal: Refusal, field: str, content: Json, *, strict: bool) -> str:
    """A network; ``strict``: without bits behind its prefix, which otherwise are cleared."""
    fix = "write a network with its prefix length, as 10.1.0.0/16, or 0.0.0.0/0 for everything"
    text = text_of(refusal, field, content, fix)
    found = _parsed(_network4, _network6, text) if "/" in text else None
    if found is None:
        raise refusal(field, f"{shown(text)} is not a network", fix)
    if strict and found.network_address != _address_in(text):
        raise refusal(field, f"{shown(text)} has bits behind its prefix", f"write {found}")
    if found.network_address.is_loopback:
        raise refusal(field, f"{shown(text)} is the pod's loopback network", "write another network")
    return str(found)


def _network4(text: str) -> IPv4Network:
    return IPv4Network(text, strict=False)


def _network6(text: str) -> IPv6Network:
    return IPv6Network(text, strict=False)


def _address_in(text: str) -> IPv4Address | IPv6Address:
    host = text.partition("/")[0]
    return IPv6Address(host) if ":" in host else IPv4Address(host)


def is_ipv6(address: str) -> bool:
    """Whether an address or network is of IPv6."""
    return ":" in address


def hardware_address_of(refusal: Refusal, field: str, content: Json) -> str:
    """An Ethernet address of one station, in lower case."""
    fix = "write six pairs of hexadecimal digits, as 02:00:00:00:00:01"
    text = text_of(refusal, field, content, fix).lower()
    if not _MAC.fullmatch(text):
        raise refusal(field, f"{shown(content)} is not a hardware address", fix)
    if int(text[:2], 16) & 1 or not text.strip("0:"):
        kind = "all zeros" if not text.strip("0:") else "a group address"
        raise refusal(field, f"{shown(content)} is {kind}", "write the address of one station, as 02:00:00:00:00:01")
    return text


def check_local(refusal: Refusal, field: str, address: str) -> None:
    """Refuse a claim's hardware address that a manufacturer may have given to another NIC."""
    if not int(address[:2], 16) & 2:
        fix = "write one whose second digit is 2, 6, a or e, or have an administrator write it into a DeviceClass"
        raise refusal(field, f"{shown(address)} belongs to a manufacturer, and a claim may not take it", fix)


_ROUTE = ("destination", "gateway", "source", "scope", "table")
_RULE = ("table", "source", "destination", "priority")


def route_of(refusal: Refusal, field: str, content: Json) -> Route:
    """A route in ostler's own spelling."""
    given = object_of(refusal, field, content, _ROUTE, "a route")
    if "scope" in given and given["scope"] not in ("global", "link"):
        found = f"{shown(given['scope'])} is not known"
        raise refusal(f"{field}.scope", found, "write global or link, or leave it out")
    return made_route(refusal, field, given, str(given.get("scope", "")), strict=True)


def made_route(refusal: Refusal, field: str, given: JsonObject, scope: str, *, strict: bool) -> Route:
    """The route with these fields, whose names are known; ``scope`` is read already."""
    if "destination" not in given:
        raise refusal(f"{field}.destination", "", "write the network that it leads to, as 10.1.0.0/16")
    destination = network_of(refusal, f"{field}.destination", given["destination"], strict=strict)
    others = {
        name: host_of(refusal, f"{field}.{name}", given[name]) if name in given else ""
        for name in ("gateway", "source")
    }
    for name, address in others.items():
        if address and is_ipv6(address) is not is_ipv6(destination):
            found = f"{shown(address)} and the destination {destination} are of different IP versions"
            raise refusal(f"{field}.{name}", found, "write two of the same version")
    if scope == "link" and others["gateway"]:
        found = f'"link" is for networks that the interface is in, and {shown(others["gateway"])} is a gateway'
        raise refusal(f"{field}.scope", found, "leave one of the two out")
    table = _table_of(refusal, f"{field}.table", given["table"]) if "table" in given else 0
    return Route(destination, others["gateway"], others["source"], scope, table)


def _table_of(refusal: Refusal, field: str, content: Json) -> int:
    number = number_of(refusal, field, content, 1, MOST_TABLE)
    if number == LOCAL_TABLE:
        raise refusal(field, f"{number} is the kernel's table of local addresses", "write another table, as 100")
    return number


def rule_of(refusal: Refusal, field: str, content: Json, *, strict: bool = True) -> RoutingRule:
    """A rule of policy routing."""
    given = object_of(refusal, field, content, _RULE, "a rule")
    if "table" not in given:
        raise refusal(f"{field}.table", "", "write the table of routes that it leads to, as 100")
    networks = {
        name: network_of(refusal, f"{field}.{name}", given[name], strict=strict) if name in given else ""
        for name in ("source", "destination")
    }
    if not any(networks.values()):
        fix = "write source or destination; 0.0.0.0/0 and ::/0 are everything"
        raise refusal(field, "it has neither source nor destination", fix)
    if all(networks.values()) and is_ipv6(networks["source"]) is not is_ipv6(networks["destination"]):
        found = f"source {networks['source']} and destination {networks['destination']} are of different IP versions"
        raise refusal(field, found, "write a rule for each version")
    priority = given.get("priority")
    return RoutingRule(
        _table_of(refusal, f"{field}.table", given["table"]),
        networks["source"],
        networks["destination"],
        number_of(refusal, f"{field}.priority", priority, 1, MOST_PRIORITY) if "priority" in given else 0,
    )


def neighbor_of(refusal: Refusal, field: str, content: Json, hardware: str = "hardwareAddress") -> Neighbor:
    """A permanent neighbour; ``hardware``: the name of the field with its hardware address."""
    given = object_of(refusal, field, content, ("destination", hardware), "a neighbor")
    for name, example in (("destination", "10.0.0.1"), (hardware, "02:00:00:00:00:01")):
        if name not in given:
            raise refusal(f"{field}.{name}", "", f"write the neighbor's address, as {example}")
    return Neighbor(
        host_of(refusal, f"{field}.destination", given["destination"]),
        hardware_address_of(refusal, f"{field}.{hardware}", given[hardware]),
    )


def features_of(refusal: Refusal, field: str, content: Json, *, of_claim: bool) -> tuple[tuple[str, bool], ...]:
    """Features by name, on or off, as ``node.interfaces`` has them: the kernel's names and those of ``ethtool -K``."""
    given = _named(refusal, field, content, MOST_FEATURES, "features by their names, as {gro: false}")
    found: dict[str, bool] = {}
    for said, on in given.items():
        place, name = f"{field}.{shown_key(said)}", SHORT_NAMES.get(said, said)
        if not _FEATURE.fullmatch(name):
            fix = "write a name that ethtool -k shows, as tcp-segmentation-offload"
            raise refusal(place, "it cannot be the name of a feature", fix)
        if name in found:
            raise refusal(place, f"the feature is listed twice, also as {name}", "write it once")
        if of_claim and not FEATURES.fullmatch(name):
            fix = "leave it out; an administrator writes features that are not offloads into a DeviceClass"
            raise refusal(place, "a claim may not set it", fix)
        found[name] = truth_of(refusal, place, on)
    return tuple(found.items())


def sysctls_of(refusal: Refusal, field: str, content: Json, *, of_claim: bool) -> tuple[tuple[str, str], ...]:
    """Settings of the interface, as ``node.interfaces`` has them: ``("ipv4/arp_ignore", "1")``."""
    given = _named(refusal, field, content, len(SYSCTLS), "settings by their names, as {ipv4.arp_ignore: 1}")
    found = []
    for name, number in given.items():
        place, known = f"{field}.{name if name in SYSCTLS else shown_key(name)}", SYSCTLS.get(name)
        if known is None:
            raise unknown_field(refusal, place, name, SYSCTLS, field.rpartition(".")[2])
        if of_claim and known.class_only:
            raise refusal(place, "a claim may not set it", CLASS_ONLY)
        found.append((name.replace(".", "/"), sysctl_of(refusal, place, number, known)))
    return tuple(found)


def sysctl_of(refusal: Refusal, field: str, content: Json, known: Sysctl) -> str:
    """The value of a setting, as the kernel reads it."""
    if isinstance(content, bool) or not isinstance(content, int) or content not in known.values:
        values = ", ".join(str(each) for each in known.values)
        raise refusal(field, f"{shown(content)} is not a value of it", f"write one of {values}")
    return str(content)


def _named(refusal: Refusal, field: str, content: Json, most: int, what: str) -> JsonObject:
    if not isinstance(content, dict):
        raise refusal(field, f"{shown(content)} is not an object", f"write {what}")
    if len(content) > most:
        raise refusal(field, f"it has {len(content)} entries", f"write at most {most}")
    return content
