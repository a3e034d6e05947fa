"""Checks of drivers of GPUs: NVIDIA's, and AMD's."""

from __future__ import annotations

from collections.abc import Sequence

from node.inventory.facts import DeviceFile, PciFunction
from ostler.doctor import nvidia_driver, nvidia_files, nvidia_runtime, nvml
from ostler.doctor.check import Check, Subject
from ostler.doctor.node import NodeView
from ostler.doctor.nvidia_driver import RECORDED
from ostler.doctor.verdict import Finding, failed, ok, several, skipped, warning

AMD = "0x1002"
_KFD = "/dev/kfd"


def judge_amd(gpus: Sequence[PciFunction], files: Sequence[DeviceFile]) -> Finding:
    """Whether AMD GPUs can compute: bound to amdgpu, with /dev/kfd and a render node each."""
    if not gpus:
        return skipped("no AMD GPU on the PCI bus")
    usable = [gpu for gpu in gpus if gpu.driver == "amdgpu"]
    if not usable:
        if all(gpu.driver == "vfio-pci" for gpu in gpus):
            return skipped("every AMD GPU is bound to vfio-pci")
        return failed(f"{len(gpus)} AMD GPUs, none bound to amdgpu", "install the driver and run 'modprobe amdgpu'")
    if not any(file.path == _KFD for file in files):
        fix = "see 'dmesg' for kfd; the kernel needs HSA_AMD, and the pod /dev"
        return failed(f"{_KFD} is missing: ROCm finds no GPU", fix)
    blind = [gpu.address for gpu in usable if not any(name.startswith("renderD") for name in gpu.drm)]
    if blind:
        return warning(f"no render node for {several(blind)}", "see 'dmesg' for amdgpu; initialising the GPU failed")
    return ok(f"{len(usable)} AMD GPUs are bound to amdgpu, {_KFD} is there")


def _amd(view: NodeView) -> Finding:
    if view.recorded:
        return skipped(RECORDED)
    sysfs = view.facts().sysfs
    return judge_amd(view.gpu_functions(AMD), sysfs.device_files if sysfs is not None else ())


SUBJECT = Subject(
    "drivers",
    (
        *nvidia_driver.CHECKS,
        *nvml.CHECKS,
        *nvidia_files.CHECKS,
        nvidia_runtime.CHECK,
        Check(
            "amd-driver",
            "AMD GPUs are bound to amdgpu, with `/dev/kfd` and render nodes",
            "Run `modprobe amdgpu`; see `dmesg`",
            _amd,
        ),
    ),
)
