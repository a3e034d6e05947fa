"""The example that changes a Deployment from a resource's name to claims: complete, and done on a node that is full."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from sandbox.node import SandboxNode
from sandbox.nodes import path
from scheduling.api.validation.objects import validate_template
from tests.deploy.chart.rendering import Document, of_kind, only, render
from tests.examples.claims import ROOT

FOLDER = ROOT / "examples" / "moving-to-claims"
RESOURCE = "nvidia.com/gpu"


def documents(name: str) -> list[Document]:
    return [document for document in yaml.safe_load_all((FOLDER / name).read_text()) if document]


def values() -> dict[str, Any]:
    found = re.search(r"^```yaml\n(.*?)^```$", (FOLDER / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    given: dict[str, Any] = yaml.safe_load(found[1])
    return given


def pod_of(deployment: Document, number: int) -> Document:
    """A pod as the Deployment's controller makes it."""
    template = deployment["spec"]["template"]
    metadata = {**template["metadata"], "name": f"trainer-{number}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_manifests_differ_in_how_a_gpu_is_asked_for_and_nowhere_else() -> None:
    before, after = (only(documents(name), "Deployment") for name in ("before.yaml", "after.yaml"))
    limits = before["spec"]["template"]["spec"]["containers"][0].pop("resources")
    claims = after["spec"]["template"]["spec"]["containers"][0].pop("resources")
    (entry,) = after["spec"]["template"]["spec"].pop("resourceClaims")
    assert before == after
    assert limits == {"limits": {RESOURCE: 1}}
    assert claims == {"claims": [{"name": entry["name"]}]}
    template = only(documents("after.yaml"), "ResourceClaimTemplate")
    assert entry["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert validate_template(template, admin_namespace=False) == []


@pytest.mark.timeout(600)  # it may have to build Helm
def test_the_chart_makes_the_class_and_the_page_applies_one_after_the_other() -> None:
    (asked,) = re.findall(r"deviceClassName: (\S+)", (FOLDER / "after.yaml").read_text())
    assert asked in {each["metadata"]["name"] for each in of_kind(render(values()), "DeviceClass")}
    applied = re.findall(r"kubectl apply -f examples/moving-to-claims/(\S+)", (FOLDER / "README.md").read_text())
    assert applied == ["before.yaml", "after.yaml"]


async def test_a_full_node_changes_over_pod_by_pod() -> None:
    config = {"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", **values()["config"]}
    after = documents("after.yaml")
    deployment = only(after, "Deployment")
    async with SandboxNode(path("l4-2"), configuration=json.dumps(config), cluster=True) as box:
        assert box.cluster is not None
        await box.registered()
        replicas = deployment["spec"]["replicas"]
        old = [await box.give(RESOURCE, 1) for _ in range(replicas)]
        assert all(each.admission.admitted for each in old)
        await box.cluster.apply([only(after, "ResourceClaimTemplate")])
        taken = set()
        for number, each in enumerate(old):
            await box.over(each.pod)
            found = await box.cluster.run(pod_of(deployment, number))
            assert found.running, found.message
            taken |= {device for devices in found.claims.values() for device in devices}
            await box.kubelet.wait_for(RESOURCE, healthy=replicas - number - 1)
        assert len(taken) == replicas
