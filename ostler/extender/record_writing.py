"""Writes the records of bound pods again, after pods have moved to other devices.

Through the pod's status, which takes annotations and nothing of the spec: the right to patch pods themselves would also
be the right to change their images. The newest record of each pod waits, so nothing grows beyond the number of pods.
What fails is tried again, since a record that is never written costs nothing before the next restart, which finds out
from the devices that pods have.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import Json, JsonObject, path_of
from kube.errors import Forbidden, Invalid, KubeError, NotFound, RequestError, WriteConflict
from node.clocks import Clocks
from ostler.extender.lease import ActiveReplica
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.states import PodReporter
from ostler.extender.wire import PodIdentity
from scheduling.cells.pod import ANNOTATION_BIND_INFO, BindInfo

log = logging.getLogger("ostler.extender")

RETRY = BackoffPolicy(first=1.0, most=60.0)


class PatchClient(Protocol):
    """A client as far as writing needs it."""

    def patch(self, path: str, body: Json) -> JsonObject:
        """Patch an object."""


class StatusRecordWriter:
    """A ``RecordWriter`` with one thread, from ``start`` to ``close``.

    It asks at the last moment whether ``replica`` is the active one.
    """

    def __init__(
        self,
        client: PatchClient,
        reporter: PodReporter,
        metrics: ExtenderMetrics,
        *,
        replica: ActiveReplica,
        clocks: Clocks,
        policy: BackoffPolicy = RETRY,
    ) -> None:
        self._client = client
        self._reporter = reporter
        self._metrics = metrics
        self._replica = replica
        self._backoff = Backoff(policy, clocks.random)
        self._changed = threading.Condition()
        self._records: dict[PodIdentity, BindInfo] = {}
        self._is_closed = False
        self._is_refused = False
        self._thread = threading.Thread(target=self._work, name="records", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def write_later(self, pod: PodIdentity, info: BindInfo) -> None:
        """See ``RecordWriter``."""
        with self._changed:
            self._records[pod] = info
            self._changed.notify()

    def close(self) -> None:
        """End the thread once its request has ended; what waits is not written."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _work(self) -> None:
        while (waiting := self._next()) is not None:
            pod, info = waiting
            delay = self._delay_after(pod, info)
            if delay is None:
                self._backoff.reset()
                continue
            with self._changed:
                self._records.setdefault(pod, info)
                if not self._is_closed:
                    self._changed.wait_for(lambda: self._is_closed, delay)

    def _next(self) -> tuple[PodIdentity, BindInfo] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._records)
            if self._is_closed:
                return None
            pod = next(iter(self._records))
            return pod, self._records.pop(pod)

    def _delay_after(self, pod: PodIdentity, info: BindInfo) -> float | None:
        """Write a record; the seconds to wait after a failure, None if nothing is left to do."""
        path = path_of("api", "v1", "namespaces", pod.namespace, "pods", pod.name, "status")
        if not self._replica.may_act():
            return self._backoff.delay()
        try:
            self._client.patch(
                path, {"metadata": {"uid": pod.uid, "annotations": {ANNOTATION_BIND_INFO: info.write()}}}
            )
        except (NotFound, WriteConflict):
            return None  # The pod is gone, or another one has its name by now.
        except KubeError as error:
            self._metrics.written.add("failed")
            log.warning("the record of a pod was not written", extra={"pod": str(pod), "error": str(error)})
            if isinstance(error, Invalid):
                return None  # Another attempt would end as this one.
            if isinstance(error, Forbidden) and not self._is_refused:
                self._is_refused = True
                text = (
                    f"The extender cannot write where this pod is now: {error}; let its account patch pods/status, "
                    "as the chart does"
                )
                self._reporter.warn(pod, "RecordNotWritten", text)
            return self._backoff.delay(error.retry_after if isinstance(error, RequestError) else None)
        except Exception:
            # The next record is another pod's.
            self._metrics.written.add("failed")
            log.exception("the record of a pod was not written", extra={"pod": str(pod)})
            return None
        self._is_refused = False
        self._metrics.written.add("written")
        return None
