"""Options of a resource: how containers get its devices; each also has a default for all resources.

A part of ``schema``, which says what these descriptions are for.
"""

from __future__ import annotations

from enum import StrEnum

from node.edits.options import CdiMode, IdStrategy, ListStrategy
from ostler.config.scalars import SUBDOMAIN, Boolean, Choice, HostPath, Integer, Text
from ostler.config.section import ConfigField, ConfigList, Section, section


class NamedInUse(StrEnum):
    """Whether a named NIC is offered that the node itself uses, or whose virtual functions are offered in its place."""

    OFFER = "offer"
    WITHHOLD = "withhold"


STRATEGIES = ConfigField(
    "deviceListStrategy",
    ConfigList(Choice(ListStrategy), fewest=1),
    (ListStrategy.ENVVAR,),
    "How a container learns its devices; several strategies can be combined.",
)
ID_STRATEGY = ConfigField(
    "deviceIDStrategy", Choice(IdStrategy), IdStrategy.UUID, "What identifies a device in the container."
)
DEVICE_SPECS = ConfigField(
    "passDeviceSpecs", Boolean(), True, "Put device nodes into the Allocate response (not if every strategy is CDI)."
)
CDI_MODE = ConfigField(
    "cdiMode",
    Choice(CdiMode),
    CdiMode.NODES,
    "CDI spec: nodes (ostler's, device nodes only), full (ostler's, with driver files and hooks), delegate"
    " (nvidia-ctk's).",
)
HOOK = ConfigField(
    "hook", HostPath("/usr/bin/nvidia-cdi-hook", optional=True), "", "Host path of nvidia-cdi-hook, for cdiMode full."
)
ANNOTATION_PREFIX = ConfigField(
    "cdiAnnotationPrefix",
    Text(rf"(?=.{{1,253}}/){SUBDOMAIN}/", "a domain with / behind it", "cdi.k8s.io/"),
    "cdi.k8s.io/",
    "Start of the annotation's name, for the strategy cdi-annotations.",
)
GDRCOPY = ConfigField("gdrcopy", Boolean(), False, "Give /dev/gdrdrv (GDRCopy).")
GDS = ConfigField("gds", Boolean(), False, "Give what GPUDirect Storage needs.")
MOFED = ConfigField("mofed", Boolean(), False, "Give /dev/infiniband (MOFED).")
CHANNELS = ConfigField("channelIDs", ConfigList(Integer(0, 2047), most=2048), (), "IMEX channels for the containers.")
CHANNELS_REQUIRED = ConfigField("required", Boolean(), False, "Withhold the devices while a channel is missing.")
IMEX = section("imex", Section(CHANNELS, CHANNELS_REQUIRED), "IMEX channels.")
HINTS = ConfigField("topologyHints", Boolean(), True, "Tell the kubelet the NUMA node of each device.")
LINK_HEALTH = ConfigField("linkHealth", Boolean(), False, "Show a NIC unhealthy while its link is down.")
RDMA_DEVICES: ConfigField[bool | None] = ConfigField(
    "rdmaDevices",
    Boolean(),
    None,
    "Add the RDMA device nodes of a NIC; absent: only if devices has rdma: true, or kind: rdma alone.",
)
VHOST_NET = ConfigField("vhostNet", Boolean(), False, "Add /dev/vhost-net and /dev/net/tun to a NIC.")
NAMED_IN_USE = ConfigField(
    "namedInUse",
    Choice(NamedInUse),
    NamedInUse.OFFER,
    "For a NIC that the node itself uses, or whose virtual functions are offered in its place, if devices names it "
    "(interface, PCI address, device name): offer it anyway, or withhold it like any other.",
)
MOVE_INTERFACE = ConfigField(
    "moveInterface",
    Boolean(),
    False,
    "Move the network interface of a NIC into the pod of its claim, and back afterwards; needs door dra or both. The"
    " plugin door moves none: with door both, pods of the resource get theirs from Multus as before.",
)
OPTIONS = (
    STRATEGIES,
    ID_STRATEGY,
    DEVICE_SPECS,
    CDI_MODE,
    HOOK,
    ANNOTATION_PREFIX,
    GDRCOPY,
    GDS,
    MOFED,
    IMEX,
    HINTS,
    LINK_HEALTH,
    RDMA_DEVICES,
    VHOST_NET,
    NAMED_IN_USE,
)
DEFAULTS = section("defaults", Section(*OPTIONS), "Options of every resource; a resource may override each.")
