"""Reads a ``devices`` section: the devices that it selects, and the keys that exclude each other.

Without ``kind`` a selection is of GPUs and their parts. NICs must be asked for, so that a resource for GPUs does not
take the node's network: by ``kind``, by a fact that only NICs have, by a vendor or driver of NICs alone, by a name or
exact PCI address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from node.inventory.amd.vendor import AMD
from node.inventory.model import NIC_KINDS, DeviceKind
from node.inventory.nics.attributes import NIC_VENDORS
from node.inventory.nvidia.vendor import NVIDIA
from node.inventory.vendors import VENDORS
from node.rules import FunctionRange, NicSelector, Selector
from node.values import replace
from ostler.config import device_fields
from ostler.config.device_fields import NicFunction
from ostler.config.errors import ConfigError
from ostler.config.section import AnyField, Values

ACCELERATORS = (DeviceKind.GPU, DeviceKind.MIG, DeviceKind.PARTITION)

GPU_DRIVERS = tuple(driver for vendor in VENDORS for driver in vendor.drivers)

_PCI_VENDORS = {
    name: tuple(sorted(digits for digits, vendor in NIC_VENDORS.items() if vendor == name))
    for name in NIC_VENDORS.values()
}
"""PCI vendor ids of NICs by the vendor's name."""
_VENDOR_KINDS = {
    vendor.name: (*vendor.kinds, *(NIC_KINDS if vendor.name in _PCI_VENDORS else ())) for vendor in VENDORS
}
"""Kinds of device that a vendor's are; NICs alone where it is not listed."""


_USERSPACE_DRIVERS = ("vfio-pci", "uio_pci_generic", "igb_uio", "pci-stub")
_PARTITION_MODE = r"[sdtqc]px.*"
_MIG_PROFILE = r"[1-9][cg]\..*"


def selector(devices: Values) -> Selector:
    """The selector that a ``devices`` section describes."""
    return Selector(
        kinds=_kinds(devices)[0],
        vendors=devices[device_fields.VENDOR],
        products=devices[device_fields.PRODUCTS],
        profiles=devices[device_fields.PROFILES],
        uuids=devices[device_fields.UUIDS],
        pci_addresses=devices[device_fields.PCI_ADDRESSES],
        names=devices[device_fields.NAMES],
        mig_enabled=devices[device_fields.MIG_ENABLED],
        whole_instances=devices[device_fields.WHOLE_INSTANCES],
        drivers=devices[device_fields.DRIVERS],
        nic=_nic_selector(devices) if any(fact in devices for fact in device_fields.NIC_FACTS) else None,
    )


def _nic_selector(devices: Values) -> NicSelector:
    return NicSelector(
        vendors=devices[device_fields.PCI_VENDORS],
        devices=devices[device_fields.PCI_DEVICES],
        functions=tuple(function.value for function in devices[device_fields.FUNCTIONS]),
        interfaces=devices[device_fields.INTERFACES],
        roots=devices[device_fields.ROOT_DEVICES],
        link_types=tuple(link.value for link in devices[device_fields.LINK_TYPES]),
        rdma=devices[device_fields.RDMA],
        acpi_indexes=devices[device_fields.ACPI_INDEXES],
        pkeys=devices[device_fields.PARTITION_KEYS],
    )


def _kinds(devices: Values) -> tuple[tuple[DeviceKind, ...], str]:
    """The kinds, and the key that decided them: ``kind gpu``, ``migEnabled``, ``linkTypes``."""
    given = devices[device_fields.KINDS]
    if given:
        return given, f"kind {_listed(given)}"
    if devices[device_fields.MIG_ENABLED] is not None:
        return (DeviceKind.GPU,), device_fields.MIG_ENABLED.key  # MIG mode is a fact of whole GPUs
    sign = _nic_sign(devices)
    if sign:
        return NIC_KINDS, sign
    if devices[device_fields.WHOLE_INSTANCES]:
        return (DeviceKind.MIG,), device_fields.WHOLE_INSTANCES.key
    profiles, addresses = devices[device_fields.PROFILES], devices[device_fields.PCI_ADDRESSES]
    if profiles and all(re.fullmatch(_MIG_PROFILE, profile) for profile in profiles):
        return (DeviceKind.MIG,), device_fields.PROFILES.key
    if addresses and not any("*" in address for address in addresses):
        return (), ""  # an exact address means the device at it
    return ACCELERATORS, "the absence of kind"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _nic_sign(devices: Values) -> str:
    """The key by which a selection without ``kind`` selects NICs; empty if none does."""
    fact = next((fact.key for fact in device_fields.NIC_FACTS if fact in devices), "")
    if fact:
        return fact
    vendors, drivers, names = (
        devices[device_fields.VENDOR],
        devices[device_fields.DRIVERS],
        devices[device_fields.NAMES],
    )
    if vendors and not any(vendor in _VENDOR_KINDS for vendor in vendors):
        return device_fields.VENDOR.key
    if drivers and not any(driver in GPU_DRIVERS for driver in drivers):
        return device_fields.DRIVERS.key
    if names and all(name.startswith(("nic-", "rdma-")) for name in names):
        return device_fields.NAMES.key
    return ""


def serves_nvidia(selected: Selector) -> bool:
    """Whether the selector can match devices of NVIDIA."""
    kinds, vendors = selected.kinds, selected.vendors
    of_kind = not kinds or DeviceKind.GPU in kinds or DeviceKind.MIG in kinds
    return of_kind and (not vendors or NVIDIA.name in vendors) and not selected.drivers and selected.nic is None


def serves_nics(selected: Selector) -> bool:
    """Whether the selector can match NICs."""
    of_kind = not selected.kinds or any(kind in NIC_KINDS for kind in selected.kinds)
    vendors = selected.vendors
    return of_kind and (not vendors or any(NIC_KINDS[0] in _VENDOR_KINDS.get(each, NIC_KINDS) for each in vendors))


def check_selection(selected: Selector, devices: Values, problems: list[ConfigError]) -> None:
    """Report keys of ``devices`` that exclude each other."""
    _check_gpu_facts(selected, devices, problems)
    _check_nic_facts(selected, devices, problems)
    _check_vendors(selected, devices, problems)
    _check_names(selected, devices, problems)
    if selected.nic is not None:
        _check_functions(selected.nic, devices, problems)
        _check_links(selected, selected.nic, devices, problems)


def _check_gpu_facts(selected: Selector, devices: Values, problems: list[ConfigError]) -> None:
    mig, gpu = DeviceKind.MIG, DeviceKind.GPU
    facts: tuple[tuple[AnyField, bool, tuple[DeviceKind, ...], str], ...] = (
        (device_fields.PRODUCTS, bool(selected.products), ACCELERATORS, "GPUs"),
        (device_fields.PROFILES, bool(selected.profiles), *_profile_kinds(selected)),
        (device_fields.WHOLE_INSTANCES, selected.whole_instances, (mig,), "MIG devices"),
        (device_fields.UUIDS, bool(selected.uuids), (gpu, mig), "GPUs and MIG devices"),
    )
    for field, given, kinds, owners in facts:
        if given and selected.kinds and not any(kind in kinds for kind in selected.kinds):
            problem = f"applies only to {owners}, which {_kinds(devices)[1]} excludes"
            problems.append(devices.place(field).error(problem, "remove one of the two"))
    if selected.mig_enabled is not None:
        other = next((kind for kind in selected.kinds if kind is not gpu), None)
        if other is not None:
            problem = f"applies only to whole GPUs, but kind has {other}"
            problems.append(
                devices.place(device_fields.MIG_ENABLED).error(problem, "remove it, or select kind gpu alone")
            )
    for driver in NVIDIA.drivers:
        if driver in selected.drivers:
            place = devices.place(device_fields.DRIVERS)
            fix = f"write 'vendor: {NVIDIA.name}' instead"
            problems.append(place.error(f"is {driver}, which no device reports as its driver", fix))


def _profile_kinds(selected: Selector) -> tuple[tuple[DeviceKind, ...], str]:
    """Kinds that can have one of the profiles, and their name in messages: AMD's GPUs have profiles, too."""
    if all(re.fullmatch(_MIG_PROFILE, profile) for profile in selected.profiles):
        return (DeviceKind.MIG,), "MIG devices"
    amd = not selected.vendors or AMD.name in selected.vendors
    partitioned = (DeviceKind.GPU, DeviceKind.PARTITION) if amd else ()
    if all(re.fullmatch(_PARTITION_MODE, profile) for profile in selected.profiles):
        return partitioned, "AMD's GPUs and partitions"
    return (*partitioned, DeviceKind.MIG), "MIG devices and partitions"


def _check_nic_facts(selected: Selector, devices: Values, problems: list[ConfigError]) -> None:
    others = [kind for kind in selected.kinds if kind not in NIC_KINDS]
    if selected.nic is None or not others:
        return
    for field in device_fields.NIC_FACTS:
        if field not in devices:
            continue
        if len(others) == len(selected.kinds):
            problem, fix = f"applies only to NICs, which {_kinds(devices)[1]} excludes", "remove one of the two"
        else:
            problem, fix = f"applies only to NICs, but kind has {others[0]}", "give NICs a resource of their own"
        problems.append(devices.place(field).error(problem, fix))


def _check_vendors(selected: Selector, devices: Values, problems: list[ConfigError]) -> None:
    place = devices.place(device_fields.VENDOR)
    for vendor in devices[device_fields.VENDOR]:
        if selected.kinds and not any(kind in _VENDOR_KINDS.get(vendor, NIC_KINDS) for kind in selected.kinds):
            fix = "remove it, or give it a resource of its own"
            if vendor == NVIDIA.name and serves_nics(replace(selected, vendors=())):
                fix = "write mellanox for ConnectX and BlueField, or remove it"
            problem = f"is {vendor}, which has no device of kind {_listed(selected.kinds)}"
            problems.append(place.error(problem, fix))
    nic = selected.nic
    if nic is None or not nic.vendors or not selected.vendors:
        return
    ids = [each for vendor in selected.vendors for each in _PCI_VENDORS.get(vendor, ())]
    if ids and not set(ids) & set(nic.vendors):
        problem = f"is {_listed(nic.vendors)}, but vendor {_listed(selected.vendors)} has {_listed(ids)}"
        problems.append(devices.place(device_fields.PCI_VENDORS).error(problem, "remove one of the two"))


def _check_names(selected: Selector, devices: Values, problems: list[ConfigError]) -> None:
    for name in selected.names:
        kind, dash, _ = name.partition("-")
        if dash and "*" not in kind and selected.kinds and kind not in selected.kinds:
            kinds = _listed(selected.kinds)
            problem = f"is {name}, but names of kind {kinds} begin with {'- or '.join(selected.kinds)}-"
            fix = "correct it, or change kind"
            problems.append(devices.place(device_fields.NAMES).error(problem, fix))


def _check_functions(nic: NicSelector, devices: Values, problems: list[ConfigError]) -> None:
    for field, ranges in ((device_fields.INTERFACES, nic.interfaces), (device_fields.ROOT_DEVICES, nic.roots)):
        place = devices.place(field)
        numbered = next((some for some in ranges if some.numbers), None)
        if numbered is not None and nic.functions == (NicFunction.PF,):
            problem = f"selects virtual functions of {numbered.root}, which functions pf excludes"
            problems.append(place.error(problem, "remove the range, or add vf to functions"))
        for number, some in enumerate(ranges):
            if any(_overlap(some, other) for other in ranges[:number]):
                problem = f"names functions of {some.root} twice"
                problems.append(place.error(problem, "write one item for it, with ranges that do not overlap"))
                break


def _overlap(one: FunctionRange, other: FunctionRange) -> bool:
    if one.root != other.root:
        return False
    if not one.numbers or not other.numbers:
        return True
    return any(low <= last and first <= high for low, high in one.numbers for first, last in other.numbers)


def _check_links(selected: Selector, nic: NicSelector, devices: Values, problems: list[ConfigError]) -> None:
    if nic.rdma and selected.drivers and all(driver in _USERSPACE_DRIVERS for driver in selected.drivers):
        problem = f"is true, but functions bound to {_listed(selected.drivers)} have no RDMA device"
        problems.append(devices.place(device_fields.RDMA).error(problem, "remove it, or change drivers"))
