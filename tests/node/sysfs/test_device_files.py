from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.facts import DeviceFile
from node.inventory.sysfs.device_files import device_files, stat_device
from tests.node.sysfs.tree import SysfsTree


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    return SysfsTree(tmp_path)


def test_device_files_of_gpus_and_nics_and_what_goes_with_them_are_found(tree: SysfsTree) -> None:
    wanted = [
        DeviceFile("/dev/dri/card1", "c", 226, 1),
        DeviceFile("/dev/dri/renderD128", "c", 226, 128),
        DeviceFile("/dev/gdrdrv", "c", 505, 0),
        DeviceFile("/dev/infiniband/issm0", "c", 231, 64),
        DeviceFile("/dev/infiniband/rdma_cm", "c", 10, 122),
        DeviceFile("/dev/infiniband/umad0", "c", 231, 0),
        DeviceFile("/dev/infiniband/uverbs10", "c", 231, 202),
        DeviceFile("/dev/iommu", "c", 10, 120),
        DeviceFile("/dev/kfd", "c", 235, 0),
        DeviceFile("/dev/net/tun", "c", 10, 200),
        DeviceFile("/dev/nvidia-caps-imex-channels/channel0", "c", 234, 0),
        DeviceFile("/dev/nvidia-caps/nvidia-cap12", "c", 510, 12),
        DeviceFile("/dev/nvidia-uvm", "c", 507, 0),
        DeviceFile("/dev/nvidia0", "c", 195, 0),
        DeviceFile("/dev/nvidiactl", "c", 195, 255),
        DeviceFile("/dev/uio0", "c", 238, 0),
        DeviceFile("/dev/vfio/38", "c", 234, 0),
        DeviceFile("/dev/vfio/devices/vfio3", "c", 511, 3),
        DeviceFile("/dev/vfio/noiommu-2", "c", 234, 1),
        DeviceFile("/dev/vfio/vfio", "c", 10, 196),
        DeviceFile("/dev/vhost-net", "c", 10, 238),
    ]
    others = [
        ("/dev/null", 1, 3),
        ("/dev/infiniband/ucm0", 231, 224),
        ("/dev/net/tap0", 240, 1),
        ("/dev/sda", 8, 0),
        ("/dev/nvme0n1", 259, 0),
    ]
    for file in wanted:
        tree.device(file.path, file.major, file.minor)
    for path, major, minor in others:
        tree.device(path, major, minor)

    facts = tree.read()

    assert list(facts.device_files) == wanted
    assert facts.errors == ()


def test_plain_files_links_and_folders_are_no_device_files(tree: SysfsTree, tmp_path: Path) -> None:
    dev = tmp_path / "host/dev"
    (dev / "nvidia0").write_text("left by a bind mount")
    (dev / "nvidia1").symlink_to("/dev/null")
    (dev / "nvidia2").mkdir()
    (dev / "dri/by-path").mkdir(parents=True)
    errors: list[str] = []

    assert device_files(str(tmp_path / "host"), stat_device, errors) == ()
    assert errors == []


def test_numbers_come_from_the_real_file() -> None:
    assert stat_device("/dev/null") == ("c", 1, 3)


def test_a_folder_that_links_to_itself_is_named(tree: SysfsTree, tmp_path: Path) -> None:
    tree.device("/dev/nvidia0", 195, 0)
    dri = tmp_path / "host/dev/dri"
    dri.symlink_to("dri")

    facts = tree.read()

    assert facts.errors == (f"{dri}: Too many levels of symbolic links",)
    assert [file.path for file in facts.device_files] == ["/dev/nvidia0"]


def test_a_root_without_dev_is_named(tmp_path: Path) -> None:
    errors: list[str] = []

    assert device_files(str(tmp_path), stat_device, errors) == ()
    assert errors == [f"{tmp_path}/dev: No such file or directory"]


def test_a_device_file_that_cannot_be_looked_at_is_named(tree: SysfsTree, tmp_path: Path) -> None:
    tree.device("/dev/nvidia0", 195, 0)
    tree.device("/dev/nvidia1", 195, 1)

    def refused(path: str) -> tuple[str, int, int] | None:
        if path.endswith("nvidia0"):
            raise PermissionError(13, "Permission denied", path)
        return "c", 195, 1

    errors: list[str] = []
    found = device_files(str(tmp_path / "host"), refused, errors)

    assert found == (DeviceFile("/dev/nvidia1", "c", 195, 1),)
    assert errors == [f"{tmp_path}/host/dev/nvidia0: Permission denied"]


def test_a_device_file_that_vanishes_is_no_error(tree: SysfsTree, tmp_path: Path) -> None:
    tree.device("/dev/nvidia0", 195, 0)

    def vanished(path: str) -> tuple[str, int, int] | None:
        raise FileNotFoundError(2, "No such file or directory", path)

    errors: list[str] = []

    assert device_files(str(tmp_path / "host"), vanished, errors) == ()
    assert errors == []
