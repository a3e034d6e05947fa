"""The kubelet: its device manager, its DRA manager, the order of admission, and what it tells of all that.

Its memory goes with a restart; the two checkpoints stay, and so do containers. ``pods`` are those of the API; what is
true of containers is written into them, so that the truth does not depend on what anybody remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.ledger.reader import Holding, Reading
from protos.deviceplugin.v1beta1 import api_pb2
from tests.making.virtual_time import VirtualLoop
from tests.model.calls import CallFailed, Context, answered
from tests.model.claim_manager import RETRY, SLOWEST, ClaimManager, Plugin
from tests.model.cluster import Cluster
from tests.model.objects import NAMESPACE, Ask, Phase, Pod

Key = tuple[str, int, str]
"""Pod UID, number of the container, resource."""


@dataclass
class Faults:
    """What goes wrong until somebody says otherwise."""

    listed: bool = False
    recorded: bool = False
    allocatable: bool = False
    late: bool = False
    """Readings tell what was true when they began, and not when they end."""
    asked: bool = False
    """Somebody else lists pods whenever a device is being allocated: kubelets forget that device then.

    Where our process cannot ask what is recorded either, nobody can tell, and the kubelet has its way.
    """

    @property
    def any(self) -> bool:
        return self.listed or self.recorded or self.allocatable


@dataclass(frozen=True)
class Lingering:
    """A pod's containers without their pod: ``devices`` (ids) by the plugin door; claims: name, devices with shares."""

    name: str
    devices: tuple[str, ...]
    claims: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


class Kubelet:
    """``tick``: called after every change of what containers have."""

    def __init__(self, loop: VirtualLoop, cluster: Cluster, root: Path, tick: Callable[[], None]) -> None:
        self.loop = loop
        self.cluster = cluster
        self.faults = Faults()
        self.written: dict[Key, tuple[str, ...]] = {}
        """The checkpoint, which outlives a restart."""
        self.refuse_admissions = 0
        """So many pods are refused after their devices were allocated."""
        self.admissions: list[tuple[float, Pod, str]] = []
        self.told: dict[str, float] = {}
        """When each id was last listed, or recorded for a pod that there is."""
        self._identified: set[str] = set()
        """UIDs of pods that a process of ours has read from the checkpoint; ``_hidden``: that it could not read."""
        self._hidden: set[str] = set()
        self._tick = tick
        self._plugin: Plugin | None = None
        self._file_changed: Callable[[], None] = lambda: None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.claims = ClaimManager(cluster, root, lambda: self._plugin, tick)
        cluster.bound = self._bound
        cluster.deleting = self._deleting
        cluster.forced = self._forced
        self.late: dict[str, Pod] = {}
        """By UID pods that were deleted by force, of which the kubelet has not heard yet."""
        self._hears_at = 0.0
        self.lingering: dict[str, Lingering] = {}
        """By UID what containers of pods deleted by force have; they run on whatever becomes of the kubelet."""
        self._forget()
        self._begin()

    # Our agent

    def connect(self, plugin: Plugin, file_changed: Callable[[], None]) -> None:
        """A process of ours is there. Its resources follow by ``registered``."""
        self._plugin = plugin
        self._file_changed = file_changed

    def disconnect(self) -> None:
        """It is gone, and with it its streams."""
        self._plugin = None
        self._file_changed = lambda: None
        for stream in self._streams.values():
            stream.cancel()
        self._streams.clear()
        for devices in self.lists.values():
            devices.update(dict.fromkeys(devices, False))

    def registered(self, resource: str) -> None:
        """The process serves a resource; a second time is one with the first."""
        if resource not in self._streams and self._plugin is not None:
            self._streams[resource] = self._spawn(self._follow(resource, self._plugin.plugin_servicer(resource)))

    def unregistered(self, resource: str) -> None:
        """The process serves a resource no more: its stream ends."""
        stream = self._streams.pop(resource, None)
        if stream is not None:
            stream.cancel()
            self.lists.setdefault(resource, {}).update(dict.fromkeys(self.lists.get(resource, {}), False))

    async def read(self) -> Reading:
        """One look, as ``KubeletReader`` has it."""
        began, faults, half = self.loop.time(), self.faults, self.cluster.lags.reading / 2
        early = self._reading(began)
        await asyncio.sleep(half)
        middle = self._reading(began)
        await asyncio.sleep(half)
        late = early if faults.late else self._reading(began)
        recorded = None if faults.recorded else (early if faults.late else middle).recorded
        self._read(recorded)
        return Reading(
            began,
            None if faults.listed else early.listed,
            recorded,
            None if faults.allocatable else late.allocatable,
            ("out of order",) if faults.any else (),
        )

    has_records = True

    async def holding(self, ids: Collection[tuple[str, str]], gone: Callable[[str], bool]) -> Holding | None:
        """As ``KubeletSource`` has it."""
        began, half = self.loop.time(), self.cluster.lags.reading / 2
        await asyncio.sleep(half)
        recorded = self._reading(began).recorded or ()
        await asyncio.sleep(half)
        listed = self._reading(began).listed or ()
        if self.faults.any or not any((item.resource, item.id) in ids and not gone(item.uid) for item in recorded):
            return None
        return next((item for item in listed if (item.resource, item.id) in ids), None)

    async def recorded(self) -> tuple[Holding, ...] | None:
        """As ``KubeletSource`` has it."""
        await asyncio.sleep(self.cluster.lags.reading / 10)
        recorded = None if self.faults.recorded else self._written()
        self._read(recorded)
        return recorded

    def _read(self, recorded: tuple[Holding, ...] | None) -> None:
        """A process of ours has read this from the checkpoint, or could not."""
        if recorded is None:
            self._hidden |= {item.uid for item in self._written()}
        else:
            self._identified |= {item.uid for item in recorded}

    def is_unidentified(self, uid: str) -> bool:
        """Whether the checkpoint was unreadable whenever a process of ours looked for this pod."""
        return uid in self._hidden - self._identified

    # What is seen of containers

    off = ""

    def left(self, uids: Collection[str]) -> frozenset[str]:
        """As ``PodContainers`` has it."""
        if self.off:
            return frozenset()
        pods = self.cluster.pods
        there = {**pods, **self.late}
        running = {uid for uid, pod in there.items() if pod.alive} | self.lingering.keys()
        return frozenset(running & set(uids))

    def confirm(self, living: Collection[str]) -> None:
        """As ``PodContainers`` has it."""

    # Life and death

    def restart(self) -> None:
        """It ends, whatever it is about, and a new one begins."""
        resources = list(self._streams)
        for pod in list(self.late.values()):
            self._heard(pod)
        for task in list(self._tasks):
            task.cancel()
        self._tasks.clear()
        self._forget()
        self._begin()
        for resource in resources:
            self.registered(resource)

    def _forget(self) -> None:
        self.records: dict[Key, tuple[str, ...]] = dict(self.written)
        self._count_taken()
        self.lists: dict[str, dict[str, bool]] = {}
        self._streams: dict[str, asyncio.Task[Any]] = {}
        self.claims.forget()
        self._queue: asyncio.Queue[Pod] = asyncio.Queue()

    def _begin(self) -> None:
        self._spawn(self._admit_all())
        self._spawn(self._report())
        for pod in list(self.cluster.pods.values()):
            if pod.bound and not pod.over:
                if pod.deleted:
                    self._deleting(pod)
                elif pod.ended is not None:
                    self._spawn(self._finish(pod, pod.ended))
                else:
                    self._queue.put_nowait(pod)
        for uid in self.claims.users - self.cluster.pods.keys():
            self._spawn(self._clean_up(uid))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work, name="kubelet")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def given(self) -> dict[str, tuple[str, tuple[tuple[str, str], ...], bool]]:
        """See ``ClaimManager``."""
        return self.claims.given

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        return self._tasks

    # Lists

    async def _follow(self, resource: str, servicer: Any) -> None:
        stream = servicer.ListAndWatch(api_pb2.Empty(), Context())
        try:
            async for message in stream:
                await asyncio.sleep(self.cluster.lags.listing)
                self.lists[resource] = {device.ID: device.health == "Healthy" for device in message.devices}
                self._checkpoint()
        finally:
            await stream.aclose()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(0.5 if not self.cluster.allocatable else self.cluster.lags.status)
            self.cluster.reported({name: sum(devices.values()) for name, devices in self.lists.items()})

    def _checkpoint(self) -> None:
        self.written = dict(self.records)
        self._file_changed()

    def _active(self, uid: str) -> bool:
        pod = self._pod(uid)
        return pod is not None and pod.ended is None

    def _pod(self, uid: str) -> Pod | None:
        return self.cluster.pods.get(uid) or self.late.get(uid)

    def _collect(self) -> None:
        """UpdateAllocatedDevices: does not write the checkpoint, and forgets what is being allocated."""
        over = [key for key in self.records if not self._active(key[0])]
        for key in over:
            del self.records[key]
        if over:
            self._count_taken()

    def _count_taken(self) -> None:
        """``allocatedDevices``, from which kubelets choose: a pod that is not recorded yet is not among them."""
        self.taken: dict[str, set[str]] = {}
        for (_, _, resource), ids in self.records.items():
            self.taken.setdefault(resource, set()).update(ids)

    def _reading(self, began: float) -> Reading:
        self._collect()
        listed = []
        for (uid, container, resource), ids in self.records.items():
            pod = self._pod(uid)
            assert pod is not None, "the others were collected"
            if not pod.asks[container].ordinary:
                listed += [Holding(resource, id_, f"c{container}", pod=f"{NAMESPACE}/{pod.name}") for id_ in ids]
        recorded = self._written()
        there = [holding for holding in recorded if holding.uid in self.cluster.pods]
        self.told |= {holding.id: self.loop.time() for holding in (*listed, *there)}
        allocatable = {
            (name, id_) for name, devices in self.lists.items() for id_, healthy in devices.items() if healthy
        }
        return Reading(began, tuple(listed), tuple(recorded), frozenset(allocatable))

    def _written(self) -> tuple[Holding, ...]:
        return tuple(
            Holding(resource, id_, f"c{container}", uid=uid)
            for (uid, container, resource), ids in self.written.items()
            for id_ in ids
        )

    # Admission

    def _bound(self, pod: Pod) -> None:
        """News come in their order: what was deleted before is heard of before."""
        queue = self._queue

        def arrive() -> None:
            if queue is self._queue:
                queue.put_nowait(pod)

        if self.late:
            self.loop.call_at(self._hears_at, arrive)
        else:
            arrive()

    async def _admit_all(self) -> None:
        while True:
            pod = await self._queue.get()
            await asyncio.sleep(self.cluster.lags.answering)
            if self._pod(pod.uid) is None or pod.deleted or pod.ended is not None:
                continue
            try:
                await self._admit(pod)
            except CallFailed as error:
                self._refused(pod, str(error))
            else:
                if self._active(pod.uid) and not pod.deleted:
                    self._spawn(self._start(pod))

    def _refused(self, pod: Pod, why: str) -> None:
        self.admissions.append((self.loop.time(), pod, why))
        self._finish_soon(pod, Phase.FAILED)

    def _finish_soon(self, pod: Pod, phase: Phase) -> None:
        pod.ended = phase
        self._end_containers(pod)
        self._spawn(self._finish(pod, phase))

    async def _finish(self, pod: Pod, phase: Phase) -> None:
        await self.claims.release(pod.uid)
        self.cluster.over(pod, phase)

    async def _admit(self, pod: Pod) -> None:
        reusable: dict[str, tuple[str, ...]] = {}
        order = sorted(range(len(pod.asks)), key=lambda number: not pod.asks[number].ordinary)
        for number in order:
            ask = pod.asks[number]
            ids = await self._allocated(pod, number, ask, reusable.get(ask.resource, ()))
            if ask.ordinary:
                reusable[ask.resource] = tuple(dict.fromkeys((*reusable.get(ask.resource, ()), *ids)))
            else:
                left = tuple(id_ for id_ in reusable.get(ask.resource, ()) if id_ not in ids)
                reusable[ask.resource] = left
        if self.refuse_admissions and pod.asks and not pod.admitted:
            self.refuse_admissions -= 1
            raise CallFailed("OutOfcpu", "the node has no CPU left")

    async def _allocated(self, pod: Pod, number: int, ask: Ask, reusable: tuple[str, ...]) -> tuple[str, ...]:
        key: Key = (pod.uid, number, ask.resource)
        self._collect()
        before = self.records.get(key, ())
        if before and pod.alive and not ask.ordinary:
            return before  # Its container runs: nothing is asked of a restarted kubelet.
        devices = self.lists.get(ask.resource)
        if devices is None and not any(each[2] == ask.resource for each in self.records):
            raise CallFailed("UnexpectedAdmissionError", f"{ask.resource} is not known here")
        healthy = {id_ for id_, well in (devices or {}).items() if well}
        if not healthy:
            raise CallFailed("UnexpectedAdmissionError", "no healthy devices present")
        if not healthy.issuperset(before):
            raise CallFailed("UnexpectedAdmissionError", "previously allocated devices are no longer healthy")
        if before:
            return before
        chosen = await self._chosen(ask, healthy, reusable)
        self.taken.setdefault(ask.resource, set()).update(chosen)
        try:
            await self._allocate(ask.resource, chosen)
        except CallFailed:
            self._count_taken()
            raise
        await asyncio.sleep(self.cluster.lags.answering)
        if self.faults.asked and not self.faults.any:
            self._collect()
        self.records[key] = chosen
        self._checkpoint()
        return chosen

    async def _chosen(self, ask: Ask, healthy: set[str], reusable: tuple[str, ...]) -> tuple[str, ...]:
        kept = tuple(id_ for id_ in reusable if id_ in healthy)[: ask.count]
        if len(kept) == ask.count:
            return kept
        available = sorted(healthy - self.taken.get(ask.resource, set()))
        needed = ask.count - len(kept)
        if len(available) < needed:
            raise CallFailed("UnexpectedAdmissionError", "requested number of devices unavailable")
        if len(available) == needed:
            return (*kept, *available)
        request = api_pb2.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=[*available, *kept], must_include_deviceIDs=kept, allocation_size=ask.count
        )
        response = await self._call_plugin(ask.resource, "GetPreferredAllocation", request)
        preferred = [id_ for id_ in response.container_responses[0].deviceIDs if id_ in available]
        return (*kept, *dict.fromkeys((*preferred, *available)))[: ask.count]

    async def _allocate(self, resource: str, ids: tuple[str, ...]) -> None:
        request = api_pb2.AllocateRequest()
        request.container_requests.add(devices_ids=ids)
        await self._call_plugin(resource, "Allocate", request)

    async def _call_plugin(self, resource: str, method: str, request: Any) -> Any:
        await asyncio.sleep(self.cluster.lags.answering)
        if self._plugin is None or resource not in self._streams:
            raise CallFailed("UNAVAILABLE", "nobody serves it")
        servicer = self._plugin.plugin_servicer(resource)
        return await answered(getattr(servicer, method)(request, Context()))

    # Containers and claims

    async def _start(self, pod: Pod) -> None:
        if self.cluster.lags.starting:
            await asyncio.sleep(self.cluster.lags.starting)
            if not self._active(pod.uid) or pod.deleted:
                return
        pod.admitted = True
        pod.devices = {
            (key[2], id_): not pod.asks[key[1]].ordinary
            for key, ids in sorted(self.records.items(), key=lambda item: item[0], reverse=True)
            if key[0] == pod.uid
            for id_ in ids
        }
        pod.alive = pod.alive or not pod.claims
        self._tick()
        wait = RETRY
        while not pod.alive and not pod.deleted:
            if await self.claims.prepare_all(pod):
                pod.alive = True
            else:
                await asyncio.sleep(wait)
                wait = min(2 * wait, SLOWEST)
        if pod.alive and pod.phase is Phase.PENDING:
            pod.phase = Phase.RUNNING
            if pod.uid in self.cluster.pods:
                self.cluster.changed(pod, False)
        self._tick()

    def _deleting(self, pod: Pod) -> None:
        self._spawn(self._terminate(pod))

    def _forced(self, pod: Pod) -> None:
        """Its object is gone; until that is heard of it may even be started."""
        self.late[pod.uid] = pod
        self._hears_at = max(self._hears_at, self.loop.time() + self.cluster.lags.forgetting) + 1e-6
        self.loop.call_at(self._hears_at, self._heard, pod)

    def _heard(self, pod: Pod) -> None:
        """The books forget it, and its containers are ended when that is done."""
        if self.late.pop(pod.uid, None) is None:
            return
        pod.deleted = True
        given = tuple(
            (name, devices)
            for name, devices, admin in self.given.values()
            if name in pod.claims and pod.alive and not admin
        )
        devices = tuple(id_ for _, id_ in pod.devices) if pod.admitted else ()
        seconds = self.cluster.lags.lingering if pod.alive else 0.0
        self.lingering[pod.uid] = Lingering(pod.name, devices, given)
        self._end_containers(pod)
        self.loop.call_later(seconds, self._ended_at_last, pod.uid)

    def _ended_at_last(self, uid: str) -> None:
        del self.lingering[uid]
        self._tick()
        self._spawn(self._clean_up(uid))

    def end(self, pod: Pod) -> None:
        """The pod's containers have done what they were for."""
        if pod.alive and pod.ended is None and not pod.deleted:
            self._finish_soon(pod, Phase.SUCCEEDED)

    async def _terminate(self, pod: Pod) -> None:
        if pod.alive:
            await asyncio.sleep(self.cluster.lags.grace)
        self._end_containers(pod)
        await self.claims.release(pod.uid)
        self.cluster.gone(pod)

    async def _clean_up(self, uid: str) -> None:
        await self.claims.release(uid)

    def _end_containers(self, pod: Pod) -> None:
        pod.alive = pod.admitted = False
        pod.devices = {}
        self._tick()
