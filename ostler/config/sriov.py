"""The configuration of the SR-IOV network device plugin (``resourceList``), read into the values of our own format.

For nodes that change over: the same file gives the same resources. Every key is either taken, without meaning here
(with the reason), or refused because what is offered would differ: DDP profiles, vDPA, accelerators and additional
information are not served. Keys that the plugin silently ignores (misspelt ones) are errors here. The SR-IOV network
operator writes the names of Go's fields (``IsRdma``, ``SelectorObjs``); ``ostler.config.foreign`` reads them.

Several selectors of a resource become several rules of one name in their order: as in the plugin, the first one that
matches a device takes it, with that selector's RDMA and vhost-net files. A selector or resource to which earlier ones
leave no device has no effect, as in the plugin. Two things differ on purpose. The plugin overlooks a second item of
``pfNames`` for a function, which is an error here. In the plugin a name also stands for every longer one; here it is
the whole name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import cast

from node.inventory.model import NIC_KINDS
from node.rules import FunctionRange
from ostler.config import device_fields, document, option_fields, schema
from ostler.config.device_fields import DriverName, Functions, LinkType, NicFunction, PartitionKey, PciId, RootFunctions
from ostler.config.document import Mapping, Meaning, Node, RefusedNode, ScalarNode, clipped, shown
from ostler.config.errors import ConfigError, Note, NoteKind, Origin
from ostler.config.foreign import Anything, GoSection, notes_of
from ostler.config.option_fields import NamedInUse
from ostler.config.patterns import PciPattern
from ostler.config.scalars import BadValue, Boolean, Choice, JsonObject, ScalarType, Text, Unusable
from ostler.config.section import AnyField, ConfigField, ConfigList, Values

DEFAULT_PREFIX = "intel.com"
"""The plugin's prefix of names if its flag ``--resource-prefix`` is not set."""


class _Unserved:
    """A value that must be empty, because ostler does not support it; ``problem`` and ``fix`` are for others."""

    example = "null"
    accepts = "nothing"

    def __init__(self, problem: str, fix: str) -> None:
        self._problem = problem
        self._fix = fix

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> bool:
        """See ``ValueType``."""
        del at, problems  # the value is refused as a whole
        match node:
            case RefusedNode():
                raise Unusable
            case ScalarNode() if not node.text or node.meaning is Meaning.NULL:
                return True
            case document.Sequence(items=()) | Mapping(entries=()):
                return True
        raise BadValue(self._problem, self._fix)

    def from_text(self, text: str) -> bool:
        """See ``ValueType``."""
        return not text

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"maxItems": 0, "maxProperties": 0, "maxLength": 0}


class _Selector(GoSection):
    """One object of ``selectors``."""

    example = '{"vendors": ["15b3"]}'


class _DeviceType(StrEnum):
    NET_DEVICE = "netDevice"
    AUX_NET_DEVICE = "auxNetDevice"


class _LinkType(StrEnum):
    ETHER = "ether"
    INFINIBAND = "infiniband"


_LINK_TYPES = {_LinkType.ETHER: LinkType.ETHERNET, _LinkType.INFINIBAND: LinkType.INFINIBAND}


class _WholeAddress(PciPattern):
    """One PCI address; the plugin knows no patterns."""

    example = '"0000:86:00.1"'

    def check(self, text: str) -> None:
        """See ``Pattern``."""
        if "*" in text:
            raise BadValue(f"is {shown(text)}, a pattern", f"write each address, such as {self.example}")
        super().check(text)


class _InterfaceFunctions(Functions):
    """``Functions``; some releases of the plugin read names as regular expressions, and here they are names."""

    def root(self, root: str, text: str) -> str:
        """See ``Functions``."""
        if re.search(r"[\^$\[\](){}|?+\\*]", root):
            raise BadValue(f"is {shown(text)}, a regular expression", "write each interface's whole name")
        return super().root(root, text)


class _AcpiIndex(ScalarType[int]):
    """The firmware's index of an interface: a number in quotes there."""

    example = '"101"'

    def from_text(self, text: str) -> int:
        """See ``ValueType``."""
        if not (text.isascii() and text.isdecimal() and len(text) <= 10):
            raise BadValue(f"is {shown(text)}, not an index", f"write a number in quotes, such as {self.example}")
        return int(text)


_EMPTY = "is ignored: it is empty"
_NOT_SERVED = "which ostler does not support"
_NAME = ConfigField(
    "resourceName", Text(r"[A-Za-z0-9_-]+", "letters, digits, - and _", "nics"), "", "Name.", required=True
)
_PREFIX = ConfigField(
    "resourcePrefix",
    Text(r"[^/]+", "a domain without /", "example.com", optional=True),
    "",
    "Domain of the resource's name.",
)
_TYPE = ConfigField(
    "deviceType",
    Choice(_DeviceType, later={"accelerator": f"is accelerator, {_NOT_SERVED}"}),
    _DeviceType.NET_DEVICE,
    "Class of device.",
)
_EXCLUDE_TOPOLOGY = ConfigField("excludeTopology", Boolean(), False, "No NUMA node for the kubelet.")
_EXTRA = ConfigField(
    "additionalInfo",
    _Unserved(f"asks for additional facts in the environment, {_NOT_SERVED}", "set them in the pod's own env"),
    False,
    "there are none",
)
_VENDORS = ConfigField("vendors", ConfigList(PciId("15b3")), (), "PCI vendor ids.")
_DEVICES = ConfigField("devices", ConfigList(PciId("101e")), (), "PCI device ids.")
_DRIVERS = ConfigField("drivers", ConfigList(DriverName()), (), "Kernel drivers.")
_ADDRESSES = ConfigField("pciAddresses", ConfigList(_WholeAddress()), (), "PCI addresses.")
_ACPI = ConfigField("acpiIndexes", ConfigList(_AcpiIndex()), (), "Indexes of the firmware.")
_PF_NAMES = ConfigField("pfNames", ConfigList(_InterfaceFunctions()), (), "Interfaces of physical functions.")
_ROOTS = ConfigField("rootDevices", ConfigList(RootFunctions()), (), "PCI addresses of physical functions.")
_LINKS = ConfigField("linkTypes", ConfigList(Choice(_LinkType)), (), "Link types.")
_PKEYS = ConfigField("pKeys", ConfigList(PartitionKey()), (), "Partition keys.")
_RDMA = ConfigField("isRdma", Boolean(), False, "RDMA.")
_VHOST = ConfigField("needVhostNet", Boolean(), False, "vhost-net.")
_AUX_TYPES = ConfigField("auxTypes", ConfigList(Choice(("sf",))), (), "Kinds of auxiliary device.")
_DDP = ConfigField(
    "ddpProfiles",
    _Unserved(f"asks for devices by their DDP profile, {_NOT_SERVED}", "remove it, and select by pciAddresses"),
    False,
    "there are none",
)
_VDPA = ConfigField(
    "vdpaType",
    _Unserved(f"asks for vDPA devices, {_NOT_SERVED}", "remove the resource, or keep the plugin for it"),
    False,
    "there is none",
)
_SELECTOR = _Selector(
    _VENDORS, _DEVICES, _DRIVERS, _ADDRESSES, _ACPI, _PF_NAMES, _ROOTS, _LINKS, _DDP, _RDMA, _PKEYS, _VHOST, _VDPA,
    _AUX_TYPES,
)  # fmt: skip
_SELECTORS: ConfigField[tuple[Values, ...]] = ConfigField(
    "selectors", ConfigList(_SELECTOR, fewest=1, single=True, unique=False), (), "Which devices.", required=True
)
# Go writes them out, and the plugin overwrites them.
_PARSED = tuple(
    ConfigField(name, Anything(), False, "the plugin derives it from the selectors")
    for name in ("SelectorObj", "SelectorObjs")
)
_RESOURCE = GoSection(_NAME, _PREFIX, _TYPE, _EXCLUDE_TOPOLOGY, _SELECTORS, _EXTRA, *_PARSED)
_LIST: ConfigField[tuple[Values, ...]] = ConfigField(
    "resourceList", ConfigList(_RESOURCE, fewest=1, unique=False), (), "Resources.", required=True
)
ROOT = GoSection(_LIST)

_LISTS: tuple[tuple[AnyField, AnyField], ...] = (
    (_VENDORS, device_fields.PCI_VENDORS),
    (_DEVICES, device_fields.PCI_DEVICES),
    (_DRIVERS, device_fields.DRIVERS),
    (_ADDRESSES, device_fields.PCI_ADDRESSES),
    (_ACPI, device_fields.ACPI_INDEXES),
    (_PF_NAMES, device_fields.INTERFACES),
    (_ROOTS, device_fields.ROOT_DEVICES),
    (_PKEYS, device_fields.PARTITION_KEYS),
)
"""The plugin's lists, and our key of ``devices`` for the same items."""

_SWITCHES: dict[ConfigField[bool], ConfigField[bool]] = {
    _RDMA: cast("ConfigField[bool]", option_fields.RDMA_DEVICES),
    _VHOST: option_fields.VHOST_NET,
}
"""Options that a selector sets for its devices, and our key for each."""

_PCI_ONLY: tuple[AnyField, ...] = (_ADDRESSES, _ACPI, _PKEYS, _VHOST)
"""Keys that the plugin allows only for ``netDevice``; it allows ``auxTypes`` only for ``auxNetDevice``."""


def read_sriov(tree: Mapping, source: str, problems: list[ConfigError], notes: list[Note]) -> Values:
    """Values of our format; ``notes`` gets one line for every value that the file gives."""
    given = ROOT.read(tree, Origin(source, tree.line, tree.column), problems)
    values = Values(given.origin)
    values.broken = given.broken
    resources: list[Values] = []
    names: dict[str, Origin] = {}
    for item in given[_LIST]:
        place = item.place(_NAME)
        name = f"{item[_PREFIX] or DEFAULT_PREFIX}/{item[_NAME]}"
        first = names.setdefault(name, place)
        if first is not place and _NAME in item:
            problem = f"gives {shown(name)} again, first in line {first.line}"
            problems.append(place.error(problem, "put the selectors of both into one list"))
        selectors = item[_SELECTORS]
        own = [_resource(item, name, selector, problems, notes) for selector in selectors]
        _tell_apart(selectors, own, notes)
        resources.extend(own)
        _note_resource(item, name, notes)
    notes.extend(notes_of(given))
    values.put(schema.RESOURCES, tuple(resources), given.place(_LIST))
    # In the plugin a function's name mostly means its virtual ones, and it never offers the function with the default
    # route.
    values.section(option_fields.DEFAULTS).put(option_fields.NAMED_IN_USE, NamedInUse.WITHHOLD, given.place(_LIST))
    return values


def _note_resource(item: Values, name: str, notes: list[Note]) -> None:
    if _NAME in item:
        default = "" if item[_PREFIX] else f" ({DEFAULT_PREFIX} is the plugin's own; resourcePrefix changes it)"
        notes.append(Note(NoteKind.TAKEN, item.place(_NAME), f"taken as name {clipped(name)}{default}"))
    if _PREFIX in item:
        notes.append(Note(NoteKind.TAKEN, item.place(_PREFIX), "taken as the domain of name"))
    if _TYPE in item:
        functions = "[sf]" if item[_TYPE] is _DeviceType.AUX_NET_DEVICE else "[pf, vf]"
        text = f"taken as devices.kind [nic, rdma] and devices.functions {functions}"
        notes.append(Note(NoteKind.TAKEN, item.place(_TYPE), text))
    if _EXCLUDE_TOPOLOGY in item:
        hints = str(not item[_EXCLUDE_TOPOLOGY]).lower()
        notes.append(Note(NoteKind.TAKEN, item.place(_EXCLUDE_TOPOLOGY), f"taken as topologyHints {hints}"))
    notes.extend(_without_meaning(item, field) for field in (_EXTRA, *_PARSED) if field in item)


def _resource(item: Values, name: str, selector: Values, problems: list[ConfigError], notes: list[Note]) -> Values:
    """One of our resources: the devices of an item that one of its selectors picks."""
    resource, devices = Values(selector.origin), Values(selector.origin)
    resource.broken = item.broken
    devices.broken = selector.broken
    resource.put(device_fields.DEVICES, devices, selector.origin)
    if _NAME in item:
        resource.put(schema.RESOURCE_NAME, name, item.place(_NAME))
    resource.put(option_fields.HINTS, not item[_EXCLUDE_TOPOLOGY], item.place(_EXCLUDE_TOPOLOGY))
    kind = item[_TYPE]
    functions = (NicFunction.SF,) if kind is _DeviceType.AUX_NET_DEVICE else (NicFunction.PF, NicFunction.VF)
    devices.put(device_fields.KINDS, NIC_KINDS, selector.origin)
    devices.put(device_fields.FUNCTIONS, functions, item.place(_TYPE))
    _check_type(kind, selector, problems)
    _check_first(selector, _PF_NAMES, selector[_PF_NAMES], problems)
    _check_first(selector, _ROOTS, selector[_ROOTS], problems)
    _take_lists(selector, devices, notes)
    _take_switches(selector, devices, resource, notes)
    return resource


def _take_lists(selector: Values, devices: Values, notes: list[Note]) -> None:
    for theirs, ours in _LISTS:
        if theirs not in selector:
            continue
        items = cast("tuple[object, ...]", selector[cast("ConfigField[object]", theirs)])
        if items:
            devices.put(cast("ConfigField[object]", ours), items, selector.place(theirs))
            notes.append(Note(NoteKind.TAKEN, selector.place(theirs), f"taken as devices.{ours.key}"))
        else:
            notes.append(Note(NoteKind.IGNORED, selector.place(theirs), _EMPTY))
    if selector[_LINKS]:
        links = tuple(_LINK_TYPES[link] for link in selector[_LINKS])
        devices.put(device_fields.LINK_TYPES, links, selector.place(_LINKS))
        text = f"taken as devices.linkTypes [{', '.join(links)}]"
        notes.append(Note(NoteKind.TAKEN, selector.place(_LINKS), text))
    for field, given in ((_LINKS, bool(selector[_LINKS])), (_AUX_TYPES, bool(selector[_AUX_TYPES]))):
        if field in selector and not given:
            notes.append(Note(NoteKind.IGNORED, selector.place(field), _EMPTY))
    if selector[_AUX_TYPES]:
        notes.append(Note(NoteKind.TAKEN, selector.place(_AUX_TYPES), "taken as devices.functions [sf]"))


def _take_switches(selector: Values, devices: Values, resource: Values, notes: list[Note]) -> None:
    if selector[_RDMA]:
        devices.put(device_fields.RDMA, True, selector.place(_RDMA))
        text = "taken as devices.rdma true: RDMA devices alone, with their device nodes"
        notes.append(Note(NoteKind.TAKEN, selector.place(_RDMA), text))
    elif _RDMA in selector:
        text = "is ignored: as in the plugin, devices with and without RDMA are taken"
        notes.append(Note(NoteKind.IGNORED, selector.place(_RDMA), text))
    if _VHOST in selector:
        resource.put(option_fields.VHOST_NET, selector[_VHOST], selector.place(_VHOST))
        text = f"taken as vhostNet {str(selector[_VHOST]).lower()}"
        notes.append(Note(NoteKind.TAKEN, selector.place(_VHOST), text))
    notes.extend(_without_meaning(selector, field) for field in (_DDP, _VDPA) if field in selector)


def _tell_apart(selectors: Sequence[Values], resources: Sequence[Values], notes: list[Note]) -> None:
    """Write out the options of each selector of a resource if they differ."""
    for field, ours in _SWITCHES.items():
        if len({selector[field] for selector in selectors}) < 2:
            continue
        for selector, resource in zip(selectors, resources, strict=True):
            resource.put(ours, selector[field], selector.place(field))
            if field not in selector:
                text = f"is not given, which means {ours.key} false for the devices of this selector"
                notes.append(Note(NoteKind.TAKEN, selector.place(field), text))


def _without_meaning(values: Values, field: AnyField) -> Note:
    return Note(NoteKind.IGNORED, values.place(field), f"is ignored: {field.help}")


def _check_type(kind: _DeviceType, selector: Values, problems: list[ConfigError]) -> None:
    wrong: tuple[AnyField, ...] = _PCI_ONLY if kind is _DeviceType.AUX_NET_DEVICE else (_AUX_TYPES,)
    for field in wrong:
        if selector[cast("ConfigField[object]", field)]:
            other = next(each for each in _DeviceType if each is not kind)
            problem = f"is a selector of {other}, which the plugin ignores for {kind}"
            problems.append(selector.place(field).error(problem, "remove it, or change deviceType"))


def _check_first(
    selector: Values, field: AnyField, ranges: tuple[FunctionRange, ...], problems: list[ConfigError]
) -> None:
    """Refuse a second item for a function: the plugin reads only the first."""
    roots = [some.root for some in ranges]
    again = next((root for number, root in enumerate(roots) if root in roots[:number]), None)
    if again is not None:
        problem = f"has two items for {clipped(again)}, of which the plugin ignores the second"
        fix = f"write one, such as {clipped(again)}#0-3,7"
        problems.append(selector.place(field).error(problem, fix))


def correspondence() -> Iterator[tuple[str, str]]:
    """Every key of an item of the list, and its meaning here: for the reference page."""
    became: dict[int, str] = {id(theirs): f"`devices.{ours.key}`" for theirs, ours in _LISTS}
    became |= {
        id(_NAME): "`name`, after the prefix",
        id(_PREFIX): f"`name`, before the /; default: {DEFAULT_PREFIX}",
        id(_TYPE): "`devices.kind` and `devices.functions`; accelerator is refused",
        id(_EXCLUDE_TOPOLOGY): "`topologyHints`, inverted",
        id(_SELECTORS): "one resource with that name for each selector, in order",
        id(_LINKS): "`devices.linkTypes`, with ether as ethernet",
        id(_RDMA): "`devices.rdma` if true, with the RDMA device nodes",
        id(_VHOST): "`vhostNet`",
        id(_AUX_TYPES): "`devices.functions: [sf]`",
        **{id(field): f"ignored: {field.help}" for field in _PARSED},
    }
    for field in (*_RESOURCE.fields, *_SELECTOR.fields):
        path = f"selectors[].{field.key}" if field in _SELECTOR.fields else field.key
        yield path, became.get(id(field), "refused unless empty: not supported")
