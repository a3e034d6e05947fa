"""The settings that a claim asks for the network interfaces that move into its pod: the section ``interface``.

Pure. An interface moves if the rule of its device has ``moveInterface``; the section has its settings in the pod.
``InterfaceParameters`` is the meaning of all spellings: ours, DRANET's and the SR-IOV driver's, which
``driver.parameters.peers`` decodes. Several sections add up field by field, and so do the entries of ``vf``,
``features`` and ``sysctls``: a claim that turns an offload off keeps the VLAN of its class.

Each value is checked alone when it is read; ``driver.parameters.interface_fit`` checks whether a device can have it.
"""

from __future__ import annotations

from collections.abc import Mapping

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.parameters.errors import ParameterError, UnservedParameter
from driver.parameters.interface_values import (
    CLASS_ONLY,
    address_of,
    check_local,
    entries_of,
    features_of,
    hardware_address_of,
    mtu_of,
    name_of,
    neighbor_of,
    route_of,
    rule_of,
    sysctls_of,
)
from driver.parameters.values import Refusal, number_of, object_of, truth_of
from kube.bodies import Json
from node.interfaces.model import Neighbor, Route, RoutingRule, VfSettings
from node.values import Value, value

PATHS: Mapping[str, str] = {
    "name": "interface.name",
    "addresses": "interface.addresses",
    "routes": "interface.routes",
    "rules": "interface.rules",
    "neighbors": "interface.neighbors",
    "mtu": "interface.mtu",
    "hardware_address": "interface.hardwareAddress",
    "vf": "interface.vf",
    "features": "interface.features",
    "sysctls": "interface.sysctls",
    "keep_ebpf": "interface.keepEbpf",
}
"""Where each setting stands in our own spelling; they are the fields of ``interface``."""
MAPPINGS = ("features", "sysctls")
FIELDS = tuple(path.partition(".")[2] for path in PATHS.values())
VF_FIELDS = ("hardwareAddress", "vlan", "vlanQos", "trust", "spoofCheck")
MOST_VLAN, MOST_QOS = 4094, 7


@value
class InterfaceParameters(Value):
    """One such section. ``place``: of its parameters, ``paths``: where each setting stands there, for messages.

    ``of_peer``: it was written for another driver. The others are the fields of ``InterfaceSettings``; None, or no
    entry, leaves a setting as the earlier sections have it.
    """

    place: str
    paths: Mapping[str, str] = PATHS
    of_peer: bool = False
    name: str | None = None
    addresses: tuple[str, ...] | None = None
    routes: tuple[Route, ...] | None = None
    rules: tuple[RoutingRule, ...] | None = None
    neighbors: tuple[Neighbor, ...] | None = None
    mtu: int | None = None
    hardware_address: str | None = None
    vf: VfSettings | None = None
    features: tuple[tuple[str, bool], ...] = ()
    sysctls: tuple[tuple[str, str], ...] = ()
    keep_ebpf: bool | None = None

    def refusal(self, setting: str, found: str, fix: str, below: str = "") -> ParameterError:
        """The error that a setting has a value that cannot be; ``below``: the rest of its path."""
        kind = UnservedParameter if self.of_peer else ParameterError
        return kind(self.place, self.paths.get(setting, "interface") + below, found, fix)

    @property
    def given(self) -> tuple[str, ...]:
        """The settings that the section has."""
        found = ((name, getattr(self, name)) for name in PATHS)
        return tuple(name for name, each in found if each is not None and (each or name not in MAPPINGS))


def own_interface(config: AllocatedConfig, content: Json) -> InterfaceParameters:
    """The section in our own spelling. Raises ``ParameterError``."""

    def refusal(field: str, found: str, fix: str) -> ParameterError:
        return ParameterError(config.labelled_place, field, found, fix)

    of_claim = config.source is not ConfigSource.CLASS
    given = object_of(refusal, "interface", content, FIELDS, "interface")
    found: dict[str, object] = {}
    for name, path in PATHS.items():
        key = path.partition(".")[2]
        if key in given:
            found[name] = _own(refusal, name, path, given[key], of_claim=of_claim)
    return InterfaceParameters(config.labelled_place, **found)  # type: ignore[arg-type]  # each was checked


def _own(refusal: Refusal, name: str, path: str, content: Json, *, of_claim: bool) -> object:
    """A setting in our own spelling."""
    match name:
        case "name":
            return name_of(refusal, path, content)
        case "addresses":
            return entries_of(refusal, name, path, content, address_of)
        case "routes":
            return entries_of(refusal, name, path, content, route_of)
        case "rules":
            return entries_of(refusal, name, path, content, rule_of)
        case "neighbors":
            return entries_of(refusal, name, path, content, neighbor_of)
        case "mtu":
            return mtu_of(refusal, path, content)
        case "hardware_address":
            return hardware_address(refusal, path, content, of_claim=of_claim)
        case "vf":
            return _vf_of(refusal, path, content, of_claim=of_claim)
        case "features":
            return features_of(refusal, path, content, of_claim=of_claim)
        case "sysctls":
            return sysctls_of(refusal, path, content, of_claim=of_claim)
    return keeps_ebpf(refusal, path, truth_of(refusal, path, content), of_claim=of_claim)


def hardware_address(refusal: Refusal, path: str, content: Json, *, of_claim: bool) -> str:
    """The interface's own address; a claim may not take one that a manufacturer gave away."""
    found = hardware_address_of(refusal, path, content)
    if of_claim:
        check_local(refusal, path, found)
    return found


def keeps_ebpf(refusal: Refusal, path: str, keep: bool, *, of_claim: bool) -> bool:
    """Whether programs of others stay; an administrator may have attached them for protection."""
    if of_claim and not keep:
        raise refusal(path, "a claim may not detach what others attached to the node's interface", CLASS_ONLY)
    return keep


def _vf_of(refusal: Refusal, path: str, content: Json, *, of_claim: bool) -> VfSettings:
    """Settings at the physical function. A claim may only ask for less: no trust, and a check of what it sends."""
    given = object_of(refusal, path, content, VF_FIELDS, "vf")
    if of_claim:
        for key, each in given.items():
            if not ((key == "trust" and each is False) or (key == "spoofCheck" and each is True)):
                raise refusal(f"{path}.{key}", "a claim may not set it", CLASS_ONLY)
    vlan, qos, trust, check = (given.get(name) for name in VF_FIELDS[1:])
    address = given.get("hardwareAddress")
    if "vlanQos" in given and "vlan" not in given:
        raise refusal(f"{path}.vlanQos", "a priority without vlan", "write vlan, too")
    return VfSettings(
        hardware_address_of(refusal, f"{path}.hardwareAddress", address) if "hardwareAddress" in given else "",
        number_of(refusal, f"{path}.vlan", vlan, 0, MOST_VLAN) if "vlan" in given else None,
        number_of(refusal, f"{path}.vlanQos", qos, 0, MOST_QOS) if "vlanQos" in given else None,
        truth_of(refusal, f"{path}.trust", trust) if "trust" in given else None,
        truth_of(refusal, f"{path}.spoofCheck", check) if "spoofCheck" in given else None,
    )
