"""Which NICs are meant: the selectors that people know from the SR-IOV network device plugin, as a pure predicate.

Everything is decided from a device's attributes, whose names are those in ``node.inventory.nics.attributes``. A
physical function is named in ``interfaces`` and ``roots`` without a range; a range picks virtual functions and
subfunctions by their numbers.
"""

from __future__ import annotations

from node.inventory.model import NIC_KINDS, Device
from node.values import Value, value


@value
class FunctionRange(Value):
    """Functions below a physical one: ``root`` is its interface's name or PCI address.

    ``numbers``: inclusive ranges of virtual functions; empty for the physical function and all its virtual ones.
    """

    root: str
    numbers: tuple[tuple[int, int], ...] = ()

    def holds(self, root: str, number: int | None) -> bool:
        """Whether the function with this number (None: the physical one) below ``root`` is meant."""
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
        """Whether the device is a NIC that is meant."""
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
        """Whether the device is meant by its interface's name or its own PCI address, and not by a wider fact.

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
