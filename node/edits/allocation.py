"""What one container gets with its devices, whatever they are: an Allocate answer, and its counterpart in CDI specs.

Pure, and from memory alone. Each family has a module of its own; a rule may put several of them into one resource, and
the container then gets all of it, which nowhere meets: families differ in their variables, annotations and CDI kinds.

Devices that are not NVIDIA's know of the list strategies only whether nodes come in the answer or by CDI: ``envvar``
and ``volume-mounts`` both mean the answer. Their spec is always ours, since there is no tool to delegate to, and their
nodes are in the host's own /dev: ``dev_root`` is where NVIDIA's driver container has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from node.edits import graphics, nic
from node.edits.families import cdi_kind
from node.edits.model import ContainerEdits, NodeEdit
from node.edits.nvidia import allocate_edits
from node.edits.options import EditOptions, ListStrategy
from node.inventory.model import Device, DeviceNode, NodeRole
from node.inventory.vendor import Environment, Family
from node.inventory.vendors import family_of, vendor_of

_ALIKE: Mapping[str, EditOptions] = MappingProxyType({})
"""No device has options of its own."""


def container_edits(
    resource: str,
    given: Sequence[tuple[str, Device]],
    options: EditOptions,
    unique: str,
    own: Mapping[str, EditOptions] = _ALIKE,
) -> ContainerEdits:
    """What one container gets with these devices of a resource, given as (id, device) in the order of the request.

    ``unique`` makes annotations' keys unique: those of several resources must not meet in one container. ``own``: the
    options of NICs, by name, that have others than the resource (``EditOptions.of_resource`` is the same).
    """
    # By name: the hash of a whole device costs more than the rest of an answer.
    others = {device.name: device for _, device in given if family_of(device) is not Family.NVIDIA}
    if not others:
        return allocate_edits(given, options, unique)
    edits = _by_nodes(resource, [(each, own.get(name, options)) for name, each in others.items()], options, unique)
    ours = [(id_, device) for id_, device in given if family_of(device) is Family.NVIDIA]
    return _together(allocate_edits(ours, options, unique), edits) if ours else edits


def vendor_environment(devices: Iterable[Device]) -> Environment:
    """The variables that vendors of GPUs name, each for all of its own devices; none for NICs and for NVIDIA's."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        if family_of(device) is Family.NODES:
            found.setdefault(device.vendor, []).append(device)
    chosen = ((vendor_of(own[0]), own) for own in found.values())
    return tuple(pair for vendor, own in chosen if vendor is not None for pair in vendor.environment(own))


def spec_edits(device: Device, options: EditOptions) -> ContainerEdits:
    """What the CDI spec says of a device that is not NVIDIA's; empty if it needs nothing, and then has no CDI name."""
    return ContainerEdits(nodes=_node_edits([(device, options)]))


def lacking(device: Device, options: EditOptions) -> str:
    """What a container with this device, which is not NVIDIA's, would miss, in words; empty for nothing."""
    return nic.lacking(device, options) if family_of(device) is Family.NIC else graphics.lacking(device)


def cdi_name(device: Device, options: EditOptions) -> str:
    """The CDI name of a device that is not NVIDIA's; one without device nodes has none, and needs none."""
    return f"{cdi_kind(device)}={device.name}" if _nodes(device, options) else ""


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
    return nic.given_nodes(device, options) if family_of(device) is Family.NIC else graphics.given_nodes(device)


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
