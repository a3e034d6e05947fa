"""NVIDIA's user-space driver as container edits: mounts of its files, and the hooks that make them usable.

Pure. The container sees each file where the driver's installer would have put it, whatever the driver root on the host;
configuration files go to the folders that the loaders search. The hooks are subcommands of nvidia-cdi-hook (or of
``nvidia-ctk hook``). Subcommands that only newer releases know (``disable-device-node-modification``,
``update-application-profile``) are not used: older releases fail a container on a subcommand that they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from node.edits.model import ContainerEdits, HookEdit, MountEdit
from node.inventory.facts import DriverFiles

_FILE_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
"""Sockets and the folder of MPS pipes: clients must be able to write to them."""

_CONFIGURATION = r"(?:/usr/local/share|/usr/share|/etc)/(([^/]+)/.+)"
_UNDER_ETC = ("OpenCL", "vulkan")
"""First folders of configuration files that loaders search below /etc; all others are searched below /usr/share."""

_LIBCUDA = r"libcuda\.so\.\d+[\d.]*"
_LIBRARY = r"lib.+\.so(\.|$)"
_STAGE = "createContainer"


def driver_edits(files: DriverFiles, driver_root: str, hook: str | None) -> ContainerEdits:
    """Everything of the driver that a container needs; ``hook`` is the host path of the hook program, None for none."""
    root = driver_root.rstrip("/")
    mounts: dict[str, MountEdit] = {}
    for path in (*files.libraries, *files.binaries, *files.firmware):
        mounts.setdefault(path, MountEdit(f"{root}{path}", path, _FILE_OPTIONS))
    for path in files.configuration:
        target = _configuration_target(path)
        mounts.setdefault(target, MountEdit(f"{root}{path}", target, _FILE_OPTIONS))
    for path in files.sockets:
        mounts.setdefault(path, MountEdit(f"{root}{path}", path, _SOCKET_OPTIONS))
    cuda = _folders(path for path in files.libraries if re.fullmatch(_LIBCUDA, _name(path)))
    return ContainerEdits(
        env=(("NVIDIA_CTK_LIBCUDA_DIR", ":".join(cuda)),) if cuda else (),
        mounts=tuple(mounts.values()),
        hooks=_hooks(files, hook) if hook is not None else (),
    )


def symlink_hook(hook: str, links: Iterable[tuple[str, str]]) -> tuple[HookEdit, ...]:
    """One hook that makes links, given as target and path; none without links."""
    arguments = [argument for target, path in links for argument in ("--link", f"{target}::{path}")]
    return (_hook(hook, "create-symlinks", *arguments),) if arguments else ()


def _hooks(files: DriverFiles, hook: str) -> tuple[HookEdit, ...]:
    # enable-cuda-compat adds a folder to the loader's configuration, so it must come before update-ldcache.
    folders = _folders(path for path in files.libraries if re.match(_LIBRARY, _name(path)))
    return (
        *symlink_hook(hook, _library_links(files)),
        _hook(hook, "enable-cuda-compat", f"--host-driver-version={files.version}"),
        *_ldcache_hook(hook, folders),
    )


def _ldcache_hook(hook: str, folders: Iterable[str]) -> tuple[HookEdit, ...]:
    arguments = [argument for folder in folders for argument in ("--folder", folder)]
    return (_hook(hook, "update-ldcache", *arguments),) if arguments else ()


def _hook(program: str, command: str, *arguments: str) -> HookEdit:
    name = _name(program)
    fixed = (name, "hook", command) if name == "nvidia-ctk" else (name, command)
    return HookEdit(_STAGE, program, (*fixed, *arguments))


def _library_links(files: DriverFiles) -> list[tuple[str, str]]:
    """Links that programs expect and ldconfig does not make: it only makes those of the libraries' own sonames."""
    version = files.version
    links = []
    for path in files.libraries:
        folder, _, name = path.rpartition("/")
        target, link = {
            f"libcuda.so.{version}": ("libcuda.so.1", "libcuda.so"),
            f"libGLX_nvidia.so.{version}": (name, "libGLX_indirect.so.0"),
            f"libnvidia-opticalflow.so.{version}": ("libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
            f"libnvidia-allocator.so.{version}": ("../libnvidia-allocator.so.1", "gbm/nvidia-drm_gbm.so"),
            f"libnvidia-vulkan-producer.so.{version}": (name, "libnvidia-vulkan-producer.so"),
        }.get(name, ("", ""))
        if link:
            links.append((target, f"{folder}/{link}"))
    return links


def _configuration_target(path: str) -> str:
    found = re.fullmatch(_CONFIGURATION, path)
    if found is None:
        return path
    return f"/etc/{found[1]}" if found[2] in _UNDER_ETC else f"/usr/share/{found[1]}"


def _folders(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path.rpartition("/")[0] for path in paths))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
