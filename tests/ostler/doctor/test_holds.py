"""Checks of holds: what is not known, what drains, who lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.rules import Doors, Rule
from ostler.doctor.answers import DEAD, MISSING, AgentAnswers, KubeletAnswers
from ostler.doctor.check import CheckVerdict
from ostler.doctor.holds import judge_both, judge_containers, judge_draining, judge_known, judge_losers, judge_processes
from ostler.doctor.kubelet import judge_pod_resources
from ostler.doctor.nvidia_files import strategies_of
from protos.agent.v1alpha1 import agent_pb2
from tests.ostler.doctor.nodes import configured, examined, says, view

BOTH = (Rule("nvidia.com/gpu", door=Doors.BOTH),)
NOBODY = AgentAnswers(fault="no agent answers at /x", listening=False)
STANDBY = AgentAnswers(agent_pb2.GetStatusResponse(role="standby"), agent_pb2.ListDevicesResponse())


def agent(*devices: agent_pb2.DeviceHolds, **status: object) -> AgentAnswers:
    told = agent_pb2.HoldsStatus(**status)  # type: ignore[arg-type]
    holds = agent_pb2.ListHoldsResponse(devices=devices, status=told)
    return AgentAnswers(agent_pb2.GetStatusResponse(), agent_pb2.ListDevicesResponse(), holds)


def test_what_is_not_known_fails_where_claims_are_served() -> None:
    says(
        judge_known(agent(by_plugin=3, by_dra=2), claims=True), CheckVerdict.OK, "3 devices through the plugin door, 2"
    )
    unknown = agent(kubelet="the kubelet has not reported its device allocations yet: no such socket")
    says(
        judge_known(unknown, claims=True),
        CheckVerdict.FAILED,
        "no further device is offered to claims: the",
        "pod-resources",
    )
    says(judge_known(unknown, claims=False), CheckVerdict.WARNING, "the kubelet has not reported", "pod-resources")
    blind = agent(api_server="pods: forbidden")
    says(judge_known(blind, claims=True), CheckVerdict.WARNING, "are not known: pods: forbidden", "rbac.create")
    says(judge_known(blind, claims=False), CheckVerdict.OK, "0 devices")


def test_door_both_that_acts_as_plugin_is_told_with_what_it_needs() -> None:
    off = agent(both="the API server drops the taints of devices")
    says(judge_both(off, BOTH), CheckVerdict.WARNING, "acts as plugin: the API server drops", "DRADeviceTaints")
    says(judge_both(agent(), BOTH), CheckVerdict.OK, "keeps the taints")
    says(
        judge_both(agent(), (Rule("nvidia.com/gpu"),)),
        CheckVerdict.SKIPPED,
        "no rule of the configuration has door both",
    )


def test_door_both_by_the_nodes_label_is_told_of_though_no_rule_has_it() -> None:
    off = agent(both="the API server drops the taints of devices")
    says(
        judge_both(off, (Rule("nvidia.com/gpu"),)),
        CheckVerdict.WARNING,
        "acts as plugin: the API server drops",
        "DRADeviceTaints",
    )


def test_a_device_that_drains_is_told_with_its_process() -> None:
    left = agent_pb2.Hold(holder="process 41 (python3)", state="draining")
    drains = agent(agent_pb2.DeviceHolds(device="gpu-0", holds=[left]))
    says(judge_draining(drains), CheckVerdict.WARNING, "gpu-0: process 41 (python3)", "ostler holds release DEVICE")
    says(judge_draining(agent()), CheckVerdict.OK, "every device is released")


def test_processes_that_cannot_be_seen_matter_where_claims_are_served() -> None:
    blind = agent(processes="left-over processes are not looked for")
    says(judge_processes(blind, claims=True), CheckVerdict.WARNING, "are not looked for", "hostPID")
    says(judge_processes(blind, claims=False), CheckVerdict.SKIPPED, "no resource is offered through DRA")
    says(judge_processes(agent(), claims=True), CheckVerdict.OK, "the agent sees processes")


def test_containers_that_cannot_be_seen_are_told_of_whatever_is_offered() -> None:
    blind = agent(containers="containers of pods that were deleted by force are not looked for: nothing is mounted")
    says(
        judge_containers(blind),
        CheckVerdict.WARNING,
        "are not looked for",
        "read-only hostPath volume of /sys/fs/cgroup",
    )
    says(judge_containers(agent()), CheckVerdict.OK, "sees containers of deleted pods until")


def test_claims_that_lost_are_named() -> None:
    lost = agent(agent_pb2.DeviceHolds(device="gpu-0", losers=["a/one", "a/two"]))
    says(judge_losers(lost), CheckVerdict.WARNING, "gpu-0 (claim a/one, a/two)", "delete them")
    says(judge_losers(agent()), CheckVerdict.OK, "no claim waits")


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (NOBODY, "no agent answers"),
        (STANDBY, "does not report holds"),
    ],
)
def test_without_holds_there_is_nothing_to_say(answers: AgentAnswers, why: str) -> None:
    findings = (
        judge_known(answers, claims=True),
        judge_both(answers, BOTH),
        judge_draining(answers),
        judge_processes(answers, claims=True),
        judge_containers(answers),
        judge_losers(answers),
    )
    for finding in findings:
        says(finding, CheckVerdict.SKIPPED, why)


def test_the_checks_run_without_an_agent(short_dir: Path) -> None:
    node = view(short_dir)
    for name in ("holds-known", "holds-draining", "holds-losers"):
        says(examined(node, name), CheckVerdict.SKIPPED, "no agent answers")
    says(examined(node, "holds-both"), CheckVerdict.SKIPPED, "no rule of the configuration has door both")
    says(examined(node, "holds-processes"), CheckVerdict.SKIPPED, "no resource is offered through DRA")


@pytest.mark.parametrize("state", [MISSING, DEAD])
def test_pod_resources_that_claims_need_are_more_than_a_warning(state: str) -> None:
    answers = KubeletAnswers(state)
    assert judge_pod_resources(answers, Path("/x")).verdict is CheckVerdict.WARNING
    assert judge_pod_resources(answers, Path("/x"), needed=True).verdict is CheckVerdict.FAILED


def test_the_way_to_a_container_is_judged_door_by_door(short_dir: Path, tmp_path: Path) -> None:
    body = "nodeName: a\nresources:\n- {name: nvidia.com/gpu, door: %s, devices: {kind: gpu, vendor: nvidia}}\n"
    for door, by_runtime, by_cdi in (("plugin", True, False), ("dra", False, True), ("both", True, True)):
        loaded = configured(body % door, tmp_path)
        assert bool(strategies_of(loaded.settings.rules)[0]) is by_runtime
        found = examined(view(short_dir, loaded), "cdi-runtime")
        assert ("no rule passes devices by CDI" in found.found) is not by_cdi
