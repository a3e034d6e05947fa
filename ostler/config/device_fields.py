"""Keys that say which devices a resource has.

A part of ``schema``, which says what these descriptions are for.
"""

from __future__ import annotations

from enum import StrEnum

from node.inventory.model import DeviceKind
from node.inventory.nics.attributes import NIC_VENDORS
from node.inventory.vendors import VENDORS
from ostler.config.nic_values import DriverName, Functions, PartitionKey, PciId, RootFunctions
from ostler.config.patterns import NamePattern, Pattern, PciPattern, ProfilePattern, UuidPattern
from ostler.config.scalars import Boolean, Choice, Integer
from ostler.config.section import Field, ListOf, Section, section

VENDOR_NAMES = tuple(dict.fromkeys((*(vendor.name for vendor in VENDORS), *NIC_VENDORS.values())))
"""Vendors whose devices are found and served; a NIC of any other one is selected by ``pciVendors``."""


class NicFunction(StrEnum):
    """What a NIC is to SR-IOV."""

    PF = "pf"
    VF = "vf"
    SF = "sf"


class LinkType(StrEnum):
    """What a NIC's link speaks."""

    ETHERNET = "ethernet"
    INFINIBAND = "infiniband"


KINDS = Field("kind", ListOf(Choice(DeviceKind), fewest=1, single=True), (), "Kinds of device.")
VENDOR = Field("vendor", ListOf(Choice(VENDOR_NAMES), fewest=1, single=True), (), "Vendors.")
PRODUCTS = Field(
    "product",
    ListOf(Pattern(), fewest=1, single=True),
    (),
    "Product names, also without the vendor and with - for blanks.",
)
PROFILES = Field(
    "profile", ListOf(ProfilePattern(), fewest=1, single=True), (), "MIG profiles, or AMD's partition modes."
)
UUIDS = Field("uuid", ListOf(UuidPattern(), fewest=1, single=True), (), "UUIDs.")
PCI_ADDRESSES = Field("pciAddress", ListOf(PciPattern(), fewest=1, single=True), (), "PCI addresses.")
NAMES = Field("name", ListOf(NamePattern(), fewest=1, single=True), (), "Device names, as 'ostler devices' shows them.")
MIG_ENABLED: Field[bool | None] = Field(
    "migEnabled", Boolean(), None, "Whole GPUs with MIG mode on (true) or off (false)."
)
WHOLE_INSTANCES = Field(
    "wholeInstances", Boolean(), False, "Only MIG devices whose compute instance fills its GPU instance."
)
DRIVERS = Field("drivers", ListOf(DriverName(), fewest=1, single=True), (), "Kernel drivers.")
PCI_VENDORS = Field("pciVendors", ListOf(PciId("15b3"), fewest=1, single=True), (), "PCI vendor ids of NICs.")
PCI_DEVICES = Field("pciDevices", ListOf(PciId("101e"), fewest=1, single=True), (), "PCI device ids of NICs.")
FUNCTIONS = Field(
    "functions",
    ListOf(Choice(NicFunction), fewest=1, single=True),
    (),
    "NICs that are physical functions or without SR-IOV (pf), virtual functions (vf), subfunctions (sf).",
)
INTERFACES = Field(
    "interfaces",
    ListOf(Functions(), fewest=1, single=True),
    (),
    "NICs by the interface of their physical function; NAME#0-3,7 for virtual functions by number.",
)
ROOT_DEVICES = Field(
    "rootDevices",
    ListOf(RootFunctions(), fewest=1, single=True),
    (),
    "NICs by the PCI address of their physical function; ADDRESS#0-3,7 for virtual functions by number.",
)
LINK_TYPES = Field("linkTypes", ListOf(Choice(LinkType), fewest=1, single=True), (), "What the link of a NIC speaks.")
RDMA: Field[bool | None] = Field("rdma", Boolean(), None, "NICs with an RDMA device (true) or without one (false).")
ACPI_INDEXES = Field(
    "acpiIndexes",
    ListOf(Integer(0, 0xFFFFFFFF), fewest=1, single=True),
    (),
    "NICs by the index that the firmware gives them.",
)
PARTITION_KEYS = Field(
    "pKeys", ListOf(PartitionKey(), fewest=1, single=True), (), "NICs by their default InfiniBand partition key."
)
NIC_FACTS = (
    PCI_VENDORS,
    PCI_DEVICES,
    FUNCTIONS,
    INTERFACES,
    ROOT_DEVICES,
    LINK_TYPES,
    RDMA,
    ACPI_INDEXES,
    PARTITION_KEYS,
)
"""Facts that only NICs have: a selection with one of them is of NICs alone."""

DEVICES = section(
    "devices",
    Section(
        KINDS,
        VENDOR,
        PRODUCTS,
        PROFILES,
        UUIDS,
        PCI_ADDRESSES,
        NAMES,
        MIG_ENABLED,
        WHOLE_INSTANCES,
        DRIVERS,
        *NIC_FACTS,
    ),
    "Which devices: every key given must match, of several values one; no key: all but NICs that no earlier one has.",
)
