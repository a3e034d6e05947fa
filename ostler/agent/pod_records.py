"""Follows the devices that a scheduler has recorded for this node's pods, and notes on each pod which ones it got.

``ostler extender`` (or HiveD) writes the chosen devices into a pod's annotations when it binds it: numbers in
``DEVICE_NUMBERS``, ids in ``DEVICES``. The plugin door prefers them (``plugin.records``). After each allocation the
kubelet's record says what the pod really has: the agent writes that into ``ALLOCATED``, and mends the other two where
they differ.

Whoever creates pods may write annotations. So an annotation is short and strictly read or not read at all, only pods
that the scheduler or the kubelet has accepted count, and nothing is written but these three annotations, of pods of
this node. Writes go through the pod's status, since the right to patch pods would also allow to change their images.

A part of its own, off by default: whatever the API server does, devices are served, by the usual preference.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from driver.claims.model import Unavailable
from driver.node_watch.following import RETRY, Following, NodeCheck
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import Json, JsonObject, count_of, object_at, text_at
from kube.errors import Forbidden, Invalid, KubeError, NotFound, RequestError, WriteConflict
from kube.json_stream import Fields
from node.clocks import Clocks
from node.events import EventBus, EventRecorder, EventType
from node.ledger.reader import Reading
from node.metrics import Counter
from node.values import Value, value
from plugin.record_annotations import ALLOCATED, DEVICE_NUMBERS, DEVICES, MOST_DEVICES, ids_in, numbers_in
from plugin.record_choice import ContainerSizes
from plugin.records import PodRecord, RecordBook, RecordOutcome, RecordSettled

if TYPE_CHECKING:
    from driver.resource_api.async_client import AsyncResourceApi
    from driver.resource_api.client import ResourceApi
    from kube.collection import CollectionSource
    from ostler.config.settings import Settings

log = logging.getLogger("ostler.records")

NOT_FOLLOWED = "RecordNotFollowed"
SWAPPED = "RecordsSwapped"
NOT_NOTED = "AllocatedDevicesNotNoted"
"""Reasons of events."""
NOT_FOLLOWING = "the plugin door does not know which devices schedulers recorded for pods"
NOT_WRITING = "cannot write pods' devices into their annotations"
"""Beginnings of lines of the agent's status."""
QUIET, MOST_EVENTS = 60.0, 20
"""Seconds in which at most this many events about records are emitted; the metric counts them all."""

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,20}Z")
_OVER = ("Succeeded", "Failed")
_ASKS = ("", "Pending")
_RIGHTS = (
    "let the agent patch pods/status of its node (the chart's recordedDevices.enabled does), or set"
    " kubernetes.recordedDevices to off"
)
_CONTAINER: Fields = {"resources": {"limits": True}, "restartPolicy": True}
FIELDS: Fields = {
    "metadata": {
        **dict.fromkeys(
            ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"), True
        ),
        "annotations": dict.fromkeys((DEVICE_NUMBERS, DEVICES, ALLOCATED), True),
    },
    "spec": {"containers": _CONTAINER, "initContainers": _CONTAINER},
    "status": {
        "phase": True,
        "startTime": True,
        "conditions": {"type": True, "status": True, "lastTransitionTime": True},
        "extendedResourceClaimStatus": {"requestMappings": {"resourceName": True}},
    },
}
"""The fields that are read of a pod's object."""


def record_of(body: JsonObject) -> PodRecord | None:
    """The record of a pod's object; None if it is over or asks the plugin for nothing.

    What a scheduler or the kubelet has not accepted counts as a pod for which nothing is recorded. Such a pod has an
    empty record until the kubelet has admitted it, because it asks for devices as well.
    """
    metadata, status = object_at(body, "metadata"), object_at(body, "status")
    found, phase = object_at(metadata, "annotations"), text_at(status, "phase")
    names = text_at(metadata, "namespace"), text_at(metadata, "name")
    if phase in _OVER or not all(map(_NAME.fullmatch, names)):
        return None
    created, bound = text_at(metadata, "creationTimestamp"), _bound(status)
    devices = ids_in(text_at(found, DEVICES)) if bound else ()
    indices = numbers_in(text_at(found, DEVICE_NUMBERS)) if bound else ()
    is_asking = phase in _ASKS and not text_at(status, "startTime")
    if not (devices or indices or is_asking):
        return None
    claimed = _objects(object_at(status, "extendedResourceClaimStatus").get("requestMappings"))
    sizes = _sizes(object_at(body, "spec"), {text_at(each, "resourceName") for each in claimed})
    if not sizes:
        return None
    noted = ids_in(text_at(found, ALLOCATED))
    uid = text_at(metadata, "uid")
    return PodRecord(uid, *names, bound or created, created, sizes, devices, indices, noted, is_asking)


def _bound(status: JsonObject) -> str:
    """When the pod was bound; empty if it was not. The API server notes it as the condition PodScheduled."""
    for each in _objects(status.get("conditions")):
        if text_at(each, "type") == "PodScheduled" and text_at(each, "status") == "True":
            time = text_at(each, "lastTransitionTime")
            return time if _TIME.fullmatch(time) else ""
    return ""


def _sizes(spec: JsonObject, claimed: Collection[str]) -> Mapping[str, ContainerSizes]:
    """By resource what the pod's containers ask the plugin for; empty if there are too many of them.

    ``claimed``: resources that a claim serves by their name.
    """
    together: dict[str, list[int]] = {}
    before: dict[str, list[int]] = {}
    containers = [(each, together) for each in _objects(spec.get("containers"))]
    inits = _objects(spec.get("initContainers"))
    containers += [(each, together if text_at(each, "restartPolicy") == "Always" else before) for each in inits]
    for container, found in containers:
        for name, quantity in object_at(container, "resources", "limits").items():
            count = count_of(str(quantity)) if "/" in name and len(str(quantity)) <= 9 else None
            if count and name not in claimed:
                found.setdefault(name, []).append(count)
    names = together.keys() | before.keys()
    sizes = {name: ContainerSizes(tuple(together.get(name, ())), tuple(before.get(name, ()))) for name in names}
    return {
        name: each
        for name, each in sizes.items()
        if len(each.together) + len(each.before) <= MOST_DEVICES and each.total <= MOST_DEVICES
    }


def _objects(found: Json) -> Iterator[JsonObject]:
    return (each for each in found if isinstance(each, dict)) if isinstance(found, list) else iter(())


@value
class FollowedPod(Value):
    """A pod's UID, and its record if it needs one."""

    uid: str
    record: PodRecord | None = None


def stripped(body: JsonObject) -> JsonObject:
    """The parts of a pod's object that ``record_of`` and a reflector need: little of a pod without a record."""
    if record_of(body) is not None:
        return body
    metadata = object_at(body, "metadata")
    return {"metadata": {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}}


class PodRecords:
    """Keeps ``book`` while ``run`` runs, and notes on pods what they got; for the event loop alone.

    ``bus`` publishes each ``Reading`` of the kubelet. ``outcomes`` counts settled pods.
    """

    def __init__(
        self,
        api: AsyncResourceApi,
        node_name: str,
        book: RecordBook,
        *,
        bus: EventBus,
        events: EventRecorder,
        outcomes: Counter,
        clocks: Clocks,
        check: NodeCheck | None = None,
        policy: BackoffPolicy = RETRY,
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._book = book
        self._events = events
        self._outcomes = outcomes
        self._monotonic = clocks.monotonic
        self._check = check
        self._backoff = Backoff(policy, clocks.random)
        self._allocated: Mapping[str, Mapping[str, frozenset[str]]] = {}
        self._notes: dict[str, tuple[PodRecord, dict[str, str]]] = {}
        """By UID, the annotations to write."""
        self._has_notes = asyncio.Event()
        self._reported: deque[float] = deque(maxlen=MOST_EVENTS)
        self._fault = ""
        self._following = Following(api, self, name="records of pods", clocks=clocks, policy=policy)
        bus.subscribe(Reading, self._read)

    def reasons(self) -> tuple[str, ...]:
        """Lines of the agent's status, none if all is well."""
        failing = self._following.failing
        unknown = (f"{NOT_FOLLOWING}: {failing}",)
        return (*(unknown if failing else ()), *((self._fault,) if self._fault else ()))

    async def run(self) -> None:
        """Follow and write until cancelled; the API is closed afterwards."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._following.run(), name="records of pods")
                group.create_task(self._write(), name="notes on pods")
        finally:
            self._api.close()

    def source(self, api: ResourceApi) -> CollectionSource:
        """See ``Follower``."""
        if self._check is not None:
            api.own_node(self._node_name, self._check)
        return api.core("pods", {"fieldSelector": f"spec.nodeName={self._node_name}"}, stripped, FIELDS)

    def value_of(self, body: JsonObject) -> FollowedPod:
        """See ``Follower``."""
        return FollowedPod(text_at(body, "metadata", "uid"), record_of(body))

    def replaced(self, found: Sequence[FollowedPod]) -> None:
        """See ``Follower``."""
        self._book.replaced(each.record for each in found if each.record is not None)
        self._settle()

    def applied(self, each: FollowedPod) -> None:
        """See ``Follower``."""
        if each.record is None:
            self.deleted(each)
        else:
            self._book.applied(each.record)
            self._settle()

    def deleted(self, each: FollowedPod) -> None:
        """See ``Follower``."""
        self._book.deleted(each.uid)
        self._notes.pop(each.uid, None)

    def _read(self, reading: Reading) -> None:
        """Take the kubelet's checkpoint, which names pods by UID: a new pod may have the name of an ended one."""
        if reading.recorded is None:
            return
        found: dict[str, dict[str, set[str]]] = {}
        for each in reading.recorded:
            found.setdefault(each.uid, {}).setdefault(each.resource, set()).add(each.id)
        self._allocated = {
            uid: {resource: frozenset(ids) for resource, ids in of_pod.items()} for uid, of_pod in found.items()
        }
        self._settle()

    def _settle(self) -> None:
        for settled in self._book.settle(self._allocated):
            self._note(settled.pod, settled.resource, settled.actual, allocated=True)
            if settled.partner is not None:
                self._note(settled.partner, settled.resource, settled.recorded)
            if frozenset(settled.pod.allocated) != settled.actual:
                # Else an earlier process has counted and reported it.
                self._outcomes.add(settled.outcome.value)
                self._report(settled)

    def _note(self, pod: PodRecord, resource: str, ids: frozenset[str], *, allocated: bool = False) -> None:
        """Have these ids written on the pod where its annotations have others."""
        _, notes = self._notes.get(pod.uid, (pod, {}))
        text = ",".join(self._book.listed(resource, ids))
        if allocated and frozenset(pod.allocated) != ids:
            notes[ALLOCATED] = text
        if pod.devices and frozenset(pod.devices) != ids:
            notes[DEVICES] = text
        numbers = self._book.numbers(resource, ids)
        if pod.indices and numbers and numbers != tuple(sorted(pod.indices)):
            notes[DEVICE_NUMBERS] = ",".join(map(str, numbers))
        if notes:
            self._notes[pod.uid] = pod, notes
            self._has_notes.set()

    def _report(self, settled: RecordSettled) -> None:
        actual, recorded = (self._book.listed(settled.resource, ids) for ids in (settled.actual, settled.recorded))
        facts = {"pod": str(settled.pod), "resource": settled.resource, "devices": actual, "recorded": recorded}
        got = f"the kubelet gave pod {settled.pod} {_some(actual)} of {settled.resource} instead of {_some(recorded)}"
        if settled.outcome is RecordOutcome.HONOURED:
            log.info("pod has its recorded devices", extra=facts)
        elif settled.outcome is RecordOutcome.SWAPPED:
            log.info("pod has the devices recorded for another pod", extra=facts)
            if settled.partner is not None and self._may_emit():
                text = f"{got}: pod {settled.partner} now has its record"
                self._events.emit(EventType.NORMAL, SWAPPED, text)
        else:
            log.warning("pod has other devices than recorded", extra=facts)
            if self._may_emit():
                text = "its annotations now name what it has; the scheduler's own record may differ until the pod ends"
                self._events.emit(EventType.WARNING, NOT_FOLLOWED, f"{got}: {text}")

    def _may_emit(self) -> bool:
        """Whether one more event about records may be emitted now: users can cause any number of them."""
        now = self._monotonic()
        if len(self._reported) == MOST_EVENTS and now - self._reported[0] < QUIET:
            return False
        self._reported.append(now)
        return True

    async def _write(self) -> None:
        """Write notes one pod after the other; what fails is tried again, the newest notes of each pod."""
        while True:
            await self._has_notes.wait()
            self._has_notes.clear()
            for uid in list(self._notes):
                pod, notes = self._notes.pop(uid, (None, {}))
                if pod is not None and not await self._is_written(pod, notes):
                    _, newer = self._notes.get(uid, (pod, {}))
                    self._notes[uid] = pod, {**notes, **newer}
                    self._has_notes.set()
                    break

    async def _is_written(self, pod: PodRecord, notes: Mapping[str, str]) -> bool:
        """Whether nothing is left to do: the notes are written, or the pod is gone. Waits after a failure."""
        try:
            await self._api.call(lambda api: api.annotate_pod(pod.namespace, pod.name, pod.uid, notes))
        except (NotFound, WriteConflict):
            pass  # The pod is gone, or another one has its name by now.
        except Invalid as error:
            log.warning("the API server refuses the annotations of a pod", extra={"pod": str(pod), "error": str(error)})
        except (KubeError, Unavailable) as error:
            self._fails(pod, error)
            await asyncio.sleep(self._backoff.delay(error.retry_after if isinstance(error, RequestError) else None))
            return False
        self._backoff.reset()
        self._fault = ""
        return True

    def _fails(self, pod: PodRecord, error: Exception) -> None:
        fix = _RIGHTS if isinstance(error, Forbidden) else "the agent tries again"
        fault = f"{NOT_WRITING}: {error}; {fix}"
        if fault == self._fault:
            return
        self._fault = fault
        log.warning("cannot write a pod's devices into its annotations", extra={"pod": str(pod), "error": str(error)})
        if isinstance(error, Forbidden):
            self._events.emit(EventType.WARNING, NOT_NOTED, fault)


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 8} more" if len(ids) > 8 else ""
    return ", ".join(ids[:8]) + more


def pod_records(
    settings: Settings, book: RecordBook, bus: EventBus, *, clocks: Clocks, events: EventRecorder, outcomes: Counter
) -> PodRecords:
    """The part by the settings, with a client of its own, which is made when it is first used."""
    from driver.resource_api.async_client import AsyncResourceApi
    from ostler.agent.api_server import node_check, resource_api

    return PodRecords(
        AsyncResourceApi(lambda: resource_api(settings, clocks.random, connections=2), threads=1),
        settings.node_name,
        book,
        bus=bus,
        events=events,
        outcomes=outcomes,
        clocks=clocks,
        check=node_check(settings),
    )
