"""Which processes count, and whether any can be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.model import Device, DeviceKind
from node.ledger.processes import DAEMONS, Process, has_processes, ignored, program, sees_processes
from tests.making.offered_devices import gpu, mig


@pytest.mark.parametrize(
    "name",
    [
        "nvidia-persistenced",
        "/usr/bin/nvidia-persistenced",
        "/usr/bin/nvidia-persistenced --verbose",
        "nvidia-persiste",
        "nvidia-cuda-mps",
        "nv-hostengine",
    ],
)
def test_daemons_of_the_driver_may_stay_by_path_by_name_and_cut_short(name: str) -> None:
    assert ignored(name, DAEMONS)


@pytest.mark.parametrize("name", ["", "python3", "nvidia", "nv-hostengine2", "/opt/nv-hostengine/python3", "nvvs"])
def test_everything_else_counts_also_without_a_name(name: str) -> None:
    assert not ignored(name, DAEMONS)


def test_names_that_may_stay_are_patterns() -> None:
    assert ignored("/opt/monitor-7", ("monitor-*",))
    assert not ignored("python3", ())


def test_a_process_is_shown_with_its_program() -> None:
    assert str(Process(7, "/usr/bin/python3 train.py")) == "7 (python3)"
    assert str(Process(7)) == "7"
    assert program("/usr/bin/") == "/usr/bin/"


def test_pids_are_seen_in_the_first_namespace_alone(tmp_path: Path) -> None:
    assert not sees_processes(tmp_path)
    link = tmp_path / "self/ns/pid"
    link.parent.mkdir(parents=True)
    link.symlink_to("pid:[4026532741]")
    assert not sees_processes(tmp_path)
    link.unlink()
    link.symlink_to("pid:[4026531836]")
    assert sees_processes(tmp_path)


def test_nics_and_gpus_of_drivers_that_do_not_tell_have_no_processes() -> None:
    assert has_processes(gpu(0))
    assert has_processes(mig(0, 0))
    assert not has_processes(Device("nic-0000-86-00-0", DeviceKind.NIC, "mellanox"))
    assert not has_processes(Device("gpu-0000-0b-00-0", DeviceKind.GPU, "amd"))
