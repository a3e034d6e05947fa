"""What sysfs shows of NICs' PCI functions: SR-IOV, user-space drivers, RDMA on functions of odd classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.facts import PciFunction, SysfsFacts
from node.inventory.sysfs.pci_functions import function_of
from tests.node.sysfs.tree import BRIDGE, MELLANOX, SysfsTree, again

BRIDGE_PATH = "pci0000:15/0000:15:01.0"
PF = f"{BRIDGE_PATH}/0000:1a:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path)


def by_address(facts: SysfsFacts) -> dict[str, PciFunction]:
    return {function.address[5:]: function for function in facts.pci}


def test_a_physical_function_has_its_numbers_of_virtual_ones(tree: SysfsTree) -> None:
    tree.pci(PF, MELLANOX | {"sriov_totalvfs": "16", "sriov_numvfs": "0", "acpi_index": "3"}, driver="mlx5_core")

    facts = tree.read()

    assert facts.errors == ()
    (function,) = facts.pci
    assert (function.sriov_totalvfs, function.sriov_numvfs, function.acpi_index) == (16, 0, 3)
    assert (function.driver, function.physfn, function.vf_index, function.drm) == ("mlx5_core", None, None, ())


def test_a_function_without_sriov_has_no_such_numbers(tree: SysfsTree) -> None:
    tree.pci(PF, MELLANOX)

    (function,) = tree.read().pci
    assert (function.sriov_totalvfs, function.sriov_numvfs, function.acpi_index) == (None, None, None)


def test_a_virtual_functions_index_is_that_of_the_link_whose_target_it_is(tree: SysfsTree) -> None:
    parent = tree.pci(PF, MELLANOX | {"sriov_totalvfs": "16", "sriov_numvfs": "3"})
    # Neither contiguous nor in the order of addresses, and one address is the beginning of no other by luck only.
    for address, index in (("1a:00.2", 11), ("1a:01.2", 2), ("1a:10.2", 1)):
        tree.virtual_function(parent, tree.pci(f"{BRIDGE_PATH}/0000:{address}", MELLANOX), index)

    facts = tree.read()

    assert facts.errors == ()
    found = by_address(facts)
    assert {name: each.vf_index for name, each in found.items()} == {
        "1a:00.0": None,
        "1a:00.2": 11,
        "1a:01.2": 2,
        "1a:10.2": 1,
    }
    assert {each.physfn for each in facts.pci} == {None, "0000:1a:00.0"}


def test_virtual_functions_that_are_made_and_removed_are_seen_at_the_next_read(tree: SysfsTree) -> None:
    parent = tree.pci(PF, MELLANOX | {"sriov_totalvfs": "16", "sriov_numvfs": "0"})
    source = tree.source()
    assert len(again(source).pci) == 1

    (parent / "sriov_numvfs").write_text("1\n")
    folder = tree.pci(f"{BRIDGE_PATH}/0000:1a:00.1", MELLANOX)
    tree.virtual_function(parent, folder, 0)
    made = by_address(again(source))
    assert (made["1a:00.0"].sriov_numvfs, made["1a:00.1"].vf_index) == (1, 0)

    (parent / "virtfn0").unlink()
    tree.unplug(folder)
    (parent / "sriov_numvfs").write_text("0\n")
    assert [(each.address, each.sriov_numvfs) for each in again(source).pci] == [("0000:1a:00.0", 0)]


def test_links_of_a_virtual_function_that_appear_after_it_are_seen(tree: SysfsTree) -> None:
    parent = tree.pci(PF, MELLANOX | {"sriov_totalvfs": "16", "sriov_numvfs": "1"})
    folder = tree.pci(f"{BRIDGE_PATH}/0000:1a:00.1", MELLANOX)
    source = tree.source()
    assert by_address(again(source))["1a:00.1"].physfn is None

    tree.virtual_function(parent, folder, 4)

    function = by_address(again(source))["1a:00.1"]
    assert (function.physfn, function.vf_index) == ("0000:1a:00.0", 4)


def test_a_virtual_function_whose_physical_one_is_not_there_has_no_index_and_is_no_error(tree: SysfsTree) -> None:
    folder = tree.pci(f"{BRIDGE_PATH}/0000:1a:00.1", MELLANOX)
    (folder / "physfn").symlink_to("../0000:1a:00.0")

    facts = tree.read()

    assert facts.errors == ()
    assert (facts.pci[0].physfn, facts.pci[0].vf_index) == ("0000:1a:00.0", None)


def test_a_function_bound_to_vfio_has_its_group_and_its_character_device(tree: SysfsTree) -> None:
    folder = tree.pci(PF, MELLANOX, driver="vfio-pci", iommu_group="38")
    (folder / "vfio-dev/vfio3").mkdir(parents=True)

    (function,) = tree.read().pci
    assert (function.iommu_group, function.iommu_group_name, function.vfio, function.uio) == ("38", None, "vfio3", None)


def test_a_group_without_iommu_is_named(tree: SysfsTree) -> None:
    folder = tree.pci(PF, MELLANOX, driver="vfio-pci", iommu_group="2")
    (folder / "iommu_group/name").write_text("vfio-noiommu\n")

    assert tree.read().pci[0].iommu_group_name == "vfio-noiommu"


def test_a_function_bound_to_uio_has_its_character_device(tree: SysfsTree) -> None:
    folder = tree.pci(PF, MELLANOX, driver="igb_uio")
    (folder / "uio/uio12").mkdir(parents=True)

    (function,) = tree.read().pci
    assert (function.uio, function.vfio) == ("uio12", None)


def test_a_driver_that_is_bound_and_unbound_is_seen_at_the_next_read(tree: SysfsTree) -> None:
    folder = tree.pci(PF, MELLANOX, driver="mlx5_core", iommu_group="38")
    source = tree.source()
    first = again(source).pci[0]
    assert first.driver == "mlx5_core"
    assert again(source).pci[0] is first

    (folder / "driver").unlink()
    assert again(source).pci[0].driver is None

    (folder / "driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")
    (folder / "vfio-dev/vfio0").mkdir(parents=True)
    function = again(source).pci[0]
    assert (function.driver, function.vfio) == ("vfio-pci", "vfio0")


def test_a_function_of_an_odd_class_with_an_rdma_device_is_kept(tree: SysfsTree) -> None:
    tree.pci(PF, MELLANOX | {"class": "0xff0000", "vendor": "0x1ded"}, driver="erdma")
    tree.infiniband(f"{PF}/infiniband/erdma_0")

    facts = tree.read()

    assert facts.errors == ()
    assert [function.class_code for function in facts.pci] == ["0xff0000"]


def test_an_rdma_driver_that_loads_late_makes_its_function_one_of_interest(tree: SysfsTree) -> None:
    tree.pci(PF, MELLANOX | {"class": "0xff0000"})
    tree.pci(f"{BRIDGE_PATH}/0000:1b:00.0", BRIDGE)
    source = tree.source()
    assert again(source).pci == ()

    tree.infiniband(f"{PF}/infiniband/erdma_0")
    assert list(by_address(again(source))) == ["1a:00.0"]


def test_an_rdma_device_that_is_in_a_pod_leaves_its_function_and_one_that_is_gone_does_not(tree: SysfsTree) -> None:
    folder = tree.pci(PF, MELLANOX | {"class": "0xff0000"}, driver="erdma")
    device = tree.infiniband(f"{PF}/infiniband/erdma_0")
    source = tree.source()
    assert len(again(source).pci) == 1

    # Folders of classes stay in the tree, what is in them is shown to the pod only.
    (tree.sys / "class/infiniband/erdma_0").unlink()
    device.rename(tree.root / "erdma_0")
    assert len(again(source).pci) == 1
    assert len(tree.read().pci) == 1

    (folder / "infiniband").rmdir()
    assert again(source).pci == ()


def test_numbers_of_virtual_functions_that_are_garbage_are_quoted(tree: SysfsTree) -> None:
    folder = tree.pci(PF, MELLANOX | {"sriov_totalvfs": "many", "acpi_index": "0x3"})

    facts = tree.read()

    link = tree.bus_link(folder.name)
    assert facts.errors == (
        f"{link}/acpi_index: '0x3' is not a number",
        f"{link}/sriov_totalvfs: 'many' is not a number",
    )
    assert facts.pci[0].driver is None


def test_a_folder_of_character_devices_that_is_a_file_is_named(tree: SysfsTree) -> None:
    folder = tree.pci(PF, MELLANOX, driver="vfio-pci")
    (folder / "vfio-dev").write_text("")

    facts = tree.read()

    assert facts.errors == (f"{tree.bus_link(folder.name)}/vfio-dev: Not a directory",)
    assert facts.pci[0].driver == "vfio-pci"


def test_a_virtual_function_whose_link_leads_to_itself_is_its_own_errors_only(tree: SysfsTree) -> None:
    parent = tree.pci(PF, MELLANOX | {"sriov_totalvfs": "2", "sriov_numvfs": "2"})
    tree.virtual_function(parent, tree.pci(f"{BRIDGE_PATH}/0000:1a:00.1", MELLANOX), 0)
    (parent / "virtfn1").symlink_to("virtfn1")

    facts = tree.read()

    assert facts.errors == ()
    assert by_address(facts)["1a:00.1"].vf_index == 0


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("pci0000:15/0000:15:01.0/0000:1a:00.0/net/ens1np0", "0000:1a:00.0"),
        ("pci0000:00/0000:00:03.0/virtio2/net/eth0", "0000:00:03.0"),
        ("pci0000:15/0000:1a:00.0/mlx5_core.sf.2/net/en1", "0000:1a:00.0"),
        ("pci10000:00/10000:00:01.0/infiniband/mlx5_0", "10000:00:01.0"),
        ("virtual/infiniband/rxe0", None),
    ],
)
def test_what_is_below_a_function_belongs_to_the_last_one_on_its_path(path: str, address: str | None) -> None:
    assert function_of(path) == address
