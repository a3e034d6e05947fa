"""The check of NVML: pure verdicts, and the process that asks, against the compiled stub library."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from node.inventory.facts import PciFunction
from node.inventory.recordings.source import read
from node.quiesce import Quiesce
from ostler.doctor.check import CheckVerdict
from ostler.doctor.nvml import judge_answer, judge_versions, library_version
from ostler.doctor.nvml_process import NVML_HANGS, MigAnswer, NvmlAnswer, ask_nvml
from sandbox.nodes import path
from tests.node.nvml import stub
from tests.ostler.doctor.nodes import examined, says, view

GPU = PciFunction("0000:1b:00.0", "pci0000:15/0000:1b:00.0", "0x030200", "0x10de", "0x2330", driver="nvidia")


def test_an_answer_for_every_gpu_is_well() -> None:
    says(judge_answer(NvmlAnswer("ok", "", "550.1", 1), [GPU]), CheckVerdict.OK, "driver 550.1 answers for 1 GPUs")


def test_lost_and_missing_gpus_are_told() -> None:
    lost = NvmlAnswer("ok", "", "550.1", 1, ("GPU 0 (GPU-x): GPU_IS_LOST",))
    says(judge_answer(lost, [GPU]), CheckVerdict.FAILED, "GPU 0 (GPU-x): GPU_IS_LOST", "Xid messages; reset the GPU")
    few = judge_answer(NvmlAnswer("ok", "", "550.1", 1), [GPU, GPU])
    says(few, CheckVerdict.WARNING, "NVML has 1 GPUs, 2 are bound", "did not initialise")


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        (NVML_HANGS, "restart the node"),
        ("LIBRARY_NOT_FOUND", "set nvidia.driverRoot"),
        ("LIBRARY_NOT_LOADABLE", "architecture and C library"),
        ("DRIVER_NOT_LOADED", "modprobe nvidia"),
        ("DRIVER_UNREACHABLE", "nvidia-modprobe -c0 -u"),
        ("LIB_RM_VERSION_MISMATCH", "see the check nvidia-versions"),
        ("NO_PERMISSION", "run it as root"),
        ("UNKNOWN", "run 'nvidia-smi'"),
    ],
)
def test_every_way_of_not_answering_has_its_fix(status: str, fix: str) -> None:
    says(judge_answer(NvmlAnswer(status, "what NVML says"), [GPU]), CheckVerdict.FAILED, "what NVML says", fix)


def test_a_node_without_gpu_and_library_is_skipped(tmp_path: Path) -> None:
    says(examined(view(tmp_path), "nvml"), CheckVerdict.SKIPPED, "no NVIDIA GPU on the PCI bus")


@pytest.mark.parametrize(
    "status", ["LIBRARY_NOT_FOUND", "LIBRARY_NOT_LOADABLE", "DRIVER_NOT_LOADED", "DRIVER_UNREACHABLE"]
)
def test_a_library_without_a_gpu_and_a_driver_is_nobodys_fault(status: str) -> None:
    says(judge_answer(NvmlAnswer(status, "what NVML says"), []), CheckVerdict.SKIPPED, "no NVIDIA GPU on the PCI bus")
    says(judge_answer(NvmlAnswer(NVML_HANGS, "no answer"), []), CheckVerdict.FAILED, "no answer", "restart the node")


def test_versions_are_compared_by_the_librarys_file(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.560.28.03").touch()
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.560.28.03")
    library = library_version(tmp_path, None)
    says(judge_versions("560.28.03", library, "ok"), CheckVerdict.OK, "library and module are 560.28.03")
    old = judge_versions("550.54.15", library, "LIB_RM_VERSION_MISMATCH")
    says(old, CheckVerdict.FAILED, "the library is 560.28.03, the loaded kernel module 550.54.15", "ostler quiesce")
    says(judge_versions(None, library, ""), CheckVerdict.SKIPPED, "not loaded")
    says(judge_versions("550.1", None, "ok"), CheckVerdict.SKIPPED, "the library's file has no version")
    told = judge_versions("550.1", None, "LIB_RM_VERSION_MISMATCH")
    says(told, CheckVerdict.FAILED, "does not belong to the loaded kernel module 550.1", "restart the node")
    assert library_version(tmp_path / "nowhere", None) is None


def test_a_quiesced_driver_is_not_touched(tmp_path: Path) -> None:
    node = view(tmp_path)
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("this-boot")
    Quiesce(tmp_path / "state/quiesce.json", tmp_path / "proc").begin("driver 580")
    for name in ("nvml", "nvidia-versions"):
        says(examined(node, name), CheckVerdict.SKIPPED, "quiesced (driver 580): ostler does not use the driver")
    says(examined(node, "agent-quiesced"), CheckVerdict.WARNING, "quiesced (driver 580)", "ostler resume")


def test_an_answer_comes_whole_out_of_its_process() -> None:
    answer = NvmlAnswer("ok", "x", "570.1", 2, ("GPU 1: lost",), (("GPU-a", 3),), (MigAnswer(0, 1, None, 0, 9),))
    assert NvmlAnswer.of_json(answer.to_json()) == answer


class TestAgainstTheStubLibrary:
    pytestmark = stub.needs_gcc

    @pytest.fixture
    def library(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        facts = read(path("l4-2")).facts.nvml
        assert facts is not None
        description = tmp_path / "hardware.txt"
        stub.write(description, stub.describe(facts))
        monkeypatch.setenv(stub.VARIABLE, str(description))
        return stub.build(tmp_path / "lib")

    def test_a_process_of_its_own_asks(self, library: Path, tmp_path: Path) -> None:
        answer = ask_nvml(tmp_path, library, tmp_path)
        assert (answer.status, answer.gpus, answer.lost) == ("ok", 2, ())
        assert answer.driver_version
        assert [each.index for each in answer.mig] == [0, 1]

    def test_nothing_of_the_working_directory_is_run(
        self, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "somebodys").mkdir()
        (tmp_path / "somebodys/json.py").write_text("raise SystemExit('run as root')")
        monkeypatch.chdir(tmp_path / "somebodys")
        assert ask_nvml(tmp_path, library, tmp_path).status == "ok"

    def test_a_lost_gpu_is_named(self, library: Path, tmp_path: Path) -> None:
        with (tmp_path / "hardware.txt").open("a") as description:
            description.write(f"{stub.lost(1)}\n")
        answer = ask_nvml(tmp_path, library, tmp_path)
        assert len(answer.lost) == 1
        assert answer.lost[0].startswith("GPU 1 (")

    def test_a_driver_that_hangs_is_left_behind(self, library: Path, tmp_path: Path) -> None:
        answer = ask_nvml(tmp_path, library, tmp_path, timeout=0.01)
        assert answer.status == NVML_HANGS
        says(judge_answer(answer, [GPU]), CheckVerdict.FAILED, "no answer within 0.01 s", "restart the node")

    def test_a_library_that_kills_its_process_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "bad.c").write_text("void abort(void); __attribute__((constructor)) void load(void) { abort(); }")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "bad.so", tmp_path / "bad.c"], check=True)
        answer = ask_nvml(tmp_path, tmp_path / "bad.so", tmp_path)
        says(
            judge_answer(answer, [GPU]),
            CheckVerdict.FAILED,
            "the process that called NVML ended: exit code -6",
            "nvidia-smi",
        )
