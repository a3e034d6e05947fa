"""Checks of what the agent needs to move network interfaces into pods: the runtime's NRI, rights, and namespaces."""

from __future__ import annotations

from pathlib import Path

from node.opening import read_kernel_text
from node.rules import Door
from node.sockets import is_socket
from ostler.doctor.answers import NO_AGENT, AgentAnswers
from ostler.doctor.check import Check, CheckFinding, CheckSubject, failed, joined, ok, skipped, warning
from ostler.doctor.container_runtime import Runtime, find_runtime
from ostler.doctor.node import NodeView

_UNUSED = "no rule moves interfaces"
_CONNECTED = "connected"
_CAPABILITIES = {"NET_ADMIN": 12, "SYS_ADMIN": 21}
"""Numbers of the capabilities in the kernel."""
NETNS = "var/run/netns"
"""Where runtimes mount the network namespaces of pods."""
_IN_CHART = "in the chart set nics.moveInterfaces to true"


def judge_nri(agent: AgentAnswers, socket: Path, runtime: Runtime | None, *, in_pod: bool) -> CheckFinding:
    """Whether the runtime reports pods to the agent; without an agent, whether it could."""
    nri = agent.status.dra.nri if agent.status is not None else ""
    if nri.startswith(_CONNECTED):
        return ok(nri)
    if nri:
        return failed(f"the container runtime does not report pods: {nri}", _switch(runtime))
    if is_socket(socket):
        return ok(f"{socket} exists")
    if in_pod and not socket.parent.is_dir():
        return failed(f"{socket.parent} is not mounted", _IN_CHART)
    return failed(f"{socket} does not exist, so no interface can move", _switch(runtime))


def _switch(runtime: Runtime | None) -> str:
    """How to switch NRI on."""
    containerd = 'set disable = false in the section plugins."io.containerd.nri.v1.nri"'
    crio = "set enable_nri = true in the section crio.nri"
    if runtime is None:
        return f"containerd: {containerd}; CRI-O: {crio}; then restart the runtime"
    way = crio if runtime.name == "CRI-O" else containerd
    return f"{way} of {runtime.file} and restart {runtime.name}"


def judge_rights(status: str, *, in_pod: bool) -> CheckFinding:
    """Whether the agent has the capabilities; ``status``: its file of that name in /proc."""
    words = next((line.split() for line in status.splitlines() if line.startswith("CapEff:")), [])
    if len(words) != 2:
        return skipped("the agent's capabilities cannot be seen from here")
    held = int(words[1], 16)
    missing = [name for name, number in _CAPABILITIES.items() if not held >> number & 1]
    if missing:
        names = " and ".join(missing)
        fix = _IN_CHART if in_pod else f"give the agent {names}, see docs/systemd.md"
        return failed(f"the agent lacks the capability {names}, so the kernel lets it move no interface", fix)
    return ok(" and ".join(_CAPABILITIES))


def judge_namespaces(*, host_network: bool, folder: Path, in_pod: bool) -> CheckFinding:
    """Whether the agent sees the node's interfaces and the namespaces of pods."""
    findings = []
    if not host_network:
        fix = "hostNetwork: true in the pod's spec" if in_pod else "run it in the host's network namespace"
        findings.append(
            failed("this is not the host's network namespace, so the node's interfaces cannot be moved", fix)
        )
    if not folder.is_dir():
        fix = _IN_CHART if in_pod else "it comes with the first pod that has a network of its own"
        findings.append(warning(f"{folder} does not exist; runtimes mount the network namespaces of pods there", fix))
    return joined(findings, f"the host's network namespace; those of pods are in {folder}")


def _moves(view: NodeView) -> bool:
    return any(rule.moves_interface and rule.door.has(Door.DRA) for rule in view.settings.rules)


def _nri(view: NodeView) -> CheckFinding:
    if not _moves(view):
        return skipped(_UNUSED)
    return judge_nri(view.agent(), view.settings.dra.nri_socket, find_runtime(view.host), in_pod=view.in_pod)


def _rights(view: NodeView) -> CheckFinding:
    if not _moves(view):
        return skipped(_UNUSED)
    pid = view.agent().pid
    if pid is None:
        return skipped(NO_AGENT)
    try:
        status = read_kernel_text(view.proc / str(pid) / "status")
    except OSError:
        status = ""  # The agent's process ids are those of another namespace.
    return judge_rights(status, in_pod=view.in_pod)


def _namespaces(view: NodeView) -> CheckFinding:
    if not _moves(view):
        return skipped(_UNUSED)
    return judge_namespaces(host_network=view.host_network, folder=view.host / NETNS, in_pod=view.in_pod)


SUBJECT = CheckSubject(
    "interfaces",
    (
        Check(
            "interfaces-nri",
            "If rules move interfaces into pods, the container runtime reports pods to the agent (NRI)",
            "Switch NRI on in containerd or CRI-O",
            _nri,
            hardware=True,
        ),
        Check(
            "interfaces-rights",
            "If rules move interfaces into pods, the agent has the capabilities NET_ADMIN and SYS_ADMIN",
            "Set `nics.moveInterfaces` in the chart, or change the unit",
            _rights,
            hardware=True,
        ),
        Check(
            "interfaces-namespaces",
            "If rules move interfaces into pods, the agent sees the network namespaces of the node and of its pods",
            "Set `nics.moveInterfaces` in the chart; run the agent in the host's network namespace",
            _namespaces,
            hardware=True,
        ),
    ),
)
