"""Which CDI specs the plugin door needs for the present offer. Pure.

One file per class. The files of NVIDIA's devices have the names that NVIDIA's device plugin uses: ours replace them on
a node that changes over, answers that the kubelet cached still resolve, and no two files define the same device, which
would make runtimes drop both. All other devices are in files of ostler's own vendor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from node.cdi.spec import CdiDevice, Spec
from node.edits.allocation import cdi_kind, lacking, spec_edits
from node.edits.model import ContainerEdits
from node.edits.nvidia import (
    CHANNEL,
    FEATURES,
    OWN_VENDOR,
    container_id,
    device_edits,
    feature_nodes,
    missing_channels,
    node_edits,
    shared_edits,
    undescribed,
)
from node.edits.options import CdiMode, EditOptions
from node.inventory.model import Device, NodeRole, Snapshot
from node.inventory.vendor import Family
from node.inventory.vendors import family_of
from node.offer import Offer, ResourceOffer
from node.values import replace


def desired_specs(offer: Offer, snapshot: Snapshot) -> tuple[dict[str, Spec], tuple[str, ...]]:
    """Specs by file name, and problems in words: what containers would lack."""
    resources = [resource for resource in offer.resources if resource.rule.edits.uses_cdi]
    specs, problems = _specs_of_others(resources)
    nvidia = [
        replace(resource, devices=devices)
        for resource in resources
        if resource.rule.edits.cdi_mode is not CdiMode.DELEGATE
        and (devices := tuple(item for item in resource.distinct if family_of(item.device) is Family.NVIDIA))
    ]
    if nvidia:
        options = _together([resource.rule.edits for resource in nvidia])
        # Auxiliary nodes are the same for all devices, and there may be thousands.
        first = [nvidia[0].devices[0].device]
        specs += [_gpu_spec(nvidia, options, snapshot), *_feature_specs(first, options), _channel_spec(first, options)]
        problems += [*_left_out(nvidia, snapshot), *_problems(first, options)]
    files = {f"{spec.kind.replace('/', '-')}.json": spec for spec in specs if spec.devices}
    return files, tuple(problems)


def _specs_of_others(resources: Iterable[ResourceOffer]) -> tuple[list[Spec], list[str]]:
    """Specs of all devices of other vendors than NVIDIA, and the devices left out of them."""
    kinds: dict[str, list[CdiDevice]] = {}
    problems = []
    for resource in resources:
        for item in (item for item in resource.distinct if family_of(item.device) is not Family.NVIDIA):
            device, options = item.device, item.edits or resource.rule.edits
            edits = spec_edits(device, options)
            reason = lacking(device, options)
            if reason:
                problems.append(f"CDI: {device.name} is left out, {reason}")
            elif not edits.empty:
                kinds.setdefault(cdi_kind(device), []).append(CdiDevice(device.name, edits))
    by_name = {kind: sorted(devices, key=attrgetter("name")) for kind, devices in sorted(kinds.items())}
    return [Spec(kind, tuple(devices)) for kind, devices in by_name.items()], problems


def _together(every: Sequence[EditOptions]) -> EditOptions:
    """The options whose specs serve all resources: one file per class cannot be both ``nodes`` and ``full``."""
    strongest = max(every, key=lambda options: options.cdi_mode is CdiMode.FULL)
    features = {feature for options in every for feature in options.features}
    channels = dict.fromkeys(channel for options in every for channel in options.imex_channels)
    ordered = tuple(feature for feature in FEATURES if feature in features)
    return replace(strongest, features=ordered, imex_channels=tuple(channels))


def _gpu_spec(resources: Iterable[ResourceOffer], options: EditOptions, snapshot: Snapshot) -> Spec:
    complete: dict[str, tuple[Device, ContainerEdits]] = {}
    for resource in resources:
        for item in resource.devices:
            if not undescribed(item.device, resource.rule.edits, snapshot.host):
                name = container_id(item.device, item.device_id, resource.rule.edits)
                # The resource says how the container learns its devices; the spec says whose files it gets.
                own = replace(resource.rule.edits, cdi_mode=options.cdi_mode, hook=options.hook)
                complete[name] = (item.device, device_edits(item.device, own))
    entries = tuple(CdiDevice(name, edits) for name, (_, edits) in sorted(complete.items()))
    shared = shared_edits([device for device, _ in complete.values()], options, snapshot.host.driver_files)
    return Spec(f"{OWN_VENDOR}/gpu", entries, shared)


def _feature_specs(devices: Sequence[Device], options: EditOptions) -> Iterable[Spec]:
    for feature in options.features:
        nodes = feature_nodes(devices, feature)
        entries = (CdiDevice("all", node_edits(nodes, options)),) if nodes else ()
        yield Spec(f"{OWN_VENDOR}/{feature}", entries)


def _channel_spec(devices: Iterable[Device], options: EditOptions) -> Spec:
    nodes = {node.path: node for device in devices for node in device.nodes_of(NodeRole.AUXILIARY) if node.present}
    entries = tuple(
        CdiDevice(str(channel), node_edits([nodes[f"{CHANNEL}{channel}"]], options))
        for channel in options.imex_channels
        if f"{CHANNEL}{channel}" in nodes
    )
    return Spec(f"{OWN_VENDOR}/imex-channel", entries)


def _left_out(resources: Iterable[ResourceOffer], snapshot: Snapshot) -> Iterable[str]:
    for resource in resources:
        for item in resource.devices:
            reason = undescribed(item.device, resource.rule.edits, snapshot.host)
            if reason:
                yield f"CDI: {item.device.name} is left out, {reason}"


def _problems(devices: Sequence[Device], options: EditOptions) -> Iterable[str]:
    for feature in options.features:
        if not feature_nodes(devices, feature):
            yield f"CDI: the feature {feature} is left out, no node {FEATURES[feature][0]}* is on the host"
    missing = dict.fromkeys(path for device in devices for path in missing_channels(device, options))
    if missing:
        yield f"CDI: IMEX channels are left out, they are missing on the host: {', '.join(missing)}"
    if options.cdi_mode is CdiMode.NODES:
        yield "CDI mode nodes: containers get device nodes only, their image must bring the driver's libraries"
