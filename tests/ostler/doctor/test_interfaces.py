"""Checks of what the agent needs to move interfaces into pods."""

from __future__ import annotations

import socket
from pathlib import Path

from node.values import replace
from ostler.doctor.answers import AgentAnswers
from ostler.doctor.check import CheckVerdict
from ostler.doctor.container_runtime import Runtime
from ostler.doctor.interfaces import judge_namespaces, judge_nri, judge_rights
from ostler.doctor.node import NodeView, Once
from protos.agent.v1alpha1 import agent_pb2
from tests.ostler.doctor.nodes import configured, examined, says, view

OK, WARNING, FAILED, SKIPPED = CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.FAILED, CheckVerdict.SKIPPED
MOVES = "resources: [{name: example.com/nic, door: dra, devices: {kind: nic}, moveInterface: true}]\n"
CHECKS = ("interfaces-nri", "interfaces-rights", "interfaces-namespaces")


def answers(nri: str = "") -> AgentAnswers:
    return AgentAnswers(agent_pb2.GetStatusResponse(pid=7, dra=agent_pb2.DraStatus(driver="ostler.dev", nri=nri)))


def node(folder: Path, text: str = MOVES, agent: AgentAnswers = answers()) -> NodeView:  # noqa: B008 - not changed
    made = view(folder, configured(text, folder))
    made.settings = replace(made.settings, dra=replace(made.settings.dra, nri_socket=folder / "nri" / "nri.sock"))
    made.agent = Once(lambda: agent)
    return made


def test_a_node_that_moves_nothing_is_skipped(tmp_path: Path) -> None:
    still = node(tmp_path, "resources: [{name: example.com/nic, door: dra, devices: {kind: nic}}]\n")
    for check in CHECKS:
        says(examined(still, check), SKIPPED, "no rule moves interfaces")


def test_the_agent_says_whether_the_runtime_reports_pods(tmp_path: Path) -> None:
    says(examined(node(tmp_path, agent=answers("connected to containerd v2.1.0")), "interfaces-nri"), OK, "v2.1.0")
    refused = examined(node(tmp_path, agent=answers("refused: another plugin has the name ostler")), "interfaces-nri")
    says(refused, FAILED, "does not report pods: refused: another plugin", "then restart the runtime")


def test_without_an_agent_the_socket_is_looked_for(tmp_path: Path) -> None:
    path, nobody = tmp_path / "nri.sock", AgentAnswers(fault="nobody listens", listening=False)
    containerd, crio = (Runtime(name, Path("/etc/runtime.toml")) for name in ("containerd", "CRI-O"))
    says(judge_nri(nobody, path, containerd, in_pod=False), FAILED, "does not exist", "io.containerd.nri.v1.nri")
    says(judge_nri(nobody, path, crio, in_pod=False), FAILED, "does not exist", "set enable_nri = true")
    unmounted = judge_nri(nobody, tmp_path / "nri" / "nri.sock", None, in_pod=True)
    says(unmounted, FAILED, "is not mounted", "in the chart set nics.moveInterfaces to true")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        says(judge_nri(nobody, path, None, in_pod=False), OK, "nri.sock exists")


def test_the_agent_needs_both_capabilities(tmp_path: Path) -> None:
    says(judge_rights("Name:\tostler\nCapEff:\t0000000000201000\n", in_pod=True), OK, "NET_ADMIN and SYS_ADMIN")
    lacks = judge_rights("CapEff:\t0000000000001000\n", in_pod=True)
    says(lacks, FAILED, "the agent lacks the capability SYS_ADMIN", "in the chart set nics.moveInterfaces to true")
    says(judge_rights("CapEff:\t0\n", in_pod=False), FAILED, "NET_ADMIN and SYS_ADMIN", "see docs/systemd.md")
    says(examined(node(tmp_path), "interfaces-rights"), SKIPPED, "cannot be seen from here")
    (tmp_path / "proc/7").mkdir()
    (tmp_path / "proc/7/status").write_text("CapEff:\t000001ffffffffff\n")
    says(examined(node(tmp_path), "interfaces-rights"), OK, "NET_ADMIN and SYS_ADMIN")


def test_the_agent_needs_the_nodes_namespace_and_those_of_pods(tmp_path: Path) -> None:
    says(judge_namespaces(host_network=True, folder=tmp_path, in_pod=True), OK, "those of pods are in")
    elsewhere = judge_namespaces(host_network=False, folder=tmp_path, in_pod=True)
    says(elsewhere, FAILED, "this is not the host's network namespace", "hostNetwork: true")
    missing = judge_namespaces(host_network=True, folder=tmp_path / "netns", in_pod=True)
    says(missing, WARNING, "netns does not exist", "nics.moveInterfaces")
