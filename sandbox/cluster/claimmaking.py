"""The claims that the control plane makes for a pod: from templates, and for extended resources. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.cluster.manifests import containers_of, limits_of

Json = dict[str, Any]
Object = Mapping[str, Any]

POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
EXTENDED_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class ExtendedNeed:
    """A claim for a pod's extended resources, and the ``requestMappings`` of its status."""

    claim: Json
    mappings: tuple[Json, ...]


def from_template(pod: Object, name: str, template: Object) -> Json:
    """The claim for the pod's entry ``name``, out of its ResourceClaimTemplate."""
    metadata = template["spec"].get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), POD_CLAIM_ANNOTATION: name}
    claim = _claim(pod, f"{pod['metadata']['name']}-{name}-", annotations, template["spec"]["spec"])
    if metadata.get("labels"):
        claim["metadata"]["labels"] = metadata["labels"]
    return claim


def for_extended_resources(
    pod: Object, classes: Iterable[Object], plugin_resources: Collection[str]
) -> ExtendedNeed | None:
    """The claim for the extended resources that no device plugin of the node serves but a class does; None for none."""
    by_resource = _by_resource(classes)
    requests: list[Json] = []
    mappings: list[Json] = []
    for index, (container, _) in enumerate(containers_of(pod)):
        served = [
            (resource, count)
            for resource, count in sorted(limits_of(container).items())
            if count and resource not in plugin_resources and resource in by_resource
        ]
        for number, (resource, count) in enumerate(served):
            request = f"container-{index}-request-{number}"
            exactly = {
                "deviceClassName": by_resource[resource],
                "allocationMode": "ExactCount",
                "count": count,
            }
            requests.append({"name": request, "exactly": exactly})
            mappings.append({"containerName": container["name"], "resourceName": resource, "requestName": request})
    if not requests:
        return None
    generate = f"{pod['metadata']['name']}-extended-resources-"
    claim = _claim(pod, generate, {EXTENDED_ANNOTATION: "true"}, {"devices": {"requests": requests}})
    return ExtendedNeed(claim, tuple(mappings))


def _by_resource(classes: Iterable[Object]) -> dict[str, str]:
    """Extended resource -> class; of several classes the newest has the name, of equally old ones the first."""
    found: dict[str, str] = {}
    by_name = sorted(classes, key=lambda each: str(each["metadata"]["name"]), reverse=True)
    for each in sorted(by_name, key=lambda each: str(each["metadata"].get("creationTimestamp", ""))):
        name = each["metadata"]["name"]
        found[f"{IMPLICIT_PREFIX}{name}"] = name
        explicit = each["spec"].get("extendedResourceName")
        if explicit:
            found[explicit] = name
    return found


def _claim(pod: Object, generate: str, annotations: Mapping[str, str], spec: Object) -> Json:
    metadata = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": generate,
            "namespace": metadata.get("namespace", "default"),
            "annotations": dict(annotations),
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
