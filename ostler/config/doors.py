"""Rules of different doors: whether one device could be behind both, now or later.

Each door gives devices out without asking the other one, so a device must never change doors while a pod holds it. Two
rules are therefore kept apart only by what a device keeps: its kind, vendor, product, identity, place. Driver, MIG
mode, link and the like change while the agent runs, and with them the rule that has the device. A whole and its parts
(a GPU and its MIG devices or partitions, a NIC and its virtual functions) are the same hardware and count as one
device here. In doubt two rules are refused. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.inventory.model import NIC_KINDS, DeviceKind
from node.nic_selector import FunctionRange, NicSelector
from node.rules import Selector
from ostler.config.sorts import sorts

_VENDOR_PREFIXES = ("", "NVIDIA-", "AMD-", "INTEL-")
"""What a product may be named with and without."""
_PARTS = {DeviceKind.MIG: "nvidia", DeviceKind.PARTITION: "amd"}
"""Kinds that are parts of a GPU, and the vendor that all of them are of."""
_UUID_STARTS = {"GPU-": DeviceKind.GPU, "MIG-": DeviceKind.MIG}
_NAME_STARTS = {f"{kind.value}-": kind for kind in DeviceKind}
"""How the names of each kind's devices begin."""
_NO_NIC = NicSelector()
_SAME_DOOR = "or give both the same door"
_BY_WHAT_STAYS = f"select devices apart by kind, vendor, product, uuid or pciAddress, {_SAME_DOOR}"
_WITHOUT_PARTS = f"add migEnabled: false to the devices of whole GPUs, {_SAME_DOOR}"
_BY_CARD = f"select cards apart by rootDevices, interfaces or pciVendors, {_SAME_DOOR}"


def shared_devices(earlier: Selector, later: Selector) -> tuple[str, str] | None:
    """Why a device may be behind both selectors, which are tried in this order, and what to do; None if it cannot.

    ``earlier`` has a device for good where it names it by what never changes and asks for nothing that does.
    """
    if not _apart(earlier, later) and not _identifies(earlier):
        changing = tuple(dict.fromkeys((*_changing(earlier), *_changing(later))))
        if changing and _differ(earlier, later):
            only = " and ".join(changing)
            return f"only {only} keeps them apart, which can change while a pod holds a device", _BY_WHAT_STAYS
        return "both can have the same device", _BY_WHAT_STAYS
    for whole, part in ((earlier, later), (later, earlier)):
        if _gpu_has_parts(whole, part):
            fix = _WITHOUT_PARTS if DeviceKind.MIG in _kinds(part) else _BY_WHAT_STAYS
            return "one has whole GPUs, the other parts of them", fix
        if _nic_has_functions(whole, part):
            return "one has physical functions, the other virtual functions of them", _BY_CARD
    return None


def _kinds(selected: Selector) -> frozenset[DeviceKind]:
    """Kinds that the selector can match, by its patterns, too."""
    kinds = frozenset(kind for kind, _ in sorts(selected))
    for patterns, kinds_by_start in ((selected.uuids, _UUID_STARTS), (selected.names, _NAME_STARTS)):
        if patterns and all(pattern.startswith(tuple(kinds_by_start)) for pattern in patterns):
            kinds &= {kind for start, kind in kinds_by_start.items() if any(p.startswith(start) for p in patterns)}
    return kinds


def _apart(one: Selector, other: Selector) -> bool:
    """Whether no device can ever match both, by facts that it keeps."""
    common = _kinds(one) & _kinds(other)
    nic, other_nic = one.nic or _NO_NIC, other.nic or _NO_NIC
    return (
        not common
        or _disjoint(one.vendors, other.vendors)
        or _products_apart(one.products, other.products)
        or (common <= {DeviceKind.MIG} and _patterns_apart(one.profiles, other.profiles))
        or _patterns_apart(one.uuids, other.uuids)
        or _patterns_apart(one.pci_addresses, other.pci_addresses)
        or _patterns_apart(one.names, other.names)
        or _disjoint(nic.vendors, other_nic.vendors)
        or _disjoint(nic.devices, other_nic.devices)
        or _disjoint(nic.functions, other_nic.functions)
        or _disjoint(nic.acpi_indexes, other_nic.acpi_indexes)
        or _ranges_apart(nic.roots, other_nic.roots)
        or _ranges_apart(nic.interfaces, other_nic.interfaces)
    )


def _identifies(selected: Selector) -> bool:
    """Whether the selector names its devices one by one, by what never changes, and asks for nothing that does."""
    exact = any(
        patterns and not any("*" in pattern for pattern in patterns)
        for patterns in (selected.uuids, selected.pci_addresses, selected.names)
    )
    return exact and not _changing(selected) and not selected.products


def _changing(selected: Selector) -> tuple[str, ...]:
    """Keys of the selector whose facts a device does not keep."""
    nic = selected.nic or _NO_NIC
    keys = {
        "drivers": bool(selected.drivers),
        "migEnabled": selected.mig_enabled is not None,
        "profile": bool(selected.profiles) and DeviceKind.PARTITION in _kinds(selected),
        "linkTypes": bool(nic.link_types),
        "rdma": nic.rdma is not None,
        "pKeys": bool(nic.pkeys),
    }
    return tuple(key for key, given in keys.items() if given)


def _differ(one: Selector, other: Selector) -> bool:
    """Whether the facts that change are what tells the two apart at this moment."""
    nic, other_nic = one.nic or _NO_NIC, other.nic or _NO_NIC
    return (
        _disjoint(one.drivers, other.drivers)
        or _opposite(one.mig_enabled, other.mig_enabled)
        or _patterns_apart(one.profiles, other.profiles)
        or _disjoint(nic.link_types, other_nic.link_types)
        or _opposite(nic.rdma, other_nic.rdma)
        or _disjoint(nic.pkeys, other_nic.pkeys)
    )


def _gpu_has_parts(whole: Selector, part: Selector) -> bool:
    """Whether ``whole`` can have a GPU of which ``part`` has parts.

    A GPU that is asked for with MIG mode off has none, and mode and instances do not change while it is in use.
    """
    if DeviceKind.GPU not in _kinds(whole):
        return False
    vendors = {vendor for kind, vendor in _PARTS.items() if kind in _kinds(part)}
    if whole.mig_enabled is False:
        vendors -= {"nvidia"}
    for selected in (whole, part):
        if selected.vendors:
            vendors &= set(selected.vendors)
    return bool(vendors) and not (
        _products_apart(whole.products, part.products) or _patterns_apart(whole.pci_addresses, part.pci_addresses)
    )


def _nic_has_functions(whole: Selector, part: Selector) -> bool:
    """Whether ``whole`` can have a physical function below which ``part`` has others."""
    nic, functions = whole.nic or _NO_NIC, part.nic or _NO_NIC
    if not (_kinds(whole) & _kinds(part) & frozenset(NIC_KINDS)):
        return False
    if not _may_be(nic, "pf") or not (_may_be(functions, "vf") or _may_be(functions, "sf")):
        return False
    places = tuple(each.root for each in functions.roots)
    return not (
        _disjoint(whole.vendors, part.vendors)
        or _disjoint(nic.vendors, functions.vendors)
        or _disjoint(_roots(nic.roots), _roots(functions.roots))
        or _disjoint(_roots(nic.interfaces), _roots(functions.interfaces))
        or _patterns_apart(whole.pci_addresses, places)
    )


def _may_be(nic: NicSelector, function: str) -> bool:
    """Whether functions of that sort can be meant."""
    if nic.functions and function not in nic.functions:
        return False
    if function != "pf":
        return True
    # A range of numbers has no physical function.
    return all(not ranges or any(not each.numbers for each in ranges) for ranges in (nic.roots, nic.interfaces))


def _roots(ranges: Iterable[FunctionRange]) -> tuple[str, ...]:
    return tuple(each.root for each in ranges)


def _disjoint(one: Iterable[object], other: Iterable[object]) -> bool:
    """Whether both say something, and nothing in common; an empty one stands for anything."""
    first, second = frozenset(one), frozenset(other)
    return bool(first) and bool(second) and not first & second


def _opposite(one: bool | None, other: bool | None) -> bool:
    return one is not None and other is not None and one is not other


def _ranges_apart(one: tuple[FunctionRange, ...], other: tuple[FunctionRange, ...]) -> bool:
    return bool(one) and bool(other) and not any(_ranges_meet(a, b) for a in one for b in other)


def _ranges_meet(one: FunctionRange, other: FunctionRange) -> bool:
    if one.root != other.root:
        return False
    return (
        not one.numbers
        or not other.numbers
        or any(low <= end and start <= high for low, high in one.numbers for start, end in other.numbers)
    )


def _products_apart(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """As for other patterns, but a product answers to several names: with blanks or ``-``, with the vendor or not."""
    if not one or not other:
        return False
    spelled = [(a.replace(" ", "-"), b.replace(" ", "-")) for a in one for b in other]
    return not any(
        patterns_meet(prefix + a, b) or patterns_meet(a, prefix + b) for a, b in spelled for prefix in _VENDOR_PREFIXES
    )


def _patterns_apart(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return bool(one) and bool(other) and not any(patterns_meet(a, b) for a in one for b in other)


def patterns_meet(one: str, other: str) -> bool:
    """Whether some text matches both patterns, in which ``*`` stands for any characters."""
    # Row by row: reached[j] says whether one[:i] and other[:j] can stand for the same text.
    reached = [True] + [False] * len(other)
    for j, char in enumerate(other):
        reached[j + 1] = reached[j] and char == "*"
    for char in one:
        row = [reached[0] and char == "*"]
        for j, against in enumerate(other):
            if char == "*":
                row.append(reached[j + 1] or row[j] or (against == "*" and reached[j]))
            elif against == "*":
                row.append(row[j] or reached[j + 1])
            else:
                row.append(reached[j] and char == against)
        reached = row
    return reached[-1]
