"""What the control plane decides for one node: the pod's claims, their devices, and evictions by taints. Pure.

The allocation is the structured allocator's, which decides as the stock scheduler does; the cluster writes it down. A
toleration with a time ends once that time is over, by ``now``; nothing here waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandbox.cluster.manifests import containers_of, limits_of

Json = dict[str, Any]
Object = Mapping[str, Any]

RESERVED_MAX = 256
"""Pods that may share a claim."""
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
EXTENDED_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"


class Unschedulable(Exception):
    """The pod fits on no node; the text is that of its condition PodScheduled."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"0/1 nodes are available: {reason}")


def allocate(
    claims: Sequence[Object],
    others: Iterable[Object],
    *,
    classes: Iterable[Object],
    slices: Sequence[Object],
    node: Object,
) -> list[Json]:
    """The claims with their new allocation; ``others``: all claims of the cluster. Raises ``Unschedulable``."""
    if not claims:
        return []
    # They load CEL, a fifth of the start of a kubelet that sees no claim.
    from scheduling.allocator.allocated import AllocatedState
    from scheduling.allocator.allocator import Allocator
    from scheduling.allocator.reading import AllocationError

    try:
        allocator = Allocator(
            claims,
            AllocatedState.of_claims(claim for claim in others if allocation(claim)),
            {each["metadata"]["name"]: each for each in classes},
            slices,
        )
        results = allocator.allocate(node)
    except AllocationError as error:
        raise Unschedulable(str(error)) from error
    if results is None:
        raise Unschedulable("1 cannot allocate all claims")
    return [_with(claim, {"allocation": result}) for claim, result in zip(claims, results, strict=True)]


def allocation(claim: Object) -> Json:
    """A claim's allocation, empty when it is not allocated."""
    found: Json = (claim.get("status") or {}).get("allocation") or {}
    return found


def reserved(claim: Object, pod: Object) -> Json:
    """The claim with ``pod`` among those that may use it; raises ``Unschedulable`` when there are too many."""
    consumers = list((claim.get("status") or {}).get("reservedFor") or ())
    metadata = pod["metadata"]
    if not any(each["uid"] == metadata["uid"] for each in consumers):
        consumers.append({"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]})
    if len(consumers) > RESERVED_MAX:
        raise Unschedulable(f"1 ResourceClaim {claim['metadata']['name']} has {RESERVED_MAX} pods already")
    return _with(claim, {"reservedFor": consumers})


def released(claim: Object, pod_uid: str) -> Json:
    """The claim without the pod; without any pod it loses its devices, too, and what their drivers said of them."""
    status = dict(claim.get("status") or {})
    consumers = [each for each in status.get("reservedFor") or () if each["uid"] != pod_uid]
    if consumers:
        return {**claim, "status": {**status, "reservedFor": consumers}}
    return {**claim, "status": {}}


def _with(claim: Object, status: Object) -> Json:
    return {**claim, "status": {**(claim.get("status") or {}), **status}}


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


def with_rules(slices: Iterable[Object], rules: Iterable[Object]) -> list[Json]:
    """The slices as a scheduler sees them: with the taints of DeviceTaintRules at the devices that these select."""
    return [_tainted(each, [rule["spec"] for rule in rules]) for each in slices]


def evicted(claims: Iterable[Object], slices: Iterable[Object], now: float) -> dict[str, str]:
    """Pod UID -> why it has to go: device and taint. ``now``: seconds since the epoch."""
    taints = _taints(slices)
    found: dict[str, str] = {}
    for claim in claims:
        for result in allocation(claim).get("devices", {}).get("results") or ():
            key = (result["driver"], result["pool"], result["device"])
            for taint in taints.get(key, ()):
                if not any(_tolerates(each, taint, now) for each in result.get("tolerations") or ()):
                    reason = f"device {'/'.join(key)} of claim {claim['metadata']['name']} has the taint {shown(taint)}"
                    for pod in (claim.get("status") or {}).get("reservedFor") or ():
                        found.setdefault(pod["uid"], reason)
    return found


def _tainted(obj: Object, rules: Sequence[Object]) -> Json:
    spec = obj["spec"]
    devices = []
    for device in spec.get("devices") or ():
        added = [rule["taint"] for rule in rules if _selected(rule, spec, device)]
        devices.append({**device, "taints": [*(device.get("taints") or ()), *added]} if added else device)
    return {**obj, "spec": {**spec, "devices": devices} if devices else spec}


def _selected(rule: Object, spec: Object, device: Object) -> bool:
    """Whether a rule selects the device: all that it names has to agree, and without a selector it selects none."""
    selector = rule.get("deviceSelector")
    found = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
    return selector is not None and all(found[name] == wanted for name, wanted in selector.items() if wanted)


def _taints(slices: Iterable[Object]) -> dict[tuple[str, str, str], list[Object]]:
    return {
        (spec["driver"], spec["pool"]["name"], device["name"]): effective
        for spec in _newest(slices)
        for device in spec.get("devices") or ()
        if (effective := [each for each in device.get("taints") or () if each["effect"] == "NoExecute"])
    }


def _newest(slices: Iterable[Object]) -> Iterator[Object]:
    """Specs of each pool's highest generation."""
    specs = [each["spec"] for each in slices]
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        pool = (spec["driver"], spec["pool"]["name"])
        newest[pool] = max(newest.get(pool, 0), spec["pool"].get("generation", 0))
    yield from (
        spec for spec in specs if spec["pool"].get("generation", 0) == newest[spec["driver"], spec["pool"]["name"]]
    )


def _tolerates(toleration: Object, taint: Object, now: float) -> bool:
    # For the scheduler a toleration without an effect is one of all; the controller that evicts wants it written out.
    if toleration.get("effect") != taint["effect"]:
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator", "Equal") != "Exists" and toleration.get("value", "") != taint.get("value", ""):
        return False
    seconds = toleration.get("tolerationSeconds")
    return seconds is None or now < _seconds(taint.get("timeAdded")) + seconds


def _seconds(time: str | None) -> float:
    return datetime.fromisoformat(time).timestamp() if time else 0.0


def shown(taint: Object) -> str:
    """``key=value:effect``, without a value ``key:effect``, as kubectl writes it."""
    key = f"{taint['key']}={taint['value']}" if taint.get("value") else taint["key"]
    return f"{key}:{taint['effect']}"
