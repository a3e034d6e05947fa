"""Checks of events: who tells of hardware."""

from __future__ import annotations

from pathlib import Path

from node.inventory.live.udev import EventState, Reach
from ostler.doctor.check import CheckVerdict
from ostler.doctor.machine import judge_rtnetlink, judge_uevents
from tests.ostler.doctor.nodes import configured, examined, says, view, write


def test_udevd_on_the_hosts_network_is_well() -> None:
    says(judge_uevents(Reach(EventState.UDEV), "", ""), CheckVerdict.OK, "uevents of udevd")


def test_a_host_without_udevd_has_the_kernels_events() -> None:
    says(
        judge_uevents(Reach(EventState.KERNEL, hint="mount it"), "", ""),
        CheckVerdict.OK,
        "found no udevd (mount it)",
    )


def test_a_pod_without_the_hosts_network_misses_interfaces(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/uid_map": "0 0 4294967295\n"})
    nics = configured("resources: [{name: example.com/nic, devices: {kind: nic}}]", tmp_path)
    finding = examined(view(tmp_path, nics), "uevents")
    says(finding, CheckVerdict.WARNING, "this network namespace is not the host's", "hostNetwork: true")


def test_interfaces_that_no_rule_is_about_are_not_missed(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/uid_map": "0 0 4294967295\n"})
    says(examined(view(tmp_path), "uevents"), CheckVerdict.OK, "except for network interfaces, which no rule concerns")


def test_another_user_namespace_hears_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/uid_map": "0 1000 1\n"})
    finding = examined(view(tmp_path), "uevents")
    says(finding, CheckVerdict.WARNING, "this user namespace gets no uevents", "hostUsers: true")


def test_a_missing_libudev_is_told_with_its_fix() -> None:
    finding = judge_uevents(
        Reach(EventState.KERNEL), "libudev cannot be used (no file)", "add libudev.so.1 to the image"
    )
    says(
        finding,
        CheckVerdict.WARNING,
        "the agent polls folders instead of receiving uevents: libudev",
        "add libudev.so.1",
    )


def test_rtnetlink_answers_here_and_is_told_where_it_does_not(tmp_path: Path) -> None:
    says(examined(view(tmp_path), "rtnetlink"), CheckVerdict.OK, "answers, ")
    says(judge_rtnetlink(None, "netlink: a socket: refused"), CheckVerdict.WARNING, "a socket: refused", "AF_NETLINK")
