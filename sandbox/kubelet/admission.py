"""Admission of pods: the topology manager decides on a NUMA affinity, then the device manager allocates by it.

Containers are admitted one after the other, init containers and sidecars first, so with scope ``container`` the hints
of one see the devices of those before. Last comes the check against the Node's status. The first error refuses the
pod. What was allocated before the error stays recorded until the pod is seen to be gone, as in kubelets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from sandbox.kubelet.devicemanager import Manager
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.generations import KubeletBehaviour
from sandbox.kubelet.metrics import KubeletMetrics
from sandbox.kubelet.pods import ActivePods, Container, Pod, PodAdmitResult
from sandbox.kubelet.reported_resources import OutOfResourceError, ReportedResources, check_fit
from sandbox.kubelet.topology import ProviderHints, TopologyAffinityError, TopologyHint, TopologyManager


class PodAdmission:
    """Admits pods, and keeps the affinity of every container for allocations that come later."""

    def __init__(
        self,
        topology: TopologyManager,
        manager: Manager,
        pods: ActivePods,
        node: ReportedResources,
        *,
        behaviour: KubeletBehaviour,
        metrics: KubeletMetrics,
    ) -> None:
        self._topology = topology
        self._manager = manager
        self._pods = pods
        self._node = node
        self._behaviour = behaviour
        self._metrics = metrics
        self._affinity: dict[str, dict[str, TopologyHint]] = {}

    def affinity(self, pod_uid: str, container: str) -> TopologyHint:
        """The affinity with which a container was admitted; without one, no nodes and not preferred."""
        return self._affinity.get(pod_uid, {}).get(container, TopologyHint())

    def forget(self, pod_uid: str) -> None:
        """Forget the affinity of a pod's containers."""
        self._affinity.pop(pod_uid, None)

    async def admit(self, pod: Pod, given: Mapping[str, TopologyHint] | None = None) -> PodAdmitResult:
        """Admit ``pod``, which has to count as active already.

        ``given``, the affinity by container name, takes the place of the topology manager.
        """
        began = time.monotonic()
        self._metrics.admissions.add()
        run = _Run(self._topology, self._manager, pod, given)
        self._affinity[pod.uid] = run.affinity
        try:
            try:
                run.decide_for_pod()
                for container in pod.in_start_order():
                    await self._manager.allocate(pod, container, run.decide_for(container))
            except KubeletError:
                self._metrics.admission_errors.add()
                raise
            finally:
                self._metrics.admission_time.observe((time.monotonic() - began) * 1000)
            self._check_fit(pod)
        except KubeletError as error:
            reason, message = _refusal(error)
            return PodAdmitResult(
                admitted=False,
                devices=self._held(pod),
                container="" if isinstance(error, OutOfResourceError) else run.container,
                reason=reason,
                message=message,
                error=str(error),
                affinity=run.affinity,
                hints=run.hints,
                pod_hints=run.pod_hints,
            )
        return PodAdmitResult(
            admitted=True, devices=self._held(pod), affinity=run.affinity, hints=run.hints, pod_hints=run.pod_hints
        )

    def _check_fit(self, pod: Pod) -> None:
        raised = self._manager.raised_allocatable(pod.uid, self._node.allocatable)
        allocatable = {resource: raised[resource] for resource in self._node.allocatable}
        others = (other for uid, other in self._pods.by_uid.items() if uid != pod.uid)
        check_fit(pod, others, allocatable, skip_claimed=self._behaviour.serves_resources_by_claims)

    def _held(self, pod: Pod) -> dict[str, dict[str, tuple[str, ...]]]:
        """Container -> resource -> ids, for containers that hold something."""
        devices: dict[str, dict[str, tuple[str, ...]]] = {}
        for container in pod.containers:
            for resource, ids in self._manager.devices_of(pod.uid, container.name).items():
                devices.setdefault(container.name, {})[resource] = tuple(ids)
        return devices


def _refusal(error: KubeletError) -> tuple[str, str]:
    """Reason and message of the refused pod's status."""
    if isinstance(error, TopologyAffinityError):
        return "TopologyAffinityError", str(error)
    if isinstance(error, OutOfResourceError):
        return error.reason, str(error)
    return "UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected"


class _Run:
    """The topology manager's part of one pod's admission; ``container`` is the one that is being decided on."""

    def __init__(
        self, topology: TopologyManager, provider: Manager, pod: Pod, given: Mapping[str, TopologyHint] | None
    ) -> None:
        self._topology = topology
        self._provider = provider
        self._pod = pod
        self._given = given
        self._shared: TopologyHint | None = None
        self.container = ""
        self.affinity: dict[str, TopologyHint] = {}
        self.hints: dict[str, ProviderHints] = {}
        self.pod_hints: ProviderHints | None = None

    def decide_for_pod(self) -> None:
        """With scope ``pod``, decide for all containers at once; raises ``TopologyAffinityError``."""
        if self._given is None and self._topology.asks_for_hints and self._topology.scope == "pod":
            self.pod_hints = self._provider.pod_hints(self._pod)
            self._shared = self._topology.decide([self.pod_hints])

    def decide_for(self, container: Container) -> TopologyHint:
        """The affinity of the next container; raises ``TopologyAffinityError``."""
        self.container = container.name
        self.affinity[container.name] = affinity = self._decide(container)
        return affinity

    def _decide(self, container: Container) -> TopologyHint:
        if self._shared is not None:
            return self._shared
        if self._given is None and not self._topology.asks_for_hints:
            return TopologyHint()
        self.hints[container.name] = offered = self._provider.container_hints(self._pod, container)
        if self._given is not None:
            return self._given.get(container.name, TopologyHint())
        return self._topology.decide([offered])
