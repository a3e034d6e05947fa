"""NVIDIA devices as CDI edits: what our own spec says of each device and of all of them together.

Pure. Mode ``nodes`` gives device nodes; the image, or whoever runs the container, must bring the driver's libraries.
Mode ``full`` adds the driver's files from the snapshot and the vendor's hooks, as nvidia-ctk does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from node.edits.model import ContainerEdits, HookEdit, MountEdit
from node.edits.nvidia import VISIBLE_DEVICES, node_edit
from node.edits.options import CdiMode, EditOptions
from node.inventory.model import Device, DeviceNode, DriverFiles, NodeRole

_READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
_STAGE = "createContainer"


def device_edits(device: Device, options: EditOptions) -> ContainerEdits:
    """What is one device's own: its node, its MIG capabilities, and in mode ``full`` its graphics nodes."""
    roles = [NodeRole.DEVICE, NodeRole.CAPABILITY]
    if options.cdi_mode is CdiMode.FULL:
        roles.append(NodeRole.RENDER)
    return ContainerEdits(nodes=tuple(node_edit(node, options) for node in device.nodes_of(*roles) if node.present))


def shared_edits(devices: Iterable[Device], options: EditOptions, files: DriverFiles | None) -> ContainerEdits:
    """What every container with any of the devices gets.

    The variable keeps NVIDIA's runtime from adding devices a second time.
    """
    control = (node for device in devices for node in device.nodes_of(NodeRole.CONTROL) if node.present)
    nodes = tuple(node_edit(node, options) for node in dict.fromkeys(control))
    env = ((VISIBLE_DEVICES, "void"),)
    if options.cdi_mode is not CdiMode.FULL or files is None:
        return ContainerEdits(env=env, nodes=nodes)
    return ContainerEdits(env=env, nodes=nodes, mounts=_mounts(files, options), hooks=_hooks(files, options))


def node_edits(nodes: Iterable[DeviceNode], options: EditOptions) -> ContainerEdits:
    """Edits that give just these nodes: a feature, an IMEX channel."""
    return ContainerEdits(nodes=tuple(node_edit(node, options) for node in nodes))


def _mounts(files: DriverFiles, options: EditOptions) -> tuple[MountEdit, ...]:
    root = options.driver_root.rstrip("/")
    read_only = (*files.libraries, *files.binaries, *files.firmware, *files.configuration)
    mounts = [MountEdit(root + path, path, _READ_ONLY) for path in read_only]
    mounts += [MountEdit(root + path, path, _SOCKET) for path in files.sockets]
    return tuple(dict.fromkeys(mounts))


def _hooks(files: DriverFiles, options: EditOptions) -> tuple[HookEdit, ...]:
    if options.hook is None:
        return ()
    program = PurePosixPath(options.hook).name
    # nvidia-ctk has the same hooks one level down.
    words = (program, "hook") if program == "nvidia-ctk" else (program,)
    folders = sorted({str(PurePosixPath(path).parent) for path in files.libraries})
    links = [
        word
        for path in files.libraries
        if PurePosixPath(path).name.startswith("libcuda.so.")
        for word in ("--link", f"libcuda.so.1::{PurePosixPath(path).parent}/libcuda.so")
    ]
    actions = [("create-symlinks", *links)] if links else []
    actions.append(("enable-cuda-compat", f"--host-driver-version={files.version}"))
    if folders:
        actions.append(("update-ldcache", *(word for folder in folders for word in ("--folder", folder))))
    return tuple(HookEdit(_STAGE, options.hook, (*words, *action)) for action in actions)
