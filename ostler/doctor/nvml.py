"""Checks of NVIDIA's management library (NVML).

The library is not opened while the driver is quiesced: it would hold what is to be replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from node.inventory.facts import PciFunction
from node.inventory.nvidia.health import DRIVER_UNREACHABLE
from node.inventory.nvidia.nvml_library import FOLDERS, LIBRARY_NOT_FOUND, LIBRARY_NOT_LOADABLE, SONAME
from ostler.doctor.check import Check
from ostler.doctor.node import NodeView
from ostler.doctor.nvidia_driver import NO_GPU, RECORDED, VENDOR
from ostler.doctor.nvml_answer import HANGS, TIMEOUT, NvmlAnswer
from ostler.doctor.verdict import Finding, failed, ok, several, skipped, warning

_VERSION = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+)+)$")
_MISMATCH = "LIB_RM_VERSION_MISMATCH"


def judge_answer(answer: NvmlAnswer, functions: Sequence[PciFunction]) -> Finding:
    """Whether NVML can be used."""
    bound = [gpu for gpu in functions if gpu.driver == "nvidia"]
    if answer.status == "ok":
        if answer.lost:
            fix = "see 'dmesg' for Xid messages; reset the GPU or restart the node"
            return failed(f"{several(list(answer.lost), 3)}", fix)
        if answer.gpus < len(bound):
            fix = "see 'dmesg' for the GPU that the driver did not initialise"
            return warning(f"NVML has {answer.gpus} GPUs, {len(bound)} are bound to its driver", fix)
        return ok(f"driver {answer.driver_version} answers for {answer.gpus} GPUs")
    if not functions and answer.status in (
        LIBRARY_NOT_FOUND,
        LIBRARY_NOT_LOADABLE,
        "DRIVER_NOT_LOADED",
        DRIVER_UNREACHABLE,
    ):
        return skipped(NO_GPU)
    return failed(answer.detail or answer.status, _FIXES.get(answer.status, _OTHERWISE))


_FIXES = {
    HANGS: "see 'dmesg' for Xid messages; restart the node, as a driver that hangs does not come back",
    LIBRARY_NOT_FOUND: "install the driver, or set nvidia.driverRoot (with driver containers /run/nvidia/driver)",
    LIBRARY_NOT_LOADABLE: "install the driver for this machine's architecture and C library",
    "DRIVER_NOT_LOADED": "run 'modprobe nvidia'",
    DRIVER_UNREACHABLE: "make the device files ('nvidia-modprobe -c0 -u'); in a pod make them visible",
    _MISMATCH: "see the check nvidia-versions",
    "NO_PERMISSION": "run it as root, and let it open /dev/nvidiactl",
}
_OTHERWISE = "run 'nvidia-smi' and see 'dmesg'; install the driver again if both fail"


def judge_versions(module: str | None, library: str | None, status: str) -> Finding:
    """Whether the library belongs to the loaded module; each None where it is not known."""
    fix = "unload the old module ('ostler quiesce', rmmod) and load the new one, or restart the node"
    if module is None:
        return skipped("the kernel module is not loaded")
    if library is not None and library != module:
        return failed(f"the library is {library}, the loaded kernel module {module}", fix)
    if status == _MISMATCH:
        return failed(f"NVML says that it does not belong to the loaded kernel module {module}", fix)
    if library is None:
        return skipped("the library's version cannot be told from its file")
    return ok(f"library and module are {module}")


def library_version(driver_root: Path, library: Path | None) -> str | None:
    """The version in the name of the library's file; None where there is no file or no version in its name."""
    candidates = [library] if library is not None else [driver_root / folder / SONAME for folder in FOLDERS]
    for candidate in candidates:
        if os.path.isfile(candidate):  # noqa: PTH113 - False for what this user may not see
            match = _VERSION.search(candidate.resolve().name)
            return match[1] if match else None
    return None


def _quiet(view: NodeView) -> Finding | None:
    """Why NVML is not asked; None when it is."""
    if view.recorded:
        return skipped(RECORDED)
    reason = view.quiesced
    return None if reason is None else skipped(f"quiesced ({reason}): the driver is left alone")


def _answer(view: NodeView) -> Finding:
    return _quiet(view) or judge_answer(view.nvml(), view.gpu_functions(VENDOR))


def _versions(view: NodeView) -> Finding:
    quiet = _quiet(view)
    if quiet is not None:
        return quiet
    sysfs, nvidia = view.facts().sysfs, view.settings.nvidia
    module = sysfs.nvidia_module_version if sysfs is not None else None
    status = view.nvml().status if module is not None else ""
    return judge_versions(module, library_version(nvidia.driver_root_mount, nvidia.library), status)


CHECKS = (
    Check(
        "nvml",
        "NVML can be loaded and answers for every GPU (asked in a process of its own, which may hang)",
        "Install the driver, or set `nvidia.driverRoot`; see `dmesg` for Xid messages",
        _answer,
        deadline=TIMEOUT + 5,
    ),
    Check(
        "nvidia-versions",
        "The library and the loaded kernel module have the same version",
        "Unload the old module and load the new one, or restart the node",
        _versions,
        deadline=TIMEOUT + 5,
    ),
)
