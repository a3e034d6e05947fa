from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from node.inventory.facts import DriverFiles, NodeFacts
from node.inventory.nvidia.driver_files import DriverFilesSource
from node.inventory.source import Source

VERSION = "570.172.08"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    for file in (
        f"{LIBRARIES}/libcuda.so.{VERSION}",
        f"{LIBRARIES}/libnvidia-ml.so.{VERSION}",
        f"{LIBRARIES}/vdpau/libvdpau_nvidia.so.{VERSION}",
        f"{LIBRARIES}/libnvidia-nvvm70.so.4",
        f"{LIBRARIES}/libnvidia-egl-gbm.so.1.1.2",
        f"{LIBRARIES}/libcuda.so.550.90.07",
        f"{LIBRARIES}/libc.so.6",
        "/usr/bin/nvidia-smi",
        "/usr/bin/nvidia-imex",
        "/usr/bin/bash",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
        f"/lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin",
        f"/lib/firmware/nvidia/{VERSION}/notes",
        "/run/nvidia-persistenced/socket",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/etc/OpenCL/vendors/nvidia.icd",
        "/etc/passwd",
    ):
        add(path, file)
    (path / f"{LIBRARIES}/libcuda.so.1".lstrip("/")).symlink_to(f"libcuda.so.{VERSION}")
    return path


def add(root: Path, file: str) -> None:
    path = root / file.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@dataclass
class _Driver:
    driver_version: str | None = VERSION


def read(root: Path, version: str | None = VERSION) -> DriverFiles:
    facts = DriverFilesSource(root, _Driver(version)).read().driver_files
    assert facts is not None
    return facts


def test_the_drivers_files_are_found_by_version_and_by_name(root: Path) -> None:
    assert read(root) == DriverFiles(
        version=VERSION,
        libraries=(
            f"{LIBRARIES}/libcuda.so.{VERSION}",
            f"{LIBRARIES}/libnvidia-egl-gbm.so.1.1.2",
            f"{LIBRARIES}/libnvidia-ml.so.{VERSION}",
            f"{LIBRARIES}/libnvidia-nvvm70.so.4",
            f"{LIBRARIES}/vdpau/libvdpau_nvidia.so.{VERSION}",
        ),
        binaries=("/usr/bin/nvidia-imex", "/usr/bin/nvidia-smi"),
        firmware=(
            f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
            f"/lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin",
        ),
        sockets=("/run/nvidia-persistenced/socket",),
        configuration=("/etc/OpenCL/vendors/nvidia.icd", "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"),
    )


def test_without_a_driver_there_are_no_files(root: Path) -> None:
    assert DriverFilesSource(root, _Driver(None)).read() == NodeFacts()


def test_without_the_root_there_are_no_files(tmp_path: Path) -> None:
    assert DriverFilesSource(tmp_path / "absent", _Driver()).read() == NodeFacts()


def test_a_library_folder_under_two_names_counts_once(root: Path) -> None:
    (root / "lib/x86_64-linux-gnu").symlink_to("../usr/lib/x86_64-linux-gnu")

    assert read(root) == DriverFilesSource(root, _Driver()).read().driver_files
    assert sum("libcuda.so" in path for path in read(root).libraries) == 1


def test_a_link_out_of_the_root_is_not_followed(root: Path, tmp_path: Path) -> None:
    add(tmp_path, f"/outside/libcuda.so.{VERSION}")
    (root / "lib64").symlink_to(tmp_path / "outside")

    assert all(path.startswith(LIBRARIES) for path in read(root).libraries)


def test_the_search_is_repeated_for_another_version_only(root: Path) -> None:
    driver = _Driver()
    source = DriverFilesSource(root, driver)
    first = source.read()
    add(root, f"{LIBRARIES}/libnvidia-new.so.{VERSION}")
    assert source.read() is not None
    assert source.read() == first

    driver.driver_version = "550.90.07"
    facts = source.read().driver_files

    assert facts is not None
    assert f"{LIBRARIES}/libcuda.so.550.90.07" in facts.libraries
    assert f"{LIBRARIES}/libcuda.so.{VERSION}" not in facts.libraries


def test_the_search_is_repeated_for_another_root(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "driver"
    link.symlink_to(root)
    source = DriverFilesSource(link, _Driver())
    assert source.read().driver_files == read(root)

    add(tmp_path, f"/other{LIBRARIES}/libcuda.so.{VERSION}")
    link.unlink()
    link.symlink_to(tmp_path / "other")

    facts = source.read().driver_files
    assert facts is not None
    assert facts.libraries == (f"{LIBRARIES}/libcuda.so.{VERSION}",)
    assert facts.binaries == ()


def test_a_driver_that_is_being_installed_is_found_at_the_next_read(tmp_path: Path) -> None:
    source: Source = DriverFilesSource(tmp_path, _Driver())
    assert source.read().driver_files == DriverFiles(VERSION)

    add(tmp_path, f"{LIBRARIES}/libcuda.so.{VERSION}")

    facts = source.read().driver_files
    assert facts is not None
    assert facts.libraries == (f"{LIBRARIES}/libcuda.so.{VERSION}",)


def test_sockets_that_come_and_go_are_seen(root: Path) -> None:
    source = DriverFilesSource(root, _Driver())
    source.read()
    add(root, "/run/nvidia-fabricmanager/socket")
    facts = source.read().driver_files
    assert facts is not None
    assert facts.sockets == ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")

    (root / "run/nvidia-persistenced/socket").unlink()

    facts = source.read().driver_files
    assert facts is not None
    assert facts.sockets == ("/run/nvidia-fabricmanager/socket",)
    source.close()
    assert source.read().driver_files == facts


def test_the_machines_own_root_can_be_searched() -> None:
    facts = read(Path("/"))

    assert facts.version == VERSION
