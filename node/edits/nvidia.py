"""NVIDIA devices as container edits: what an Allocate answer says, and what our own CDI spec says.

Pure. The shapes are those of NVIDIA's device plugin, so that runtimes and images that know it see no difference:
strategies add up, UUIDs keep the order of the request, indices are sorted, and where ``envvar`` and ``volume-mounts``
are both on, the variable holds the mounts' folder. A container gets the vendor's ids, whatever ids the kubelet knows
the devices by. All devices share their control and auxiliary nodes, so those of the first one count for all.

In our CDI spec, mode ``nodes`` gives device nodes; the image, or the container's user, must bring the driver's
libraries. Mode ``full`` adds the driver's files from the snapshot and the vendor's hooks, as nvidia-ctk does. Where CDI
is the only strategy, a device's edits set NVIDIA_VISIBLE_DEVICES to ``void``: otherwise NVIDIA's runtime reads ``all``
from a CUDA image and gives the container every GPU of the node. With another strategy beside CDI the variable belongs
to that strategy, so it is an edit of the device and not of the whole spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from node.edits.model import ContainerEdits, HookEdit, MountEdit, NodeEdit
from node.edits.options import CdiMode, EditOptions, IdStrategy, ListStrategy
from node.inventory.facts import DriverFiles
from node.inventory.model import Device, DeviceKind, DeviceNode, Host, NodeRole
from node.values import Value, value

OWN_VENDOR = "k8s.device-plugin.nvidia.com"
"""CDI vendor of our own specs: that of NVIDIA's plugin, so that answers cached by the kubelet still resolve."""
DELEGATED_VENDOR = "nvidia.com"
"""CDI vendor of the specs that nvidia-ctk makes."""
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
DEVICES_FOLDER = "/var/run/nvidia-container-devices"
"""Where NVIDIA's runtime looks for mounts that name devices."""
CHANNEL = "/dev/nvidia-caps-imex-channels/channel"
FEATURES = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": ("/dev/nvidia-fs",),
    "mofed": ("/dev/infiniband/uverbs", "/dev/infiniband/rdma_cm"),
}
"""Features by the beginnings of their device nodes' paths."""
OWN_FILES = frozenset(f"{OWN_VENDOR}-{class_}.json" for class_ in ("gpu", "imex-channel", *FEATURES))
"""File names that may be ours; a reader of other people's specs skips them."""


def container_id(device: Device, id_: str, options: EditOptions) -> str:
    """The device's name inside the container: its UUID, or the driver's index.

    ``id_``, its id at the kubelet, is used if it has neither.
    """
    if options.ids is IdStrategy.INDEX and device.index is not None:
        return device.index
    return device.uuid or id_


def cdi_vendor(options: EditOptions) -> str:
    """The CDI vendor whose names the options use."""
    return DELEGATED_VENDOR if options.cdi_mode is CdiMode.DELEGATE else OWN_VENDOR


def cdi_name(device: Device, id_: str, options: EditOptions) -> str:
    """The device's qualified CDI name."""
    return f"{cdi_vendor(options)}/gpu={container_id(device, id_, options)}"


@value
class DeviceSpecs(Value):
    """The device nodes of an answer that follow from one device: those that all devices share, and its own."""

    device: Device
    shared: tuple[NodeEdit, ...]
    own: tuple[NodeEdit, ...]


def device_specs(device: Device, options: EditOptions) -> DeviceSpecs:
    """The device nodes of an answer that follow from this device."""
    root = options.dev_root.rstrip("/")
    shared = [node.path for node in device.nodes_of(NodeRole.CONTROL) if node.present]
    own = [node.path for node in _own_nodes(device)]
    edits = [tuple([NodeEdit(path, root + path) for path in paths]) for paths in (shared, own)]
    return DeviceSpecs(device, *edits)


_UNPREPARED: Mapping[str, DeviceSpecs] = MappingProxyType({})


def allocate_edits(
    devices: Sequence[tuple[str, Device]],
    options: EditOptions,
    unique: str,
    prepared: Mapping[str, DeviceSpecs] = _UNPREPARED,
) -> ContainerEdits:
    """What one container gets with these devices, given as (id, device) in the order of the request.

    ``unique`` makes the annotation's key unique: several plugins' annotations must not meet in one container.
    ``prepared``: what ``device_specs`` makes of devices with these options, by name; it only saves time.
    """
    chosen = _in_order(devices, options)
    ids = [container_id(device, id_, options) for id_, device in chosen]
    channels = _channels(chosen, options)
    env: dict[str, str] = {}
    mounts: tuple[MountEdit, ...] = ()
    if ListStrategy.ENVVAR in options.strategies:
        env[VISIBLE_DEVICES] = ",".join(ids)
        if channels:
            env["NVIDIA_IMEX_CHANNELS"] = ",".join(str(channel) for channel in channels)
    if ListStrategy.VOLUME_MOUNTS in options.strategies:
        env[VISIBLE_DEVICES] = DEVICES_FOLDER
        files = (*ids, *(f"imex/{channel}" for channel in channels))
        mounts = tuple(MountEdit("/dev/null", f"{DEVICES_FOLDER}/{name}") for name in files)
    env.update((f"NVIDIA_{feature.upper()}", "enabled") for feature in options.features)
    names = _cdi_names(chosen, options, channels) if options.uses_cdi else ()
    return ContainerEdits(
        env=tuple(env.items()),
        nodes=_device_specs(chosen, options, channels, prepared) if options.gives_device_specs else (),
        mounts=mounts,
        annotations=options.annotations(f"nvidia-device-plugin_{unique}", names),
        cdi_devices=names if ListStrategy.CDI_CRI in options.strategies else (),
    )


def feature_nodes(devices: Iterable[Device], feature: str) -> tuple[DeviceNode, ...]:
    """Device nodes of a feature that were found on the host."""
    return _auxiliary(devices, FEATURES[feature])


def cdi_names(devices: Sequence[tuple[str, Device]], options: EditOptions) -> tuple[str, ...]:
    """The qualified CDI names for a container with these devices, given as (id, device)."""
    return _cdi_names(devices, options, _channels(devices, options))


def undescribed(device: Device, options: EditOptions, host: Host) -> str:
    """Why no CDI spec of ours can describe the device, in words; empty where one can."""
    if not device.nodes_of(NodeRole.DEVICE):
        return "it has no device node"
    # The right to use an instance is two files: one of the GPU instance, one of the compute instance.
    if device.kind is DeviceKind.MIG and len(device.nodes_of(NodeRole.CAPABILITY)) < 2:
        return "the capabilities of its MIG instance are not known"
    own = device.nodes_of(NodeRole.DEVICE, NodeRole.CAPABILITY)
    missing = [node.path for node in own if not (node.present or node.by_numbers)]
    if missing:
        return f"its device nodes are missing: {', '.join(missing)}"
    if options.cdi_mode is CdiMode.FULL and (host.driver_files is None or not host.driver_files.libraries):
        # A container would start without a driver and fail later without an apparent cause.
        return f"no libraries of the driver were found below {options.driver_root}"
    return ""


def missing_channels(device: Device, options: EditOptions) -> tuple[str, ...]:
    """Paths of the IMEX channels that the options ask for and that were not found on the host."""
    wanted = (f"{CHANNEL}{channel}" for channel in options.imex_channels)
    found = {node.path for node in device.nodes_of(NodeRole.AUXILIARY) if node.present}
    return tuple(path for path in wanted if path not in found)


def node_edit(node: DeviceNode, options: EditOptions) -> NodeEdit:
    """A device node as the container sees it and where it is on the host."""
    numbers = (
        (node.major, node.minor) if node.by_numbers and node.major is not None and node.minor is not None else None
    )
    return NodeEdit(node.path, options.dev_root.rstrip("/") + node.path, numbers=numbers)


def _in_order(devices: Iterable[tuple[str, Device]], options: EditOptions) -> tuple[tuple[str, Device], ...]:
    """Each device once: in the order of the request, or by index where indices name them (``0:1`` as a pair)."""
    chosen = tuple(dict(devices).items())
    if options.ids is not IdStrategy.INDEX:
        return chosen
    return tuple(sorted(chosen, key=lambda pair: [int(part) for part in (pair[1].index or "0").split(":")]))


def _channels(devices: Sequence[tuple[str, Device]], options: EditOptions) -> tuple[int, ...]:
    """The channels to give: those that exist, or all that the options ask for where they are required."""
    if options.imex_required or not options.imex_channels or not devices:
        return options.imex_channels
    absent = set(missing_channels(devices[0][1], options))
    return tuple(channel for channel in options.imex_channels if f"{CHANNEL}{channel}" not in absent)


def _device_specs(
    devices: Sequence[tuple[str, Device]],
    options: EditOptions,
    channels: Sequence[int],
    prepared: Mapping[str, DeviceSpecs],
) -> tuple[NodeEdit, ...]:
    specs = []
    for _, device in devices:
        found = prepared.get(device.name)
        # One that was made of another state of the device is of no use.
        specs.append(found if found is not None and found.device is device else device_specs(device, options))
    nodes = [*specs[0].shared] if specs else []
    for each in specs:
        nodes += each.own
    # By path: the hashes of whole nodes would be a third of an answer's time.
    paths = {node.path: node for node in nodes}
    root = options.dev_root.rstrip("/")
    return (*paths.values(), *(NodeEdit(path, root + path) for path in (f"{CHANNEL}{channel}" for channel in channels)))


def _own_nodes(device: Device) -> list[DeviceNode]:
    """The device's own nodes. They come first; a host may have thousands of auxiliary ones behind them."""
    own = []
    for node in device.nodes:
        if node.role is NodeRole.CONTROL or node.role is NodeRole.AUXILIARY:
            break
        if node.role is not NodeRole.RENDER:
            own.append(node)
    return own


def _cdi_names(devices: Sequence[tuple[str, Device]], options: EditOptions, channels: Sequence[int]) -> tuple[str, ...]:
    vendor = cdi_vendor(options)
    names = [cdi_name(device, id_, options) for id_, device in devices]
    names += [f"{vendor}/imex-channel={channel}" for channel in channels]
    delegated = options.cdi_mode is CdiMode.DELEGATE
    # A name that no spec defines makes the container fail, so a feature without device nodes is not named.
    known = (
        feature
        for feature in options.features
        if delegated or feature_nodes((device for _, device in devices[:1]), feature)
    )
    return (*names, *(f"{vendor}/{feature}=all" for feature in known))


def _auxiliary(devices: Iterable[Device], beginnings: tuple[str, ...]) -> tuple[DeviceNode, ...]:
    nodes = (node for device in devices for node in device.nodes_of(NodeRole.AUXILIARY) if node.present)
    return tuple(dict.fromkeys(node for node in nodes if node.path.startswith(beginnings)))


_BY_PATH = (("card", "card"), ("renderD", "render"))
"""How the name of a graphics node begins, and how udev's link to it by PCI address ends."""


def device_edits(device: Device, options: EditOptions) -> ContainerEdits:
    """The edits of one device: its node, its MIG capabilities, and in mode ``full`` its graphics nodes."""
    graphics: tuple[DeviceNode, ...] = ()
    if options.cdi_mode is CdiMode.FULL:
        graphics = tuple(node for node in device.nodes_of(NodeRole.RENDER) if node.present)
    own = (node for node in device.nodes_of(NodeRole.DEVICE, NodeRole.CAPABILITY) if node.present or node.by_numbers)
    alone = all(strategy.uses_cdi for strategy in options.strategies)
    return ContainerEdits(
        env=((VISIBLE_DEVICES, "void"),) if alone else (),
        nodes=tuple(node_edit(node, options) for node in (*own, *graphics)),
        hooks=_by_path_hooks(device, graphics, options),
    )


def shared_edits(devices: Iterable[Device], options: EditOptions, files: DriverFiles | None) -> ContainerEdits:
    """The edits for every container with any of the devices: control nodes, and in mode ``full`` the driver."""
    control = (node for device in devices for node in device.nodes_of(NodeRole.CONTROL) if node.present)
    nodes = tuple(node_edit(node, options) for node in dict.fromkeys(control))
    if options.cdi_mode is not CdiMode.FULL or files is None:
        return ContainerEdits(nodes=nodes)
    from node.edits.nvidia_driver import driver_edits  # Most nodes have no CDI specs of ours.

    driver = driver_edits(files, options.driver_root, options.hook)
    return ContainerEdits(env=driver.env, nodes=nodes, mounts=driver.mounts, hooks=driver.hooks)


def node_edits(nodes: Iterable[DeviceNode], options: EditOptions) -> ContainerEdits:
    """Edits that give just these nodes: a feature, an IMEX channel."""
    return ContainerEdits(nodes=tuple(node_edit(node, options) for node in nodes))


def _by_path_hooks(device: Device, graphics: Iterable[DeviceNode], options: EditOptions) -> tuple[HookEdit, ...]:
    """The links of /dev/dri/by-path that Vulkan and EGL look devices up by."""
    if options.hook is None or device.pci_address is None:
        return ()
    from node.edits.nvidia_driver import symlink_hook  # As above.

    links = []
    for node in graphics:
        name = node.path.rpartition("/")[2]
        for start, kind in _BY_PATH:
            if name.startswith(start):
                links.append((f"../{name}", f"/dev/dri/by-path/pci-{device.pci_address}-{kind}"))
    return symlink_hook(options.hook, links)
