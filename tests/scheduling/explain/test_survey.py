"""The answer for all nodes where the inputs themselves are incomplete, and pods that wait for binding conditions."""

from __future__ import annotations

from typing import Any

from kube.bodies import JsonObject
from ostler.explain.forms import draw
from scheduling.explain.question import Question
from scheduling.explain.state import Kind, MissingKind, State
from scheduling.explain.subject import ExplainSubject
from scheduling.explain.survey import survey
from tests.making.clusters import GPU, GPU_CLASS, gpus, holder, node, pod, resource_slice
from tests.scheduling.explain.cases import CaseAnswers

CLAIM: JsonObject = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "train", "namespace": "team"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
            ]
        }
    },
}


def told(state: State) -> str:
    subject = ExplainSubject(Question(Kind.CLAIM, "team", "train"), to_allocate=(CLAIM,))
    return draw(survey(state, subject), width=None, colour=False, all_nodes=False)


def test_a_class_that_may_not_be_read_is_not_said_to_be_missing() -> None:
    text = told(State(missing=(MissingKind(Kind.CLASS, "device classes may not be listed", "grant list"),)))
    assert "could not read whether DeviceClass gpu exists, and what it selects" in text
    assert "device classes may not be listed; grant list" in text
    assert "there is no DeviceClass" not in text


def test_a_class_that_nobody_made_is_missing() -> None:
    assert 'there is no DeviceClass "gpu"' in told(State())


def bound(*conditions: dict[str, str]) -> dict[str, Any]:
    body = holder("node-a", "gpu-0", name="train", pods=["train-0"])
    (result,) = body["status"]["allocation"]["devices"]["results"]
    result |= {"bindingConditions": ["attached", "ready"], "bindingFailureConditions": ["broken"]}
    device = {"driver": GPU, "pool": "node-a", "device": "gpu-0", "conditions": list(conditions)}
    other = {**device, "pool": "node-b", "conditions": [{"type": "broken", "status": "True"}]}
    return {**body, "status": {**body["status"], "devices": [other, device]}}


def notes(answers: CaseAnswers, claim: dict[str, Any], **spec: Any) -> list[str]:
    objects = (node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(1)), claim, pod(**spec))
    printed = answers(*objects, ask="pod/train-0")
    assert answers.code == 0
    return [line for line in printed.splitlines() if line.startswith("note: ")]


def test_conditions_that_are_not_true_yet_are_told_with_who_sets_them(answers: CaseAnswers) -> None:
    waiting = {"type": "ready", "status": "False", "reason": "Cabling", "message": "port 7"}
    assert notes(answers, bound({"type": "attached", "status": "True"}, waiting)) == [
        "note: claim team/train already has its devices: gpu-0 of gpu.example.com, pool node-a",
        (
            "note: the pod waits until gpu-0 of gpu.example.com has the condition ready (Cabling: port 7); its "
            "driver's controller sets it in the claim's status.devices"
        ),
    ]
    assert "has the condition attached, ready; its driver" in notes(answers, bound())[1]


def test_a_condition_of_failure_is_told_before_all_others(answers: CaseAnswers) -> None:
    said = notes(answers, bound({"type": "broken", "status": "True", "message": "no\npower"}))
    assert said[1:] == [
        (
            "note: gpu-0 of gpu.example.com cannot be made ready: broken (no power); the scheduler takes the "
            "devices back and tries again"
        )
    ]


def test_nothing_waits_once_all_are_true_or_the_pod_is_on_its_node(answers: CaseAnswers) -> None:
    true = ({"type": "attached", "status": "True"}, {"type": "ready", "status": "True"})
    assert len(notes(answers, bound(*true))) == 1
    assert not any("waits until" in line for line in notes(answers, bound(), nodeName="node-a"))
