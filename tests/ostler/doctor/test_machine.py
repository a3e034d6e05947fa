"""Checks of the machine: its id, its clock, the rights that a process has, security modules."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ostler.doctor.check import CheckVerdict
from ostler.doctor.machine import (
    ClockFacts,
    RightsFacts,
    SecurityFacts,
    judge_clock,
    judge_machine_id,
    judge_rights,
    judge_security,
    read_rights,
    read_security,
    read_synchronised,
)
from tests.ostler.doctor.nodes import examined, says, view, write

NOW = 1.8e9


def test_a_machine_id_is_there_and_is_not_shown(tmp_path: Path) -> None:
    write(tmp_path, {"host/etc/machine-id": f"{'0af1' * 8}\n"})
    finding = examined(view(tmp_path), "machine-id")
    says(finding, CheckVerdict.OK, "32 hexadecimal digits")
    assert "0af1" not in finding.found


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, "cannot read /etc/machine-id"), ("", "is empty, not 32"), ("uninitialized", "'uninitialized', not 32")],
)
def test_a_machine_without_an_id_cannot_be_compared(text: str | None, found: str) -> None:
    says(judge_machine_id(text), CheckVerdict.WARNING, found, "systemd-machine-id-setup")


def test_a_synchronised_clock_is_well() -> None:
    says(judge_clock(ClockFacts(NOW, NOW - 60, synchronised=True)), CheckVerdict.OK, "synchronised")


def test_a_clock_without_a_time_service_is_a_warning() -> None:
    says(judge_clock(ClockFacts(NOW, None, synchronised=False)), CheckVerdict.WARNING, "not synchronised", "chrony")


def test_a_clock_that_is_years_off_has_failed() -> None:
    says(
        judge_clock(ClockFacts(1000.0, None, synchronised=True)),
        CheckVerdict.FAILED,
        "1000 s after 1970",
        "set the clock",
    )


def test_a_boot_in_the_future_has_failed() -> None:
    says(
        judge_clock(ClockFacts(NOW, NOW + 90, synchronised=True)),
        CheckVerdict.FAILED,
        "90 s in the future",
        "set the clock",
    )


def test_a_kernel_that_does_not_tell_is_skipped() -> None:
    says(judge_clock(ClockFacts(NOW, None, synchronised=None)), CheckVerdict.SKIPPED, "does not say")


def test_this_kernel_tells_whether_its_clock_is_synchronised(tmp_path: Path) -> None:
    assert read_synchronised() in (True, False)
    write(tmp_path, {"proc/stat": f"cpu 1 2\nbtime {NOW + 500:.0f}\n"})
    says(examined(view(tmp_path, now=NOW), "clock"), CheckVerdict.FAILED, "500 s in the future", "set the clock")


def test_root_with_its_capabilities_is_well(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/status": "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t2\n",
            "proc/sys/kernel/cap_last_cap": "40\n",
        },
    )
    finding = examined(view(tmp_path), "rights")
    says(finding, CheckVerdict.OK, "this command runs as root with 41 of 41 capabilities, system calls filtered")


def test_another_user_is_a_warning() -> None:
    finding = judge_rights(RightsFacts("self", 1000, 0, 40, filtered=False), "the agent")
    says(finding, CheckVerdict.WARNING, "the agent runs as user 1000", "run it as root")


def test_rights_that_cannot_be_seen_are_skipped(tmp_path: Path) -> None:
    says(judge_rights(read_rights(tmp_path, "self"), "the agent"), CheckVerdict.SKIPPED, "cannot be seen from here")


def test_our_own_rights_are_read_from_this_kernel() -> None:
    facts = read_rights(Path("/proc"), "self")
    assert facts is not None
    assert facts.uid == os.geteuid()
    assert facts.last_capability >= 37


def test_selinux_that_keeps_a_container_from_the_kubelet_has_failed(tmp_path: Path) -> None:
    write(tmp_path, {"sys/fs/selinux/enforce": "1", "proc/self/attr/current": "system_u:system_r:container_t:s0\0"})
    finding = examined(view(tmp_path), "security-modules")
    says(finding, CheckVerdict.FAILED, "SELinux is enforcing and the context is system_u", "spc_t")


def test_selinux_with_a_context_that_may_is_well() -> None:
    says(judge_security(SecurityFacts("enforcing", False, "a:b:spc_t:s0")), CheckVerdict.OK, "SELinux is enforcing")


def test_an_apparmor_profile_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {"sys/module/apparmor/parameters/enabled": "Y", "proc/self/attr/current": "hardened (enforce)"})
    finding = judge_security(read_security(tmp_path / "sys", tmp_path / "proc", "self"))
    says(finding, CheckVerdict.WARNING, "AppArmor confines it: hardened", "profile 'unconfined'")


@pytest.mark.parametrize("profile", ["cri-containerd.apparmor.d", "crio-default", "docker-default"])
def test_the_profile_that_every_container_has_is_well(profile: str) -> None:
    says(judge_security(SecurityFacts("", True, f"{profile} (enforce)")), CheckVerdict.OK, f"own profile ({profile})")


def test_no_security_module_is_well(tmp_path: Path) -> None:
    says(examined(view(tmp_path), "security-modules"), CheckVerdict.OK, "neither SELinux nor AppArmor")
