from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.inventory.facts import PciFunction
from tests.node.sysfs.tree import BRIDGE, H100, SysfsTree, read_during

PATH = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1b:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path)


def test_a_gpu_has_everything_that_sysfs_shows(tree: SysfsTree) -> None:
    tree.pci(PATH, driver="nvidia", iommu_group="37", drm=("renderD128", "card1", "version"))

    assert tree.read().pci == (
        PciFunction(
            address="0000:1b:00.0",
            path=PATH,
            class_code="0x030200",
            vendor="0x10de",
            device="0x2330",
            subsystem_vendor="0x10de",
            subsystem_device="0x16c1",
            revision="0xa1",
            numa_node=0,
            driver="nvidia",
            iommu_group="37",
            drm=("card1", "renderD128"),
        ),
    )
    assert tree.read().errors == ()


def test_gpus_accelerators_nvswitches_and_nics_are_kept_and_other_functions_are_not(tree: SysfsTree) -> None:
    tree.pci("pci0000:00/0000:00:01.0", BRIDGE)
    tree.pci("pci0000:00/0000:00:02.0", H100 | {"class": "0x030000", "vendor": "0x8086"})
    tree.pci("pci0000:00/0000:00:03.0", H100 | {"class": "0x120000", "vendor": "0x1002"})
    tree.pci("pci0000:00/0000:00:04.0", H100 | {"class": "0x068000"})
    tree.pci("pci0000:00/0000:00:05.0", H100 | {"class": "0x068000", "vendor": "0x8086"})
    tree.pci("pci0000:00/0000:00:06.0", H100 | {"class": "0x020000", "vendor": "0x15b3"})
    tree.pci("pci0000:00/0000:00:07.0", H100 | {"class": "0x020700", "vendor": "0x15b3"})
    tree.pci("pci0000:00/0000:00:08.0", H100 | {"class": "0x010802", "vendor": "0x144d"})

    facts = tree.read()

    assert [function.address[-4:] for function in facts.pci] == [
        "02.0",
        "03.0",
        "04.0",
        "06.0",
        "07.0",
    ]
    assert facts.errors == ()


def test_functions_are_sorted_by_address(tree: SysfsTree) -> None:
    for address in ("0000:df:00.0", "0000:1b:00.0", "0000:c3:00.0"):
        tree.pci(f"pci0000:00/{address}")

    assert [function.address for function in tree.read().pci] == ["0000:1b:00.0", "0000:c3:00.0", "0000:df:00.0"]


def test_a_numa_node_of_minus_one_stays_minus_one(tree: SysfsTree) -> None:
    tree.pci(PATH, H100 | {"numa_node": "-1"})

    assert tree.read().pci[0].numa_node == -1


def test_a_kernel_without_numa_is_no_error(tree: SysfsTree) -> None:
    folder = tree.pci(PATH)
    (folder / "numa_node").unlink()

    facts = tree.read()

    assert facts.pci[0].numa_node is None
    assert facts.errors == ()


@pytest.mark.parametrize("name", ["vendor", "device", "subsystem_vendor", "revision"])
def test_a_missing_attribute_costs_itself_only_and_is_named(tree: SysfsTree, name: str) -> None:
    folder = tree.pci(PATH)
    (folder / name).unlink()

    facts = tree.read()

    assert facts.errors == (f"{tree.bus_link('0000:1b:00.0')}/{name}: No such file or directory",)
    assert not getattr(facts.pci[0], name)
    assert facts.pci[0].numa_node == 0


def test_garbage_in_an_attribute_is_quoted(tree: SysfsTree) -> None:
    tree.pci(PATH, H100 | {"device": "what?", "numa_node": "here"})

    facts = tree.read()

    link = tree.bus_link("0000:1b:00.0")
    assert facts.errors == (
        f"{link}/device: 'what?' is not a hexadecimal number of sysfs",
        f"{link}/numa_node: 'here' is not a number",
    )
    assert facts.pci[0].device == ""
    assert facts.pci[0].vendor == "0x10de"


def test_a_function_whose_class_is_garbage_is_left_out_and_named(tree: SysfsTree) -> None:
    tree.pci(PATH, H100 | {"class": "0x03"})
    tree.pci("pci0000:00/0000:00:02.0")

    facts = tree.read()

    assert [function.address for function in facts.pci] == ["0000:00:02.0"]
    assert facts.errors == (f"{tree.bus_link('0000:1b:00.0')}/class: '0x03' is not a hexadecimal number of sysfs",)


def test_an_unreadable_attribute_is_named_with_its_reason(tree: SysfsTree) -> None:
    folder = tree.pci(PATH)
    (folder / "revision").unlink()
    (folder / "revision").mkdir()

    assert tree.read().errors == (f"{tree.bus_link('0000:1b:00.0')}/revision: Is a directory",)


def test_a_link_that_leads_to_itself_is_an_error_and_no_hang(tree: SysfsTree) -> None:
    tree.pci(PATH)
    loop = tree.bus_link("0000:99:00.0")
    loop.symlink_to(loop.name)

    facts = tree.read()

    assert len(facts.pci) == 1
    assert facts.errors == (f"{loop}/class: Too many levels of symbolic links",)


def test_a_driver_link_that_leads_to_itself_has_a_name_and_costs_nothing(tree: SysfsTree) -> None:
    folder = tree.pci(PATH)
    (folder / "driver").symlink_to("driver")

    assert tree.read().pci[0].driver == "driver"


def test_a_function_that_is_no_link_has_no_place_in_the_tree(tree: SysfsTree) -> None:
    folder = tree.bus_link("0000:1b:00.0")
    folder.mkdir()
    for name, text in H100.items():
        (folder / name).write_text(text)

    facts = tree.read()

    assert facts.pci[0].path == ""
    assert facts.errors == (f"{folder}: Invalid argument; its place in the device tree is unknown",)


def test_a_function_below_a_platform_host_keeps_its_whole_path(tree: SysfsTree) -> None:
    path = "platform/soc/pci0002:00/0002:00:00.0/0002:01:00.0"
    tree.pci(path)

    assert tree.read().pci[0].path == path


def test_a_function_that_vanishes_while_it_is_read_is_no_error(tree: SysfsTree) -> None:
    tree.pci("pci0000:00/0000:00:02.0")
    for _ in range(100):
        folder = tree.pci(PATH, driver="nvidia", drm=("card1",))

        facts = read_during(partial(tree.unplug, folder), tree.source())

        assert facts.errors == ()
        assert "0000:00:02.0" in {function.address for function in facts.pci}


def test_hot_plug_is_seen_at_the_next_read(tree: SysfsTree) -> None:
    source = tree.source()
    tree.pci("pci0000:00/0000:00:01.0", BRIDGE)
    assert source.read().sysfs == tree.read()

    folder = tree.pci(PATH)
    assert len((source.read().sysfs or tree.read()).pci) == 1

    tree.unplug(folder)
    assert (source.read().sysfs or tree.read()).pci == ()


def test_another_device_in_a_slot_that_was_of_no_interest_is_seen(tree: SysfsTree) -> None:
    source = tree.source()
    folder = tree.pci(PATH, BRIDGE)
    assert (source.read().sysfs or tree.read()).pci == ()
    # The kernel gives every new entry a new inode; holding the old one makes the file system do so too.
    keeper = tree.sys / "keeper"
    tree.bus_link(folder.name).rename(keeper)
    (folder / "class").unlink()
    folder.rename(tree.sys / "old")

    tree.pci(PATH)

    facts = source.read().sysfs
    assert facts is not None
    assert len(facts.pci) == 1


def test_a_kernel_without_pci_is_no_error(tree: SysfsTree) -> None:
    (tree.sys / "bus/pci/devices").rmdir()
    (tree.sys / "bus/pci").rmdir()

    assert tree.read().errors == ()


def test_a_root_that_is_no_sysfs_is_an_error(tmp_path: Path) -> None:
    tree = SysfsTree(tmp_path)
    (tree.sys / "bus").rename(tmp_path / "elsewhere")

    assert tree.read().errors == (f"{tree.sys}/bus/pci/devices: No such file or directory",)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.fixed_dictionaries({name: st.binary(max_size=30) for name in H100}))
def test_no_bytes_in_attributes_make_reading_raise(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    tree = SysfsTree(tmp_path_factory.mktemp("sysfs"))
    folder = tree.pci(PATH)
    for name, raw in contents.items():
        (folder / name).write_bytes(raw)

    facts = tree.read()

    assert len(facts.pci) <= 1
    assert all(error.startswith(str(tree.bus_link("0000:1b:00.0"))) for error in facts.errors)
