"""Edits of an Allocate answer for NVIDIA GPUs and MIG devices, in the shapes of NVIDIA's device plugin.

Pure and fast: it runs inside Allocate. Strategies add up; where both envvar and volume-mounts are on, the variable
holds the mounts' folder. Control nodes are given only if the host has them; a device's own nodes always, because a
device without them is not offered as healthy. Feature variables are set in every strategy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from node.edits.model import ContainerEdits, MountEdit, NodeEdit
from node.edits.nvidia_cdi import unwritable
from node.edits.nvidia_names import cdi_names, channel_path, features_of, ordered, present_channels
from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.inventory.model import Device, Host, NodeRole

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
LIST_FOLDER = "/var/run/nvidia-container-devices"
"""Where the container runtime finds the list of devices as mounts, out of the reach of unprivileged images."""
ANNOTATION = "nvidia-device-plugin"


def allocate_edits(devices: Sequence[Device], options: EditOptions, token: str = "") -> ContainerEdits:
    """What a container with these devices gets; a device named twice counts once.

    ``token``: unique per answer, at most 42 letters, digits and dashes (a UUID); part of the annotation's name, needed
    by the strategy cdi-annotations alone.
    """
    named = ordered(devices, options)
    channels = present_channels(named[0][1], options) if named and options.imex_channels else ()
    ids = tuple(id_ for id_, _ in named)
    names = cdi_names(named, options) if options.uses_cdi else ()
    strategies = options.strategies
    return ContainerEdits(
        env=tuple(_env(ids, channels, options).items()),
        nodes=_nodes((device for _, device in named), channels, options) if options.gives_device_specs else (),
        mounts=_list_mounts(ids, channels) if ListStrategy.VOLUME_MOUNTS in strategies else (),
        annotations=(
            ((f"{options.cdi_annotation_prefix}{ANNOTATION}_{token}", ",".join(names)),)
            if ListStrategy.CDI_ANNOTATIONS in strategies
            else ()
        ),
        cdi_devices=names if ListStrategy.CDI_CRI in strategies else (),
    )


def why_not(device: Device, options: EditOptions, host: Host) -> str:
    """Why a container that got this device would not start or not find it, in one sentence; empty when it would."""
    if options.imex_required:
        for number in sorted(set(options.imex_channels) - set(present_channels(device, options))):
            return f"IMEX channel {number} is required, but {channel_path(number)} does not exist on this node"
    if not options.uses_cdi:
        return ""
    if options.cdi_mode is not CdiMode.DELEGATE:
        return unwritable(device, options, host)
    for name in cdi_names(ordered((device,), options), options):
        if name not in host.cdi_devices:
            return f"no CDI spec on this node defines {name}; run 'nvidia-ctk cdi generate'"
    return ""


def _env(ids: tuple[str, ...], channels: tuple[int, ...], options: EditOptions) -> dict[str, str]:
    env = {f"NVIDIA_{feature.upper()}": "enabled" for feature in features_of(options)}
    if ListStrategy.ENVVAR in options.strategies:
        env[VISIBLE_DEVICES] = ",".join(ids)
        if channels:
            env[IMEX_CHANNELS] = ",".join(map(str, channels))
    if ListStrategy.VOLUME_MOUNTS in options.strategies:
        env[VISIBLE_DEVICES] = LIST_FOLDER
    return env


def _list_mounts(ids: tuple[str, ...], channels: tuple[int, ...]) -> tuple[MountEdit, ...]:
    return (
        *(MountEdit("/dev/null", f"{LIST_FOLDER}/{id_}") for id_ in ids),
        *(MountEdit("/dev/null", f"{LIST_FOLDER}/imex/{number}") for number in channels),
    )


def _nodes(devices: Iterable[Device], channels: tuple[int, ...], options: EditOptions) -> tuple[NodeEdit, ...]:
    control: dict[str, None] = {}
    own: dict[str, None] = {}
    for device in devices:
        for path, role in _own_and_control(device):
            (control if role is NodeRole.CONTROL else own)[path] = None
    root = options.dev_root.rstrip("/")
    return tuple(
        NodeEdit(path, f"{root}{path}") for path in (*control, *own, *(channel_path(number) for number in channels))
    )


def _own_and_control(device: Device) -> Iterator[tuple[str, NodeRole]]:
    # Auxiliary nodes come last and may be thousands (IMEX channels), which Allocate has no time to look at.
    for node in takewhile(lambda node: node.role is not NodeRole.AUXILIARY, device.nodes):
        if node.role is not NodeRole.RENDER and (node.role is not NodeRole.CONTROL or node.present):
            yield node.path, node.role
