from __future__ import annotations

import pytest

from node.inventory.pci import address_label, display_mode, numa_node, pci_address, pcie_root, standard_attributes
from node.values import replace
from tests.making.nvidia_facts import function


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("00000008:01:00.0", "0008:01:00.0"),
        ("", None),
        (None, None),
        ("N/A", None),
        ("0000:1b:00.9", None),
    ],
)
def test_address_is_written_as_sysfs_writes_it(written: str | None, address: str | None) -> None:
    assert pci_address(written) == address


def test_label_of_an_address_is_part_of_a_dns_label() -> None:
    assert address_label("0000:1b:00.0") == "0000-1b-00-0"


@pytest.mark.parametrize(("code", "mode"), [("0x030000", "graphics"), ("0x030200", "compute"), ("0x020000", None)])
def test_mode_follows_the_pci_class(code: str, mode: str | None) -> None:
    assert display_mode(function(0, class_code=code)) == mode


def test_class_that_is_no_number_is_no_display() -> None:
    assert display_mode(function(0, class_code="what")) is None


@pytest.mark.parametrize(
    ("address", "path", "root"),
    [
        ("0000:16:00.0", "pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:15"),
        ("0000:00:02.0", "pci0000:00/0000:00:02.0", "pci0000:00"),
        # Below the host bridge that VMD makes: the address has more digits than the standard knows.
        ("10000:e1:00.0", "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e1:00.0", None),
        ("0000:16:00.0", "platform/NVDA/pci0000:15/0000:15:01.0/0000:16:00.0", None),
        ("0000:16:00.0", "LNXSYSTM:00/VMBUS:00/4e7a/pci0000:16/0000:16:00.0", None),
        ("0000:16:00.0", "pci0000:15/0000:15:01.0", None),
        ("0000:16:00.0", "pci0000:15", None),
        ("0000:1B:00.0", "pci0000:15/0000:1B:00.0", None),
        ("0000:16:00.0", "virtual/thing", None),
        ("0000:16:00.0", "", None),
    ],
)
def test_pcie_root_follows_kubernetes_and_is_left_out_where_that_errs(
    address: str, path: str, root: str | None
) -> None:
    made = replace(function(0, path=path), address=address)
    assert pcie_root(made) == root
    attributes = dict(standard_attributes(address, made))
    assert attributes["resource.kubernetes.io/pcieRoot"] == root


def test_negative_numa_node_is_no_numa_node() -> None:
    assert numa_node(function(0, numa_node=-1)) is None
    assert numa_node(function(0, numa_node=0)) == 0
    assert numa_node(None) is None


def test_attributes_without_sysfs_hold_the_address_only() -> None:
    known = {name: value for name, value in standard_attributes("0000:1b:00.0", None) if value is not None}
    assert known == {"resource.kubernetes.io/pciBusID": "0000:1b:00.0"}


@pytest.mark.parametrize(
    ("group", "number"), [("57", 57), (None, None), ("vfio-noiommu", None), ("\u0665", None), ("9" * 30, None)]
)
def test_iommu_group_is_a_number_or_left_out(group: str | None, number: int | None) -> None:
    made = function(0, iommu_group=group)
    assert dict(standard_attributes(made.address, made))["iommuGroup"] == number
