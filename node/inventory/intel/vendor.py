"""Intel GPUs out of raw facts: integrated, discrete and virtual ones.

Pure. ``index`` is the number of the GPU's card node, which makes the id of Intel's plugin (``card1-0``); a GPU whose
driver does not show one has none. A physical function with virtual ones is offered by these alone, which ``offer``
decides from the same attributes as for NICs.
"""

from __future__ import annotations

import re

from node.inventory.device_nodes import DrmNodes, function_attributes, without_driver
from node.inventory.facts import NodeFacts, PciFunction
from node.inventory.model import AttributeValue, Device, DeviceKind, NodeRole, sorted_attributes
from node.inventory.pci import address_label, base_class, display_mode, numa_node
from node.inventory.vendor import Vendor, VendorResource

_PCI_VENDOR = "0x8086"
_OTHER_DISPLAY = 0x0380
"""Data centre GPUs have no display and are of this class."""
_DRIVERS = ("i915", "xe")
_CARD = r"/dev/dri/(card\d+)"


def intel_devices(facts: NodeFacts) -> list[Device]:
    """All Intel GPUs."""
    if facts.sysfs is None:
        return []
    nodes = DrmNodes(facts.sysfs)
    return [
        _device(function, nodes) for function in facts.sysfs.pci if function.vendor == _PCI_VENDOR and _is_gpu(function)
    ]


def _is_gpu(function: PciFunction) -> bool:
    of_class = display_mode(function) is not None or base_class(function) == _OTHER_DISPLAY
    return of_class and function.vendor == _PCI_VENDOR


def _device(function: PciFunction, drm: DrmNodes) -> Device:
    nodes = drm.of(function.drm)
    cards = [name.removeprefix("card") for name in function.drm if name.startswith("card")]
    return Device(
        name=f"gpu-{address_label(function.address)}",
        kind=DeviceKind.GPU,
        vendor="intel",
        index=cards[0] if cards else None,
        pci_address=function.address,
        numa_node=numa_node(function),
        health=without_driver(function, _DRIVERS) or drm.health(nodes),
        attributes=sorted_attributes(_attributes(function)),
        nodes=nodes,
        location=function.path,
    )


def _attributes(function: PciFunction) -> list[tuple[str, AttributeValue | None]]:
    sriov = "vf" if function.physfn else "pf" if function.sriov_totalvfs else None
    return [
        *function_attributes(function),
        ("sriovFunction", sriov),
        ("vfIndex", function.vf_index),
        ("pfPciAddress", function.physfn or (function.address if sriov else None)),
        ("sriovVfs", function.sriov_numvfs),
    ]


def _id_of(device: Device) -> str | None:
    """``card0-0``, as Intel's plugin counts shares."""
    cards = (re.fullmatch(_CARD, node.path) for node in device.nodes_of(NodeRole.DEVICE))
    return next((f"{card[1]}-0" for card in cards if card is not None), None)


INTEL = Vendor(
    name="intel",
    title="Intel",
    pci_vendor=_PCI_VENDOR,
    drivers=_DRIVERS,
    devices=lambda facts, _: intel_devices(facts),
    resources=tuple(VendorResource(f"gpu.intel.com/{driver}", drivers=(driver,)) for driver in _DRIVERS),
    dra_driver="gpu.intel.com",
    cdi_class="intel-gpu",
    id_of=_id_of,
    modules="|".join(_DRIVERS),
)
