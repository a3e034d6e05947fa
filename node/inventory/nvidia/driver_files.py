"""Files of NVIDIA's user-space driver, for containers that get the whole driver by CDI.

The driver's own files have its version in their names, which distinguishes them from the rest of a library folder; the
few without it are listed here. The search is done once per driver version and root: it lists folders with thousands of
files. Sockets come and go with their daemons and are looked for at every read. An empty result is not kept, so a driver
that is being installed is found at the next read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from node.inventory.facts import DriverFiles, NodeFacts

_LIBRARY_FOLDERS = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
)
_BELOW = ("", "/vdpau", "/nvidia/current", "/nvidia")
_LIBRARIES = [f"{folder}{below}" for folder in _LIBRARY_FOLDERS for below in _BELOW]
_OWN_VERSION = (
    "libnvidia-nvvm70.so.",
    "libnvidia-egl-gbm.so.",
    "libnvidia-egl-wayland.so.",
    "libnvidia-egl-xcb.so.",
    "libnvidia-egl-xlib.so.",
)
"""Libraries of the driver that have versions of their own."""

_BINARY_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin", "/opt/bin")
_BINARIES = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-persistenced",
    "nvidia-smi",
    "nvidia-xconfig",
)

_FIRMWARE_FOLDERS = ("/lib/firmware/updates", "/lib/firmware", "/usr/lib/firmware")
_SOCKETS = (
    "/run/nvidia-persistenced/socket",
    "/run/nvidia-fabricmanager/socket",
    "/tmp/nvidia-mps",  # noqa: S108 - the folder where the MPS daemon has its pipes unless told otherwise
)

_CONFIGURATION_FOLDERS = ("/etc", "/usr/local/share", "/usr/share")
_CONFIGURATION = (
    "OpenCL/vendors/nvidia.icd",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "glvnd/egl_vendor.d/10_nvidia.json",
    "nvidia/nvoptix.bin",
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
)

_Key = tuple[str, int, int]


class VersionedDriver(Protocol):
    """Knows the version of the driver."""

    @property
    def driver_version(self) -> str | None:
        """The last known version of the driver."""


class DriverFilesSource:
    """Source of ``NodeFacts.driver_files``.

    ``root``: the driver root (``/``, or ``/run/nvidia/driver`` of a driver container). While ``driver`` has no version,
    nothing is found.
    """

    name = "driver-files"

    def __init__(self, root: Path, driver: VersionedDriver) -> None:
        self._root = str(root).rstrip("/")
        self._driver = driver
        self._key: _Key | None = None
        self._facts: DriverFiles | None = None

    def read(self) -> NodeFacts:
        """The files, by their paths inside the root, each kind sorted."""
        version = self._driver.driver_version
        key = self._current_key(version)
        if version is None or key is None:
            return NodeFacts()
        if self._facts is None or key != self._key:
            self._facts = self._search(version)
            self._key = key if self._facts.libraries else None
        facts = self._facts
        sockets = tuple(path for path in _SOCKETS if self._exists(path))
        if sockets != facts.sockets:
            facts = self._facts = replace(facts, sockets=sockets)
        return NodeFacts(driver_files=facts)

    def close(self) -> None:
        """Forget what was found."""
        self._key = self._facts = None

    def _current_key(self, version: str | None) -> _Key | None:
        if not version:
            return None
        try:
            status = os.stat(self._root or "/")  # noqa: PTH116 - asked at every scan
        except OSError:
            return None
        return version, status.st_dev, status.st_ino

    def _search(self, version: str) -> DriverFiles:
        found = [path for folder in self._real_folders(_LIBRARIES) for path in self._libraries(folder, version)]
        return DriverFiles(
            version=version,
            libraries=tuple(sorted(found)),
            binaries=tuple(sorted(self._binaries())),
            firmware=tuple(sorted(self._firmware(version))),
            configuration=tuple(
                sorted(
                    path
                    for folder in _CONFIGURATION_FOLDERS
                    for path in (f"{folder}/{name}" for name in _CONFIGURATION)
                    if self._exists(path)
                )
            ),
        )

    def _libraries(self, folder: str, version: str) -> Iterable[str]:
        ending = f".so.{version}"
        for entry in self._entries(folder):
            ours = entry.name.endswith(ending) or entry.name.startswith(_OWN_VERSION)
            # In the container, links such as libcuda.so.1 are made from the libraries' own names.
            if ours and entry.is_file(follow_symlinks=False):
                yield f"{folder}/{entry.name}"

    def _binaries(self) -> list[str]:
        found: dict[str, str] = {}
        for folder in self._real_folders(_BINARY_FOLDERS):
            for name in _BINARIES:
                path = f"{folder}/{name}"
                if name not in found and os.path.isfile(f"{self._root}{path}"):  # noqa: PTH113
                    found[name] = path
        return list(found.values())

    def _firmware(self, version: str) -> list[str]:
        found: dict[str, str] = {}
        folders = [f"{folder}/nvidia/{version}" for folder in _FIRMWARE_FOLDERS]
        for folder in self._real_folders(folders):
            for entry in self._entries(folder):
                if entry.name.startswith("gsp") and entry.name.endswith(".bin"):
                    # The kernel takes the first folder that has the file.
                    found.setdefault(entry.name, f"{folder}/{entry.name}")
        return list(found.values())

    def _real_folders(self, folders: Iterable[str]) -> list[str]:
        """Those that exist inside the root, each real folder once: /lib64 is a link to /usr/lib64 on most systems."""
        root = os.path.realpath(self._root or "/")
        seen = set()
        kept = []
        for folder in folders:
            real = os.path.realpath(f"{self._root}{folder}")
            # An absolute link inside a driver root leads out of it, to the agent's own files.
            inside = root == "/" or real.startswith(f"{root}/")
            if inside and real not in seen and os.path.isdir(real):  # noqa: PTH112
                seen.add(real)
                kept.append(folder)
        return kept

    def _exists(self, path: str) -> bool:
        return os.path.exists(f"{self._root}{path}")  # noqa: PTH110

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(f"{self._root}{folder}") as found:
                return list(found)
        except OSError:
            # A folder that cannot be listed has no files; whoever needs them sees that none were found.
            return []
