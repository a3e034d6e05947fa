"""Checks of the Node object, asked of a real HTTP server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node.rules import Doors, Rule
from node.values import replace
from ostler.agent.node_status import LEFT
from ostler.agent.pod_records import NOT_FOLLOWING, NOT_WRITING
from ostler.config.settings import EventsChoice, KubernetesSettings
from ostler.doctor.answers import NodeAnswer, RightAnswer
from ostler.doctor.check import CheckVerdict
from ostler.doctor.kubernetes import judge_allocatable, judge_node, judge_records, judge_right
from ostler.doctor.node import NodeView
from tests.kube.server import CannedAnswer, StubApiServer, refused
from tests.ostler.doctor.nodes import DEFAULTS, examined, says, view, write

MACHINE = "0af1" * 8


def node_object(**changes: object) -> dict[str, object]:
    info = {"machineID": MACHINE, "systemUUID": "", "kubeletVersion": "v1.36.0"}
    status = {"nodeInfo": info, "conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "2"}}
    return {"metadata": {"name": "node-1"}, "status": {**status, **changes}}


def asked(
    root: Path, server: StubApiServer | None, *, name: str = "node-1", events: EventsChoice = EventsChoice.AUTO
) -> NodeView:
    config = root / "kubeconfig"
    if server is not None:
        named = {
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        context = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
        config.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **named, **context}))
    write(root, {"host/etc/machine-id": MACHINE})
    kubernetes = KubernetesSettings(events, config)
    return view(root, replace(DEFAULTS, settings=replace(DEFAULTS.settings, node_name=name, kubernetes=kubernetes)))


@pytest.mark.parametrize("check", ["kubernetes-api", "kubernetes-node", "kubernetes-allocatable"])
def test_without_kubernetes_nothing_is_asked(tmp_path: Path, check: str) -> None:
    says(examined(view(tmp_path), check), CheckVerdict.SKIPPED, "the API server is not used")


def test_our_node_is_read_once_for_all_checks(tmp_path: Path) -> None:
    with StubApiServer() as server:
        server.respond = lambda _: CannedAnswer.of(node_object())
        node = asked(tmp_path, server)
        says(examined(node, "kubernetes-api"), CheckVerdict.OK, f"{server.url} shows Node node-1")
        says(examined(node, "kubernetes-node"), CheckVerdict.OK, "this machine, ready, kubelet v1.36.0")
        says(examined(node, "kubernetes-allocatable"), CheckVerdict.SKIPPED, "no agent answers")
        assert [each.path for each in server.asked] == ["/api/v1/nodes/node-1"]


def test_claims_and_the_allocatable_need_the_api_server_though_no_events_are_posted(tmp_path: Path) -> None:
    with StubApiServer() as server:
        server.respond = lambda _: CannedAnswer.of(node_object())
        node = asked(tmp_path, server, events=EventsChoice.OFF)
        says(examined(node, "kubernetes-api"), CheckVerdict.SKIPPED, "the API server is not used")
        settings = node.settings
        for claims in (
            replace(settings, kubernetes=replace(settings.kubernetes, door_by_node=True)),
            replace(settings, rules=(Rule("nvidia.com/gpu", door=Doors.BOTH),)),
            replace(settings, kubernetes=replace(settings.kubernetes, patch_allocatable=True)),
            replace(settings, kubernetes=replace(settings.kubernetes, recorded_devices=True)),
        ):
            node = view(tmp_path, replace(DEFAULTS, settings=claims))
            says(examined(node, "kubernetes-api"), CheckVerdict.OK, f"{server.url} shows Node node-1")


@pytest.mark.parametrize(
    ("status", "fix"),
    [(401, "valid token"), (403, "let the account get nodes"), (404, "--node-name"), (500, "can reach the API server")],
)
def test_a_refusal_has_its_fix(tmp_path: Path, status: int, fix: str) -> None:
    with StubApiServer() as server:
        server.respond = lambda _: refused(status, "No", "not today")
        node = asked(tmp_path, server)
        says(examined(node, "kubernetes-api"), CheckVerdict.FAILED, "not today", fix)
        says(examined(node, "kubernetes-node"), CheckVerdict.SKIPPED, "could not be read")


def test_a_kubeconfig_that_is_not_there_is_told(tmp_path: Path) -> None:
    says(examined(asked(tmp_path, None), "kubernetes-api"), CheckVerdict.FAILED, "kubeconfig: ", "give")


def test_a_node_without_a_name_cannot_be_asked_for(tmp_path: Path) -> None:
    node = asked(tmp_path, None, name="", events=EventsChoice.ON)
    says(examined(node, "kubernetes-api"), CheckVerdict.FAILED, "the node's name is not known", "--node-name")


def test_another_machines_node_has_failed(tmp_path: Path) -> None:
    with StubApiServer() as server:
        server.respond = lambda _: CannedAnswer.of(node_object(nodeInfo={"machineID": "f" * 32, "systemUUID": ""}))
        finding = examined(asked(tmp_path, server), "kubernetes-node")
        says(finding, CheckVerdict.FAILED, "Node node-1 is not this machine: its machineID is ffff", "--node-name")


def test_a_node_that_is_not_ready_or_old_is_told() -> None:
    unready = NodeAnswer(node_object(conditions=[]))  # type: ignore[arg-type]
    says(judge_node(unready), CheckVerdict.WARNING, "Ready is missing", "the kubelet's log")
    old = NodeAnswer(node_object(nodeInfo={"kubeletVersion": "v1.25.1"}))  # type: ignore[arg-type]
    says(judge_node(old), CheckVerdict.FAILED, "the kubelet is v1.25.1", "update the kubelet")
    strange = NodeAnswer(node_object(nodeInfo={"kubeletVersion": "main"}))  # type: ignore[arg-type]
    says(judge_node(strange), CheckVerdict.OK, "kubelet main")


def test_an_agent_that_may_not_write_the_allocatable_is_told() -> None:
    reason = f"{LEFT}: PATCH /api/v1/nodes/worker-1/status: 403 Forbidden"
    found = judge_right(["events are not posted", reason])
    assert found is not None
    says(found, CheckVerdict.WARNING, reason, "let the agent patch nodes/status of its Node")
    assert judge_right(["events are not posted"]) is None


def recording(node: NodeView) -> NodeView:
    settings = replace(node.settings, kubernetes=replace(node.settings.kubernetes, recorded_devices=True))
    return NodeView(replace(DEFAULTS, settings=settings), host=node.host, environment={})


def test_the_right_to_note_devices_on_pods_is_asked_for(tmp_path: Path) -> None:
    with StubApiServer() as server:
        node = asked(tmp_path, server)
        says(examined(node, "kubernetes-records"), CheckVerdict.SKIPPED, "kubernetes.recordedDevices is off")
        assert not server.asked
        server.respond = lambda _: CannedAnswer.of({"status": {"allowed": True}}, 201)
        says(examined(recording(node), "kubernetes-records"), CheckVerdict.OK, "the agent may patch pods/status")
        (review,) = server.requests("POST")
        assert review.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        attributes = {"verb": "patch", "group": "", "resource": "pods", "subresource": "status"}
        assert review.body["spec"] == {"resourceAttributes": attributes}
        server.respond = lambda _: CannedAnswer.of({"status": {"allowed": False, "reason": "no RBAC rule"}}, 201)
        expected = (
            "the agent may not patch pods/status, so it cannot write pods' devices into their annotations: no RBAC rule"
        )
        says(examined(recording(node), "kubernetes-records"), CheckVerdict.WARNING, expected, "recordedDevices.enabled")
        server.respond = lambda _: refused(500, "No", "not today")
        expected = "the API server does not say whether the agent may patch pods/status: "
        says(examined(recording(node), "kubernetes-records"), CheckVerdict.WARNING, expected, "kubernetes-api")


def test_an_agent_that_fails_to_follow_or_note_recorded_devices_says_so_itself() -> None:
    for beginning, fix in ((NOT_FOLLOWING, "list and watch the pods"), (NOT_WRITING, "patch pods/status")):
        reason = f"{beginning}: 403 Forbidden"
        found = judge_records(["events are not posted", reason], RightAnswer(is_granted=True))
        says(found, CheckVerdict.WARNING, reason, fix)


def test_numbers_of_node_and_agent_are_compared() -> None:
    says(judge_allocatable({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": 8}), CheckVerdict.OK, "nvidia.com/gpu: 8")
    says(judge_allocatable({}, {"nvidia.com/gpu": 0}), CheckVerdict.OK, "nvidia.com/gpu: 0")
    says(judge_allocatable({}, {}), CheckVerdict.OK, "nothing is offered")
    says(judge_allocatable({"a.b/vf": "1k"}, {"a.b/vf": 1000}), CheckVerdict.OK, "a.b/vf: 1000")
    says(
        judge_allocatable({"a.b/vf": "12k"}, {"a.b/vf": 1200}), CheckVerdict.WARNING, "a.b/vf: 12k allocatable", "wait"
    )
    says(judge_allocatable({"a.b/vf": "half"}, {"a.b/vf": 1}), CheckVerdict.WARNING, "a.b/vf: half allocatable", "wait")
    fewer = judge_allocatable({"nvidia.com/gpu": "7"}, {"nvidia.com/gpu": 8})
    says(
        fewer,
        CheckVerdict.WARNING,
        "nvidia.com/gpu: 7 allocatable on the Node, the agent shows 8",
        "wait a few seconds",
    )
