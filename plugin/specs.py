"""Which CDI specs the plugin door needs for the present offer.

Pure. One file per class, under the names that NVIDIA's device plugin uses for its own: ours replace them on a node that
changes over, answers that the kubelet cached still resolve, and no two files define the same device, which would make
runtimes drop both.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.cdi.spec import CdiDevice, Spec
from node.edits.nvidia import CHANNEL, FEATURES, OWN_VENDOR, container_id, feature_nodes, missing_nodes
from node.edits.nvidia_cdi import device_edits, node_edits, shared_edits
from node.edits.options import CdiMode, EditOptions
from node.inventory.model import Device, NodeRole, Snapshot
from node.offer import Offer, OfferedDevice, ResourceOffer

OWN_FILES = frozenset(f"{OWN_VENDOR}-{class_}.json" for class_ in ("gpu", "imex-channel", *FEATURES))
"""File names that may be ours; a reader of other people's specs skips them."""


def desired_specs(offer: Offer, snapshot: Snapshot) -> tuple[dict[str, Spec], tuple[str, ...]]:
    """Specs by file name, and problems in words: what containers would miss."""
    resources = [
        resource
        for resource in offer.resources
        if resource.rule.edits.uses_cdi and resource.rule.edits.cdi_mode is not CdiMode.DELEGATE
    ]
    if not resources:
        return {}, ()
    options = _strongest(resource.rule.edits for resource in resources)
    devices = [item.device for resource in resources for item in resource.devices]
    specs = [
        _gpu_spec(resources, options, snapshot),
        *_feature_specs(devices, options),
        *_channel_spec(devices, options),
    ]
    files = {f"{spec.kind.replace('/', '-')}.json": spec for spec in specs if spec.devices}
    return files, tuple(_problems(resources, options, snapshot))


def _strongest(every: Iterable[EditOptions]) -> EditOptions:
    """The options whose spec serves all resources: one file per class cannot be both ``nodes`` and ``full``."""
    return max(every, key=lambda options: options.cdi_mode is CdiMode.FULL)


def _gpu_spec(resources: Iterable[ResourceOffer], options: EditOptions, snapshot: Snapshot) -> Spec:
    complete: dict[str, Device] = {}
    for resource in resources:
        for item in resource.devices:
            if not missing_nodes(item.device) and item.device.nodes_of(NodeRole.DEVICE):
                complete[container_id(item.device, item.id, resource.rule.edits)] = item.device
    entries = tuple(CdiDevice(name, device_edits(device, options)) for name, device in sorted(complete.items()))
    shared = shared_edits(complete.values(), options, snapshot.host.driver_files)
    return Spec(f"{OWN_VENDOR}/gpu", entries, shared)


def _feature_specs(devices: Iterable[Device], options: EditOptions) -> list[Spec]:
    devices = list(devices)
    specs = []
    for feature in options.features:
        nodes = feature_nodes(devices, feature)
        entries = (CdiDevice("all", node_edits(nodes, options)),) if nodes else ()
        specs.append(Spec(f"{OWN_VENDOR}/{feature}", entries))
    return specs


def _channel_spec(devices: Iterable[Device], options: EditOptions) -> list[Spec]:
    nodes = {node.path: node for device in devices for node in device.nodes_of(NodeRole.AUXILIARY) if node.present}
    entries = tuple(
        CdiDevice(str(channel), node_edits([nodes[f"{CHANNEL}{channel}"]], options))
        for channel in options.imex_channels
        if f"{CHANNEL}{channel}" in nodes
    )
    return [Spec(f"{OWN_VENDOR}/imex-channel", entries)]


def _problems(resources: Iterable[ResourceOffer], options: EditOptions, snapshot: Snapshot) -> Iterable[str]:
    for resource in resources:
        for item in resource.devices:
            yield from _missing(item)
    if options.cdi_mode is CdiMode.NODES:
        yield "CDI mode nodes: containers get device nodes only, their image must bring the driver's libraries"
    elif snapshot.host.driver_files is None:
        yield "CDI mode full: the driver's files were not found, containers get device nodes only"


def _missing(item: OfferedDevice) -> Iterable[str]:
    paths = missing_nodes(item.device)
    if paths:
        yield f"CDI: {item.device.name} is left out, its device nodes are missing on the host: {', '.join(paths)}"
