"""Whether the devices of a claim can have the interfaces that its parameters ask for.

Pure. ``InterfaceTarget`` has the facts that decide it, from the node's inventory or from a slice. This module checks
what a single value does not show: whether the interface moves at all, what its kind of device lacks, what the kernel
would refuse of the sum of all sections, and what two interfaces of one pod cannot both be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_interface, ip_network

from driver.claims.model import AllocatedDevice
from driver.devices.view import DoorView, DraDevice
from driver.parameters.errors import ParameterError, shown
from driver.parameters.interface import MAPPINGS, InterfaceParameters
from driver.parameters.interface_values import LEAST_MTU_IPV6, is_ipv6, is_reserved
from node.interfaces.model import InterfaceSettings, VfSettings
from node.values import Value, replace, value


@value
class InterfaceTarget(Value):
    """The facts of an allocated device that decide what its interface can have.

    ``interface``: its name on the node, empty if it has none. ``moves``: whether its rule moves it, ``resource``: the
    rule's. ``function``: ``pf``, ``vf``, ``sf`` or empty; ``physical``: the interface of a virtual one's physical
    function, and ``physical_mtu`` its MTU, 0 if unknown. ``looks_on``: the request has ``adminAccess``.
    """

    request: str
    name: str
    resource: str
    moves: bool
    interface: str = ""
    link_type: str = ""
    function: str = ""
    physical: str = ""
    physical_mtu: int = 0
    switchdev: bool = False
    driver: str = ""
    looks_on: bool = False

    @property
    def is_moved(self) -> bool:
        """Whether the interface goes into the claim's pod."""
        return self.moves and bool(self.interface) and not self.looks_on

    @property
    def label(self) -> str:
        """For messages."""
        return f"device {self.name} of request {self.request}"


def target_of(allocated: AllocatedDevice, offered: DraDevice, view: DoorView) -> InterfaceTarget:
    """The facts of a device; the MTU of a physical function is known if that is offered, too."""
    device, rule = offered.device, offered.rule
    physical = device.text("pfName") if device.text("sriovFunction") == "vf" else ""
    mtu = next(
        (
            each.device.attribute("mtu")
            for each in (*view.devices, *view.others)
            if physical and each.device.text("ifName") == physical
        ),
        0,
    )
    return InterfaceTarget(
        allocated.request,
        device.name,
        rule.resource_of(device),
        rule.moves_interface,
        device.text("ifName"),
        device.text("linkType"),
        device.text("sriovFunction"),
        physical,
        mtu if isinstance(mtu, int) else 0,
        device.text("eswitchMode") == "switchdev",
        device.text("driver"),
        allocated.admin_access,
    )


def check_moves(section: InterfaceParameters, target: InterfaceTarget) -> None:
    """Raise ``ParameterError`` for a section about a device whose interface does not move."""
    if target.is_moved:
        return
    if target.looks_on:
        why, fix = "is only monitored (adminAccess), so that its interface stays where it is", "leave it out"
    elif not target.interface:
        why = f"has no network interface{f' (it is bound to {target.driver})' if target.driver else ''}"
        fix = "name the requests of NICs that have one, or leave it out"
    else:
        why = f"keeps its interface on the node: resource {target.resource} moves none"
        fix = "set moveInterface: true for the resource in ostler's configuration, or leave it out"
    raise _about_all(section, f"{target.label} {why}", fix)


def _about_all(section: InterfaceParameters, found: str, fix: str) -> ParameterError:
    first = section.given[0] if section.given else "interface"
    return section.refusal(first if section.of_peer else "interface", found, fix)


@value
class SettledInterface(Value):
    """An interface of a claim that moves, its settings, and the sections that they come from."""

    target: InterfaceTarget
    settings: InterfaceSettings
    sections: tuple[InterfaceParameters, ...]

    def section_with(self, setting: str) -> InterfaceParameters | None:
        """The last section that has the setting."""
        return next((each for each in reversed(self.sections) if setting in each.given), None)


def settled(target: InterfaceTarget, written: Sequence[tuple[InterfaceParameters, bool]]) -> SettledInterface | None:
    """The interface of a device, None if it does not move. Raises ``ParameterError``.

    ``written``: the sections that apply to the device, each with whether it names the device's request: that one must
    fit the device. DRANET takes the first section of its own alone, so a second one would be ignored.
    """
    for section, is_named in written:
        if is_named:
            check_moves(section, target)
    if not target.is_moved:
        return None
    sections = tuple(section for section, _ in written)
    for number, section in enumerate(sections):
        first = next((each for each in sections[:number] if each.of_peer and each.paths == section.paths), None)
        if first is not None:
            found = f"{target.label} has another section ({first.place}), and that driver takes the first one alone"
            raise _about_all(section, found, "write one section for each request")
    return SettledInterface(target, _settings_for(target, sections), sections)


def check_moves_some(section: InterfaceParameters, targets: Sequence[InterfaceTarget]) -> None:
    """Raise ``ParameterError`` for a section for all requests if none of the interfaces moves."""
    if targets and not any(each.is_moved for each in targets):
        check_moves(section, targets[0])


def _settings_for(target: InterfaceTarget, sections: Iterable[InterfaceParameters]) -> InterfaceSettings:
    settings, last = InterfaceSettings(), dict[str, InterfaceParameters]()
    for section in sections:
        settings = replace(settings, **{name: _sum(settings, section, name) for name in section.given})
        last |= dict.fromkeys(section.given, section)
    _check_device(target, settings, last)
    _check_name(target, settings, last)
    if settings.addresses is not None:
        _check_addresses(settings, settings.addresses, last)
    return settings


def _sum(settings: InterfaceSettings, section: InterfaceParameters, name: str) -> object:
    mine = getattr(section, name)
    if name in MAPPINGS:
        return tuple(sorted((dict(getattr(settings, name)) | dict(mine)).items()))
    if name == "vf" and settings.vf is not None:
        changed = {each: getattr(mine, each) for each in VfSettings.__slots__ if getattr(mine, each) not in (None, "")}
        return replace(settings.vf, **changed)
    return mine


_UNWRITTEN = InterfaceParameters("NicConfig")
"""Stands for parameters that are needed and that nobody wrote."""
_Last = Mapping[str, InterfaceParameters]
"""By setting, the section that it comes from."""


def _check_device(target: InterfaceTarget, settings: InterfaceSettings, last: _Last) -> None:
    """Raise ``ParameterError`` for a setting that the device cannot have."""
    if "vf" in last:
        _check_vf(target, settings, last["vf"])
    if target.link_type == "infiniband":
        for name in ("hardware_address", "neighbors"):
            if name in last:
                found = f"{target.label} is InfiniBand, whose hardware addresses have 20 bytes"
                raise last[name].refusal(name, found, "leave it out")
    if target.physical_mtu and settings.mtu > target.physical_mtu:
        found = f"{settings.mtu} is more than {target.physical}, the physical function of {target.label}, has"
        fix = f"write at most {target.physical_mtu}, or raise the MTU of {target.physical} on the node"
        raise last["mtu"].refusal("mtu", found, fix)


def _check_vf(target: InterfaceTarget, settings: InterfaceSettings, section: InterfaceParameters) -> None:
    if target.function != "vf":
        found = f"{target.label} is not a virtual function"
        raise section.refusal("vf", found, "name the requests of virtual functions, or leave it out")
    if not target.physical:
        found = f"the physical function of {target.label} has no interface on this node, and takes no settings"
        raise section.refusal("vf", found, "leave it out")
    if target.link_type == "infiniband":
        raise section.refusal("vf", f"{target.label} is InfiniBand, and these are settings of Ethernet", "leave it out")
    if target.switchdev and settings.vf is not None and (settings.vf.vlan or settings.vf.spoof_check is not None):
        found = f"{target.physical} is in switchdev mode, in which a virtual function has no VLAN and no spoof check"
        raise section.refusal("vf", found, f"set them at the port representor of {target.name} instead")


def _check_name(target: InterfaceTarget, settings: InterfaceSettings, last: _Last) -> None:
    if not settings.name and is_reserved(target.interface):
        section = next(iter(last.values()), _UNWRITTEN)
        found = f"{target.label} is called {target.interface} on the node, a name that the pod has already"
        raise section.refusal("name", found, "write the name that it is to have in the pod, as net1")


def _check_addresses(settings: InterfaceSettings, addresses: tuple[str, ...], last: _Last) -> None:
    """Raise ``ParameterError`` if the kernel would refuse the settings beside these addresses."""
    interfaces = [ip_interface(each) for each in addresses]
    section = last["addresses"]
    for index, each in enumerate(interfaces):
        if each.ip in [other.ip for other in interfaces[:index]]:
            raise section.refusal("addresses", f"{each.ip} is listed with two prefixes", "write it once", f"[{index}]")
        if each.version == 6 and 0 < settings.mtu < LEAST_MTU_IPV6:
            found = f"{settings.mtu} leaves no IPv6, and the interface has {each}"
            raise last["mtu"].refusal("mtu", found, f"write at least {LEAST_MTU_IPV6}, or IPv4 addresses alone")
        if each.version == 6 and ("ipv6/disable_ipv6", "1") in settings.sysctls:
            found = f"1 leaves no IPv6, and the interface has {each}"
            raise last["sysctls"].refusal("sysctls", found, "write 0, or IPv4 addresses alone", ".ipv6.disable_ipv6")
    own = {each.ip for each in interfaces}
    near = [each.network for each in interfaces]
    routes = settings.routes or ()
    near += [ip_network(route.destination) for route in routes if not route.gateway]
    for index, route in enumerate(routes):
        section = last["routes"]
        if route.source and ip_address(route.source) not in own:
            found = f"the route to {route.destination}: {shown(route.source)} is no address of the interface"
            raise section.refusal("routes", found, "write one of addresses", f"[{index}].source")
        if not route.gateway:
            continue
        gateway = ip_address(route.gateway)
        if gateway in own:
            found = f"the route to {route.destination}: {gateway} is an address of the interface itself"
            raise section.refusal("routes", found, "write that of the gateway, or leave it out", f"[{index}].gateway")
        known = (is_ipv6(route.gateway) and gateway.is_link_local) or any(
            gateway.version == each.version and gateway in each for each in near
        )
        if not known:
            host = f"{gateway}/{gateway.max_prefixlen}"
            found = f"the route to {route.destination}: {gateway} is in no network of the interface"
            fix = f"write an address in its network, or a route to {host} with scope link"
            raise section.refusal("routes", found, fix, f"[{index}].gateway")


def check_together(found: Iterable[SettledInterface]) -> None:
    """Raise ``ParameterError`` for interfaces of one claim that its pod cannot have beside each other."""
    names: dict[str, SettledInterface] = {}
    owners: dict[str, SettledInterface] = {}
    for each in found:
        name = each.settings.name or each.target.interface
        _take(name, "name", each, names)
        for address in each.settings.addresses or ():
            _take(address.partition("/")[0], "addresses", each, owners)


def _take(wanted: str, setting: str, each: SettledInterface, taken: dict[str, SettledInterface]) -> None:
    other = taken.setdefault(wanted, each)
    if other is not each:
        what = "the name" if setting == "name" else "an address"
        found = f"{wanted} would be {what} of {other.target.label} and of {each.target.label}"
        fix = f"write a request for each NIC, and for each request parameters with {setting} of its own"
        section = each.section_with(setting) or other.section_with(setting) or _UNWRITTEN
        raise section.refusal(setting, found, fix)
