"""Checks of MPS: programs and shared memory, compute modes, and what a killed daemon left."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from driver.claims.sharing import CLAIMS_RECORD
from node.files import JsonValue, write_record
from node.mps.daemon import MpsHome
from node.mps.modes import RECORD, SCHEMA
from node.mps.processes import PROGRAM, find_process
from node.mps.storage import MpsStorage, StorageUsage
from node.values import replace
from ostler.doctor.check import CheckVerdict
from ostler.doctor.mps import judge_folders, judge_modes, judge_storage
from ostler.doctor.node import NodeView, Once
from ostler.doctor.nvml_process import NvmlAnswer
from tests.making.mps import FolderMounts
from tests.ostler.doctor.nodes import configured, examined, says, view, write

OK, WARNING, FAILED, SKIPPED = CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.FAILED, CheckVerdict.SKIPPED
SHARED = (
    "resources:\n"
    "- {name: nvidia.com/gpu, devices: {vendor: nvidia, kind: gpu}, sharing: {strategy: mps, replicas: 4}}\n"
)
NAME = "nvidia.com/gpu"


def node(folder: Path, text: str = SHARED, modes: dict[str, int] | None = None) -> NodeView:
    made = view(folder, configured(text, folder))
    made.settings = replace(made.settings, nvidia=replace(made.settings.nvidia, mps_root=str(folder / "mps")))
    answer = NvmlAnswer("ok", "", "570.1", len(modes or {}), (), tuple((modes or {}).items()))
    made.nvml = Once(lambda: answer)
    (folder / "state").mkdir(exist_ok=True)
    return made


def test_a_node_that_shares_nothing_by_mps_is_skipped(tmp_path: Path) -> None:
    one = node(tmp_path, "resources: [{name: nvidia.com/gpu}]\n")
    says(examined(one, "mps-program"), SKIPPED, "no rule shares GPUs by MPS")
    says(examined(one, "mps-file-system"), SKIPPED, "no rule shares GPUs by MPS")
    says(examined(one, "compute-mode"), SKIPPED, "no GPU reports its compute mode")
    says(examined(one, "mps-folders"), SKIPPED, f"MPS has no folders below {tmp_path / 'mps'}")


def test_a_driver_without_the_program_has_failed(tmp_path: Path) -> None:
    says(examined(node(tmp_path), "mps-program"), FAILED, f"has no {PROGRAM}", "install the driver's compute utilities")


def test_file_systems_of_daemons_are_bounded_and_not_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, mounts = tmp_path / "mps", FolderMounts(tmp_path / "mounts.json")
    storage = MpsHome(root, mounts=mounts).storage
    says(judge_storage(root, storage), WARNING, "does not exist; the agent makes it", "start the agent")
    root.mkdir()
    storage.make(NAME)
    (root / "example.com").mkdir()
    says(judge_storage(root, storage), OK, f"below {root} is bounded; 1 daemons have folders")
    monkeypatch.setattr(MpsStorage, "usage", lambda *_: StorageUsage(2 << 20, 2 << 20, 128, 5))
    full = f"the file system of the MPS daemon {NAME} is full (2 of 2 MiB, 5 of 128 files)"
    says(judge_storage(root, storage), WARNING, full, "restart the pod that fills it, or raise")
    mounts.fault = "Operation not permitted"
    says(judge_storage(root, storage), FAILED, f"cannot mount a file system in {root}: Operation", "CAP_SYS_ADMIN")


@pytest.mark.parametrize("user", [0, 1000])
def test_only_root_tries_to_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    finding = examined(node(tmp_path), "mps-file-system")
    says(finding, *((SKIPPED, "only root can try to mount") if user else (WARNING, "the agent makes it", "start the")))


def test_the_program_is_looked_for_below_the_drivers_root(tmp_path: Path) -> None:
    write(tmp_path, {f"host/usr/bin/{PROGRAM}": ""})
    (tmp_path / "host/usr/bin" / PROGRAM).chmod(0o755)
    says(examined(node(tmp_path), "mps-program"), OK, f"{PROGRAM} is there")


def test_compute_modes_belong_to_a_running_daemon_or_are_named() -> None:
    says(judge_modes({"GPU-0": 0, "GPU-1": 0}, {}, running=False), OK, "2 GPUs let every process in")
    says(judge_modes({"GPU-0": 3}, {"GPU-0": 0}, running=True), OK, "belong to a running daemon")
    left = judge_modes({"GPU-0": 3}, {"GPU-0": 0}, running=False)
    says(left, WARNING, "EXCLUSIVE_PROCESS: MPS left it there", "start the agent, which sets it back")
    other = judge_modes({"GPU-0": 2}, {}, running=False)
    says(
        other, WARNING, "GPU-0 is in compute mode PROHIBITED: pods with several", "run 'nvidia-smi -i GPU-0 -c DEFAULT'"
    )


def test_folders_without_a_daemon_are_named() -> None:
    says(judge_folders([NAME], frozenset({NAME}), Path("/mps")), OK, "1 resources have folders below /mps")
    says(judge_folders([NAME], frozenset(), Path("/mps")), WARNING, f"without a daemon: {NAME}", "start the agent")


def test_the_record_says_what_runs(tmp_path: Path) -> None:
    one = node(tmp_path, modes={"GPU-0": 3})
    (tmp_path / "mps" / NAME / "pipe").mkdir(parents=True)
    one.settings = replace(one.settings, roots=replace(one.settings.roots, proc=Path("/proc")))
    process = find_process(os.getpid(), Path("/proc"))
    assert process is not None
    data: dict[str, JsonValue] = {"modes": {"GPU-0": 0}, "daemons": {NAME: [process.pid, process.started]}}
    write_record(tmp_path / "state" / RECORD, SCHEMA, data)
    says(examined(one, "compute-mode"), OK, "belong to a running daemon")
    says(examined(one, "mps-folders"), OK, "each with its daemon")
    write_record(tmp_path / "state" / RECORD, SCHEMA, {**data, "daemons": {NAME: [process.pid, 1]}})
    says(examined(one, "compute-mode"), WARNING, "MPS left it there", "start the agent")
    says(examined(one, "mps-folders"), WARNING, "without a daemon", "start the agent")


def test_daemons_of_claims_are_on_a_record_of_their_own(tmp_path: Path) -> None:
    one = node(tmp_path, modes={"GPU-0": 3})
    (tmp_path / "mps" / "claim-4711" / "pipe").mkdir(parents=True)
    says(examined(one, "mps-folders"), WARNING, "without a daemon: claim-4711", "start the agent")
    one.settings = replace(one.settings, roots=replace(one.settings.roots, proc=Path("/proc")))
    process = find_process(os.getpid(), Path("/proc"))
    assert process is not None
    data: dict[str, JsonValue] = {
        "modes": {"GPU-0": 0},
        "daemons": {"claim-4711": [process.pid, process.started]},
    }
    write_record(tmp_path / "state" / CLAIMS_RECORD, SCHEMA, data)
    says(examined(one, "mps-folders"), OK, "each with its daemon")
    says(examined(one, "compute-mode"), OK, "belong to a running daemon")


@pytest.mark.parametrize("text", ["{", json.dumps([1]), json.dumps({"data": 1})])
def test_a_damaged_record_is_left_alone(tmp_path: Path, text: str) -> None:
    one = node(tmp_path, modes={"GPU-0": 3})
    (tmp_path / "state" / RECORD).write_text(text)
    with pytest.raises(ValueError, match=r"Expecting|is not a record of MPS"):
        examined(one, "compute-mode")
    assert (tmp_path / "state" / RECORD).read_text() == text
