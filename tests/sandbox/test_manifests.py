"""Manifests that nothing can be made of, and those that the sandbox brings itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sandbox.cluster.manifests import ManifestError, check_shape, current
from sandbox.cluster.samples import DRIVER, device_classes

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod", "Pod: metadata: must be a mapping, is None"),
        ("{kind: Pod, metadata: {name: a}, spec: 5}", "Pod a: spec: must be a mapping, is 5"),
        ("{kind: Pod, metadata: {name: a}, spec: {containers: 5}}", "spec.containers: must be a list, is 5"),
        (
            "{kind: Pod, metadata: {name: a}, spec: {containers: [{}]}}",
            "spec.containers[0].name: must be a string, is None",
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


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_claims_of_every_version_are_created_as_v1(version: str) -> None:
    exactly = {"deviceClassName": "gpu.ostler.dev", "count": 2, "allocationMode": "ExactCount"}
    request = {"name": "gpu", **exactly} if version == "v1beta1" else {"name": "gpu", "exactly": exactly}
    claim = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "two"},
        "spec": {"devices": {"requests": [request]}},
    }
    made = current(claim)
    assert made["apiVersion"] == "resource.k8s.io/v1"
    assert made["spec"]["devices"]["requests"] == [{"name": "gpu", "exactly": exactly}]


def test_a_version_that_its_kind_does_not_have_is_told() -> None:
    claim = {"apiVersion": "resource.k8s.io/v2", "kind": "ResourceClaim", "metadata": {"name": "x"}, "spec": {}}
    with pytest.raises(ManifestError, match="ResourceClaim: apiVersion: v2 is unknown; "):
        current(claim)


def test_a_taint_rule_is_created_in_the_version_of_the_sandbox() -> None:
    rule = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule", "metadata": {"name": "x"}, "spec": {}}
    assert current(rule)["apiVersion"] == "resource.k8s.io/v1beta2"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    assert current(pod) is pod
