"""Which devices are parts of which: what the ledger needs to know besides names.

Pure, and from the device alone, so that it can be told of a device whose whole nobody offers or sees any more. A MIG
device is part of its GPU; a virtual function or subfunction is part of its physical function, whose device is called
after the function's PCI address. An AMD compute partition is beside the first one, which has the GPU's name, and not a
part of it: their nodes differ.
"""

from __future__ import annotations

from node.inventory.model import NIC_KINDS, Device, DeviceKind
from node.inventory.pci import address_label


def wholes_of(device: Device) -> tuple[str, ...]:
    """Names of the devices that this one is a part of; some of them may not exist."""
    if device.kind is DeviceKind.MIG:
        return (device.parent,) if device.parent else ()
    if device.text("sriovFunction") in ("vf", "sf"):
        address = device.text("pfPciAddress")
        # Which kind of NIC its function is is not told here; only one of the two names can exist.
        kinds = NIC_KINDS if device.kind in NIC_KINDS else (device.kind,)
        return tuple(f"{kind}-{address_label(address)}" for kind in kinds) if address else ()
    return ()
