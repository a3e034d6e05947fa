"""What amdgpu and KFD show, read from real directory trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.amd.facts import AmdGpu, AmdPartition, KfdLink, KfdNode
from node.inventory.amd.vendor import amd_gpus, amd_partitions, kfd_nodes
from node.inventory.facts import PciFunction

ADDRESS = "0000:0c:00.0"
GPU = PciFunction(ADDRESS, f"pci0000:00/{ADDRESS}", "0x120000", "0x1002", "0x74a1", driver="amdgpu")
PROPERTIES = """cpu_cores_count 0
simd_count 1216
gfx_target_version 90402
location_id 3072
domain 0
drm_render_minor 128
unique_id 11651590505119483672
num_xcc 8
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    folder = tmp_path / "class/kfd/kfd/topology/nodes"
    write(folder / "0/gpu_id", "0\n")
    write(folder / "2/gpu_id", "28851\n")
    write(folder / "2/properties", PROPERTIES)
    write(folder / "2/io_links/0/properties", "type 2\nnode_from 2\nnode_to 0\nweight 20\n")
    write(folder / "2/io_links/1/properties", "type 11\nnode_from 2\nnode_to 3\nweight 15\n")
    return folder


def test_files_of_the_driver_are_read_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "bus/pci/devices" / ADDRESS
    write(folder / "product_name", "AMD Instinct MI300X OAM\n")
    write(folder / "unique_id", "a1b2c3d4e5f60718\n")
    write(folder / "serial_number", "\n")
    write(folder / "mem_info_vram_total", "206141652992\n")
    write(folder / "current_compute_partition", "CPX\n")
    errors: list[str] = []
    assert amd_gpus(str(tmp_path), (GPU,), errors) == (
        AmdGpu(
            ADDRESS,
            "AMD Instinct MI300X OAM",
            "a1b2c3d4e5f60718",
            vram_bytes=206141652992,
            compute_partition="CPX",
        ),
    )
    assert errors == []


def test_functions_of_others_and_without_amdgpu_are_not_asked(tmp_path: Path) -> None:
    others = (PciFunction(ADDRESS, "", "0x030200", "0x10de", "0x2330", driver="nvidia"),)
    unbound = (PciFunction(ADDRESS, "", "0x120000", "0x1002", "0x74a1", driver="vfio-pci"),)
    assert amd_gpus(str(tmp_path), others + unbound, []) == ()


@pytest.mark.parametrize("size", ["lots", "-1", "9" * 20])
def test_a_size_that_cannot_be_is_not_known(tmp_path: Path, size: str) -> None:
    write(tmp_path / "bus/pci/devices" / ADDRESS / "mem_info_vram_total", size)
    assert amd_gpus(str(tmp_path), (GPU,), []) == (AmdGpu(ADDRESS),)


def test_an_unreadable_file_is_one_line_and_costs_only_itself(tmp_path: Path) -> None:
    folder = tmp_path / "bus/pci/devices" / ADDRESS
    (folder / "product_name").mkdir(parents=True)
    write(folder / "vbios_version", "113-M3000100-103\n")
    errors: list[str] = []
    assert amd_gpus(str(tmp_path), (GPU,), errors) == (AmdGpu(ADDRESS, vbios_version="113-M3000100-103"),)
    assert errors == [f"{folder}/product_name: Is a directory"]


def test_further_partitions_are_platform_devices(tmp_path: Path) -> None:
    for name in (
        "amdgpu_xcp_1/drm/renderD129",
        "amdgpu_xcp_1/drm/card2",
        "amdgpu_xcp_1/drm/by-path",
        "other/drm/card9",
    ):
        (tmp_path / "devices/platform" / name).mkdir(parents=True)
    assert amd_partitions(str(tmp_path), []) == (AmdPartition("amdgpu_xcp_1", ("card2", "renderD129")),)
    assert amd_partitions(str(tmp_path / "nothing"), []) == ()


def test_nodes_of_kfd_are_gpus_with_their_links(tmp_path: Path, nodes: Path) -> None:
    errors: list[str] = []
    assert kfd_nodes(str(tmp_path), errors) == (
        KfdNode(2, 28851, 0, 3072, 128, 90402, 11651590505119483672, 1216, 8, (KfdLink(0, 2, 20), KfdLink(3, 11, 15))),
    )
    assert errors == []


def test_a_node_without_place_is_one_line(tmp_path: Path, nodes: Path) -> None:
    write(nodes / "2/properties", "simd_count 4\n")
    errors: list[str] = []
    assert kfd_nodes(str(tmp_path), errors) == ()
    assert errors == [f"{nodes}/2/properties: neither location_id nor drm_render_minor may be missing"]


@pytest.mark.parametrize("garbage", ["", "\x00\xff", "-1", "many words here", "12 13"])
def test_garbage_is_no_node_and_no_error(tmp_path: Path, nodes: Path, garbage: str) -> None:
    write(nodes / "2/gpu_id", garbage)
    errors: list[str] = []
    assert kfd_nodes(str(tmp_path), errors) == ()
    assert errors == []


def test_a_kernel_without_kfd_has_no_nodes(tmp_path: Path) -> None:
    errors: list[str] = []
    assert kfd_nodes(str(tmp_path), errors) == ()
    assert errors == []
