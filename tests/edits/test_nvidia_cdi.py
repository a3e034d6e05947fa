"""What our own CDI specs say of a device, of all devices together, and of the driver."""

from __future__ import annotations

import pytest

from node.edits.model import ContainerEdits, HookEdit, MountEdit, NodeEdit
from node.edits.nvidia import undescribed
from node.edits.nvidia_cdi import device_edits, node_edits, shared_edits
from node.edits.options import CdiMode, EditOptions
from node.inventory.facts import DriverFiles
from node.inventory.model import NodeRole
from tests.edits.making import CHANNELS, gpu, lacking, mig, without

NODES = EditOptions()
FULL = EditOptions(cdi_mode=CdiMode.FULL, hook="/usr/bin/nvidia-cdi-hook")
FILES = DriverFiles(
    "570.172.08",
    libraries=("/usr/lib64/libcuda.so.570.172.08", "/usr/lib64/vdpau/libvdpau_nvidia.so.570.172.08"),
    binaries=("/usr/bin/nvidia-smi",),
    firmware=("/lib/firmware/nvidia/570.172.08/gsp_ga10x.bin",),
    sockets=("/run/nvidia-persistenced/socket",),
    configuration=("/etc/OpenCL/vendors/nvidia.icd",),
)


def nodes(*paths: str) -> tuple[NodeEdit, ...]:
    return tuple(NodeEdit(path, path) for path in paths)


def test_mode_nodes_gives_a_gpu_its_node_and_nothing_else() -> None:
    assert device_edits(gpu(0), NODES) == ContainerEdits(nodes=nodes("/dev/nvidia1"))


def test_mode_full_adds_the_graphics_nodes_that_are_there() -> None:
    one = lacking(gpu(0), "/dev/dri/card2")
    assert device_edits(one, FULL) == ContainerEdits(nodes=nodes("/dev/nvidia1", "/dev/dri/renderD128"))


def test_mig_device_gets_the_node_of_its_gpu_and_both_capabilities() -> None:
    caps = ("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
    assert device_edits(mig(0), NODES) == ContainerEdits(nodes=nodes("/dev/nvidia1", *caps))


def test_all_devices_share_control_nodes_that_are_there_and_are_void_for_nvidias_runtime() -> None:
    assert shared_edits([gpu(0), gpu(1)], NODES, FILES) == ContainerEdits(
        env=(("NVIDIA_VISIBLE_DEVICES", "void"),),
        nodes=nodes("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"),
    )


def test_mode_full_without_driver_files_is_mode_nodes() -> None:
    assert shared_edits([gpu(0)], FULL, None) == shared_edits([gpu(0)], NODES, None)


def test_mode_full_mounts_the_driver_from_its_root_and_only_sockets_can_be_written() -> None:
    options = EditOptions(cdi_mode=CdiMode.FULL, hook="/hook", driver_root="/run/nvidia/driver/")
    read_only = ("ro", "nosuid", "nodev", "rbind", "rprivate")
    files = (*FILES.libraries, *FILES.binaries, *FILES.firmware, *FILES.configuration)
    assert shared_edits([gpu(0)], options, FILES).mounts == (
        *(MountEdit(f"/run/nvidia/driver{path}", path, read_only) for path in files),
        MountEdit(
            "/run/nvidia/driver/run/nvidia-persistenced/socket",
            "/run/nvidia-persistenced/socket",
            ("nosuid", "nodev", "rbind", "rprivate", "noexec"),
        ),
    )


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook",)),
        ("/usr/local/nvidia/toolkit/nvidia-ctk", ("nvidia-ctk", "hook")),
    ],
)
def test_mode_full_has_the_hooks_of_the_program_word_for_word(program: str, words: tuple[str, ...]) -> None:
    options = EditOptions(cdi_mode=CdiMode.FULL, hook=program)
    assert shared_edits([gpu(0)], options, FILES).hooks == tuple(
        HookEdit("createContainer", program, (*words, *arguments))
        for arguments in (
            ("create-symlinks", "--link", "libcuda.so.1::/usr/lib64/libcuda.so"),
            ("enable-cuda-compat", "--host-driver-version=570.172.08"),
            ("update-ldcache", "--folder", "/usr/lib64", "--folder", "/usr/lib64/vdpau"),
        )
    )


def test_driver_without_libraries_has_no_links_and_no_library_cache() -> None:
    (hook,) = shared_edits([gpu(0)], FULL, DriverFiles("1.2.3", binaries=("/usr/bin/nvidia-smi",))).hooks
    assert hook.arguments == ("nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=1.2.3")


def test_without_a_hook_program_there_are_mounts_and_no_hooks() -> None:
    edits = shared_edits([gpu(0)], EditOptions(cdi_mode=CdiMode.FULL), FILES)
    assert edits.mounts
    assert edits.hooks == ()


def test_node_on_another_dev_root_has_a_host_path_of_its_own() -> None:
    path = "/dev/nvidia-caps-imex-channels/channel0"
    assert node_edits(CHANNELS[:1], EditOptions(dev_root="/host")).nodes == (NodeEdit(path, f"/host{path}"),)


def test_device_with_all_its_nodes_can_be_described() -> None:
    assert undescribed(gpu(0)) == ""
    assert undescribed(mig(0)) == ""


def test_device_that_cannot_be_described_says_why() -> None:
    caps = ("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
    assert undescribed(without(gpu(0), NodeRole.DEVICE)) == "it has no device node"
    assert undescribed(without(mig(0), NodeRole.CAPABILITY)) == "the capabilities of its MIG instance are not known"
    assert undescribed(lacking(mig(0), *caps)) == f"its device nodes are missing: {', '.join(caps)}"
    assert undescribed(lacking(gpu(0), "/dev/nvidia1")) == "its device nodes are missing: /dev/nvidia1"


def test_one_capability_of_two_is_not_enough() -> None:
    half = mig(0)
    half = mig(0, nodes=tuple(node for node in half.nodes if not node.path.endswith("cap22")))
    assert undescribed(half) == "the capabilities of its MIG instance are not known"
