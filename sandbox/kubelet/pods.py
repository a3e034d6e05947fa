"""Pods as the embedded kubelet gets them, its verdicts over them, and the pods that are on the node now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sandbox.kubelet.topology import ProviderHints, TopologyHint

Kind = Literal["init", "sidecar", "app"]


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """An entry of a container's ``resources.claims``; without a request the container gets all of the claim."""

    name: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """One container: ``limits`` of extended resources (whole numbers), the claims it uses, and its kind.

    ``sidecar`` is an init container with restartPolicy Always.
    """

    name: str
    kind: Kind = "app"
    limits: Mapping[str, int] = field(default_factory=dict)
    claims: tuple[ClaimUse, ...] = ()


@dataclass(frozen=True, slots=True)
class PodClaim:
    """An entry of ``spec.resourceClaims``: its name in the pod, and that of the ResourceClaim.

    ``generated``: made from a template, so it has to belong to the pod. ``claim`` is empty while it is not made yet
    and None when the pod needs none.
    """

    name: str
    claim: str | None
    generated: bool = False


@dataclass(frozen=True, slots=True)
class ExtendedRequest:
    """Which request of an extended resource claim serves a container's resource."""

    container: str
    resource: str
    request: str


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """The ResourceClaim by which a scheduler serves extended resources (``status.extendedResourceClaimStatus``)."""

    claim: str
    requests: tuple[ExtendedRequest, ...]


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod as it reaches the node; ``claim_backed`` holds (container, resource) that a DRA claim serves instead."""

    uid: str
    name: str
    namespace: str = "default"
    containers: tuple[Container, ...] = ()
    claim_backed: frozenset[tuple[str, str]] = frozenset()
    claims: tuple[PodClaim, ...] = ()
    extended_claim: ExtendedClaim | None = None

    def container(self, name: str) -> Container:
        """The container called ``name``; raises KeyError."""
        for container in self.containers:
            if container.name == name:
                return container
        raise KeyError(f"pod {self.name!r} has no container {name!r}")

    def in_start_order(self) -> tuple[Container, ...]:
        """Init containers and sidecars in the pod's order, then app containers: the order of allocation."""
        early = tuple(container for container in self.containers if container.kind != "app")
        return early + tuple(container for container in self.containers if container.kind == "app")

    def effective_limits(self) -> dict[str, int]:
        """What the pod needs at most at one time: an ordinary init container runs beside the sidecars before it."""
        running: Counter[str] = Counter()
        peaks: list[Counter[str]] = []
        for container in self.in_start_order():
            if container.kind == "init":
                peaks.append(running + Counter(container.limits))
            else:
                running.update(container.limits)
        names = {name for container in self.containers for name in container.limits}
        return {name: max(total[name] for total in (*peaks, running)) for name in sorted(names)}


class ActivePods:
    """The pods on the node now, by UID; ``are_all``: every pod has been read since the kubelet's start.

    With ``keeps_ended`` also those that have ended, until they are deleted: to the API server they are still there.
    """

    def __init__(self, *, keeps_ended: bool = False) -> None:
        self.by_uid: dict[str, Pod] = {}
        self.are_all = True
        self._keeps_ended = keeps_ended
        self._ended: dict[str, Pod] = {}

    def add(self, pod: Pod) -> None:
        """Count a pod as active."""
        self.by_uid[pod.uid] = pod
        self._ended.pop(pod.uid, None)

    def end(self, pod_uid: str) -> None:
        """Count a pod as active no longer; an unknown one is no error."""
        pod = self.by_uid.pop(pod_uid, None)
        if pod is not None and self._keeps_ended:
            self._ended[pod_uid] = pod

    def delete(self, pod_uid: str) -> None:
        """Forget a pod, active or ended; an unknown one is no error."""
        self.by_uid.pop(pod_uid, None)
        self._ended.pop(pod_uid, None)

    def listed(self) -> tuple[Pod, ...]:
        """The pods that podresources List shows."""
        return (*self.by_uid.values(), *self._ended.values())

    def reading(self, *, done: bool) -> None:
        """Note whether all pods have been read; until then none counts as gone."""
        self.are_all = done


@dataclass(frozen=True, slots=True)
class PodAdmitResult:
    """The verdict over a pod.

    ``devices`` is container -> resource -> ids, for the containers allocated so far. When refused, ``reason`` and
    ``message`` are those of the pod's status, ``error`` is the bare cause and ``container`` where it happened (empty if
    the pod was refused as a whole). ``affinity`` is what each container was allocated by; ``hints``
    by container and ``pod_hints`` are what the device manager offered to the topology manager.
    """

    admitted: bool
    devices: Mapping[str, Mapping[str, tuple[str, ...]]]
    container: str = ""
    reason: str = ""
    message: str = ""
    error: str = ""
    affinity: Mapping[str, TopologyHint] = field(default_factory=dict)
    hints: Mapping[str, ProviderHints] = field(default_factory=dict)
    pod_hints: ProviderHints | None = None

    @property
    def status_message(self) -> str:
        """The message of the refused pod's status; its warning event has ``message``. Empty for an admitted pod."""
        return "" if self.admitted else f"Pod was rejected: {self.message}"


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Capacity and allocatable per resource, and the resources that were forgotten by this very look."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    deleted: tuple[str, ...] = ()
