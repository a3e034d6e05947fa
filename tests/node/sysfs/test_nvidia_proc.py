from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.facts import CapabilityFile
from tests.node.sysfs.tree import SysfsTree

ACCESS = "DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n"
    "GCC version:  gcc version 11.4.0\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build  (dvs-builder)\n"
    "GCC version:  gcc version 12.3.0\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path)


def test_access_files_are_found_at_every_depth_by_their_path_below_capabilities(tree: SysfsTree) -> None:
    tree.capability("gpu1/mig/gi2/ci0/access", ACCESS.format(157))
    tree.capability("gpu1/mig/gi2/access", ACCESS.format(156))
    tree.capability("gpu0/mig/gi13/access", ACCESS.format(120))
    tree.capability("mig/config", ACCESS.format(1))

    facts = tree.read()

    assert facts.nvidia_capabilities == (
        CapabilityFile("gpu0/mig/gi13/access", 120),
        CapabilityFile("gpu1/mig/gi2/access", 156),
        CapabilityFile("gpu1/mig/gi2/ci0/access", 157),
    )
    assert facts.errors == ()


def test_an_access_file_without_minor_is_quoted(tree: SysfsTree) -> None:
    file = tree.capability("gpu0/mig/gi1/access", "DeviceFileMode: 292\n")
    tree.capability("gpu0/mig/gi2/access", ACCESS.format(21))

    facts = tree.read()

    assert facts.nvidia_capabilities == (CapabilityFile("gpu0/mig/gi2/access", 21),)
    assert facts.errors == (f"{file}: no DeviceFileMinor in 'DeviceFileMode: 292'",)


def test_links_are_not_followed(tree: SysfsTree) -> None:
    file = tree.capability("gpu0/mig/gi1/access", ACCESS.format(12))
    (file.parent / "again").symlink_to(file.parent)

    facts = tree.read()

    assert len(facts.nvidia_capabilities) == 1
    assert facts.errors == ()


def test_an_access_file_that_is_a_folder_is_named(tree: SysfsTree) -> None:
    file = tree.capability("gpu0/mig/gi1/access", "")
    file.unlink()
    file.symlink_to("/")

    assert tree.read().errors == (f"{file}: Is a directory",)


def test_no_driver_is_no_error(tree: SysfsTree) -> None:
    facts = tree.read()

    assert (facts.nvidia_module_version, facts.nvidia_capabilities, facts.errors) == (None, (), ())


@pytest.mark.parametrize(("text", "version"), [(PROPRIETARY, "550.90.07"), (OPEN, "570.172.08")])
def test_the_version_comes_from_the_drivers_banner(tree: SysfsTree, text: str, version: str) -> None:
    (tree.proc / "driver/nvidia").mkdir()
    (tree.proc / "driver/nvidia/version").write_text(text)

    assert tree.read().nvidia_module_version == version


def test_the_version_comes_from_the_module_first(tree: SysfsTree) -> None:
    (tree.sys / "module/nvidia").mkdir(parents=True)
    (tree.sys / "module/nvidia/version").write_text("550.90.07\n")
    (tree.proc / "driver/nvidia").mkdir()
    (tree.proc / "driver/nvidia/version").write_text(OPEN)

    assert tree.read().nvidia_module_version == "550.90.07"


def test_a_version_that_is_garbage_everywhere_is_quoted(tree: SysfsTree) -> None:
    (tree.sys / "module/nvidia").mkdir(parents=True)
    (tree.sys / "module/nvidia/version").write_text("?")
    (tree.proc / "driver/nvidia").mkdir()
    (tree.proc / "driver/nvidia/version").write_text("none\n")

    facts = tree.read()

    assert facts.nvidia_module_version is None
    assert facts.errors == (
        f"{tree.sys}/module/nvidia/version: no version in '?'",
        f"{tree.proc}/driver/nvidia/version: no version in 'none'",
    )


def test_a_read_of_gpus_finds_new_instances_and_repeats_no_error(tree: SysfsTree) -> None:
    tree.capability("gpu0/mig/gi1/access", "DeviceFileMode: 292\n")
    source = tree.source()
    assert source.read_gpus(frozenset(("GPU-0",))) == source.read()
    tree.capability("gpu0/mig/gi2/access", ACCESS.format(21))
    found = source.read_gpus(frozenset(("GPU-0",)))
    assert found.sysfs is not None
    assert found.sysfs.nvidia_capabilities == (CapabilityFile("gpu0/mig/gi2/access", 21),)
    assert found == source.read()


def test_a_read_of_gpus_finds_the_files_of_new_instances_without_looking_through_all_of_dev(tree: SysfsTree) -> None:
    tree.device("dev/nvidia0", 195, 0)
    tree.device("dev/nvidia-caps/nvidia-cap1", 236, 1)
    tree.device("dev/nvidia-caps-imex-channels/channel0", 234, 0)
    source = tree.source()
    before = source.read()
    assert source.read_gpus(frozenset(("GPU-0",))) == before
    tree.device("dev/nvidia1", 195, 1)
    tree.device("dev/nvidia-caps/nvidia-cap21", 236, 21)
    found = source.read_gpus(frozenset(("GPU-0",))).sysfs
    assert found is not None
    assert [file.path for file in found.device_files] == [
        "/dev/nvidia-caps-imex-channels/channel0",
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia0",
    ]
    everything = source.read().sysfs
    assert everything is not None
    assert "/dev/nvidia1" in {file.path for file in everything.device_files}
