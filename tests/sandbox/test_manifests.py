"""Manifests that nothing can be made of, and those that the sandbox brings itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sandbox.cluster.classes import DRIVER, device_classes
from sandbox.cluster.manifests import ManifestError, check_shape

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod", "Pod: metadata: must be a mapping, is None"),
        ("{kind: Pod, metadata: {name: a}, spec: 5}", "Pod a: spec: must be a mapping, is 5"),
        ("{kind: Pod, metadata: {name: a}, spec: {containers: 5}}", "spec.containers: must be a list, is 5"),
        (
            "{kind: Pod, metadata: {name: a}, spec: {containers: [{}]}}",
            "spec.containers[0].name: must be a text, is None",
        ),
        (
            "{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, resources: {limits: [1]}}]}}",
            "spec.containers[0].resources.limits: must be a mapping, is [1]",
        ),
        (
            "{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, resources: {claims: [5]}}]}}",
            "spec.containers[0].resources.claims[0]: must be a mapping, is 5",
        ),
    ],
)
def test_manifest_of_which_nothing_can_be_made_is_told(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as raised:
        check_shape(yaml.safe_load(text))
    assert str(raised.value) == message


def test_classes_are_those_of_the_chart() -> None:
    manifests = yaml.safe_load_all((DEPLOY / "manifests" / "ostler-dra.yaml").read_text())
    classes = [each for each in manifests if each and each["kind"] == "DeviceClass"]
    found = {each["metadata"]["name"]: each["spec"]["selectors"][0]["cel"]["expression"] for each in classes}
    ours = {each["metadata"]["name"]: each["spec"]["selectors"][0]["cel"]["expression"] for each in device_classes()}
    assert ours.items() <= found.items()
    assert set(ours) == {name for name in found if name.endswith(f".{DRIVER}")}
