"""The key ``virtualFunctions``: how many virtual functions ostler makes of which physical ones.

The keys of ``devices`` are those of resources as far as they select physical functions. What is made is offered like
any other virtual function, by the rules in ``resources``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from node.inventory.model import NIC_KINDS
from node.rules import Rule
from node.values import replace
from ostler.config import device_fields
from ostler.config.errors import ConfigError, Note, NoteKind, Origin
from ostler.config.scalars import Boolean, Integer
from ostler.config.section import ConfigField, ConfigList, Section, Values
from ostler.config.selection import check_selection, selector, serves_nics

if TYPE_CHECKING:
    from node.virtual_functions import VirtualFunctionRule

PHYSICAL: ConfigField[Values] = ConfigField(
    "devices",
    Section(
        device_fields.VENDOR,
        device_fields.PCI_VENDORS,
        device_fields.PCI_DEVICES,
        device_fields.DRIVERS,
        device_fields.INTERFACES,
        device_fields.ROOT_DEVICES,
        device_fields.PCI_ADDRESSES,
        device_fields.NAMES,
        device_fields.LINK_TYPES,
        device_fields.RDMA,
    ),
    Values(Origin("")),
    "Physical functions, by keys as in resources; {} for all of them. One that the node itself uses must be named by"
    " interfaces, rootDevices, pciAddress or name.",
    required=True,
)
COUNT = ConfigField(
    "count",
    Integer(0, device_fields.MAX_FUNCTION, 8),
    0,
    "Virtual functions of each of them. They are made while it has none; another number is reported and not changed."
    " 0 makes none, and later items do not apply.",
    required=True,
)
AUTOPROBE: ConfigField[bool | None] = ConfigField(
    "driversAutoprobe",
    Boolean(),
    None,
    "Whether the kernel binds its network driver to what is made; false to bind another driver, such as vfio-pci."
    " Absent: as sriov_drivers_autoprobe says, which is true unless somebody changed it.",
)
VIRTUAL_FUNCTIONS = ConfigField(
    "virtualFunctions",
    ConfigList(Section(PHYSICAL, COUNT, AUTOPROBE), fewest=1, unique=False),
    (),
    "Virtual functions (SR-IOV) that ostler makes; the first item that selects a physical function counts. Resources"
    " offer them.",
)


def function_rules(
    values: Values, rules: Iterable[Rule], problems: list[ConfigError], notes: list[Note]
) -> tuple[VirtualFunctionRule, ...]:
    """The rules by which virtual functions are made; ``rules``: those that offer devices."""
    if VIRTUAL_FUNCTIONS not in values:
        return ()
    # Imported here: few nodes have virtual functions made.
    from node.virtual_functions import VirtualFunctionRule

    made: list[VirtualFunctionRule] = []
    for item in values[VIRTUAL_FUNCTIONS]:
        devices = item.section(PHYSICAL)
        if item.broken or devices.broken:
            continue
        selected = replace(selector(devices), kinds=NIC_KINDS)
        check_selection(selected, devices, problems)
        _check_physical(devices, problems)
        same = next((number for number, rule in enumerate(made) if rule.selector == selected), None)
        if same is not None:
            problem = f"selects the same physical functions as virtualFunctions[{same}], which counts first"
            problems.append(item.place(PHYSICAL).error(problem, "remove one of the two"))
        made.append(VirtualFunctionRule(selected, item[COUNT], item[AUTOPROBE]))
    if any(rule.count for rule in made) and not any(serves_nics(rule.selector) for rule in rules):
        text = "makes virtual functions, but no resource offers NICs; add one with 'devices: {functions: [vf]}'"
        notes.append(Note(NoteKind.REMARK, values.place(VIRTUAL_FUNCTIONS), text))
    return tuple(made)


def _check_physical(devices: Values, problems: list[ConfigError]) -> None:
    """Report a range of virtual functions, where physical ones are meant."""
    for field in (device_fields.INTERFACES, device_fields.ROOT_DEVICES):
        for some in devices[field]:
            if some.numbers:
                problem = f"names virtual functions of {some.root}, but selects physical ones"
                fix = f"write {some.root}, and how many with count"
                problems.append(devices.place(field).error(problem, fix))
