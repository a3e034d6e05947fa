"""Keys that say which devices a resource has, and the values that select NICs; a part of ``schema``.

PCI ids, functions below an interface or address, and partition keys have the syntax of the SR-IOV network device
plugin, whose users know it: ``ens1np0#0-3,7`` are virtual functions of the physical one with that interface. Names are
whole names, never patterns, and must not contain ``#``. PCI ids may be written without quotes: YAML takes ``1572`` for
a number, and the reader keeps the text as written.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import pairwise

from node.inventory.model import DeviceKind
from node.inventory.nics.attributes import NIC_VENDORS
from node.inventory.vendors import VENDORS
from node.rules import FunctionRange
from ostler.config.document import Meaning, ScalarNode, clipped, shown
from ostler.config.patterns import (
    NamePattern,
    Pattern,
    PciPattern,
    ProfilePattern,
    UuidPattern,
    parse_address,
    spelling,
)
from ostler.config.scalars import BadValue, Boolean, Choice, Integer, JsonObject, ScalarType, ValueType
from ostler.config.section import ConfigField, ConfigList, Section, T, section

MAX_INTERFACE = 15
"""Bytes of an interface's name (the kernel's IFNAMSIZ less the zero byte)."""

MAX_FUNCTION = 65535
"""Highest number of a function in the SR-IOV capability."""

_NOT_IN_NAMES = "/: \t\n\v\f\r"
"""Characters that the kernel allows in no interface's name (its dev_valid_name)."""

_RANGE_FIX = "write numbers from 0 after #, such as 0-3,7 (an interface with # in its name: use rootDevices)"
_MODULES = {"vfio_pci": "vfio-pci", "uio-pci-generic": "uio_pci_generic", "igb-uio": "igb_uio", "mlx5": "mlx5_core"}


class PciId(ScalarType[str]):
    """A PCI vendor or device id: four hexadecimal digits, with or without ``0x``; read as lower case without it."""

    accepts = "four hexadecimal digits"
    takes_any = True  # YAML may call the four digits a number

    def __init__(self, example: str) -> None:
        self.example = f'"{example}"'

    def from_text(self, text: str) -> str:
        """See ``ValueType``."""
        digits = text.removeprefix("0x").lower()
        if re.fullmatch(r"[0-9a-f]{4}", digits):
            return digits
        fix = f"write four hexadecimal digits, such as {self.example}"
        if re.fullmatch(r"[0-9a-f]{1,3}", digits):
            raise BadValue(f"is {shown(text)}, with {len(digits)} digits", f'write all four: "{digits:0>4}"')
        if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}", digits):
            vendor, _, device = digits.partition(":")
            fix = f'write pciVendors: "{vendor}" and pciDevices: "{device}"'
            raise BadValue(f"is {shown(text)}, a vendor and a device in one", fix)
        raise BadValue(f"is {shown(text)}, not a PCI id", fix)

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": ["string", "number"], "pattern": "^(0x)?[0-9a-fA-F]{4}$"}


class DriverName(ScalarType[str]):
    """The name of a kernel driver, as the link ``driver`` in sysfs has it."""

    example = "mlx5_core"
    accepts = "names of kernel drivers"

    def from_text(self, text: str) -> str:
        """See ``ValueType``."""
        if text in _MODULES:
            raise BadValue(f"is {shown(text)}, which is not the name of a driver", f"write {_MODULES[text]}")
        if "*" in text:
            raise BadValue(f"is {shown(text)}; names of drivers cannot be patterns", "write each driver's whole name")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,62}", text):
            raise BadValue(
                f"is {shown(text)}, not the name of a driver", "write it as 'ls /sys/bus/pci/drivers' shows it"
            )
        return text


class PartitionKey(ScalarType[str]):
    """An InfiniBand partition key; read as sysfs writes it, ``0x7fff``."""

    example = '"0x7fff"'
    accepts = "partition keys such as 0x7fff"
    takes_any = True  # 0x7fff without quotes is meant as it is written

    def from_text(self, text: str) -> str:
        """See ``ValueType``."""
        if not re.fullmatch(r"0[xX][0-9a-fA-F]{1,4}", text):
            fix = "write it with 0x and up to four hexadecimal digits, such as 0x7fff"
            raise BadValue(f"is {shown(text)}, not a partition key", fix)
        return f"0x{int(text, 16):04x}"

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": ["string", "integer"], "pattern": "^0[xX][0-9a-fA-F]{1,4}$"}


class Functions(ScalarType[FunctionRange]):
    """A physical function, or virtual ones of it by their numbers: ``ROOT`` or ``ROOT#0-3,7``."""

    example = '"ens1np0#0-3,7"'
    accepts = "an interface, or INTERFACE#FIRST-LAST for its virtual functions"

    def from_scalar(self, scalar: ScalarNode) -> FunctionRange:
        """See ``ScalarType``: a lone number is mostly the rest of a range that was not quoted."""
        if scalar.meaning is not Meaning.TEXT:
            fix = f"quote several ranges, such as {self.example}, and a name that looks like a number"
            raise BadValue(f"is the {scalar.meaning} {clipped(scalar.text)}, not text", fix)
        return self.from_text(scalar.text)

    def from_text(self, text: str) -> FunctionRange:
        """See ``ValueType``."""
        if not text:
            raise BadValue("is empty", f"write {self.accepts}, such as {self.example}")
        root, mark, numbers = text.partition("#")
        if not root:
            raise BadValue(f"is {shown(text)}, with nothing before #", f"write, for example, {self.example}")
        if not mark and "," in root:
            raise BadValue(f"is {shown(text)}, with a comma but no #", f"write {self.accepts}, one per item")
        root = self.root(root, text)
        return FunctionRange(root, tuple(_ranges(numbers, text)) if mark else ())

    def root(self, root: str, text: str) -> str:
        """The interface before the ``#``; raises ``BadValue`` for a name that the kernel does not allow."""
        size = len(root.encode("utf-8", "surrogatepass"))
        if size > MAX_INTERFACE:
            raise BadValue(
                f"is {shown(text)}, where the name has {size} bytes",
                f"the name of an interface has at most {MAX_INTERFACE} bytes",
            )
        if "*" in root:
            fix = "write each whole name, or select by rootDevices or pciDevices"
            raise BadValue(f"is {shown(text)}; names of interfaces cannot be patterns", fix)
        odd = next((character for character in root if character in _NOT_IN_NAMES), None)
        if odd is not None or root in (".", ".."):
            what = f"contains {shown(odd)}" if odd is not None else "is that of a folder"
            raise BadValue(
                f"is {shown(text)}, where the name {what}; the kernel allows no such name",
                "write a name from 'ip link'",
            )
        return root

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string", "pattern": "^[^#]+(#[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"}


class RootFunctions(Functions):
    """``Functions`` with the physical function's PCI address in front: ``0000:86:00.0#0-3``."""

    example = '"0000:86:00.0#0-3,7"'
    accepts = "a PCI address, or ADDRESS#FIRST-LAST for its virtual functions"

    def root(self, root: str, text: str) -> str:
        """The address before the ``#``; raises ``BadValue`` if it is not one."""
        if parse_address(root) == root:
            return root
        raise BadValue(f"is {shown(text)}, which no PCI address matches", spelling(root))


def _ranges(numbers: str, text: str) -> list[tuple[int, int]]:
    """Ranges in order of their numbers; raises ``BadValue``."""
    ranges = []
    for part in numbers.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip(" "))
        if match is None:
            what = f"where {shown(part)} is not a range" if part.strip() else "with a number missing"
            raise BadValue(f"is {shown(text)}, {what}", _RANGE_FIX)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadValue(f"is {shown(text)}, where {part.strip()} counts down", f"write {last}-{first}")
        if last > MAX_FUNCTION:
            raise BadValue(f"is {shown(text)}, where {last} is too high", f"functions go up to {MAX_FUNCTION}")
        ranges.append((first, last))
    ranges.sort()
    for (_, last), (first, _) in pairwise(ranges):
        if first <= last:
            raise BadValue(f"is {shown(text)}, which names {first} twice", "write each function once")
    return ranges


VENDOR_NAMES = tuple(dict.fromkeys((*(vendor.name for vendor in VENDORS), *NIC_VENDORS.values())))
"""Vendors whose devices are found and served; a NIC of any other one is selected by ``pciVendors``."""


class NicFunction(StrEnum):
    """What a NIC is to SR-IOV."""

    PF = "pf"
    VF = "vf"
    SF = "sf"


class LinkType(StrEnum):
    """The type of a NIC's link."""

    ETHERNET = "ethernet"
    INFINIBAND = "infiniband"


def _any_of(key: str, kind: ValueType[T], text: str) -> ConfigField[tuple[T, ...]]:
    """A field of one value or of a list of values, of which a device has one."""
    return ConfigField(key, ConfigList(kind, fewest=1, single=True), (), text)


KINDS = _any_of("kind", Choice(DeviceKind), "Kinds of device.")
VENDOR = _any_of("vendor", Choice(VENDOR_NAMES), "Vendors.")
PRODUCTS = _any_of("product", Pattern(), "Product names; the vendor may be left out, and - may stand for a blank.")
PROFILES = _any_of("profile", ProfilePattern(), "MIG profiles, or AMD's partition modes.")
UUIDS = _any_of("uuid", UuidPattern(), "UUIDs.")
PCI_ADDRESSES = _any_of("pciAddress", PciPattern(), "PCI addresses.")
NAMES = _any_of("name", NamePattern(), "Device names, as 'ostler devices' shows them.")
MIG_ENABLED: ConfigField[bool | None] = ConfigField(
    "migEnabled", Boolean(), None, "Whole GPUs with MIG mode on (true) or off (false)."
)
WHOLE_INSTANCES = ConfigField(
    "wholeInstances", Boolean(), False, "Only MIG devices whose compute instance fills its GPU instance."
)
DRIVERS = _any_of("drivers", DriverName(), "Kernel drivers.")
PCI_VENDORS = _any_of("pciVendors", PciId("15b3"), "PCI vendor ids of NICs.")
PCI_DEVICES = _any_of("pciDevices", PciId("101e"), "PCI device ids of NICs.")
FUNCTIONS = _any_of(
    "functions",
    Choice(NicFunction),
    "NICs that are physical functions or without SR-IOV (pf), virtual functions (vf), subfunctions (sf).",
)
INTERFACES = _any_of(
    "interfaces",
    Functions(),
    "NICs by the interface of their physical function; NAME#0-3,7 for virtual functions by number.",
)
ROOT_DEVICES = _any_of(
    "rootDevices",
    RootFunctions(),
    "NICs by the PCI address of their physical function; ADDRESS#0-3,7 for virtual functions by number.",
)
LINK_TYPES = _any_of("linkTypes", Choice(LinkType), "Link types of NICs.")
RDMA: ConfigField[bool | None] = ConfigField(
    "rdma", Boolean(), None, "NICs with an RDMA device (true) or without one (false)."
)
ACPI_INDEXES = _any_of("acpiIndexes", Integer(0, 0xFFFFFFFF), "NICs by the index that the firmware gives them.")
PARTITION_KEYS = _any_of("pKeys", PartitionKey(), "NICs by their default InfiniBand partition key.")
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
"""Facts that only NICs have: a selection with one of them selects only NICs."""

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
    "Devices of this rule: every key must match, of several values one. Without a key: all devices except NICs that no"
    " earlier rule has.",
)
