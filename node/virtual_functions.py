"""Virtual functions that ostler makes: which physical functions get how many, and what forbids it.

A physical function has one number of virtual functions, ``sriov_numvfs``. Changing one number into another means
destroying all of them first, with whatever pods have them. So ostler only ever writes to a function that has none, and
otherwise says what to do. The kernel refuses a second number itself (EBUSY), so two programs that make virtual
functions at the same moment do no harm.

Pure: it decides by the inventory's facts, for the agent, for ``ostler devices`` and for the doctor alike.
``node.inventory.nics.function_maker`` writes to sysfs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum

from node.inventory.model import NIC_KINDS, Device, Snapshot, is_gone
from node.inventory.nics.parts import serves_network
from node.rules import Selector
from node.values import Value, replace, value


@value
class VirtualFunctionRule(Value):
    """``count`` virtual functions are made of every physical one that ``selector`` selects; 0 makes none.

    The first rule that selects a function decides. ``autoprobe``: whether the kernel binds its driver to them; None
    leaves that as it is.
    """

    selector: Selector
    count: int
    autoprobe: bool | None = None


class VfState(StrEnum):
    """How a physical function stands to the number that the configuration asks for."""

    MADE = "made"
    """It has that number."""
    TO_MAKE = "to make"
    """It has none, and nothing is against making them."""
    DIFFERENT = "different"
    """It has another number, which ostler does not change."""
    REFUSED = "refused"
    """It has none, and something is against making them."""


@value
class VfVerdict(Value):
    """The decision about a physical function; ``reason``: what prevents it, with the fix."""

    device: Device
    rule: VirtualFunctionRule
    state: VfState
    reason: str = ""

    @property
    def address(self) -> str:
        """The PCI address of the physical function."""
        return self.device.pci_address or ""

    @property
    def line(self) -> str:
        """One sentence about it for people; empty if it has what the configuration asks for."""
        if self.state is VfState.MADE:
            return ""
        if self.state is VfState.TO_MAKE:
            return f"{counted(self.rule.count)} will be made of it"
        return f"{counted(self.rule.count)} cannot be made of it: {self.reason}"


def counted(number: int) -> str:
    """``1 virtual function``, ``8 virtual functions``."""
    return f"{number} virtual function{'' if number == 1 else 's'}"


def verdicts(devices: Iterable[Device], rules: Iterable[VirtualFunctionRule]) -> tuple[VfVerdict, ...]:
    """The verdict on every physical function that rules want virtual functions of, one for each PCI function."""
    rules = tuple(rules)
    found: dict[str, VfVerdict] = {}
    for device in devices if rules else ():
        made = verdict(device, rules)
        if made is not None:
            found.setdefault(made.address, made)
    return tuple(found.values())


def verdict(device: Device, rules: Iterable[VirtualFunctionRule]) -> VfVerdict | None:
    """The verdict on one device; None if it is no physical function with SR-IOV, or no rule wants any of it."""
    if device.kind not in NIC_KINDS or device.text("sriovFunction") != "pf" or is_gone(device):
        return None
    rule = next((rule for rule in rules if rule.selector.matches(device)), None)
    if rule is None or not rule.count:
        return None
    now = device.attribute("sriovVfs")
    if now == rule.count:
        return VfVerdict(device, rule, VfState.MADE)
    if now:
        return VfVerdict(device, rule, VfState.DIFFERENT, _not_changed(device, str(now)))
    reason = _against(device, rule)
    return VfVerdict(device, rule, VfState.REFUSED if reason else VfState.TO_MAKE, reason)


def _not_changed(device: Device, number: str) -> str:
    has = counted(int(number))
    return (
        f"it has {has}, and a change would destroy {'it' if number == '1' else 'them'}, with the pods that have one; "
        f"drain the node and write 0 to /sys/bus/pci/devices/{device.pci_address}/sriov_numvfs, or correct the count"
    )


def _against(device: Device, rule: VirtualFunctionRule) -> str:
    """Why no virtual functions can be made of a function that has none; empty if nothing is against it."""
    total, driver = device.attribute("sriovTotalVfs"), device.text("driver")
    if total == 0:
        return (
            "its firmware allows none (sriov_totalvfs is 0); turn SR-IOV on in the machine's BIOS and in the NIC's "
            "firmware (NVIDIA: mlxconfig set SRIOV_EN=1 NUM_OF_VFS=<count>), and restart the machine"
        )
    if isinstance(total, int) and rule.count > total:
        return f"its firmware allows {total} (sriov_totalvfs); ask for at most {total}, or raise that in its firmware"
    if device.attribute("sriovVfs") is None:
        return "the kernel does not show how many it has (sriov_numvfs); see 'dmesg' for its driver"
    if not driver:
        return "no driver is bound to it, and its driver makes them; bind the driver of the NIC"
    if not serves_network(driver):
        return f"its driver {driver} gives it to a program as a whole; bind the NIC's network driver instead"
    if device.attribute("inPod") is True:
        return "its interface is in a pod, which would lose its link for a moment; they are made when it is back"
    if device.host_use and not rule.selector.names_it(device):
        return (
            f"the node itself uses it: {device.host_use}; its link may go down while they are made, so name it in "
            "virtualFunctions (interfaces, rootDevices, pciAddress or name) if that does no harm"
        )
    return ""


@value
class VfMaking(Value):
    """By PCI address: how many virtual functions ostler has made, and why some could not be made."""

    made: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)


def with_virtual_functions(
    snapshot: Snapshot, rules: Iterable[VirtualFunctionRule], making: VfMaking | None = None
) -> Snapshot:
    """The snapshot with a note about each physical function that gets virtual ones, for the offers."""
    making = making or VfMaking()
    said = []
    for each in verdicts(snapshot.devices, rules):
        line, why = each.line, making.failures.get(each.address, "")
        if each.state in (VfState.TO_MAKE, VfState.DIFFERENT) and why:
            line = f"{counted(each.rule.count)} could not be made of it: {why}"
        elif each.state is VfState.MADE and making.made.get(each.address) == each.rule.count:
            line = "ostler made its virtual functions"
        if line:
            said.append((each.device.name, line))
    if tuple(said) == snapshot.host.virtual_functions:
        return snapshot
    return replace(snapshot, host=replace(snapshot.host, virtual_functions=tuple(said)))
