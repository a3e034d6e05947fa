"""Whether an object may be deleted, and how: at once, or after somebody else is done with it.

Preconditions are those of the request's DeleteOptions. An object with finalizers is marked and stays until the last of
them is removed; a pod on a node is marked and stays until its kubelet deletes it with a grace period of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sandbox.apiserver import refusals
from sandbox.apiserver.kinds import Kind, Object

_DEFAULT_GRACE: Final = 30
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Deletion:
    """`grace`: mark it as deleted in so many seconds, None: leave it as it is; then, if `now`, remove it."""

    now: bool
    grace: int | None = None


def decided(kind: Kind, resource: Object, options: Object) -> Deletion:
    """Return what a deletion with DeleteOptions does. Raises Refusal (400, 409)."""
    if not isinstance(options, dict):
        raise refusals.bad_request("DeleteOptions must be an object")
    metadata = resource["metadata"]
    _check(kind, metadata, options.get("preconditions") or {})
    grace = _grace(kind, resource, options.get("gracePeriodSeconds"))
    marked = "deletionTimestamp" in metadata
    if metadata.get("finalizers"):
        return Deletion(now=False, grace=None if marked else grace)
    if not grace:
        # Pods are marked first, as everything is that can be deleted with grace.
        return Deletion(now=True, grace=0 if kind.name == "Pod" else None)
    return Deletion(now=False, grace=None if marked and grace >= metadata["deletionGracePeriodSeconds"] else grace)


def over(resource: Object) -> bool:
    """Tell whether nothing keeps an object that is marked as deleted."""
    metadata = resource["metadata"]
    kept = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not kept


def _grace(kind: Kind, resource: Object, asked: int | None) -> int:
    """Only pods that a node has to end get time."""
    spec, phase = resource.get("spec", {}), resource.get("status", {}).get("phase")
    if kind.name != "Pod" or not spec.get("nodeName") or phase in _ENDED:
        return 0
    wanted = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE) if asked is None else asked
    return int(max(wanted, 1) if wanted < 0 else wanted)


def _check(kind: Kind, metadata: Object, preconditions: Object) -> None:
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    own_uid, own_version = metadata["uid"], metadata["resourceVersion"]
    if uid is not None and uid != own_uid:
        fault = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({own_uid}). "
            "The object might have been deleted and then recreated"
        )
        raise refusals.conflict(kind, metadata["name"], fault, kind.qualified)
    if version is not None and version != own_version:
        fault = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({own_version}). The object might have been modified"
        )
        raise refusals.conflict(kind, metadata["name"], fault, kind.qualified)
