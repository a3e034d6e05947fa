"""Checks of this node's state at the API server, if the API server is used.

The kubelet publishes its numbers there some seconds after it has them, so a difference is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube.bodies import JsonObject, count_of, object_at, text_at
from ostler.doctor.answers import NO_AGENT, NodeAnswer, RightAnswer
from ostler.doctor.check import Check, CheckFinding, CheckSubject, failed, joined, ok, several, skipped, warning
from ostler.doctor.node import NodeView

_OFF = "the API server is not used (kubernetes.events, node name)"
_PATCHES_PODS = (
    "let the agent patch pods/status (the chart's recordedDevices.enabled does), or set kubernetes.recordedDevices to"
    " off"
)
_REACH = "see the check kubernetes-api"
_OLDEST = (1, 26)
"""The version in which the device plugin API became stable; ostler is tested since 1.34."""


def judge_api(answer: NodeAnswer, name: str) -> CheckFinding:
    """Whether the API server lets the agent read its Node."""
    if answer.off:
        return skipped(_OFF)
    if answer.node is None:
        return failed(answer.fault, answer.fix)
    return ok(f"{answer.server} shows Node {name}")


def judge_node(answer: NodeAnswer) -> CheckFinding:
    """Whether the Node is this machine, is ready, and has a supported kubelet."""
    if answer.node is None:
        return skipped(_OFF if answer.off else "the Node could not be read")
    if answer.identity:
        return failed(
            answer.identity, "give this node's own name with --node-name, and a pod the host's /etc/machine-id"
        )
    version = text_at(object_at(answer.node, "status", "nodeInfo"), "kubeletVersion")
    number = _number(version)
    if number is not None and number < _OLDEST:
        return failed(f"the kubelet is {version}, the device plugin API is stable since 1.26", "update the kubelet")
    ready = _condition(answer.node, "Ready")
    if ready != "True":
        return warning(f"the Node is not ready (Ready is {ready or 'missing'})", "look at the kubelet's log")
    return ok(f"this machine, ready, kubelet {version}")


def judge_allocatable(allocatable: Mapping[str, str], agent: Mapping[str, int]) -> CheckFinding:
    """Whether the Node shows as many devices as the agent. ``allocatable``: the Node's quantities."""
    fix = "wait a few seconds; if it persists, see the checks registration and kubelet-devices"
    findings = [
        warning(f"{name}: {allocatable.get(name, '0')} allocatable on the Node, the agent shows {count}", fix)
        for name, count in sorted(agent.items())
        if count_of(allocatable.get(name, "0")) != count
    ]
    shown = [f"{name}: {count}" for name, count in sorted(agent.items())]
    return joined(findings, several(shown) if shown else "nothing is offered")


def judge_right(reasons: Iterable[str]) -> CheckFinding | None:
    """Why the agent cannot write the Node's allocatable, from its status; None if it can."""
    from ostler.agent.node_status import LEFT

    fix = "let the agent patch nodes/status of its Node, or set kubernetes.patchAllocatable to off"
    return next((warning(reason, fix) for reason in reasons if reason.startswith(LEFT)), None)


def judge_records(reasons: Iterable[str], answer: RightAnswer) -> CheckFinding:
    """Whether the agent follows and notes recorded devices, by its status, and by its right if no pod has any yet."""
    from ostler.agent.pod_records import NOT_FOLLOWING, NOT_WRITING

    for reason in reasons:
        if reason.startswith(NOT_FOLLOWING):
            return warning(reason, "let the agent list and watch the pods of its node")
        if reason.startswith(NOT_WRITING):
            return warning(reason, _PATCHES_PODS)
    if answer.fault:
        return warning(f"the API server does not say whether the agent may patch pods/status: {answer.fault}", _REACH)
    if not answer.is_granted:
        why = f": {answer.reason}" if answer.reason else ""
        return warning(
            f"the agent may not patch pods/status, so it cannot write pods' devices into their annotations{why}",
            _PATCHES_PODS,
        )
    return ok("the agent may patch pods/status")


def _number(version: str) -> tuple[int, int] | None:
    parts = version.removeprefix("v").split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return None


def _condition(node: JsonObject, kind: str) -> str:
    conditions = object_at(node, "status").get("conditions")
    found = conditions if isinstance(conditions, list) else []
    return next((text_at(each, "status") for each in found if text_at(each, "type") == kind), "")


def _allocatable(view: NodeView) -> CheckFinding:
    answer, agent = view.node(), view.agent()
    if answer.node is None:
        return skipped(_OFF if answer.off else "the Node could not be read")
    if agent.status is None:
        return skipped(NO_AGENT)
    without_right = judge_right(agent.status.reasons)
    if without_right is not None:
        return without_right
    allocatable = {name: str(quantity) for name, quantity in object_at(answer.node, "status", "allocatable").items()}
    return judge_allocatable(allocatable, {name: len(ids) for name, ids in agent.healthy_ids().items()})


def _records(view: NodeView) -> CheckFinding:
    if not view.settings.kubernetes.recorded_devices:
        return skipped("kubernetes.recordedDevices is off")
    status = view.agent().status
    return judge_records(status.reasons if status is not None else (), view.right("patch", "pods", "status"))


SUBJECT = CheckSubject(
    "kubernetes",
    (
        Check(
            "kubernetes-api",
            "If the API server is used, it answers and lets the agent read its Node",
            "Give a service account that may get nodes, or a kubeconfig",
            lambda view: judge_api(view.node(), view.settings.node_name),
        ),
        Check(
            "kubernetes-node",
            "The Node with the configured name is this machine and ready, and its kubelet is new enough",
            "Give this node's own name with `--node-name`",
            lambda view: judge_node(view.node()),
        ),
        Check(
            "kubernetes-allocatable",
            "The Node's allocatable has as many devices as the agent shows as healthy",
            "Wait a few seconds; then see the checks of registration",
            _allocatable,
        ),
        Check(
            "kubernetes-records",
            "With `kubernetes.recordedDevices` the agent may note on pods which devices they got",
            "Let the agent patch `pods/status`, as the chart's `recordedDevices.enabled` does",
            _records,
        ),
    ),
)
