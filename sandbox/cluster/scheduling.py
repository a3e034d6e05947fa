"""The scheduler's part for one node: which devices a pod's claims get, or why they get none. Pure.

The decision is the structured allocator's, which decides as the stock scheduler does; writing it down is the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.reading import AllocationError

Json = dict[str, Any]
Object = Mapping[str, Any]

RESERVED_MAX = 256
"""Pods that may share a claim."""


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
    """What a claim was given, empty when it is not allocated."""
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
