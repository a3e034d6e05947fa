"""What our own domain says of a device, most important first.

Pure. Names are the inventory's, which are those that existing claims use (NVIDIA's driver for GPUs, DRANET for NICs),
standard attributes in Kubernetes' domain included. Added are ``type`` and ``vendor`` of every device, and ``resource``,
the name of the rule's resource, by which claims and classes can ask for what the plugin door would call so.
"""

from __future__ import annotations

from collections.abc import Iterator

from driver.devices.fact import Fact
from driver.devices.offered import DraDevice
from node.inventory.model import AttributeValue

STANDARD = "resource.kubernetes.io/"

_CHOOSING = (
    "type",
    "uuid",
    "parentUUID",
    "profile",
    "productName",
    "memory",
    "multiprocessors",
    f"{STANDARD}pciBusID",
    f"{STANDARD}pcieRoot",
    f"{STANDARD}numaNode",
    "resource",
    "vendor",
    "switch",
    "cell2",
    "cell4",
    "cell8",
    "cell16",
    "cell32",
    "ifName",
    "rdma",
    "linkType",
    "sriovFunction",
    "pfName",
    "vfIndex",
    "driver",
)
"""What claims choose by, on any device: never left out."""
_KNOWING = (
    "driverVersion",
    "cudaDriverVersion",
    "cudaComputeCapability",
    "architecture",
    "migEnabled",
    "clique",
    "pciVendor",
    "pciDevice",
    "pfPciAddress",
    "mac",
    "mtu",
    "linkUp",
    "linkSpeedMbps",
    "rdmaDevice",
    "rdmaRateGbps",
    "rdmaPortState",
    "pKey",
    "eswitchMode",
    "inPod",
    "brand",
    "nvlinks",
    "eccEnabled",
    "migCapable",
    "gpuModuleID",
    "copyEngines",
    "decoders",
    "encoders",
    "jpegEngines",
    "ofaEngines",
    "gpuSlices",
    "computeSlices",
    "placementStart",
    "placementSize",
)
_TELLING = (
    "addressingMode",
    "virtualizationMode",
    "mode",
    "operState",
    "iommuGroup",
    "minor",
    "gpuInstanceID",
    "computeInstanceID",
    "gpuInstanceProfileID",
    "sriovTotalVfs",
    "acpiIndex",
    "firmwareVersion",
    "nodeGuid",
    "vbiosVersion",
    "serial",
    "boardPartNumber",
)
"""What rather informs; left out from the end where there are too many. Facts in none of the lists come before these."""
_WORTH = {name: number for number, name in enumerate((*_CHOOSING, *_KNOWING))}
_UNLISTED = len(_WORTH)
_WORTH |= {name: _UNLISTED + 1 + number for number, name in enumerate(_TELLING)}


def own_facts(offered: DraDevice) -> tuple[list[Fact], list[Fact]]:
    """What is never left out, and what else there is; each most important first."""
    facts = sorted(_facts(offered), key=lambda fact: (_WORTH.get(fact.name, _UNLISTED), fact.name))
    most = len(_CHOOSING)
    first = [fact for fact in facts if _WORTH.get(fact.name, _UNLISTED) < most]
    return first, facts[len(first) :]


def _facts(offered: DraDevice) -> Iterator[Fact]:
    device = offered.device
    known: dict[str, AttributeValue] = {attribute.name: attribute.value for attribute in device.attributes}
    known.setdefault("type", device.kind.value)
    known["vendor"] = device.vendor
    known["resource"] = offered.rule.resource_of(device)
    if device.uuid is not None:
        known.setdefault("uuid", device.uuid)
    known |= {attribute.name: attribute.value for attribute in offered.placement}
    yield from (Fact(name, found) for name, found in known.items())
    for capacity in device.capacity:
        yield Fact(capacity.name, capacity.value, amount=True, bytes=capacity.name == "memory")
