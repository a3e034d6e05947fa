"""From opaque parameters to the options of each allocated device.

Pure, and all of it before anything is touched: a claim with one bad parameter changes nothing. Every configuration of
ours is decoded, even one that is for no device of this claim, so that a mistake shows at once and not with the next
allocation.

Order of precedence, the last wins, field by field: the node's rule, then the configurations in the order of the
allocation, those of the class before those of the claim. Field by field means that a claim that asks for GDRCopy keeps
the IMEX channel of its class. A configuration that names a request and does not fit its device is an error. One for all
requests applies to the devices that it fits, because a claim may mix GPUs and NICs. The same holds for a request with
alternatives (``firstAvailable``) named as a whole: its author does not choose which alternative is allocated. Of a
peer's parameters only NVIDIA's sharing changes anything, and as a whole, which is that driver's order of precedence;
anything else that they ask for is refused unless every device has it.

This module also checks whether device and node can give what parameters ask for. The offer has already judged the
demands of the node's rule (``node.eligibility``); ``check_fit`` is about what a claim or class adds to it, and about
RDMA in the kernel's exclusive mode, which no offer knows: there an RDMA device works in one network namespace alone,
and only one whose interface moves goes into the pod's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from driver.claims.model import AllocatedConfig, AllocatedDevice, Allocation, ClaimError, ConfigSource
from driver.devices.shares import is_shared
from driver.devices.view import DoorView, DraDevice
from driver.parameters.decoding import (
    DEVICE_KINDS,
    Config,
    GpuConfig,
    MigConfig,
    NicConfig,
    decode,
    of_another_vendor,
    wrong_kind,
)
from driver.parameters.errors import ParameterError
from driver.parameters.interface import InterfaceParameters
from driver.parameters.interface_fit import SettledInterface, check_moves_some, check_together, settled, target_of
from driver.parameters.peers import check_kind, check_served, concerns, is_for
from driver.parameters.sharing import SharingParameters, SharingTarget, check_sharing
from node.edits.nic import NEEDED_FOR_RDMA, TUN, VHOST_NET
from node.edits.nvidia import CHANNEL, FEATURES, feature_nodes, missing_channels
from node.edits.options import CdiMode, EditOptions
from node.interfaces.model import InterfaceSettings
from node.inventory.model import Device, Host, NodeRole, Version
from node.inventory.vendor import Family
from node.inventory.vendors import family_of
from node.values import Value, replace, value

DeviceKey = tuple[str, str, str]
"""``AllocatedDevice.key``: pool, device, share id."""


@value
class DeviceParameters(Value):
    """The options of each device of a claim, by ``AllocatedDevice.key``.

    ``sharing``: of the devices that have such a section; the last one counts, as a whole. ``interfaces``: the settings
    in the pod of interfaces that move there.
    """

    options: Mapping[DeviceKey, EditOptions]
    sharing: Mapping[DeviceKey, SharingParameters]
    interfaces: Mapping[DeviceKey, InterfaceSettings] = field(default_factory=dict)


def device_parameters(allocation: Allocation, view: DoorView, driver: str) -> DeviceParameters:
    """The options of each device of the claim; ``driver``: our name.

    Devices that ``view`` lacks are left out: the caller refuses them by name first. Raises ``ParameterError`` for
    parameters that are wrong, or that ask for something that the device or this node lacks.
    """
    decoded = [(config, decode(config)) for config in _in_order(allocation.configs) if config.peer is None]
    options: dict[DeviceKey, EditOptions] = {}
    sharing: dict[DeviceKey, SharingParameters] = {}
    moved: dict[DeviceKey, SettledInterface] = {}
    for config in allocation.configs:
        if config.peer is not None and not config.requests:
            _check_is_for_some(allocation, view, config, driver)
    for config, content in decoded:
        if not config.requests:
            _check_own_is_for_some(allocation, view, config, content)
    for allocated in allocation.devices:
        offered = view.device_for(allocated.device, looking=allocated.admin_access)
        if offered is not None:
            section = _sharing_of(allocated, offered, allocation.configs, decoded, driver)
            options[allocated.key] = _options_of(allocated, offered, decoded, view)
            interface = settled(
                target_of(allocated, offered, view),
                _interfaces_for(allocated, offered, allocation.configs, decoded, driver),
            )
            if section is not None:
                check_sharing(section, _target(allocated, offered))
                sharing[allocated.key] = section
            if interface is not None:
                moved[allocated.key] = interface
    check_together(moved.values())
    interfaces = {key: each.settings for key, each in moved.items()}
    return DeviceParameters(options, sharing, interfaces)


def _sharing_of(
    allocated: AllocatedDevice,
    offered: DraDevice,
    configs: Iterable[AllocatedConfig],
    decoded: Iterable[tuple[AllocatedConfig, Config]],
    driver: str,
) -> SharingParameters | None:
    """The section that counts for a device; other demands of a peer's parameters are refused here."""
    contents = {id(config): content for config, content in decoded}
    found = None
    for config in _in_order(configs):
        if config.peer is not None:
            if concerns(config, allocated, offered):
                section = check_served(config, driver)
                if isinstance(section, SharingParameters) and _is_for(section, config, allocated, offered):
                    found = section
            continue
        content = contents[id(config)]
        if isinstance(content, GpuConfig | MigConfig) and content.sharing is not None:
            named = _names(config, allocated)
            if named is not None and offered.device.kind in DEVICE_KINDS[type(content)]:
                found = content.sharing
    return found


def _is_for(
    section: SharingParameters, config: AllocatedConfig, allocated: AllocatedDevice, offered: DraDevice
) -> bool:
    """Whether a peer's section is for a device of this kind; an error if it names the device's request."""
    if section.is_served_by_every_gpu:
        return True
    target = _target(allocated, offered)
    if _names(config, allocated):
        check_kind(section, config, target)
    return is_for(config, target)


def _check_is_for_some(allocation: Allocation, view: DoorView, config: AllocatedConfig, driver: str) -> None:
    """Raise ``ParameterError`` if a peer's section for all requests fits none of the claim's devices."""
    found = [(each, view.device_for(each.device, looking=each.admin_access)) for each in allocation.devices]
    concerned = [(each, offered) for each, offered in found if offered is not None and concerns(config, each, offered)]
    section = check_served(config, driver) if concerned else None
    if isinstance(section, InterfaceParameters):
        check_moves_some(section, [target_of(*each, view) for each in concerned])
    elif section is not None and not any(_is_for(section, config, *each) for each in concerned):
        check_kind(section, config, _target(*concerned[0]))


def _check_own_is_for_some(allocation: Allocation, view: DoorView, config: AllocatedConfig, content: Config) -> None:
    """Raise ``ParameterError`` if our own sharing or interface for all requests fits none of the claim's devices."""
    interface = content.interface if isinstance(content, NicConfig) else None
    if interface is None and (isinstance(content, NicConfig) or content.sharing is None):
        return
    found = [(each, view.device_for(each.device, looking=each.admin_access)) for each in allocation.devices]
    offered = [(each, device) for each, device in found if device is not None]
    if offered and not any(device.device.kind in DEVICE_KINDS[type(content)] for _, device in offered):
        raise _wrong_kind(config, content, *offered[0])
    if interface is not None:
        nics = [target_of(*each, view) for each in offered if each[1].device.kind in DEVICE_KINDS[NicConfig]]
        check_moves_some(interface, nics)


def _interfaces_for(
    allocated: AllocatedDevice,
    offered: DraDevice,
    configs: Iterable[AllocatedConfig],
    decoded: Iterable[tuple[AllocatedConfig, Config]],
    driver: str,
) -> list[tuple[InterfaceParameters, bool]]:
    """The sections about a device's interface, each with whether it names the device's request."""
    contents = {id(config): content for config, content in decoded}
    found = []
    for config in _in_order(configs):
        named = _names(config, allocated)
        section: object = None
        if config.peer is not None:
            section = check_served(config, driver) if concerns(config, allocated, offered) else None
        elif named is not None and offered.device.kind in DEVICE_KINDS[NicConfig]:
            section = getattr(contents[id(config)], "interface", None)
        if isinstance(section, InterfaceParameters):
            found.append((section, bool(named)))
    return found


def _target(allocated: AllocatedDevice, offered: DraDevice) -> SharingTarget:
    device = offered.device
    capability = device.attribute("cudaComputeCapability")
    major, minor, _ = (
        (int(part) for part in str(capability).split(".")) if isinstance(capability, Version) else (0,) * 3
    )
    return SharingTarget(
        allocated.request,
        device.name,
        device.vendor,
        device.kind,
        (major, minor) if major else None,
        is_share=allocated.share_id is not None or is_shared(device, offered.rule.sharing),
        looks_on=allocated.admin_access,
    )


def _in_order(configs: Iterable[AllocatedConfig]) -> list[AllocatedConfig]:
    """Configurations of the class first, as in the scheduler; otherwise in the given order."""
    return sorted(configs, key=lambda config: config.source is not ConfigSource.CLASS)


def _options_of(
    allocated: AllocatedDevice, offered: DraDevice, decoded: list[tuple[AllocatedConfig, Config]], view: DoorView
) -> EditOptions:
    options = offered.rule.edits
    places: dict[str, str] = {}
    for config, content in decoded:
        named = _names(config, allocated)
        if named is None:
            continue
        if offered.device.kind not in DEVICE_KINDS[type(content)]:
            if named:
                raise _wrong_kind(config, content, allocated, offered)
            continue
        changed = _applied(options, content)
        for name in EditOptions.__slots__:
            if getattr(changed, name) != getattr(options, name):
                places[name] = config.place
        options = changed
    check_fit(offered.device, options, view.host, places, moves=target_of(allocated, offered, view).is_moved)
    return options


def _names(config: AllocatedConfig, allocated: AllocatedDevice) -> bool | None:
    """Whether the configuration names this device's very request; None if it is not for it."""
    if not config.requests:
        return False
    if allocated.request in config.requests:
        return True
    return False if allocated.main_request in config.requests else None


def _wrong_kind(
    config: AllocatedConfig, content: Config, allocated: AllocatedDevice, offered: DraDevice
) -> ParameterError:
    return wrong_kind(config, content, allocated.request, offered.device.name, offered.device.kind)


def _applied(options: EditOptions, content: Config) -> EditOptions:
    if isinstance(content, NicConfig):
        return replace(
            options,
            rdma=options.rdma if content.rdma is None else content.rdma,
            vhost_net=options.vhost_net if content.vhost_net is None else content.vhost_net,
            nccl=options.nccl if content.nccl is None else content.nccl,
        )
    said = {"gdrcopy": content.gdrcopy, "gds": content.gds, "mofed": content.mofed}
    wanted = [name for name, on in said.items() if (name in options.features if on is None else on)]
    options = replace(options, features=tuple(wanted))
    if isinstance(content, GpuConfig):
        options = replace(
            options,
            imex_channels=options.imex_channels if content.imex_channels is None else content.imex_channels,
            imex_required=options.imex_required if content.imex_required is None else content.imex_required,
        )
    return options


EXCLUSIVE = "RDMA devices of this node are bound to network namespaces (exclusive mode)"


def check_fit(device: Device, options: EditOptions, host: Host, places: Mapping[str, str], *, moves: bool) -> None:
    """Raise ``ParameterError`` or ``ClaimError`` for options that the device cannot have.

    ``places``: by name, the options that a configuration changed, and where it stands. ``moves``: the device's
    interface goes into the pod, and its RDMA device with it where the kernel binds those to network namespaces.
    """
    family = family_of(device)
    if family is Family.NIC:
        _check_rdma(device, options, host, places.get("rdma"), moves=moves)
        _check_vhost_net(device, options, places.get("vhost_net"))
        _check_nccl(device, options, places.get("nccl"), moves=moves)
    elif family is Family.NVIDIA:
        _check_features(device, options, places.get("features"))
        _check_channels(device, options, places)
    elif places:
        raise of_another_vendor(next(iter(places.values())), device.name, device.vendor)


def _check_rdma(device: Device, options: EditOptions, host: Host, place: str | None, *, moves: bool) -> None:
    if not options.rdma:
        return
    if host.rdma_exclusive and not moves:
        fix = (
            "set moveInterface: true for its resource in ostler's configuration, or run 'rdma system set netns shared' "
            "on the node before any pod has a network"
            if device.text("ifName")
            else "run 'rdma system set netns shared' on the node before any pod has a network"
        )
        why = f"{EXCLUSIVE}, and ostler moves one only with its network interface"
        if place is not None:
            raise ParameterError(place, "rdma", f"{device.name}: {why}", fix)
        raise ClaimError(f"device {device.name}: its rule gives RDMA; {why}; {fix}")
    if place is None or device.attribute("inPod") is True:
        return
    files = [node.path for node in device.nodes_of(NodeRole.RDMA) if node.present]
    missing = [file for file in NEEDED_FOR_RDMA if not any(f"/{file}" in path for path in files)]
    if missing:
        has = f"these RDMA device nodes are missing: {', '.join(missing)}" if files else "it has no RDMA device"
        raise ParameterError(place, "rdma", f"{device.name}: {has}", "select devices with RDMA, or leave it out")


def _check_vhost_net(device: Device, options: EditOptions, place: str | None) -> None:
    if place is None or not options.vhost_net:
        return
    found = {node.path for node in device.nodes_of(NodeRole.AUXILIARY) if node.present}
    missing = [path for path in (VHOST_NET, TUN) if path not in found]
    if missing:
        fix = "load the kernel module vhost_net on the node, or leave it out"
        raise ParameterError(place, "vhostNet", f"{', '.join(missing)} missing on this node", fix)


def _check_nccl(device: Device, options: EditOptions, place: str | None, *, moves: bool) -> None:
    if place is None or not options.nccl or moves or (options.rdma and device.text("rdmaDevice")):
        return
    found = f"{device.name}: the container gets neither its RDMA device nor its network interface"
    has = "set rdma: true as well" if device.text("rdmaDevice") else "select devices with RDMA"
    fix = f"{has}, set moveInterface: true for its resource in ostler's configuration, or leave it out"
    raise ParameterError(place, "nccl", found, fix)


def _check_features(device: Device, options: EditOptions, place: str | None) -> None:
    # With delegated CDI, the vendor's specs say what exists.
    if place is None or options.cdi_mode is CdiMode.DELEGATE:
        return
    for feature in options.features:
        if not feature_nodes([device], feature):
            wanted = " or ".join(FEATURES[feature])
            fix = "load its kernel module on the node, or leave it out"
            raise ParameterError(place, feature, f"the node has no {wanted}", fix)


def _check_channels(device: Device, options: EditOptions, places: Mapping[str, str]) -> None:
    place = places.get("imex_required") or places.get("imex_channels")
    if place is None or not options.imex_required:
        return
    missing = missing_channels(device, options)
    if missing:
        fix = f"create them (nvidia-modprobe, {CHANNEL}N), or set imexRequired to false"
        raise ParameterError(place, "imexChannels", f"missing on this node: {', '.join(missing)}", fix)
