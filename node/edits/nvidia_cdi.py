"""NVIDIA devices as CDI edits: what our own spec says of each device and of all of them together.

Pure. Mode ``nodes`` gives device nodes; the image, or whoever runs the container, must bring the driver's libraries.
Mode ``full`` adds the driver's files from the snapshot and the vendor's hooks, as nvidia-ctk does.

Where CDI alone tells a container its devices, their edits set NVIDIA_VISIBLE_DEVICES to ``void``: NVIDIA's runtime
would otherwise read ``all`` from a CUDA image and give it every GPU of the node. With another strategy beside CDI the
variable is that strategy's, so it is an edit of the device and not of the whole spec.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.edits.model import ContainerEdits, HookEdit
from node.edits.nvidia import VISIBLE_DEVICES, node_edit
from node.edits.nvidia_driver import driver_edits, symlink_hook
from node.edits.options import CdiMode, EditOptions
from node.inventory.facts import DriverFiles
from node.inventory.model import Device, DeviceNode, NodeRole

_BY_PATH = (("card", "card"), ("renderD", "render"))
"""How the name of a graphics node begins, and how udev's link to it by PCI address ends."""


def device_edits(device: Device, options: EditOptions) -> ContainerEdits:
    """What is one device's own: its node, its MIG capabilities, and in mode ``full`` its graphics nodes."""
    graphics: tuple[DeviceNode, ...] = ()
    if options.cdi_mode is CdiMode.FULL:
        graphics = tuple(node for node in device.nodes_of(NodeRole.RENDER) if node.present)
    own = (node for node in device.nodes_of(NodeRole.DEVICE, NodeRole.CAPABILITY) if node.present)
    alone = all(strategy.uses_cdi for strategy in options.strategies)
    return ContainerEdits(
        env=((VISIBLE_DEVICES, "void"),) if alone else (),
        nodes=tuple(node_edit(node, options) for node in (*own, *graphics)),
        hooks=_by_path_hooks(device, graphics, options),
    )


def shared_edits(devices: Iterable[Device], options: EditOptions, files: DriverFiles | None) -> ContainerEdits:
    """What every container with any of the devices gets: control nodes, and in mode ``full`` the driver."""
    control = (node for device in devices for node in device.nodes_of(NodeRole.CONTROL) if node.present)
    nodes = tuple(node_edit(node, options) for node in dict.fromkeys(control))
    if options.cdi_mode is not CdiMode.FULL or files is None:
        return ContainerEdits(nodes=nodes)
    driver = driver_edits(files, options.driver_root, options.hook)
    return ContainerEdits(env=driver.env, nodes=nodes, mounts=driver.mounts, hooks=driver.hooks)


def node_edits(nodes: Iterable[DeviceNode], options: EditOptions) -> ContainerEdits:
    """Edits that give just these nodes: a feature, an IMEX channel."""
    return ContainerEdits(nodes=tuple(node_edit(node, options) for node in nodes))


def _by_path_hooks(device: Device, graphics: Iterable[DeviceNode], options: EditOptions) -> tuple[HookEdit, ...]:
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
