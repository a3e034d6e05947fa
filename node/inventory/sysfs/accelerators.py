"""Accelerators as /sys/class/accel and their drivers show them, for vendors whose facts are such files.

Invariants: reading never raises; a file that this kernel or device does not have is no error; the result is in the
order of the functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from node.inventory.facts import AcceleratorFacts, DriverText, PciFunction
from node.inventory.sysfs.files import DRIVERS, SysfsFolder

_NODE = re.compile(r"accel(?:_controlD)?[0-9]+")


def accelerators(
    sys: str, functions: Iterable[PciFunction], files: Iterable[str], errors: list[str]
) -> tuple[AcceleratorFacts, ...]:
    """The accelerators that these PCI functions are, with the texts of ``files`` in each one's folder."""
    return tuple(_accelerator(sys, function.address, files, errors) for function in functions)


def _accelerator(sys: str, address: str, files: Iterable[str], errors: list[str]) -> AcceleratorFacts:
    folder = SysfsFolder(f"{sys}/bus/pci/devices/{address}", [])
    nodes = folder.names("accel", _NODE)
    found = ((name, folder.text(name, DRIVERS)) for name in files)
    texts = tuple(DriverText(name, text) for name, text in found if text)
    # What failed on a function that was pulled out while it was read is no error.
    if folder.errors and not folder.gone:
        errors += folder.errors
    return AcceleratorFacts(address, nodes, texts)
