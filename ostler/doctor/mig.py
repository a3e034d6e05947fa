"""Checks of MIG: whether the agent may divide GPUs if the configuration says so, and modes that wait for a reset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from node.rules import makes_partitions
from ostler.agent.sources import has_layouts
from ostler.doctor.check import Check, CheckFinding, failed, joined, skipped, warning
from ostler.doctor.node import NodeView
from ostler.doctor.nvml import quiet
from ostler.doctor.nvml_process import NVML_TIMEOUT, MigAnswer
from ostler.doctor.reading import number_after, text_of

_NOT_DIVIDED = "no rule divides GPUs by MIG"
_PASSED_THROUGH, _VGPU = 1, 2
"""NVML's virtualization modes of a GPU in a virtual machine."""
_HOPPER = 9
"""The first architecture whose MIG mode changes without a reset."""


def judge_rights(uid: int, config: int | None, files: Path, gpus: Sequence[MigAnswer]) -> CheckFinding:
    """Whether this user may change MIG here; ``config``: the minor number of the driver's file for it, if it exists."""
    capable = [gpu for gpu in gpus if gpu.mode is not None]
    if not capable:
        return failed("rules divide GPUs by MIG, but no GPU supports it", "select GPUs that do, or remove the keys")
    if uid != 0:
        return failed(f"user {uid} may not change MIG, which the driver allows root alone", "run the agent as root")
    findings = [
        failed(
            f"GPU {gpu.index} is a vGPU, whose MIG instances the host of the virtual machine makes",
            "divide it on the host, and remove the keys here",
        )
        if gpu.virtualization == _VGPU
        else warning(
            f"GPU {gpu.index} is passed through to this virtual machine, which cannot reset it to change its MIG mode",
            f"turn MIG mode on (nvidia-smi -i {gpu.index} -mig 1) and restart the virtual machine",
        )
        for gpu in capable
        if gpu.virtualization == _VGPU
        or (gpu.virtualization == _PASSED_THROUGH and not gpu.mode and (gpu.architecture or 0) < _HOPPER)
    ]
    if config is not None and not (files / f"nvidia-cap{config}").exists():
        fix = "run 'nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/config'; in a pod mount the host's /dev"
        findings.append(warning(f"{files}/nvidia-cap{config}, the right to change MIG, does not exist", fix))
    return joined(findings, f"root may change MIG of {len(capable)} GPUs")


def judge_pending(gpus: Sequence[MigAnswer]) -> CheckFinding:
    """Whether a change of MIG mode waits for a reset, which ends every process on the GPU."""
    findings = [
        warning(
            f"MIG mode of GPU {gpu.index} will be {'on' if gpu.pending else 'off'} after the next reset",
            f"end what uses it and run 'nvidia-smi --gpu-reset -i {gpu.index}' (in a virtual machine: restart it), "
            f"or take it back with 'nvidia-smi -i {gpu.index} -mig {int(bool(gpu.mode))}'",
        )
        for gpu in gpus
        if gpu.pending is not None and gpu.pending != gpu.mode
    ]
    return joined(findings, f"no GPU waits for a reset to change its MIG mode ({len(gpus)} GPUs)")


def _rights(view: NodeView) -> CheckFinding:
    if not makes_partitions(view.settings.rules) and not has_layouts(view.settings):
        return skipped(_NOT_DIVIDED)
    answer = _answer(view)
    if isinstance(answer, CheckFinding):
        return answer
    text = text_of(view.proc / "driver/nvidia/capabilities/mig/config")
    return judge_rights(view.uid, number_after("DeviceFileMinor:", text), view.dev / "nvidia-caps", answer)


def _pending(view: NodeView) -> CheckFinding:
    answer = _answer(view)
    if isinstance(answer, CheckFinding):
        return answer
    capable = [gpu for gpu in answer if gpu.mode is not None]
    return judge_pending(capable) if capable else skipped("no GPU supports MIG")


def _answer(view: NodeView) -> Sequence[MigAnswer] | CheckFinding:
    if (away := quiet(view)) is not None:
        return away
    answer = view.nvml()
    if answer.status != "ok":
        return skipped("NVML does not answer; see the check nvml")
    return answer.mig


CHECKS = (
    Check(
        "mig-rights",
        "If rules divide GPUs by MIG, the GPUs support it and the agent may change it (root, no vGPU)",
        "Run the agent as root and mount the host's `/dev`; in a virtual machine, turn MIG mode on and restart it",
        _rights,
        hardware=True,
        deadline=NVML_TIMEOUT + 5,
    ),
    Check(
        "mig-pending",
        "No change of a GPU's MIG mode waits for a reset",
        "Reset the GPU while nothing uses it, or take the change back",
        _pending,
        hardware=True,
        deadline=NVML_TIMEOUT + 5,
    ),
)
