"""What a container gets with its devices, whatever they are, and why it would not start with one of them.

Pure, and from memory alone. NVIDIA's devices are given as NVIDIA's plugin gives them (``nvidia.py``). All others are
given as device nodes, those that their makers' plugins give; NICs and some vendors' GPUs with variables that name them
besides. A resource may hold several families: a container then gets all of each, and nothing of one meets another's.

Of the list strategies, devices that are not NVIDIA's know only whether nodes come in the answer or by CDI: ``envvar``
and ``volume-mounts`` both mean the answer. Their nodes are in the host's own /dev, since ``dev_root`` is where NVIDIA's
driver container has one. Their CDI kinds have ostler's own vendor: kinds of their makers (``amd.com/gpu``) belong to
the makers' tools, and runtimes drop a device that two specs define. Their CDI device is the inventory's name, which is
unique and has only characters that CDI takes.

Allocate cannot refuse well (the kubelet fails the pod for good), so ``unfit`` decides before a device is offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from node.edits import nic, nvidia
from node.edits.model import ContainerEdits, NodeEdit
from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.inventory.model import NIC_KINDS, Device, DeviceNode, Host, NodeRole
from node.inventory.vendor import Environment, Family
from node.inventory.vendors import VENDORS, family_of, vendor_of

VENDOR = "ostler.dev"
"""CDI vendor of our specs for devices that are not NVIDIA's."""
_UNKNOWN_CLASS = "gpu"
OWN_FILES = nvidia.OWN_FILES | {
    f"{VENDOR}-{class_}.json" for class_ in ("nic", _UNKNOWN_CLASS, *(vendor.cdi_class for vendor in VENDORS))
}
"""File names that may be ours, of any family; a reader of other people's specs skips them."""

_ALIKE: Mapping[str, EditOptions] = MappingProxyType({})
"""No device has options of its own."""
_UNPREPARED: Mapping[str, nvidia.DeviceSpecs] = MappingProxyType({})


def container_edits(
    resource: str,
    given: Sequence[tuple[str, Device]],
    options: EditOptions,
    unique: str,
    own: Mapping[str, EditOptions] = _ALIKE,
    *,
    prepared: Mapping[str, nvidia.DeviceSpecs] = _UNPREPARED,
) -> ContainerEdits:
    """What one container gets with these devices of a resource, given as (id, device) in the order of the request.

    ``unique`` makes annotations' keys unique: those of several resources must not meet in one container. ``own``: the
    options of NICs, by name, that have others than the resource (``EditOptions.of_resource`` is the same).
    ``prepared``: what ``prepare`` has made of these devices and options; it only saves time.
    """
    # By name: the hash of a whole device costs more than the rest of an answer.
    others = {device.name: device for _, device in given if family_of(device) is not Family.NVIDIA}
    if not others:
        return nvidia.allocate_edits(given, options, unique, prepared)
    edits = _by_nodes(resource, [(each, own.get(name, options)) for name, each in others.items()], options, unique)
    ours = [(id_, device) for id_, device in given if family_of(device) is Family.NVIDIA]
    return _together(nvidia.allocate_edits(ours, options, unique, prepared), edits) if ours else edits


def prepare(devices: Iterable[Device], options: EditOptions) -> Mapping[str, nvidia.DeviceSpecs]:
    """By name, what answers with these devices repeat: made once for an offer, not for each container."""
    if not options.gives_device_specs:
        return _UNPREPARED
    return {each.name: nvidia.device_specs(each, options) for each in devices if family_of(each) is Family.NVIDIA}


def vendor_environment(devices: Iterable[Device]) -> Environment:
    """The variables that vendors of GPUs name, each for all of its own devices; none for NICs and for NVIDIA's."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        if family_of(device) is Family.NODES:
            found.setdefault(device.vendor, []).append(device)
    chosen = ((vendor_of(own[0]), own) for own in found.values())
    return tuple(pair for vendor, own in chosen if vendor is not None for pair in vendor.environment(own))


def spec_edits(device: Device, options: EditOptions) -> ContainerEdits:
    """The edits in the CDI spec of another vendor's device; empty if it needs none, and then has no CDI name."""
    return ContainerEdits(nodes=_node_edits([(device, options)]))


def lacking(device: Device, options: EditOptions) -> str:
    """Says what a container with this device would miss, empty for nothing; not for NVIDIA's devices."""
    return nic.lacking(device, options) if family_of(device) is Family.NIC else _lacking_nodes(device)


def cdi_name(device: Device, options: EditOptions) -> str:
    """The CDI name of a device that is not NVIDIA's; one without device nodes has none, and needs none."""
    return f"{cdi_kind(device)}={device.name}" if _nodes(device, options) else ""


def cdi_kind(device: Device) -> str:
    """The CDI kind of a device that is not NVIDIA's: ``ostler.dev/nic``, ``ostler.dev/amd-gpu``, ..."""
    if device.kind in NIC_KINDS:
        return f"{VENDOR}/nic"
    vendor = vendor_of(device)
    return f"{VENDOR}/{vendor.cdi_class if vendor is not None else _UNKNOWN_CLASS}"


def _by_nodes(
    resource: str, devices: Sequence[tuple[Device, EditOptions]], options: EditOptions, unique: str
) -> ContainerEdits:
    nics = [pair for pair in devices if family_of(pair[0]) is Family.NIC]
    variables = vendor_environment([device for device, _ in devices])
    names = tuple(name for pair in devices if (name := cdi_name(*pair))) if options.uses_cdi else ()
    return ContainerEdits(
        env=(*(nic.environment(resource, nics) if nics else ()), *variables),
        nodes=_node_edits(devices) if options.gives_device_specs else (),
        annotations=options.annotations(f"ostler_{unique}", names),
        cdi_devices=names if ListStrategy.CDI_CRI in options.strategies else (),
    )


def _nodes(device: Device, options: EditOptions) -> tuple[DeviceNode, ...]:
    return nic.given_nodes(device, options) if family_of(device) is Family.NIC else _gpu_nodes(device)


def _node_edits(devices: Iterable[tuple[Device, EditOptions]]) -> tuple[NodeEdit, ...]:
    """Every node once: those that several devices share come first."""
    found = [node for device, options in devices for node in _nodes(device, options)]
    found.sort(key=lambda node: node.role is not NodeRole.CONTROL)
    nodes = {node.on_host or node.path: node for node in found}
    return tuple(NodeEdit(node.path, host_path) for host_path, node in nodes.items())


def _together(first: ContainerEdits, second: ContainerEdits) -> ContainerEdits:
    nodes = {node.path: node for node in (*first.nodes, *second.nodes)}
    return ContainerEdits(
        env=(*first.env, *second.env),
        nodes=tuple(nodes.values()),
        mounts=(*first.mounts, *second.mounts),
        hooks=(*first.hooks, *second.hooks),
        annotations=(*first.annotations, *second.annotations),
        cdi_devices=(*first.cdi_devices, *second.cdi_devices),
    )


def _gpu_nodes(device: Device) -> tuple[DeviceNode, ...]:
    """The device nodes that a container gets with a GPU: control nodes, then its own; only such as the host has."""
    return tuple(node for node in _wanted(device) if node.present)


def _lacking_nodes(device: Device) -> str:
    """The device nodes that a container would lack, in words; empty if there are none."""
    wanted = _wanted(device)
    if not any(node.role is NodeRole.DEVICE for node in wanted):
        return "it has no device node"
    missing = [node.path for node in wanted if not node.present]
    return f"its device nodes are missing: {', '.join(missing)}" if missing else ""


def _wanted(device: Device) -> tuple[DeviceNode, ...]:
    own = device.nodes_of(NodeRole.DEVICE)
    # The kernel has not made these for years; where they are, they are no use without rights of a display server.
    graphics = (node for node in own if not node.path.rpartition("/")[2].startswith("controlD"))
    return (*device.nodes_of(NodeRole.CONTROL), *graphics)


def unfit(id_: str, device: Device, options: EditOptions, host: Host) -> str:
    """Says why a container with this device would not start or would miss something; empty for nothing.

    ``id_``: the id by which the kubelet knows the device.
    """
    if family_of(device) is Family.NVIDIA:
        return _not_named(id_, device, options, host) or _no_channel(device, options)
    reason = lacking(device, options)
    if not reason and options.uses_cdi and host.cdi_fault and cdi_name(device, options):
        return f"no CDI spec can describe it, {host.cdi_fault}"
    return reason


def _not_named(id_: str, device: Device, options: EditOptions, host: Host) -> str:
    """Says why an NVIDIA device has no CDI name, where the rule's answers need one."""
    if not options.uses_cdi:
        return ""
    if options.cdi_mode is CdiMode.DELEGATE:
        names = nvidia.cdi_names([(id_, device)], options)
        unknown = next((name for name in names if name not in host.cdi_devices), None)
        return f"no CDI spec on this node defines {unknown}; run '{_generate(unknown)}'" if unknown else ""
    reason = nvidia.undescribed(device, options, host) or host.cdi_fault
    return f"no CDI spec can describe it, {reason}" if reason else ""


def _generate(name: str) -> str:
    """The nvidia-ctk command that makes the spec which defines this name; its default class is gpu."""
    class_ = name.partition("=")[0].rpartition("/")[2]
    if class_ == "gpu":
        return "nvidia-ctk cdi generate"
    return f"nvidia-ctk cdi generate --mode={class_.removesuffix('-channel')} --class={class_}"


def _no_channel(device: Device, options: EditOptions) -> str:
    missing = nvidia.missing_channels(device, options) if options.imex_required else ()
    return f"required IMEX channels are missing: {', '.join(missing)}" if missing else ""
