"""``ostler fit`` as it is typed, and what it places: pods, workloads, claim templates, and a small cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ostler.cli.main import main
from tests.making.clusters import GPU, GPU_CLASS, Object, gpus, node, request, resource_slice, thing

A, B = node("node-a"), node("node-b")
FREE = (A, B, GPU_CLASS, resource_slice("node-a", gpus(2)), resource_slice("node-b", gpus(1)))
"""Three GPUs on two nodes."""


def template(name: str = "one", count: int = 1, *expressions: str, of: str = GPU) -> Object:
    spec = {"spec": {"devices": {"requests": [request("gpu", of, count, *expressions)]}}}
    return thing("ResourceClaimTemplate", name, spec, namespace="team")


def pod_spec(template_name: str = "one", claim: str = "", **requests: str) -> Object:
    reference = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template_name}
    resources = {"resources": {"requests": {key.replace("_", "/"): text for key, text in requests.items()}}}
    container = {"name": "main", "image": "none", **(resources if requests else {})}
    references = [{"name": "gpu", **reference}] if template_name or claim else []
    return {"containers": [container], "resourceClaims": references}


def pod(name: str, template_name: str = "one", claim: str = "", **requests: str) -> Object:
    return thing("Pod", name, pod_spec(template_name, claim, **requests), namespace="team")


def workload(kind: str, name: str, template_name: str = "one", **spec: Any) -> Object:
    version = "batch/v1" if kind == "Job" else "apps/v1"
    whole = {**spec, "template": {"spec": pod_spec(template_name)}}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "team"}, "spec": whole}


class Fit:
    """Asks the command: objects to place, those of the cluster, and words."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys
        self.code = -1
        self.err = ""

    def file(self, name: str, *objects: Object) -> str:
        path = self._folder / name
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    def __call__(self, wanted: list[Object], cluster: tuple[Object, ...] = FREE, *words: str) -> str:
        origin = ["--from", self.file("cluster.yaml", *cluster)] if cluster else []
        self.code = main(["fit", "-f", self.file("pods.yaml", *wanted), *origin, *words])
        printed = self._capsys.readouterr()
        self.err = printed.err
        return printed.out

    def json(self, wanted: list[Object], cluster: tuple[Object, ...] = FREE, *words: str) -> Any:
        return json.loads(self(wanted, cluster, *words, "-o", "json"))


def told(*resources: tuple[str, str], name: str = "node-a") -> Object:
    return {**node(name), "status": {"allocatable": dict(resources)}}
