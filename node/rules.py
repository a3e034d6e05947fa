"""Which devices are offered, through which door, under which extended resource name.

Rules are frozen values and their predicates are pure; only the configuration makes them. The first rule that matches a
device decides, so a device belongs to at most one resource. A resource name may hold ``{profile}``, filled in with the
MIG profile of each device (``+`` becomes ``.``), so that one rule serves every profile.

NIC selectors are those of the SR-IOV network device plugin. They read a device's attributes, whose names are those in
``node.inventory.nics.attributes``. A physical function is named in ``interfaces`` and ``roots`` without a range; a
range picks virtual functions and subfunctions by their numbers.

A resource name that the kubelet refuses shows only as a failed registration on the node, long after the configuration
was written. So configuration and sandbox ask the kubelet's own rule for names here (``explain_resource_name``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum
from functools import lru_cache

from node.edits.options import EditOptions
from node.inventory.model import NIC_KINDS, Device, DeviceKind
from node.inventory.vendors import vendor_id
from node.sharing import SharedDevice, Sharing, whole_amounts
from node.values import Value, value

PROFILE = "{profile}"


class Door(StrEnum):
    """The kubelet's two doors for devices."""

    PLUGIN = "plugin"
    DRA = "dra"


class Doors(StrEnum):
    """Through which doors a rule offers its devices."""

    PLUGIN = "plugin"
    DRA = "dra"
    BOTH = "both"
    """A free device is offered at both; held through one, it is withdrawn from the other."""

    def has(self, door: Door) -> bool:
        """Whether devices are offered through this door."""
        return self is Doors.BOTH or str.__eq__(self, door)


class DeviceIds(StrEnum):
    """The id of a device at the kubelet: that of the plugin that ostler replaces, or the device's own name."""

    VENDOR = "vendor"
    NAME = "name"


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    expression = "".join(".*" if part == "*" else re.escape(part) for part in re.split(r"(\*)", text))
    return re.compile(expression, re.DOTALL)


def matches_pattern(pattern: str, text: str) -> bool:
    """Whether ``text`` is the pattern, in which ``*`` stands for any characters; upper and lower case differ."""
    return _pattern(pattern).fullmatch(text) is not None


def _any_matches(patterns: tuple[str, ...], text: str | None) -> bool:
    return not patterns or (text is not None and any(matches_pattern(pattern, text) for pattern in patterns))


@value
class Selector(Value):
    """Picks devices: every field that is set must match, a field with several values matches any of them.

    ``products`` (also without the vendor's name in front, spaces as ``-``), ``profiles``, ``uuids``,
    ``pci_addresses`` and ``names`` are patterns with ``*``. ``mig_enabled`` looks at whole GPUs only.
    ``drivers`` are names of kernel drivers. ``whole_instances``: only MIG devices whose compute instance fills its GPU
    instance. ``nic``: facts of NICs, which every other kind of device fails.
    """

    kinds: tuple[DeviceKind, ...] = ()
    vendors: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    pci_addresses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    mig_enabled: bool | None = None
    whole_instances: bool = False
    drivers: tuple[str, ...] = ()
    nic: NicSelector | None = None

    def matches(self, device: Device) -> bool:
        """Whether the selector includes the device."""
        return (
            (not self.kinds or device.kind in self.kinds)
            and (not self.vendors or device.vendor in self.vendors)
            and (not self.products or any(_any_matches(self.products, name) for name in product_names(device)))
            and _any_matches(self.profiles, device.text("profile") or None)
            and _any_matches(self.uuids, device.uuid)
            and _any_matches(self.pci_addresses, device.pci_address)
            and _any_matches(self.names, device.name)
            and (self.mig_enabled is None or self._mig_mode_fits(device))
            and (not self.whole_instances or fills_gpu_instance(device))
            and (not self.drivers or device.text("driver") in self.drivers)
            and (self.nic is None or self.nic.matches(device))
        )

    def names_it(self, device: Device) -> bool:
        """Whether the selector names the device by its own name, PCI address or interface, without a ``*`` or a wider
        fact."""
        return self.matches(device) and (
            device.name in self.names
            or (device.pci_address is not None and device.pci_address in self.pci_addresses)
            or (self.nic is not None and self.nic.names(device))
        )

    def _mig_mode_fits(self, device: Device) -> bool:
        return device.kind is DeviceKind.GPU and bool(device.attribute("migEnabled")) is self.mig_enabled


def product_names(device: Device) -> tuple[str, ...]:
    """The names people select a product by: ``NVIDIA L4``, ``NVIDIA-L4``, ``L4``."""
    name = device.text("productName")
    dashed = name.replace(" ", "-")
    short = dashed.removeprefix(f"{device.vendor.upper()}-")
    return tuple(dict.fromkeys(candidate for candidate in (name, dashed, short) if candidate))


def fills_gpu_instance(device: Device) -> bool:
    """Whether a MIG device has all compute slices of its GPU instance; its profile then has no ``Nc.`` in front."""
    return device.kind is DeviceKind.MIG and not re.match(r"\d+c\.", device.text("profile"))


@value
class Rule(Value):
    """One rule: the devices it selects are offered through ``door``, which may be both, as ``resource``.

    ``uniform``: serve the resource only if all its devices are of one kind and profile and every GPU in MIG mode has
    at least one instance (what NVIDIA's MIG strategy ``single`` demands).
    ``link_health``: a NIC whose link is down is shown unhealthy until it is up. ``hints``: tell the kubelet the NUMA
    node. ``by_name``: a device that the rule names is offered even if the node itself uses it or its virtual functions
    stand for it; False for the rules of a SR-IOV plugin's file, where a name such as ``pfNames: [eth0]`` stands for
    virtual functions and that plugin never offers the function that carries the default route.
    ``sharing``: several pods share each device; None for one pod at a time. ``partitions``: claims may have partitions
    made of its GPUs (MIG), which then are published beside the whole GPU. ``layout``: the MIG profiles that its GPUs
    are divided into, whoever wants them; None for GPUs that stay as they are. ``changes_mode``: MIG mode of its GPUs
    may be turned on and off. ``moves_interface``: the DRA door moves the interface of a NIC into the pod of its claim.
    """

    resource: str
    selector: Selector = field(default_factory=Selector)
    door: Doors = Doors.PLUGIN
    ids: DeviceIds = DeviceIds.VENDOR
    edits: EditOptions = field(default_factory=EditOptions)
    uniform: bool = False
    link_health: bool = False
    hints: bool = True
    by_name: bool = True
    sharing: Sharing | None = None
    partitions: bool = False
    layout: tuple[str, ...] | None = None
    changes_mode: bool = True
    moves_interface: bool = False

    def names(self, device: Device) -> bool:
        """Whether the rule offers the device by its own name, and so although the node uses it."""
        return self.by_name and self.selector.names_it(device)

    def same_terms(self, other: Rule) -> bool:
        """Whether devices of both rules can be one resource: they differ at most in what each device has of its own."""
        if self is other:
            return True
        mine, others = self.edits.of_resource, other.edits.of_resource
        return (mine, self.link_health, self.hints, self.sharing) == (
            others,
            other.link_health,
            other.hints,
            other.sharing,
        )

    def shared(self, device: Device) -> SharedDevice | None:
        """How the rule divides this device; None if it gives the device to one pod at a time."""
        replicas = self.sharing.replicas_of(device) if self.sharing is not None else 1
        if self.sharing is None or replicas <= 1:
            return None
        amounts = self.sharing.replica_amounts(device)
        return SharedDevice(self.resource_of(device), replicas, amounts, whole_amounts(device))

    def resource_of(self, device: Device) -> str:
        """The resource name that this device gets."""
        return self.resource.replace(PROFILE, device.text("profile").replace("+", "."))


def offers_nics(rules: Iterable[Rule]) -> bool:
    """Whether any rule is about NICs, so that the node's network interfaces have to be seen."""
    return any(
        rule.selector.nic is not None or any(kind in NIC_KINDS for kind in rule.selector.kinds) for rule in rules
    )


def makes_partitions(rules: Iterable[Rule]) -> bool:
    """Whether any rule has partitions made, so that what can be made of a GPU has to be read."""
    return any(rule.partitions or rule.layout is not None for rule in rules)


def rule_for(device: Device, rules: Iterable[Rule]) -> Rule | None:
    """The first rule that selects the device."""
    if not isinstance(rules, tuple):
        return _selected(device, rules)
    # Every change of what is held asks the same of the same objects, several times.
    known, chosen = _CHOSEN.get(device.name, (None, {}))
    if known is not device:
        if len(_CHOSEN) >= _MOST_CHOSEN:
            _CHOSEN.clear()
        chosen = {}
        _CHOSEN[device.name] = device, chosen
    found = chosen.get(id(rules))
    if found is None:
        if len(chosen) >= _MOST_RULES:
            chosen.clear()
        found = chosen[id(rules)] = rules, _selected(device, rules)
    return found[1]


_MOST_CHOSEN, _MOST_RULES = 4096, 8
_CHOSEN: dict[str, tuple[Device, dict[int, tuple[tuple[Rule, ...], Rule | None]]]] = {}
"""By its name, the device that was asked about last, and what was found for it in rules, which are kept alive here."""


def _selected(device: Device, rules: Iterable[Rule]) -> Rule | None:
    return next((rule for rule in rules if rule.selector.matches(device)), None)


def offered_id(rule: Rule, device: Device) -> str:
    """The id under which the device is offered by this rule."""
    return device.name if rule.ids is DeviceIds.NAME else vendor_id(device)


MAX_DOMAIN = 244
"""Characters of a resource's domain: 253 of a DNS subdomain less the ``requests.`` that quotas put in front."""

MAX_NAME = 63
"""Characters of the part behind the slash."""

_LOWER_OR_DIGIT = "abcdefghijklmnopqrstuvwxyz0123456789"
_LETTER_OR_DIGIT = f"{_LOWER_OR_DIGIT}ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _consists(text: str, ends: str, inner: str) -> bool:
    """Whether the text has only these characters, and ``inner`` not at its ends.

    A start checks one name or two, and would compile a regular expression for each.
    """
    return bool(text) and text[0] in ends and text[-1] in ends and not text.strip(ends + inner)


def is_extended_resource_name(name: str) -> bool:
    """Whether a kubelet accepts ``name`` as the resource of a device plugin (kubelet 1.36 behaviour)."""
    return explain_resource_name(name) is None


def explain_resource_name(name: str) -> str | None:
    """Why a kubelet refuses ``name`` as the resource of a device plugin, as a sentence with the fix; None if it does
    not refuse it.
    """
    reason = _reason(name)
    return None if reason is None else f"resource name {name!r} {reason}"


def _reason(name: str) -> str | None:
    domain, slash, rest = name.partition("/")
    if not slash:
        return "has no domain; write it as domain/name, for example example.com/gpu"
    if "kubernetes.io/" in name:
        return "contains 'kubernetes.io/', which is kept for Kubernetes itself; use a domain of your own"
    if name.startswith("requests."):
        return "starts with 'requests.', which is kept for quotas; use a domain of your own"
    if "/" in rest:
        return "has more than one '/'; write it as domain/name"
    if len(domain) > MAX_DOMAIN:
        return f"has a domain of {len(domain)} characters; {MAX_DOMAIN} are allowed"
    # The length of a single label is not checked by the kubelet either.
    if not all(_consists(label, _LOWER_OR_DIGIT, "-") for label in domain.split(".")):
        return (
            f"has the domain {domain!r}, which is not a DNS name; use lower-case letters, digits, '-' and '.', "
            "each part starting and ending with a letter or digit"
        )
    if len(rest) > MAX_NAME:
        return f"has {len(rest)} characters behind the '/'; {MAX_NAME} are allowed"
    if not _consists(rest, _LETTER_OR_DIGIT, "-_."):
        return (
            f"has {rest!r} behind the '/'; use letters, digits, '-', '_' and '.', "
            "starting and ending with a letter or digit"
        )
    return None


@value
class FunctionRange(Value):
    """Functions below a physical one: ``root`` is its interface's name or PCI address.

    ``numbers``: inclusive ranges of virtual functions; empty for the physical function and all its virtual ones.
    """

    root: str
    numbers: tuple[tuple[int, int], ...] = ()

    def holds(self, root: str, number: int | None) -> bool:
        """Whether this includes the function with this number (None: the physical one) below ``root``."""
        if root != self.root:
            return False
        return not self.numbers or (number is not None and any(low <= number <= high for low, high in self.numbers))


@value
class NicSelector(Value):
    """Picks NICs: every field that is set must match, a field with several values matches any of them.

    ``vendors`` and ``devices`` are PCI ids in four hexadecimal digits (``15b3``, ``101e``); ``functions`` out of
    ``pf``, ``vf``, ``sf``, where a function without SR-IOV counts as physical; ``link_types`` out of ``ethernet``,
    ``infiniband``; ``pkeys`` as sysfs writes them (``0x7fff``).
    """

    vendors: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    interfaces: tuple[FunctionRange, ...] = ()
    roots: tuple[FunctionRange, ...] = ()
    link_types: tuple[str, ...] = ()
    rdma: bool | None = None
    acpi_indexes: tuple[int, ...] = ()
    pkeys: tuple[str, ...] = ()

    def matches(self, device: Device) -> bool:
        """Whether the device is a NIC that this names."""
        if device.kind not in NIC_KINDS:
            return False
        index = _number(device)
        return (
            (not self.vendors or device.text("pciVendor") in self.vendors)
            and (not self.devices or device.text("pciDevice") in self.devices)
            and (not self.functions or (device.text("sriovFunction") or "pf") in self.functions)
            and (not self.interfaces or _any(self.interfaces, device.text("pfName"), index))
            and (not self.roots or _any(self.roots, device.text("pfPciAddress"), index))
            and (not self.link_types or device.text("linkType") in self.link_types)
            and (self.rdma is None or bool(device.attribute("rdma")) is self.rdma)
            and (not self.acpi_indexes or device.attribute("acpiIndex") in self.acpi_indexes)
            and (not self.pkeys or device.text("pKey") in self.pkeys)
        )

    def names(self, device: Device) -> bool:
        """Whether this names the device by its interface's name or its own PCI address, and not by a wider fact.

        The name of a physical function with virtual ones means those, unless ``functions`` says ``pf`` and no other.
        """
        if not self.matches(device) or device.text("sriovFunction") in ("vf", "sf"):
            return False
        if device.attribute("sriovVfs") and self.functions != ("pf",):
            return False
        return any(each.root == device.text("pfName") for each in self.interfaces) or any(
            each.root == device.pci_address for each in self.roots
        )


def _number(device: Device) -> int | None:
    """The number of a virtual function or subfunction, None for a physical one."""
    number = device.attribute("sfNumber" if device.text("sriovFunction") == "sf" else "vfIndex")
    return number if isinstance(number, int) else None


def _any(ranges: tuple[FunctionRange, ...], root: str, number: int | None) -> bool:
    return any(each.holds(root, number) for each in ranges)
