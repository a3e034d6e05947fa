from __future__ import annotations

import pytest

from node.inventory.pci import address_label, display_mode, numa_node, pci_address, pcie_root, standard_attributes
from tests.inventory.making import function


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
    ("path", "root"),
    [
        ("pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:15"),
        ("platform/NVDA/pci0008:00/0008:00:00.0/0008:01:00.0", "pci0008:00"),
        ("virtual/thing", None),
    ],
)
def test_pcie_root_is_the_first_host_bridge_of_the_path(path: str, root: str | None) -> None:
    assert pcie_root(function(0, path=path)) == root


def test_negative_numa_node_is_no_numa_node() -> None:
    assert numa_node(function(0, numa_node=-1)) is None
    assert numa_node(function(0, numa_node=0)) == 0
    assert numa_node(None) is None


def test_attributes_without_sysfs_hold_the_address_only() -> None:
    known = {name: value for name, value in standard_attributes("0000:1b:00.0", None) if value is not None}
    assert known == {"resource.kubernetes.io/pciBusID": "0000:1b:00.0"}


def test_iommu_group_that_is_no_number_is_left_out() -> None:
    assert dict(standard_attributes("0000:1b:00.0", function(0, iommu_group="none")))["iommuGroup"] is None
