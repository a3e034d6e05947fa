"""Evicts pods that a NoExecute taint should evict and Kubernetes 1.36 does not: those that ask by a resource's name.

Kubernetes' controller finds a tainted device's pods by the claims in their spec. The scheduler's claim for a pod that
asks by name (``extendedResourceName``) is in the pod's status, which 1.36 does not read (kubernetes#141290). A pod that
lost its device to a pod of the plugin door would wait in ContainerCreating as long as that pod lives. So the agent does
for these pods what the controller does for others: it sets the condition DisruptionTarget, which Jobs know, and deletes
the pod.

Kubernetes comes first: the agent evicts only a pod that still exists after ``PATIENCE`` and is not being deleted. It
evicts only pods of this node, and only the very object that it has checked: a newer pod of the same name is another
pod. Claims of this kind have no tolerations.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from driver.claims.model import Unavailable
from driver.node_watch.following import RETRY
from driver.node_watch.pods import NodePod
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import JsonObject
from kube.errors import Forbidden, KubeError, NotFound, WriteConflict
from node.clocks import SYSTEM, Clocks
from node.events import EventRecorder, EventType
from node.ledger.holds import Hold
from node.values import Value, value

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi

log = logging.getLogger("ostler.claims")

PATIENCE = 3.0
"""Seconds for which Kubernetes may evict a pod itself; a version that does so takes less than one."""
REASON = "DeletionByDeviceTaint"
"""The condition's reason, as people read it in the pod's status."""
_RIGHTS = (
    "let the agent patch pods/status and delete pods of its node (the chart's dra.evictByName does), or delete the pod"
)


@value
class EvictedPod(Value):
    """A pod with a claim for its extended resources, whose ``device`` has a NoExecute taint."""

    uid: str
    namespace: str
    name: str
    device: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def to_evict(
    pods: Iterable[NodePod], claims: Mapping[str, tuple[Hold, ...]], devices: Collection[str]
) -> dict[str, EvictedPod]:
    """By UID, the pods whose claim for extended resources has one of these devices.

    ``claims``: the devices of this node's claims. A static pod is left alone, because its object is only a copy, and so
    is a pod that is being deleted.
    """
    by_claim = {
        hold.holder: hold.device
        for holds in claims.values()
        for hold in holds
        if hold.device in devices and not hold.admin
    }
    return {
        pod.uid: EvictedPod(pod.uid, pod.namespace, pod.name, by_claim[claim])
        for pod in pods
        if pod.extended
        and not pod.static
        and not pod.ending
        and (claim := f"{pod.namespace}/{pod.extended}") in by_claim
    }


class PodEvictions:
    """Evicts while ``run`` runs; for the event loop only."""

    def __init__(
        self,
        api: AsyncResourceApi,
        *,
        events: EventRecorder,
        clocks: Clocks = SYSTEM,
        policy: BackoffPolicy = RETRY,
        patience: float = PATIENCE,
    ) -> None:
        self._api = api
        self._events = events
        self._clock, self._monotonic = clocks.clock, clocks.monotonic
        self._patience = patience
        self._backoff = Backoff(policy, clocks.random)
        self._wanted: Mapping[str, EvictedPod] = {}
        self._due: dict[str, float] = {}
        """By UID of a wanted pod, the time until which Kubernetes may evict it itself."""
        self._ended: set[str] = set()
        """UIDs of wanted pods that are deleted, or gone."""
        self._failed: dict[str, str] = {}
        """By UID, why a pod could not be evicted; each reason is reported once."""
        self._changed = asyncio.Event()

    @property
    def problems(self) -> tuple[str, ...]:
        """Why pods remain that should be evicted, one line each."""
        return tuple(self._failed.values())

    def apply(self, wanted: Mapping[str, EvictedPod]) -> None:
        """Evict these pods, and no others."""
        if wanted.keys() != self._wanted.keys():
            self._changed.set()
        self._wanted = wanted
        self._due = {uid: self._due.get(uid, self._monotonic() + self._patience) for uid in wanted}
        self._ended &= wanted.keys()
        for uid in self._failed.keys() - wanted.keys():
            del self._failed[uid]

    async def run(self) -> None:
        """Evict until cancelled."""
        while True:
            self._changed.clear()
            delay = await self._evicted()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._changed.wait()

    async def _evicted(self) -> float | None:
        """Evict the pods that are due; returns seconds until the next one, None if there is none."""
        left = [pod for uid, pod in self._wanted.items() if uid not in self._ended]
        now = self._monotonic()
        # Read again for each pod: while another is evicted, the taint of this pod's device may end.
        ended = [await self._has_ended(pod) for pod in left if self._due.get(pod.uid, math.inf) <= now]
        if not all(ended):
            return self._backoff.delay()
        self._backoff.reset()
        waits = [due - now for uid, due in self._due.items() if uid not in self._ended]
        return max(0.0, min(waits)) if waits else None

    async def _has_ended(self, pod: EvictedPod) -> bool:
        text = f"device {pod.device} has a NoExecute taint, and Kubernetes has not evicted the pod"
        condition: JsonObject = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": REASON,
            "message": f"ostler: {text}",
            "lastTransitionTime": datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        try:
            await self._api.call(lambda api: api.evict_pod(pod.namespace, pod.name, pod.uid, condition))
        except (NotFound, WriteConflict):
            # It is gone, or another pod has its name by now.
            self._ends(pod)
            return True
        except (KubeError, Unavailable) as error:
            self._fails(pod, error)
            return False
        self._ends(pod)
        log.warning("pod evicted", extra={"pod": str(pod), "device": pod.device})
        self._events.emit(EventType.WARNING, "PodEvicted", f"pod {pod} is evicted: {text}")
        return True

    def _ends(self, pod: EvictedPod) -> None:
        self._ended.add(pod.uid)
        self._failed.pop(pod.uid, None)

    def _fails(self, pod: EvictedPod, error: KubeError | Unavailable) -> None:
        fix = _RIGHTS if isinstance(error, Forbidden) else "the agent tries again"
        problem = f"pod {pod} cannot be evicted from device {pod.device}: {error}; {fix}"
        if self._failed.get(pod.uid) == problem:
            return
        self._failed[pod.uid] = problem
        log.warning("pod cannot be evicted", extra={"pod": str(pod), "device": pod.device, "error": str(error)})
        if isinstance(error, Forbidden):
            self._events.emit(EventType.WARNING, "PodNotEvicted", problem)
