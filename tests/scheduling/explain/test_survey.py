"""What is told of all nodes, where the inputs themselves are wanting."""

from __future__ import annotations

from kube.bodies import JsonObject
from ostler.explain.forms import draw
from scheduling.explain.state import Kind, MissingKind, State
from scheduling.explain.subject import ExplainSubject, Question
from scheduling.explain.survey import survey

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
    assert "whether there is a DeviceClass gpu, and what it selects, could not be read" in text
    assert "device classes may not be listed; grant list" in text
    assert "there is no DeviceClass" not in text


def test_a_class_that_nobody_made_is_missing() -> None:
    assert 'there is no DeviceClass "gpu"' in told(State())
