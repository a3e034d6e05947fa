"""DRANET's parameters: an interface as ostler moves it, or an error with what to write instead.

Pure. DRANET's form has no versions; an empty text, list or object and false ask for nothing, as in its decoder. ostler
serves what means the same here, and refuses what it does not do (DHCP, VRF, profiles of a webhook), what it leaves to
the node, because an interface keeps it while it moves (sizes of segments, private flags), and what DRANET does in
another way: it adds routes and rules to those of the node, which ostler keeps unless the parameters set others.

A claim's author may set what ``driver.parameters.interface_values`` lets a claim set in ostler's own form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from driver.parameters.errors import shown
from driver.parameters.interface import InterfaceParameters, hardware_address, keeps_ebpf
from driver.parameters.interface_values import (
    SYSCTLS,
    address_of,
    entries_of,
    features_of,
    made_route,
    mtu_of,
    name_of,
    neighbor_of,
    rule_of,
    sysctl_of,
)
from driver.parameters.peer_form import PeerFields, PeerParameters, object_at_path
from driver.parameters.values import Refusal, object_of, truth_of
from kube.bodies import Json
from node.interfaces.model import Neighbor, Route, RoutingRule

_PATHS: Mapping[str, str] = {
    "name": "interface.name",
    "addresses": "interface.addresses",
    "routes": "routes",
    "rules": "rules",
    "neighbors": "neighbors",
    "mtu": "interface.mtu",
    "hardware_address": "interface.hardwareAddr",
    "features": "ethtool.features",
    "sysctls": "interface",
    "keep_ebpf": "interface.disableEbpfPrograms",
}
_SIZES = ("gsoMaxSize", "groMaxSize", "gsoIPv4MaxSize", "groIPv4MaxSize")
_LINK_SCOPE = 253
_ROUTE = ("destination", "gateway", "source", "scope", "table")
_ARP = {"arpIgnore": "ipv4.arp_ignore", "arpAnnounce": "ipv4.arp_announce"}
_FORWARDING = ("ipv4/forwarding", "ipv6/forwarding")

_Settings = dict[str, object]


def dranet_interface(parameters: PeerParameters) -> InterfaceParameters | None:
    """The settings of the interface that the parameters ask for; None if they ask for nothing."""
    found: _Settings = {}
    fields: PeerFields = {
        "profile": _profile,
        "interface": lambda each, path, content: _interface(each, path, content, found),
        "routes": _list(found, "routes", _route),
        "rules": _list(found, "rules", _rule),
        "neighbors": _list(found, "neighbors", _neighbor),
        "ethtool": lambda each, path, content: _ethtool(each, path, content, found),
    }
    parameters.each(parameters.content, fields)
    added = [name for name in ("routes", "rules") if name in found]
    if added and "addresses" not in found:
        what = f"they would be added to the {added[0]} that the node's interface has, and ostler adds none"
        fix = f"write interface.addresses, too, or NicConfig with interface.{added[0]} for the driver {parameters.ours}"
        raise parameters.error(added[0], what, fix)
    return parameters.interface(_PATHS, **found) if found else None


def _profile(parameters: PeerParameters, path: str, content: Json) -> None:
    if content != "":
        fix = "write what the profile stands for, such as interface.addresses and routes"
        raise parameters.unserved(path, content, fix, "ostler asks no webhook for settings")


def _interface(parameters: PeerParameters, path: str, content: Json, found: _Settings) -> None:
    sysctls: dict[str, str] = {}

    def name(each: PeerParameters, path: str, content: Json) -> None:
        if content != "":
            found["name"] = name_of(each.error, path, content)

    def mtu(each: PeerParameters, path: str, content: Json) -> None:
        found["mtu"] = mtu_of(each.error, path, content)

    def own_address(each: PeerParameters, path: str, content: Json) -> None:
        found["hardware_address"] = hardware_address(each.error, path, content, of_claim=each.is_of_claim)

    def ebpf(each: PeerParameters, path: str, content: Json) -> None:
        if truth_of(each.error, path, content):
            found["keep_ebpf"] = keeps_ebpf(each.error, path, keep=False, of_claim=each.is_of_claim)

    def forwarding(each: PeerParameters, path: str, content: Json) -> None:
        if truth_of(each.error, path, content):
            each.check_class_only(path)
            sysctls.update(dict.fromkeys(_FORWARDING, "1"))

    def arp(each: PeerParameters, path: str, content: Json) -> None:
        setting = _ARP[path.rpartition(".")[2]]
        sysctls[setting.replace(".", "/")] = sysctl_of(each.error, path, content, SYSCTLS[setting])

    fields: PeerFields = {
        "name": name,
        "addresses": _list(found, "addresses", address_of),
        "dhcp": _dhcp,
        "mtu": mtu,
        "hardwareAddr": own_address,
        **dict.fromkeys(_SIZES, _size),
        "disableEbpfPrograms": ebpf,
        "forwarding": forwarding,
        "arpIgnore": arp,
        "arpAnnounce": arp,
        "vrf": _vrf,
    }
    parameters.each(object_at_path(parameters, path, content), fields, f"{path}.")
    if sysctls:
        found["sysctls"] = tuple(sorted(sysctls.items()))


def _dhcp(parameters: PeerParameters, path: str, content: Json) -> None:
    if truth_of(parameters.error, path, content):
        raise parameters.unserved(path, content, "write interface.addresses and routes", "ostler asks no DHCP server")


def _size(parameters: PeerParameters, path: str, content: Json) -> None:
    fix = "leave it out, and set it on the node (ip link set); the interface keeps it in the pod"
    raise parameters.unserved(path, content, fix)


def _vrf(parameters: PeerParameters, path: str, content: Json) -> None:
    fix = "write routes with a table, and rules with the interface's addresses as source that lead to it"
    raise parameters.unserved(path, content, fix)


def _ethtool(parameters: PeerParameters, path: str, content: Json, found: _Settings) -> None:
    def features(each: PeerParameters, path: str, content: Json) -> None:
        made = features_of(each.error, path, content, of_claim=each.is_of_claim)
        if made:
            found["features"] = tuple(sorted(made))

    def flags(each: PeerParameters, path: str, content: Json) -> None:
        if content != {}:
            fix = "leave it out, and set it on the node (ethtool --set-priv-flags); the interface keeps it in the pod"
            raise each.unserved(path, content, fix)

    fields: PeerFields = {"features": features, "privateFlags": flags}
    parameters.each(object_at_path(parameters, path, content), fields, f"{path}.")


def _list(
    found: _Settings, setting: str, entry: Callable[[Refusal, str, Json], object]
) -> Callable[[PeerParameters, str, Json], None]:
    """Reads a list; an empty one asks for nothing."""

    def read(parameters: PeerParameters, path: str, content: Json) -> None:
        made = entries_of(parameters.error, setting, path, content, entry)
        if made:
            found[setting] = made

    return read


def _route(refusal: Refusal, field: str, content: Json) -> Route:
    given = object_of(refusal, field, _present(content), _ROUTE, "a route")
    number = given.get("scope", 0)
    if isinstance(number, bool) or number not in (0, _LINK_SCOPE):
        raise refusal(f"{field}.scope", f"{shown(number)} is not known", f"write {_LINK_SCOPE} (link) or 0 (global)")
    if number == 0 and "gateway" not in given:
        fix = f"write it, or scope {_LINK_SCOPE} for a network that the interface is in"
        raise refusal(f"{field}.gateway", "", fix)
    return made_route(refusal, field, given, "link" if number else "", strict=False)


def _rule(refusal: Refusal, field: str, content: Json) -> RoutingRule:
    return rule_of(refusal, field, _present(content), strict=False)


def _neighbor(refusal: Refusal, field: str, content: Json) -> Neighbor:
    return neighbor_of(refusal, field, _present(content), "hardwareAddr")


def _present(content: Json) -> Json:
    """The object without the fields that DRANET's decoder takes as absent: null, an empty text, and 0."""
    if not isinstance(content, dict):
        return content
    return {
        key: each
        for key, each in content.items()
        if each is not None and each != "" and each is not False and each != 0
    }
