"""Checks of NVIDIA's kernel driver (loaded, bound to its GPUs, not displaced by nouveau) and of its library NVML.

The library is not opened while the driver is quiesced, because it would hold the driver that should be replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from node.inventory.facts import PciFunction
from node.inventory.nvidia.health import DRIVER_UNREACHABLE
from node.inventory.nvidia.nvml_library import FOLDERS, LIBRARY_NOT_FOUND, LIBRARY_NOT_LOADABLE, SONAME
from node.inventory.nvidia.vendor import NVIDIA
from ostler.doctor.check import Check, CheckFinding, failed, joined, ok, several, skipped, warning
from ostler.doctor.node import NodeView
from ostler.doctor.nvml_process import NVML_HANGS, NVML_TIMEOUT, NvmlAnswer

_VERSION = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+)+)$")
_MISMATCH = "LIB_RM_VERSION_MISMATCH"


def judge_answer(answer: NvmlAnswer, functions: Sequence[PciFunction]) -> CheckFinding:
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
    NVML_HANGS: "see 'dmesg' for Xid messages; restart the node, because a driver that hangs does not recover",
    LIBRARY_NOT_FOUND: "install the driver, or set nvidia.driverRoot (with driver containers /run/nvidia/driver)",
    LIBRARY_NOT_LOADABLE: "install the driver for this machine's architecture and C library",
    "DRIVER_NOT_LOADED": "run 'modprobe nvidia'",
    DRIVER_UNREACHABLE: "make the device files ('nvidia-modprobe -c0 -u'); in a pod make them visible",
    _MISMATCH: "see the check nvidia-versions",
    "NO_PERMISSION": "run it as root, and let it open /dev/nvidiactl",
}
_OTHERWISE = "run 'nvidia-smi' and see 'dmesg'; install the driver again if both fail"


def judge_versions(module: str | None, library: str | None, status: str) -> CheckFinding:
    """Whether the library belongs to the loaded module; each is None if unknown."""
    fix = "unload the old module ('ostler quiesce', rmmod) and load the new one, or restart the node"
    if module is None:
        return skipped("the kernel module is not loaded")
    if library is not None and library != module:
        return failed(f"the library is {library}, the loaded kernel module {module}", fix)
    if status == _MISMATCH:
        return failed(f"NVML says that it does not belong to the loaded kernel module {module}", fix)
    if library is None:
        return skipped("the name of the library's file has no version")
    return ok(f"library and module are {module}")


def library_version(driver_root: Path, library: Path | None) -> str | None:
    """The version in the name of the library's file; None if there is no file, or no version in its name."""
    candidates = [library] if library is not None else [driver_root / folder / SONAME for folder in FOLDERS]
    for candidate in candidates:
        if os.path.isfile(candidate):  # noqa: PTH113 - False for what this user may not see
            match = _VERSION.search(candidate.resolve().name)
            return match[1] if match else None
    return None


def quiet(view: NodeView) -> CheckFinding | None:
    """Skips a check while the driver is quiesced, because NVML is not called then; else None."""
    reason = view.quiesced
    return None if reason is None else skipped(f"quiesced ({reason}): ostler does not use the driver")


def _versions(view: NodeView) -> CheckFinding:
    if (away := quiet(view)) is not None:
        return away
    sysfs, nvidia = view.facts().sysfs, view.settings.nvidia
    module = sysfs.nvidia_module_version if sysfs is not None else None
    status = view.nvml().status if module is not None else ""
    return judge_versions(module, library_version(nvidia.driver_root_mount, nvidia.library), status)


VENDOR = NVIDIA.pci_vendor
NO_GPU = "no NVIDIA GPU on the PCI bus"
_OURS = ("nvidia", "vfio-pci", "nvgrace_gpu_vfio_pci")


def judge_module(gpus: Sequence[PciFunction], version: str | None, reason: str | None) -> CheckFinding:
    """Whether the kernel module is loaded; ``version`` is its own, ``reason`` why the driver is quiesced."""
    if version is not None:
        return ok(f"nvidia {version} is loaded")
    if not gpus:
        return skipped(NO_GPU)
    if reason is not None:
        return skipped(f"quiesced ({reason}): the driver may be away")
    if all(gpu.driver == "vfio-pci" for gpu in gpus):
        return skipped("every NVIDIA GPU is bound to vfio-pci")
    return failed(
        f"{len(gpus)} NVIDIA GPUs are on the PCI bus, but the kernel module nvidia is not loaded",
        "install the driver and run 'modprobe nvidia'; if a container installs the driver, wait for it",
    )


def judge_binding(gpus: Sequence[PciFunction]) -> CheckFinding:
    """Whether every GPU has a driver that can give it to containers."""
    if not gpus:
        return skipped(NO_GPU)
    findings = [
        failed(
            f"{gpu.address} is bound to no driver",
            f"bind it: echo {gpu.address} > /sys/bus/pci/drivers_probe; else see 'dmesg'",
        )
        if gpu.driver is None
        else failed(f"{gpu.address} is bound to {gpu.driver}", f"unbind it from {gpu.driver} and bind it to nvidia")
        for gpu in gpus
        if gpu.driver not in _OURS
    ]
    names = sorted({gpu.driver for gpu in gpus if gpu.driver is not None})
    return joined(findings, f"{len(gpus)} GPUs are bound to {several(names)}")


def judge_nouveau(gpus: Sequence[PciFunction], *, loaded: bool) -> CheckFinding:
    """Whether the open display driver has taken GPUs meant for computing."""
    fix = "write 'blacklist nouveau' to /etc/modprobe.d/nouveau.conf, rebuild the initramfs, and restart the node"
    taken = [gpu.address for gpu in gpus if gpu.driver == "nouveau"]
    if taken:
        return failed(f"nouveau has taken {several(taken)}", fix)
    if not gpus:
        return skipped(NO_GPU)
    if loaded:
        return warning("nouveau is loaded, though no GPU is bound to it", fix)
    return ok("not loaded")


def _module(view: NodeView) -> CheckFinding:
    sysfs = view.facts().sysfs
    version = sysfs.nvidia_module_version if sysfs is not None else None
    return judge_module(view.gpu_functions(VENDOR), version, view.quiesced)


DRIVER_CHECKS = (
    Check(
        "nvidia-module",
        "On a node with NVIDIA GPUs, NVIDIA's kernel module is loaded",
        "Install the driver and run `modprobe nvidia`",
        _module,
        hardware=True,
    ),
    Check(
        "nvidia-binding",
        "Every NVIDIA GPU is bound to nvidia or vfio-pci",
        "Bind it to nvidia",
        lambda view: judge_binding(view.gpu_functions(VENDOR)),
        hardware=True,
    ),
    Check(
        "nouveau",
        "nouveau has not taken a GPU and is not loaded",
        "Blacklist nouveau in `/etc/modprobe.d`, rebuild the initramfs, reboot",
        lambda view: judge_nouveau(view.gpu_functions(VENDOR), loaded=(view.sys / "module/nouveau").exists()),
        hardware=True,
    ),
)


CHECKS = (
    Check(
        "nvml",
        "NVML can be loaded and answers for every GPU (called in a separate process, which may hang)",
        "Install the driver, or set `nvidia.driverRoot`; see `dmesg` for Xid messages",
        lambda view: quiet(view) or judge_answer(view.nvml(), view.gpu_functions(VENDOR)),
        hardware=True,
        deadline=NVML_TIMEOUT + 5,
    ),
    Check(
        "nvidia-versions",
        "The library and the loaded kernel module have the same version",
        "Unload the old module and load the new one, or restart the node",
        _versions,
        hardware=True,
        deadline=NVML_TIMEOUT + 5,
    ),
)
