from __future__ import annotations

import pytest

from node.inventory.model import Device
from node.rules import FunctionRange, NicSelector
from tests.making.devices import gpu, nic

PF = nic(
    3,
    pciVendor="15b3",
    pciDevice="101d",
    driver="mlx5_core",
    sriovFunction="pf",
    pfName="ens3",
    pfPciAddress="0000:03:00.0",
    linkType="ethernet",
    rdma=True,
    acpiIndex=7,
)
VF = nic(
    4,
    pciVendor="15b3",
    pciDevice="101e",
    driver="vfio-pci",
    sriovFunction="vf",
    vfIndex=3,
    pfName="ens3",
    pfPciAddress="0000:03:00.0",
)
IB = nic(
    5, pciVendor="15b3", linkType="infiniband", pKey="0x8001", rdma=True, pfName="ibp5", pfPciAddress="0000:05:00.0"
)
EVERY = {"pf": PF, "vf": VF, "ib": IB, "gpu": gpu(0)}


def picked(selector: NicSelector) -> str:
    return " ".join(name for name, device in EVERY.items() if selector.matches(device))


def in_range(root: str, *numbers: tuple[int, int]) -> tuple[FunctionRange, ...]:
    return (FunctionRange(root, numbers),)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (NicSelector(), "pf vf ib"),
        (NicSelector(vendors=("8086",)), ""),
        (NicSelector(vendors=("8086", "15b3")), "pf vf ib"),
        (NicSelector(devices=("101e",)), "vf"),
        (NicSelector(functions=("vf",)), "vf"),
        (NicSelector(functions=("pf", "vf")), "pf vf ib"),
        (NicSelector(functions=("pf",)), "pf ib"),
        (NicSelector(link_types=("infiniband",)), "ib"),
        (NicSelector(rdma=True), "pf ib"),
        (NicSelector(rdma=False), "vf"),
        (NicSelector(acpi_indexes=(7,)), "pf"),
        (NicSelector(pkeys=("0x8001",)), "ib"),
        (NicSelector(interfaces=in_range("ens3")), "pf vf"),
        (NicSelector(interfaces=in_range("ens3", (0, 2), (3, 3))), "vf"),
        (NicSelector(interfaces=in_range("ens3", (0, 2), (4, 9))), ""),
        (NicSelector(interfaces=(*in_range("ens3", (0, 2)), FunctionRange("ibp5"))), "ib"),
        (NicSelector(roots=in_range("0000:03:00.0", (3, 3))), "vf"),
        (NicSelector(roots=in_range("0000:05:00.0")), "ib"),
        (NicSelector(vendors=("15b3",), rdma=True, link_types=("ethernet",)), "pf"),
    ],
)
def test_every_field_that_is_set_must_match(selector: NicSelector, names: str) -> None:
    assert picked(selector) == names


@pytest.mark.parametrize(
    ("selector", "device", "named"),
    [
        (NicSelector(interfaces=in_range("ens3")), PF, True),
        (NicSelector(roots=in_range("0000:03:00.0")), PF, True),
        (NicSelector(interfaces=in_range("ibp5")), IB, True),
        (NicSelector(interfaces=in_range("ens3")), VF, False),
        (NicSelector(roots=in_range("0000:03:00.0")), VF, False),
        (NicSelector(interfaces=in_range("ens3", (0, 9))), VF, False),
        (NicSelector(vendors=("15b3",)), PF, False),
        (NicSelector(interfaces=in_range("ens3"), devices=("101e",)), PF, False),
        (NicSelector(), gpu(0), False),
    ],
)
def test_named_is_what_goes_by_its_own_interface_or_address(selector: NicSelector, device: Device, named: bool) -> None:
    assert selector.names(device) is named
