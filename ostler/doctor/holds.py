"""Checks of holds: whether they are known, whether both doors are served, and which devices are not released."""

from __future__ import annotations

from collections.abc import Iterable

from node.ledger.holds import HoldState
from node.rules import Door, Doors, Rule
from ostler.doctor.answers import NO_AGENT, AgentAnswers
from ostler.doctor.check import Check, CheckFinding, CheckSubject, failed, ok, several, skipped, warning
from ostler.doctor.node import NodeView
from protos.agent.v1alpha1 import agent_pb2

NOT_REPORTED = "the agent does not report holds: it is a standby, or older than this command"
NO_CLAIMS = "no resource is offered through DRA"
_FOLDERS = "mount the kubelet's pod-resources and device-plugins folders, and see the check kubelet-pod-resources"
_RIGHTS = "give the agent's account the rights of the chart (rbac.create), and see the check kubernetes-api"


def _unreported(agent: AgentAnswers) -> str:
    """Why the checks of holds are skipped if the agent does not report them."""
    return NO_AGENT if agent.status is None else NOT_REPORTED


def judge_known(agent: AgentAnswers, *, claims: bool) -> CheckFinding:
    """Whether all holds of pods and claims are known; ``claims``: a rule offers devices through DRA."""
    if agent.holds is None:
        return skipped(_unreported(agent))
    status = agent.holds.status
    if status.kubelet and claims:
        return failed(f"no further device is offered to claims: {status.kubelet}", _FOLDERS)
    if status.kubelet:
        return warning(status.kubelet, _FOLDERS)
    if status.api_server and claims:
        return warning(f"the claims of this node's pods are not known: {status.api_server}", _RIGHTS)
    return ok(f"{status.by_plugin} devices through the plugin door, {status.by_dra} through the DRA door")


def judge_both(agent: AgentAnswers, rules: Iterable[Rule]) -> CheckFinding:
    """Whether devices with door both, by rule or by the Node's label, are served at both doors."""
    falls_back = agent.holds is not None and agent.holds.status.both
    if not falls_back and not any(rule.door is Doors.BOTH for rule in rules):
        return skipped("no rule of the configuration has door both")
    if agent.holds is None:
        return skipped(_unreported(agent))
    if agent.holds.status.both:
        return warning(
            f"door both acts as plugin: {agent.holds.status.both}",
            "turn on the feature gate DRADeviceTaints in the API server, scheduler and controllers (on since 1.36), "
            "or give the resource door plugin or dra",
        )
    return ok("the API server keeps the taints of devices")


def judge_draining(agent: AgentAnswers) -> CheckFinding:
    """Whether every device is released when its pod or claim is gone."""
    if agent.holds is None:
        return skipped(_unreported(agent))
    left = [
        f"{device.device}: {hold.holder}"
        for device in agent.holds.devices
        for hold in device.holds
        if hold.state == HoldState.PENDING_RELEASE
    ]
    if left:
        return warning(
            f"not released: {several(left)}",
            "end the process or container, or name its program in holds.ignoreProcesses; "
            "if you are sure that a device is free, run 'ostler holds release DEVICE'",
        )
    return ok("every device is released")


def judge_processes(agent: AgentAnswers, *, claims: bool) -> CheckFinding:
    """Whether the agent sees processes left on a device; ``claims``: a rule offers devices through DRA."""
    if not claims:
        return skipped(NO_CLAIMS)
    if agent.holds is None:
        return skipped(_unreported(agent))
    if agent.holds.status.processes:
        return warning(
            agent.holds.status.processes,
            "let the agent see the node's processes (hostPID: true in the pod's spec, in the chart hostPID)",
        )
    return ok("the agent sees processes that still use devices")


def judge_containers(agent: AgentAnswers) -> CheckFinding:
    """Whether the agent sees that the containers of a deleted pod have ended."""
    if agent.holds is None:
        return skipped(_unreported(agent))
    if agent.holds.status.containers:
        return warning(
            agent.holds.status.containers,
            "give the agent's pod a read-only hostPath volume of /sys/fs/cgroup at /sys/fs/cgroup (the chart has it), "
            "or hostPID: true; until then a pod can get a device while containers of one deleted by force still use it",
        )
    return ok("the agent sees containers of deleted pods until they have ended")


def judge_losers(agent: AgentAnswers) -> CheckFinding:
    """Whether a claim waits for a device that a pod has."""
    if agent.holds is None:
        return skipped(_unreported(agent))
    lost = [_lost(device) for device in agent.holds.devices if device.losers]
    if lost:
        return warning(
            f"lost to pods: {several(lost)}",
            "wait for the eviction of the claim's pods; if they stay, delete them: they tolerate every taint",
        )
    return ok("no claim waits for a device that a pod has")


def _lost(device: agent_pb2.DeviceHolds) -> str:
    return f"{device.device} (claim {', '.join(device.losers)})"


def _by_claims(view: NodeView) -> bool:
    if any(rule.door.has(Door.DRA) for rule in view.settings.rules):
        return True
    agent = view.agent()
    # By the Node's label or annotation.
    return view.settings.kubernetes.door_by_node and agent.status is not None and agent.status.HasField("dra")


SUBJECT = CheckSubject(
    "holds",
    (
        Check(
            "holds-known",
            "The agent knows which devices pods and claims have; otherwise it offers no further device to claims",
            "Mount the kubelet's folders; give the agent its rights at the API server",
            lambda view: judge_known(view.agent(), claims=_by_claims(view)),
        ),
        Check(
            "holds-both",
            "Resources with door both are served at both doors: the API server keeps the taints of devices",
            "Turn `DRADeviceTaints` on, or give the resource one door",
            lambda view: judge_both(view.agent(), view.settings.rules),
        ),
        Check(
            "holds-draining",
            "Devices are released when their pod or claim is gone: no process still uses them",
            "End the process, or run `ostler holds release DEVICE`",
            lambda view: judge_draining(view.agent()),
        ),
        Check(
            "holds-processes",
            "The agent sees the processes that still use devices, where claims are served",
            "Set `hostPID: true` in the pod's spec",
            lambda view: judge_processes(view.agent(), claims=_by_claims(view)),
        ),
        Check(
            "holds-containers",
            "The agent sees whether containers of deleted pods still run before it allocates their devices again",
            "Mount `/sys/fs/cgroup` as a read-only hostPath volume, or set `hostPID: true`",
            lambda view: judge_containers(view.agent()),
        ),
        Check(
            "holds-losers",
            "No claim waits for a device that a pod has",
            "Wait for the eviction of its pods, or delete them",
            lambda view: judge_losers(view.agent()),
        ),
    ),
)
