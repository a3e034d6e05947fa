"""An object's metadata from creation to deletion: name, uid, times, and whether and how it may be deleted.

Clock and randomness are given, so that a test can say what comes out. Preconditions are those of the request's
DeleteOptions. An object with finalizers is marked and stays until the last of them is removed; a pod on a node is
marked and stays until its kubelet deletes it with a grace period of 0.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from sandbox.apiserver import refusals
from sandbox.apiserver.kinds import Json, Object, ServedKind
from scheduling.api.validation.cause import StatusCause, not_supported

GENERATED_FROM: Final = 58
"""Characters of generateName that go into a name: 63 less the random ones."""
_RANDOM: Final = 5
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The server's: nothing that could make a word or be misread."""
_CLEARED: Final = (
    "resourceVersion",
    "selfLink",
    "managedFields",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_KEPT: Final = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
_DEFAULT_GRACE: Final = 30
_POLICIES: Final = ("Orphan", "Background", "Foreground")
_ENDED: Final = ("Succeeded", "Failed")


class MetadataWriter:
    """`clock`: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float], random: Random) -> None:
        self._clock = clock
        self._random = random

    def now(self, ahead: float = 0) -> str:
        """The time as the server writes it: whole seconds, UTC."""
        return datetime.fromtimestamp(int(self._clock() + ahead), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def name(self, metadata: Object) -> str:
        """The object's name, made from generateName if it has none."""
        if metadata.get("name"):
            return str(metadata["name"])
        prefix = str(metadata.get("generateName", "")).encode()[:GENERATED_FROM].decode(errors="ignore")
        return prefix + "".join(self._random.choices(_LETTERS, k=_RANDOM))

    def born(self, kind: ServedKind, resource: Object, name: str, namespace: str) -> Json:
        """The object as it is stored first, but for its resource version."""
        own = {key: value for key, value in resource.get("metadata", {}).items() if key not in _CLEARED}
        own.pop("namespace", None)
        placed = {"namespace": namespace} if kind.namespaced else {}
        uid = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        own |= {"name": name, **placed, "uid": uid, "creationTimestamp": self.now()}
        if kind.counts:
            own["generation"] = 1
        return {**resource, "metadata": own}

    def changed(self, kind: ServedKind, new: Object, old: Object) -> Json:
        """The object that takes the place of `old`, but for its resource version."""
        before = old["metadata"]
        own = {key: value for key, value in new.get("metadata", {}).items() if key not in _CLEARED}
        own.pop("namespace", None)
        placed = {"namespace": before["namespace"]} if kind.namespaced else {}
        own |= {"name": before["name"], **placed, **{key: before[key] for key in _KEPT if key in before}}
        if kind.counts and new.get("spec") != old.get("spec"):
            own["generation"] = before.get("generation", 0) + 1
        return {**new, "metadata": own}


@dataclass(frozen=True, slots=True)
class Deletion:
    """`grace`: mark it as deleted in that many seconds, None: leave it as it is; then, if `now`, remove it."""

    now: bool
    grace: int | None = None


def options_of(body: object) -> Json:
    """Return the DeleteOptions of a request's body, None for no body. Raises StatusError (400, 422)."""
    options = {} if body is None else body
    for fault in _wrong_types(options):
        raise refusals.bad_request(f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: {fault}')
    assert isinstance(options, dict)
    for cause in _unknown(options):
        raise refusals.invalid_options("DeleteOptions", cause)
    return options


def _wrong_types(options: Any) -> Iterator[str]:
    if not isinstance(options, dict):
        yield "must be a JSON object"
        return
    grace, preconditions = options.get("gracePeriodSeconds"), options.get("preconditions")
    if not (grace is None or (isinstance(grace, int) and not isinstance(grace, bool))):
        yield f"gracePeriodSeconds: must be a whole number, is {grace!r}"
    if not (preconditions is None or isinstance(preconditions, dict)):
        yield f"preconditions: must be a mapping, is {preconditions!r}"
        return
    for name in ("uid", "resourceVersion"):
        if not isinstance((preconditions or {}).get(name, ""), (str, type(None))):
            yield f"preconditions.{name}: must be a string"
    dry_run = options.get("dryRun") or []
    if not (isinstance(dry_run, list) and all(isinstance(each, str) for each in dry_run)):
        yield f"dryRun: must be a list of strings, is {dry_run!r}"


def _unknown(options: Object) -> Iterator[StatusCause]:
    dry_run, policy = options.get("dryRun") or [], options.get("propagationPolicy")
    if any(each != "All" for each in dry_run):
        yield not_supported("dryRun", dry_run, ["All"])
    if policy is not None and policy not in _POLICIES:
        yield not_supported("propagationPolicy", policy, _POLICIES)


def decided(kind: ServedKind, resource: Object, options: Object) -> Deletion:
    """Return what a deletion with DeleteOptions does. Raises StatusError (409)."""
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


def _grace(kind: ServedKind, resource: Object, asked: int | None) -> int:
    """Only pods that a node has to end get time."""
    spec, phase = resource.get("spec", {}), resource.get("status", {}).get("phase")
    if kind.name != "Pod" or not spec.get("nodeName") or phase in _ENDED:
        return 0
    wanted = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE) if asked is None else asked
    return int(max(wanted, 1) if wanted < 0 else wanted)


def _check(kind: ServedKind, metadata: Object, preconditions: Object) -> None:
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
