"""Checks of MIG: the right to change it, and modes that wait for a reset."""

from __future__ import annotations

from pathlib import Path

from ostler.doctor.check import CheckVerdict
from ostler.doctor.mig import judge_pending, judge_rights
from ostler.doctor.node import NodeView, Once
from ostler.doctor.nvml_process import MigAnswer, NvmlAnswer
from tests.ostler.doctor.nodes import configured, examined, says, view, write

OK, WARNING, FAILED, SKIPPED = CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.FAILED, CheckVerdict.SKIPPED
DIVIDED = (
    "resources:\n- {name: nvidia.com/gpu, devices: {vendor: nvidia, kind: gpu}, mig: {layout: [3g.40gb, 3g.40gb]}}\n"
)
CLAIMED = (
    "nodeName: n\nresources:\n"
    "- {name: nvidia.com/gpu, door: dra, devices: {vendor: nvidia, kind: gpu}, partitions: onDemand}\n"
)
AMPERE, HOPPER = 7, 9
NO_MIG, WELL = MigAnswer(0, None, None, 0, AMPERE), MigAnswer(0, 0, 0, 0, AMPERE)


def node(folder: Path, text: str, *gpus: MigAnswer, status: str = "ok", uid: int = 0) -> NodeView:
    made = view(folder, configured(text, folder))
    made.uid = uid
    made.nvml = Once(lambda: NvmlAnswer(status, "", "570.1", len(gpus), mig=gpus))
    return made


def test_a_node_that_divides_nothing_needs_no_rights(tmp_path: Path) -> None:
    says(examined(node(tmp_path, "", WELL, uid=1000), "mig-rights"), SKIPPED, "no rule divides GPUs by MIG")


def test_whoever_divides_gpus_must_be_root(tmp_path: Path) -> None:
    for text in (DIVIDED, CLAIMED):
        says(examined(node(tmp_path, text, WELL), "mig-rights"), OK, "root may change MIG of 1 GPUs")
        refused = examined(node(tmp_path, text, WELL, uid=1000), "mig-rights")
        says(refused, FAILED, "user 1000 may not change MIG", "run the agent as root")


def test_the_drivers_file_for_it_must_be_there(tmp_path: Path) -> None:
    write(tmp_path, {"proc/driver/nvidia/capabilities/mig/config": "DeviceFileMinor: 1\nDeviceFileMode: 256\n"})
    made = node(tmp_path, DIVIDED, WELL)
    says(
        examined(made, "mig-rights"), WARNING, "nvidia-caps/nvidia-cap1, the right to change MIG", "nvidia-modprobe -f"
    )
    write(tmp_path, {"host/dev/nvidia-caps/nvidia-cap1": ""})
    says(examined(made, "mig-rights"), OK, "root may change MIG")


def test_gpus_that_do_not_support_it_cannot_be_divided(tmp_path: Path) -> None:
    says(judge_rights(0, None, tmp_path, [NO_MIG]), FAILED, "no GPU supports it", "select GPUs that do")


def test_virtual_machines_are_told_what_they_cannot_do(tmp_path: Path) -> None:
    vgpu, old = MigAnswer(2, 0, 0, 2, HOPPER), MigAnswer(3, 0, 0, 1, AMPERE)
    says(judge_rights(0, None, tmp_path, [vgpu]), FAILED, "GPU 2 is a vGPU", "divide it on the host")
    says(judge_rights(0, None, tmp_path, [old]), WARNING, "cannot reset it", "nvidia-smi -i 3 -mig 1) and restart")
    # Those that change their mode without a reset, and those whose mode is on already, need nothing.
    well = [MigAnswer(3, 0, 0, 1, HOPPER), MigAnswer(3, 1, 1, 1, AMPERE)]
    says(judge_rights(0, None, tmp_path, well), OK, "root may change MIG of 2 GPUs")


def test_a_pending_mode_is_told_with_what_ends_it() -> None:
    says(judge_pending([WELL]), OK, "no GPU waits for a reset to change its MIG mode (1 GPUs)")
    pending = judge_pending([WELL, MigAnswer(4, 0, 1, 0, AMPERE)])
    says(pending, WARNING, "MIG mode of GPU 4 will be on after the next reset", "'nvidia-smi --gpu-reset -i 4'")
    off = judge_pending([MigAnswer(4, 1, 0, 0, AMPERE)])
    says(off, WARNING, "will be off after the next reset", "'nvidia-smi -i 4 -mig 1'")


def test_what_nvml_does_not_tell_is_not_judged(tmp_path: Path) -> None:
    says(examined(node(tmp_path, "", NO_MIG), "mig-pending"), SKIPPED, "no GPU supports MIG")
    silent = node(tmp_path, DIVIDED, status="DRIVER_NOT_LOADED")
    for check in ("mig-rights", "mig-pending"):
        says(examined(silent, check), SKIPPED, "NVML does not answer; see the check nvml")
