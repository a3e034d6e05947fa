"""Checks of NVIDIA's kernel driver: loaded, bound to its GPUs, and not kept away by nouveau."""

from __future__ import annotations

from collections.abc import Sequence

from node.inventory.facts import PciFunction
from node.inventory.nvidia.vendor import NVIDIA
from ostler.doctor.check import Check
from ostler.doctor.node import NodeView
from ostler.doctor.verdict import Finding, failed, joined, ok, several, skipped, warning

VENDOR = NVIDIA.pci_vendor
NO_GPU = "no NVIDIA GPU on the PCI bus"
RECORDED = "a recorded node is replayed, this machine's hardware does not matter"
_OURS = ("nvidia", "vfio-pci", "nvgrace_gpu_vfio_pci")


def judge_module(gpus: Sequence[PciFunction], version: str | None, reason: str | None) -> Finding:
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
        f"{len(gpus)} NVIDIA GPUs are on the PCI bus and the kernel module nvidia is not loaded",
        "install the driver and run 'modprobe nvidia'; with the driver in a container wait for it",
    )


def judge_binding(gpus: Sequence[PciFunction]) -> Finding:
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


def judge_nouveau(gpus: Sequence[PciFunction], *, loaded: bool) -> Finding:
    """Whether the open driver for displays has taken GPUs that are to compute."""
    fix = "write 'blacklist nouveau' to /etc/modprobe.d/nouveau.conf, rebuild the initramfs, and restart the node"
    taken = [gpu.address for gpu in gpus if gpu.driver == "nouveau"]
    if taken:
        return failed(f"nouveau has taken {several(taken)}", fix)
    if not gpus:
        return skipped(NO_GPU)
    if loaded:
        return warning("nouveau is loaded, though no GPU is bound to it", fix)
    return ok("not loaded")


def _module(view: NodeView) -> Finding:
    if view.recorded:
        return skipped(RECORDED)
    sysfs = view.facts().sysfs
    version = sysfs.nvidia_module_version if sysfs is not None else None
    return judge_module(view.gpu_functions(VENDOR), version, view.quiesced)


def _binding(view: NodeView) -> Finding:
    return skipped(RECORDED) if view.recorded else judge_binding(view.gpu_functions(VENDOR))


def _nouveau(view: NodeView) -> Finding:
    if view.recorded:
        return skipped(RECORDED)
    return judge_nouveau(view.gpu_functions(VENDOR), loaded=(view.sys / "module/nouveau").exists())


CHECKS = (
    Check(
        "nvidia-module",
        "NVIDIA's kernel module is loaded where there are GPUs of theirs",
        "Install the driver and run `modprobe nvidia`",
        _module,
    ),
    Check(
        "nvidia-binding",
        "Every NVIDIA GPU is bound to nvidia or vfio-pci",
        "Bind it to nvidia",
        _binding,
    ),
    Check(
        "nouveau",
        "nouveau has not taken a GPU and is not loaded",
        "Blacklist nouveau in `/etc/modprobe.d`, rebuild the initramfs, reboot",
        _nouveau,
    ),
)
