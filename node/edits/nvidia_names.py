"""What names an NVIDIA device inside a container, and its CDI names.

Pure. The Allocate answer and the CDI spec take their names from here, so that an answer never names what the spec does
not define. Our own spec has the kind of NVIDIA's device plugin: answers that the kubelet cached before a node changed
over still resolve when a container restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from node.edits.options import CdiMode, EditOptions, IdStrategy
from node.inventory.model import Device, NodeRole

OWN_VENDOR = "k8s.device-plugin.nvidia.com"
"""CDI vendor of our own specs, which is that of NVIDIA's device plugin."""
VENDOR = "nvidia.com"
"""CDI vendor of the specs that nvidia-ctk makes."""
GPU_CLASS = "gpu"
CHANNEL_CLASS = "imex-channel"
FEATURES = {
    "gdrcopy": "/dev/gdrdrv",
    "gds": "/dev/nvidia-fs",
    "mofed": "/dev/infiniband/",
}
"""Features, in the order of their names in an answer, and how the paths of their device nodes begin."""
CHANNELS = "/dev/nvidia-caps-imex-channels/channel"
"""How the path of an IMEX channel begins; its number follows."""


def container_id(device: Device, options: EditOptions) -> str:
    """UUID or index, whichever the options ask for; where a device has only one of them, that one."""
    first, second = device.uuid, device.index
    if options.ids is IdStrategy.INDEX:
        first, second = second, first
    return first or second or device.name


def ordered(devices: Sequence[Device], options: EditOptions) -> tuple[tuple[str, Device], ...]:
    """Ids with their devices, each id once: in the order given for UUIDs, by number for indices."""
    named: dict[str, Device] = {}
    for device in devices:
        named.setdefault(container_id(device, options), device)
    if options.ids is IdStrategy.INDEX:
        return tuple(sorted(named.items(), key=lambda item: _number(item[0])))
    return tuple(named.items())


def cdi_names(named: Iterable[tuple[str, Device]], options: EditOptions) -> tuple[str, ...]:
    """Qualified names of devices from ``ordered``: the devices, then IMEX channels, then features.

    Of our own specs only what they define, which is what the host has; of the vendor's everything that is asked for.
    """
    named = tuple(named)
    own = options.cdi_mode is not CdiMode.DELEGATE
    vendor = OWN_VENDOR if own else VENDOR
    device = named[0][1] if named else None
    channels: tuple[int, ...] = ()
    features: tuple[str, ...] = ()
    if device is not None:
        channels = present_channels(device, options) if own else options.imex_channels
        features = present_features(device, options) if own else features_of(options)
    return (
        *(f"{vendor}/{GPU_CLASS}={id_}" for id_, _ in named),
        *(f"{vendor}/{CHANNEL_CLASS}={number}" for number in channels),
        *(f"{vendor}/{feature}=all" for feature in features),
    )


def features_of(options: EditOptions) -> tuple[str, ...]:
    """The features asked for, in the order of answers."""
    return tuple(feature for feature in FEATURES if feature in options.features) if options.features else ()


def present_features(device: Device, options: EditOptions) -> tuple[str, ...]:
    """Those asked for whose device nodes the host has."""
    return tuple(feature for feature in features_of(options) if feature_paths(device, feature))


def feature_paths(device: Device, feature: str) -> tuple[str, ...]:
    """Paths of a feature's device nodes on this host, empty without any."""
    start = FEATURES[feature]
    return tuple(
        node.path for node in device.nodes_of(NodeRole.AUXILIARY) if node.present and node.path.startswith(start)
    )


def present_channels(device: Device, options: EditOptions) -> tuple[int, ...]:
    """The IMEX channels asked for that the host has."""
    if not options.imex_channels:
        return ()
    there = {node.path for node in device.nodes_of(NodeRole.AUXILIARY) if node.present}
    return tuple(number for number in options.imex_channels if channel_path(number) in there)


def channel_path(number: int) -> str:
    """The device node of an IMEX channel."""
    return f"{CHANNELS}{number}"


def _number(id_: str) -> tuple[tuple[int, ...], str]:
    """Sort key of an index: GPU, then MIG device; what is no index comes last."""
    parts = id_.split(":")
    if all(part.isdecimal() for part in parts):
        return tuple(int(part) for part in parts), ""
    return (1 << 62,), id_
