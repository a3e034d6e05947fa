"""The driver's files as edits: mounts from its root, the places of configuration files, links and hooks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from node.edits.model import ContainerEdits, HookEdit, MountEdit
from node.edits.nvidia_driver import driver_edits, symlink_hook
from node.inventory.facts import DriverFiles

VERSION = "570.172.08"
HOOK = "/usr/bin/nvidia-cdi-hook"
READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
FILES = DriverFiles(
    VERSION,
    libraries=(f"/usr/lib64/libcuda.so.{VERSION}", f"/usr/lib64/vdpau/libvdpau_nvidia.so.{VERSION}"),
    binaries=("/usr/bin/nvidia-smi",),
    firmware=(f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",),
    sockets=("/run/nvidia-persistenced/socket",),
    configuration=("/etc/OpenCL/vendors/nvidia.icd",),
)


def places(*configuration: str) -> dict[str, str]:
    """Where configuration files come from, by where the container sees them."""
    mounts = driver_edits(DriverFiles(VERSION, configuration=configuration), "/driver", None).mounts
    assert all(mount.options == READ_ONLY for mount in mounts)
    return {mount.container_path: mount.host_path for mount in mounts}


def commands(hooks: Iterable[HookEdit]) -> list[str]:
    return [hook.arguments[1] for hook in hooks]


@pytest.mark.parametrize("root", ["/run/nvidia/driver", "/run/nvidia/driver/"])
def test_files_come_from_the_driver_root_and_only_sockets_can_be_written(root: str) -> None:
    files = (*FILES.libraries, *FILES.binaries, *FILES.firmware, *FILES.configuration)
    assert driver_edits(FILES, root, None).mounts == (
        *(MountEdit(f"/run/nvidia/driver{path}", path, READ_ONLY) for path in files),
        MountEdit(
            "/run/nvidia/driver/run/nvidia-persistenced/socket",
            "/run/nvidia-persistenced/socket",
            ("nosuid", "nodev", "rbind", "rprivate", "noexec"),
        ),
    )


def test_root_of_the_host_leaves_paths_as_they_are() -> None:
    assert all(mount.host_path == mount.container_path for mount in driver_edits(FILES, "/", None).mounts)


@pytest.mark.parametrize("folder", ["/etc", "/usr/share", "/usr/local/share"])
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("OpenCL/vendors/nvidia.icd", "/etc"),
        ("vulkan/icd.d/nvidia_icd.json", "/etc"),
        ("vulkan/implicit_layer.d/nvidia_layers.json", "/etc"),
        ("glvnd/egl_vendor.d/10_nvidia.json", "/usr/share"),
        ("egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share"),
        ("X11/xorg.conf.d/10-nvidia.conf", "/usr/share"),
        ("nvidia/nvoptix.bin", "/usr/share"),
    ],
)
def test_configuration_files_go_where_loaders_search_them(folder: str, name: str, target: str) -> None:
    assert places(f"{folder}/{name}") == {f"{target}/{name}": f"/driver{folder}/{name}"}


def test_first_of_two_configuration_files_for_one_place_is_taken() -> None:
    name = "vulkan/icd.d/nvidia_icd.json"
    assert places(f"/etc/{name}", f"/usr/share/{name}") == {f"/etc/{name}": f"/driver/etc/{name}"}


def test_configuration_file_in_another_folder_stays_there() -> None:
    assert places("/opt/nvidia/nvoptix.bin") == {"/opt/nvidia/nvoptix.bin": "/driver/opt/nvidia/nvoptix.bin"}


def test_container_is_told_the_folders_of_libcuda_each_once() -> None:
    names = (
        f"/usr/lib/libcuda.so.{VERSION}",
        f"/usr/lib/libcudadebugger.so.{VERSION}",
        f"/usr/lib64/libcuda.so.{VERSION}",
        f"/usr/lib64/vdpau/libvdpau_nvidia.so.{VERSION}",
    )
    assert driver_edits(DriverFiles(VERSION, libraries=names), "/run/nvidia/driver", None).env == (
        ("NVIDIA_CTK_LIBCUDA_DIR", "/usr/lib:/usr/lib64"),
    )
    assert driver_edits(DriverFiles(VERSION, libraries=names[1:2]), "/", None).env == ()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (HOOK, ("nvidia-cdi-hook",)),
        ("/usr/local/nvidia/toolkit/nvidia-ctk", ("nvidia-ctk", "hook")),
    ],
)
def test_hooks_are_those_of_the_program_word_for_word(program: str, words: tuple[str, ...]) -> None:
    assert driver_edits(FILES, "/run/nvidia/driver", program).hooks == tuple(
        HookEdit("createContainer", program, (*words, *arguments))
        for arguments in (
            ("create-symlinks", "--link", "libcuda.so.1::/usr/lib64/libcuda.so"),
            ("enable-cuda-compat", f"--host-driver-version={VERSION}"),
            ("update-ldcache", "--folder", "/usr/lib64", "--folder", "/usr/lib64/vdpau"),
        )
    )


@pytest.mark.parametrize(
    ("library", "link"),
    [
        (f"libcuda.so.{VERSION}", "libcuda.so.1::/lib/libcuda.so"),
        (f"libGLX_nvidia.so.{VERSION}", f"libGLX_nvidia.so.{VERSION}::/lib/libGLX_indirect.so.0"),
        (f"libnvidia-opticalflow.so.{VERSION}", "libnvidia-opticalflow.so.1::/lib/libnvidia-opticalflow.so"),
        (f"libnvidia-allocator.so.{VERSION}", "../libnvidia-allocator.so.1::/lib/gbm/nvidia-drm_gbm.so"),
        (
            f"libnvidia-vulkan-producer.so.{VERSION}",
            f"libnvidia-vulkan-producer.so.{VERSION}::/lib/libnvidia-vulkan-producer.so",
        ),
    ],
)
def test_links_that_ldconfig_does_not_make_are_made(library: str, link: str) -> None:
    hooks = driver_edits(DriverFiles(VERSION, libraries=(f"/lib/{library}",)), "/", HOOK).hooks
    assert hooks[0].arguments == ("nvidia-cdi-hook", "create-symlinks", "--link", link)


def test_library_of_another_version_or_without_a_special_link_gets_none() -> None:
    for name in ("libcuda.so.1.2.3", f"libnvidia-ml.so.{VERSION}"):
        hooks = driver_edits(DriverFiles(VERSION, libraries=(f"/lib/{name}",)), "/", HOOK).hooks
        assert commands(hooks) == ["enable-cuda-compat", "update-ldcache"]


def test_driver_without_libraries_has_no_links_and_no_library_cache() -> None:
    edits = driver_edits(DriverFiles("1.2.3", binaries=("/usr/bin/nvidia-smi",)), "/", HOOK)
    (hook,) = edits.hooks
    assert hook.arguments == ("nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=1.2.3")
    assert edits.env == ()


def test_without_a_hook_program_there_are_mounts_and_no_hooks() -> None:
    edits = driver_edits(FILES, "/", None)
    assert edits.mounts
    assert edits.env == (("NVIDIA_CTK_LIBCUDA_DIR", "/usr/lib64"),)
    assert edits.hooks == ()


def test_no_links_are_no_hook_and_several_are_one() -> None:
    assert symlink_hook(HOOK, []) == ()
    assert symlink_hook(HOOK, [("a", "/b"), ("c", "/d")]) == (
        HookEdit("createContainer", HOOK, ("nvidia-cdi-hook", "create-symlinks", "--link", "a::/b", "--link", "c::/d")),
    )


def test_no_file_is_mounted_twice() -> None:
    twice = DriverFiles(VERSION, libraries=FILES.libraries * 2, sockets=FILES.sockets * 2)
    paths = [mount.container_path for mount in driver_edits(twice, "/", HOOK).mounts]
    assert len(set(paths)) == len(paths) == 3


def test_driver_edits_hold_nothing_of_devices() -> None:
    edits = driver_edits(FILES, "/", HOOK)
    assert edits == ContainerEdits(env=edits.env, mounts=edits.mounts, hooks=edits.hooks)
