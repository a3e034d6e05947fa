"""Objects that make pods: a question about one of them is a question about its pods.

It is answered for one pod, whatever the number of replicas: all of them ask for the same. A ComputeDomain of NVIDIA's
driver makes no pods but the claim template that they name, which is made here as NVIDIA's controller does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kube.bodies import Json, JsonObject, object_at, path_of, text_at
from kube.discovery import ObjectGetter
from kube.errors import Forbidden, NotFound
from scheduling.explain.state import GROUP, BadQuestion, Kind, name_of


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind that makes pods: its version, and the place of its pod template."""

    version: str
    plural: str
    template: tuple[str, ...] = ("spec", "template")
    replicas: tuple[str, ...] = ("spec", "replicas")
    """Where the number of its pods is; empty where nodes decide it."""


WORKLOADS = {
    "Deployment": Workload("apps/v1", "deployments"),
    "ReplicaSet": Workload("apps/v1", "replicasets"),
    "StatefulSet": Workload("apps/v1", "statefulsets"),
    "DaemonSet": Workload("apps/v1", "daemonsets", replicas=()),
    "Job": Workload("batch/v1", "jobs", replicas=("spec", "parallelism")),
    "CronJob": Workload(
        "batch/v1",
        "cronjobs",
        ("spec", "jobTemplate", "spec", "template"),
        ("spec", "jobTemplate", "spec", "parallelism"),
    ),
    "ReplicationController": Workload("v1", "replicationcontrollers"),
}
COMPUTE_DOMAIN, COMPUTE_DOMAIN_GROUP = "ComputeDomain", "resource.nvidia.com"
_DRIVER = "compute-domain.nvidia.com"
_CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"


@dataclass(frozen=True, slots=True)
class WorkloadPods:
    """The pods that a workload makes."""

    body: JsonObject

    @property
    def title(self) -> str:
        """Such as ``Deployment web``."""
        return f"{self.body['kind']} {name_of(self.body)}"

    @property
    def count(self) -> int | None:
        """How many there are at a time; None for one on every node."""
        path = WORKLOADS[str(self.body["kind"])].replicas
        if not path:
            return None
        number, most = _number_at(self.body, path, 1), _number_at(self.body, (*path[:-1], "completions"), None)
        ends = path[-1] == "parallelism" and most is not None
        return min(number or 0, most) if ends and most is not None else number

    @property
    def note(self) -> str:
        """For how many of the pods the answer about one of them counts, as a sentence without a full stop."""
        if self.count is None:
            return f"{self.title}: asked for one pod; it makes one on each node that its pods may run on"
        if self.count == 1:
            return f"{self.title}: asked for its one pod"
        return f"{self.title}: asked for 1 of its {self.count} pods; each of them asks for the same"


def wrong_counts(body: JsonObject) -> Iterator[tuple[tuple[str, ...], Json]]:
    """The fields of a workload that must be a number of pods and are none, with what they are."""
    path = WORKLOADS[str(body["kind"])].replicas
    for field in (path, (*path[:-1], "completions")) if path else ():
        found = object_at(body, *field[:-1]).get(field[-1])
        if found is not None and (not isinstance(found, int) or isinstance(found, bool) or found < 0):
            yield field, found


def _number_at(body: JsonObject, path: tuple[str, ...], default: int | None) -> int | None:
    found = object_at(body, *path[:-1]).get(path[-1])
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def template_of(domain: JsonObject) -> JsonObject | None:
    """The claim template that NVIDIA's controller makes for a ComputeDomain; None if it names none."""
    name = text_at(domain, "spec", "channel", "resourceClaimTemplate", "name")
    if not name:
        return None
    namespace = text_at(domain, "metadata", "namespace")
    request: JsonObject = {"name": "channel", "exactly": {"deviceClassName": _CHANNEL_CLASS}}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": Kind.TEMPLATE.value,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def domain_note(domain: JsonObject, template: str) -> str:
    """The objects that a ComputeDomain makes, as a sentence without a full stop."""
    return (
        f"{COMPUTE_DOMAIN} {name_of(domain)}: NVIDIA's controller makes claim template {template} for it, which asks "
        f"for an IMEX channel of the node (a device of driver {_DRIVER}, whose type is channel)"
    )


def workload_path(kind: str, namespace: str, name: str) -> str:
    """The path of a workload in the API."""
    facts = WORKLOADS[kind]
    group, _, version = facts.version.rpartition("/")
    root = ("apis", group, version) if group else ("api", version)
    return path_of(*root, "namespaces", namespace, facts.plural, name)


def read_workload(client: ObjectGetter, kind: str, namespace: str, name: str) -> tuple[JsonObject, str]:
    """A pod of a workload in a cluster, and for how many the answer counts; raises ``BadQuestion`` and
    ``RequestError``.
    """
    try:
        found = client.get(workload_path(kind, namespace, name))
    except NotFound as error:
        raise BadQuestion(f"there is no {kind} {namespace}/{name}; check name and namespace (-n)") from error
    except Forbidden as error:
        resource = f"{WORKLOADS[kind].plural}.{WORKLOADS[kind].version.rpartition('/')[0]}".rstrip(".")
        raise BadQuestion(
            f"{kind} {namespace}/{name} cannot be read: you may not get {resource} there; ask about one of its pods"
        ) from error
    body: JsonObject = {**found, "kind": kind}
    pod = pod_of(body)
    if pod is None:
        raise BadQuestion(f"{kind} {namespace}/{name} has no pod template")
    return pod, WorkloadPods(body).note


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
