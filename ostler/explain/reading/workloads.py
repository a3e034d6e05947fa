"""Objects that make pods: asked about one of them, people mean the pods that it makes."""

from __future__ import annotations

from dataclasses import dataclass

from kube.bodies import JsonObject, object_at
from ostler.explain.kinds import Kind


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind that makes pods: its version, and where its pod template is."""

    version: str
    template: tuple[str, ...] = ("spec", "template")


WORKLOADS = {
    "Deployment": Workload("apps/v1"),
    "ReplicaSet": Workload("apps/v1"),
    "StatefulSet": Workload("apps/v1"),
    "DaemonSet": Workload("apps/v1"),
    "Job": Workload("batch/v1"),
    "CronJob": Workload("batch/v1", ("spec", "jobTemplate", "spec", "template")),
    "ReplicationController": Workload("v1"),
}


def pod_of(body: JsonObject) -> JsonObject | None:
    """A pod as the workload would make it, under the workload's own name; None without a pod template."""
    template = object_at(body, *WORKLOADS[str(body["kind"])].template)
    spec = object_at(template, "spec")
    if not spec:
        return None
    metadata = object_at(body, "metadata")
    named: JsonObject = {key: metadata[key] for key in ("name", "namespace", "generateName") if key in metadata}
    labels = object_at(template, "metadata", "labels")
    return {
        "apiVersion": "v1",
        "kind": Kind.POD.value,
        "metadata": {**named, **({"labels": labels} if labels else {})},
        "spec": spec,
    }
