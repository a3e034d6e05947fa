"""Edits of our own CDI specs for NVIDIA devices: mode ``nodes`` and mode ``full``.

Pure. Every node in these edits was seen on the host: a spec with nodes that do not exist makes containers fail, and one
made before the driver had them is silently useless. So a device that lacks a node is not written (``unwritable`` says
why); graphics nodes, which few containers need, are left out alone.

Where CDI alone tells a container its devices, their edits set NVIDIA_VISIBLE_DEVICES to ``void``: otherwise NVIDIA's
container runtime reads ``all`` from a CUDA image and gives it every GPU of the node. With another strategy beside CDI
the variable is that strategy's. It is a device's edit and not the whole spec's, since resources may differ in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.edits.model import ContainerEdits, HookEdit, NodeEdit
from node.edits.nvidia_driver import driver_edits, symlink_hook
from node.edits.nvidia_names import channel_path, feature_paths
from node.edits.options import CdiMode, EditOptions
from node.inventory.model import Device, DeviceNode, Host, NodeRole

_BY_PATH = (("card", "card"), ("renderD", "render"))
"""How the name of a graphics node begins, and how udev's link to it by PCI address ends."""


def unwritable(device: Device, options: EditOptions, host: Host) -> str:
    """Why our own spec cannot hold this device, in one sentence; empty when it can."""
    own = device.nodes_of(NodeRole.DEVICE, NodeRole.CAPABILITY)
    if not own:
        return "it has no device node"
    missing = [node.path for node in own if not node.present]
    if missing:
        verb = "does" if len(missing) == 1 else "do"
        return f"{' and '.join(missing)} {verb} not exist on this node"
    if options.cdi_mode is not CdiMode.FULL:
        return ""
    if options.hook is None:
        return "cdiMode is full, but no hook program is configured"
    if host.driver_files is None or not host.driver_files.libraries:
        return f"no libraries of NVIDIA's driver were found below {options.driver_root}, which cdiMode full needs"
    return ""


def device_edits(device: Device, options: EditOptions) -> ContainerEdits:
    """Edits of one device; only for devices that are not ``unwritable``."""
    graphics: tuple[DeviceNode, ...] = ()
    if options.cdi_mode is CdiMode.FULL:
        graphics = tuple(node for node in device.nodes_of(NodeRole.RENDER) if node.present)
    paths = [node.path for node in (*device.nodes_of(NodeRole.DEVICE, NodeRole.CAPABILITY), *graphics)]
    alone = all(strategy.uses_cdi for strategy in options.strategies)
    return ContainerEdits(
        env=(("NVIDIA_VISIBLE_DEVICES", "void"),) if alone else (),
        nodes=node_edits(paths, options),
        hooks=_by_path_hooks(device, graphics, options),
    )


def common_edits(devices: Iterable[Device], options: EditOptions, host: Host) -> ContainerEdits:
    """Edits that all devices of the spec share: control nodes, and in mode ``full`` the driver."""
    control = dict.fromkeys(
        node.path for device in devices for node in device.nodes_of(NodeRole.CONTROL) if node.present
    )
    nodes = node_edits(control, options)
    if options.cdi_mode is not CdiMode.FULL or options.hook is None or host.driver_files is None:
        return ContainerEdits(nodes=nodes)
    driver = driver_edits(host.driver_files, options.driver_root, options.hook)
    return ContainerEdits(driver.env, nodes, driver.mounts, driver.hooks)


def feature_edits(device: Device, feature: str, options: EditOptions) -> ContainerEdits:
    """Device nodes of a feature; empty where the host has none."""
    return ContainerEdits(nodes=node_edits(feature_paths(device, feature), options))


def channel_edits(number: int, options: EditOptions) -> ContainerEdits:
    """The device node of one IMEX channel."""
    return ContainerEdits(nodes=node_edits((channel_path(number),), options))


def node_edits(paths: Iterable[str], options: EditOptions) -> tuple[NodeEdit, ...]:
    """Device nodes by the paths that containers see, with those on the host."""
    root = options.dev_root.rstrip("/")
    return tuple(NodeEdit(path, f"{root}{path}") for path in paths)


def _by_path_hooks(device: Device, graphics: tuple[DeviceNode, ...], options: EditOptions) -> tuple[HookEdit, ...]:
    """The links of /dev/dri/by-path that Vulkan and EGL look devices up by."""
    if options.hook is None or device.pci_address is None:
        return ()
    links = []
    for node in graphics:
        name = node.path.rpartition("/")[2]
        for start, kind in _BY_PATH:
            if name.startswith(start):
                links.append((f"../{name}", f"/dev/dri/by-path/pci-{device.pci_address}-{kind}"))
    return symlink_hook(options.hook, links)
