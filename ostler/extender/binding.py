"""Binding a pod to its node, with its devices in the Binding's annotations.

The API server enters the annotations in the same transaction that sets the node, and refuses a pod that is bound
already or is being deleted. So a binding that is sent twice cannot do harm, and what was decided is either wholly
recorded at the pod or not at all.

``PastScheduler`` binds pods that the scheduler does not bind. It does so in threads of its own, one attempt per
request of the scheduler: whoever asks again causes the next attempt. The scheduler prepares claims and volumes before
it binds, and nothing here does; so a pod with claims is refused, and one with volumes unless all of them are bound.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

from kube.bodies import JsonObject, object_at, path_of, text_at
from kube.errors import KubeError, NotFound, RequestError
from ostler.extender.lease import ActiveReplica
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.pods import MOST_VOLUMES, PodFacts
from ostler.extender.published import PublishedDevices
from ostler.extender.states import PodBinding, PodReporter
from ostler.extender.wire import ExtenderError
from plugin.record_annotations import DEVICES

log = logging.getLogger("ostler.extender")

_WAITING = 1000
"""Pods that wait to be bound; more are dropped, because the scheduler asks for them again."""
_THREADS = 4
_SETTLED = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


class BindClient(Protocol):
    """A client as far as binding needs it."""

    def get(self, path: str, *, attempts: int | None = None) -> JsonObject:
        """Read an object."""

    def create(self, path: str, body: JsonObject, *, attempts: int | None = None) -> JsonObject:
        """Create an object in a collection."""


class Binder:
    """Binds; asks at the last moment whether ``replica`` is the active one."""

    def __init__(self, client: BindClient, devices: PublishedDevices, replica: ActiveReplica) -> None:
        self._client = client
        self._devices = devices
        self._replica = replica

    def bind(self, binding: PodBinding) -> None:
        """Bind the pod; raises ``ExtenderError``."""
        pod, node = binding.facts.identity, binding.bind_info.node
        if not self._replica.may_act():
            raise ExtenderError(
                f"[{pod}]: bind: this replica is not the active one any more", HTTPStatus.SERVICE_UNAVAILABLE
            )
        path = path_of("api", "v1", "namespaces", pod.namespace, "pods", pod.name, "binding")
        try:
            uuids = self._devices.uuids(node, binding.bind_info.leaf_cell_isolation, binding.node_size)
            self._client.create(path, binding_body(binding, uuids), attempts=1)
        except KubeError as error:
            status = error.status if isinstance(error, RequestError) else 0
            # What the API server refuses is the pod's affair; everything else is ours or the server's.
            refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
            code = status if refused else HTTPStatus.INTERNAL_SERVER_ERROR
            raise ExtenderError(f"[{pod}]: bind: cannot bind the pod to node {node}: {error}", code) from error
        log.info("pod bound", extra={"pod": binding.facts.key, "node": node})

    def unbound_volumes(self, facts: PodFacts) -> tuple[str, ...]:
        """The pod's PersistentVolumeClaims that have no volume yet; raises ``KubeError``."""
        return tuple(name for name in facts.volumes if not self._has_volume(facts.identity.namespace, name))

    def _has_volume(self, namespace: str, name: str) -> bool:
        path = path_of("api", "v1", "namespaces", namespace, "persistentvolumeclaims", name)
        try:
            claim = self._client.get(path, attempts=1)
        except NotFound:
            return False
        is_bound = text_at(claim, "status", "phase") == "Bound"
        return is_bound and bool(text_at(object_at(claim, "spec"), "volumeName"))


def binding_body(binding: PodBinding, uuids: Sequence[str] = ()) -> JsonObject:
    """The Binding object; ``uuids``: of the pod's devices, none if they are unknown."""
    pod, info = binding.facts.identity, binding.bind_info
    annotations: JsonObject = dict(info.annotations())
    if uuids:
        annotations[DEVICES] = ",".join(uuids)
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": info.node},
    }


class PastScheduler:
    """Binds what it is given, each pod by one thread at a time; see the module."""

    def __init__(self, binder: Binder, reporter: PodReporter, metrics: ExtenderMetrics) -> None:
        self._binder = binder
        self._reporter = reporter
        self._metrics = metrics
        self._queue: queue.Queue[PodBinding | None] = queue.Queue(_WAITING)
        self._lock = threading.Lock()
        self._under_way: set[str] = set()
        self._threads = [
            threading.Thread(target=self._work, name=f"bind-{number}", daemon=True) for number in range(_THREADS)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def bind_later(self, binding: PodBinding) -> None:
        """See ``ForceBinder``."""
        with self._lock:
            if binding.facts.uid in self._under_way:
                return
            try:
                self._queue.put_nowait(binding)
            except queue.Full:
                self._metrics.forced.add("failed")
                return
            self._under_way.add(binding.facts.uid)

    def close(self) -> None:
        """End the threads once they have nothing under way."""
        for _ in self._threads:
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                return

    def _work(self) -> None:
        while (binding := self._queue.get()) is not None:
            try:
                self._metrics.forced.add(self._bound(binding))
            except Exception:
                # The next binding is another pod's; the log says what became of this one.
                log.exception("binding past the scheduler failed", extra={"pod": binding.facts.key})
                self._metrics.forced.add("failed")
            finally:
                with self._lock:
                    self._under_way.discard(binding.facts.uid)

    def _bound(self, binding: PodBinding) -> str:
        facts, node = binding.facts, binding.bind_info.node
        try:
            lacking = _unprepared(facts, self._binder.unbound_volumes(facts))
            if lacking:
                text = (
                    f"The scheduler does not bind this pod to node {node}, and the extender does not bind it past the "
                    f"scheduler because it has {lacking}, which the scheduler must prepare first; "
                    "see the scheduler's events on this pod"
                )
                self._reporter.warn(facts.identity, "ForceBindRefused", text)
                return "refused"
            self._binder.bind(binding)
        except (KubeError, ExtenderError) as error:
            if isinstance(error, ExtenderError) and error.code in _SETTLED:
                # The pod is bound or gone, and the watch tells it soon.
                return "failed"
            text = f"The scheduler does not bind this pod to node {node}; binding it past the scheduler failed: {error}"
            self._reporter.warn(facts.identity, "ForceBindFailed", text)
            return "failed"
        return "bound"


def _unprepared(facts: PodFacts, volumes: tuple[str, ...]) -> str:
    """Parts of the pod that only the scheduler can prepare; empty for none."""
    parts = [f"resource claims ({', '.join(facts.claims)})"] if facts.claims else []
    if volumes:
        parts.append(f"unbound volumes ({', '.join(volumes)})")
    if facts.has_more and not parts:
        parts.append(f"more than {MOST_VOLUMES} volumes")
    return " and ".join(parts)
