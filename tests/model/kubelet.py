"""The kubelet: the life of its pods and the order of admission, with its device manager and its claim manager.

Its memory goes with a restart; the two checkpoints stay, and so do containers. ``pods`` are those of the API; what is
true of containers is written into them, so that the truth does not depend on what anybody remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.making.servicer_calls import ServicerCallFailed
from tests.making.virtual_time import VirtualLoop
from tests.model.claim_manager import RETRY, SLOWEST, ClaimManager
from tests.model.cluster import ModelCluster
from tests.model.device_manager import ModelDeviceManager
from tests.model.objects import ModelPhase, ModelPod


@dataclass(frozen=True)
class Lingering:
    """A pod's containers without their pod: ``devices`` (ids) by the plugin door; claims: name, devices with shares."""

    name: str
    devices: tuple[str, ...]
    claims: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


class ModelKubelet:
    """``tick``: called after every change of what containers have."""

    def __init__(self, loop: VirtualLoop, cluster: ModelCluster, root: Path, tick: Callable[[], None]) -> None:
        self.loop = loop
        self.cluster = cluster
        self.refuse_admissions = 0
        """So many pods are refused after their devices were allocated."""
        self.admissions: list[tuple[float, ModelPod, str]] = []
        self._tick = tick
        self._tasks: set[asyncio.Task[Any]] = set()
        self.late: dict[str, ModelPod] = {}
        """By UID pods that were deleted by force, of which the kubelet has not heard yet."""
        self.devices = ModelDeviceManager(loop, cluster, self)
        self.faults = self.devices.faults
        self.claims = ClaimManager(cluster, root, self.devices.plugin, tick)
        cluster.bound = self._bound
        cluster.deleting = self._deleting
        cluster.forced = self._forced
        self._hears_at = 0.0
        self.lingering: dict[str, Lingering] = {}
        """By UID what containers of pods deleted by force have; they run on whatever becomes of the kubelet."""
        self._forget()
        self._begin()

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
        resources = self.devices.streamed
        for pod in list(self.late.values()):
            self._heard(pod)
        for task in list(self._tasks):
            task.cancel()
        self._tasks.clear()
        self._forget()
        self._begin()
        for resource in resources:
            self.devices.registered(resource)

    def _forget(self) -> None:
        self.devices.forget()
        self.claims.forget()
        self._queue: asyncio.Queue[ModelPod] = asyncio.Queue()

    def _begin(self) -> None:
        self.spawn(self._admit_all())
        self.spawn(self.devices.report())
        for pod in list(self.cluster.pods.values()):
            if pod.bound and not pod.over:
                if pod.deleted:
                    self._deleting(pod)
                elif pod.ended is not None:
                    self.spawn(self._finish(pod, pod.ended))
                else:
                    self._queue.put_nowait(pod)
        for uid in self.claims.users - self.cluster.pods.keys():
            self.spawn(self._clean_up(uid))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """See ``PodWorker``."""
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

    def _is_active(self, uid: str) -> bool:
        pod = self.find(uid)
        return pod is not None and pod.ended is None

    def find(self, uid: str) -> ModelPod | None:
        """See ``PodWorker``."""
        return self.cluster.pods.get(uid) or self.late.get(uid)

    # Admission

    def _bound(self, pod: ModelPod) -> None:
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
            if self.find(pod.uid) is None or pod.deleted or pod.ended is not None:
                continue
            try:
                await self._admit(pod)
            except ServicerCallFailed as error:
                self._refused(pod, str(error))
            else:
                if self._is_active(pod.uid) and not pod.deleted:
                    self.spawn(self._start(pod))

    def _refused(self, pod: ModelPod, why: str) -> None:
        self.admissions.append((self.loop.time(), pod, why))
        self._finish_soon(pod, ModelPhase.FAILED)

    def _finish_soon(self, pod: ModelPod, phase: ModelPhase) -> None:
        pod.ended = phase
        self._end_containers(pod)
        self.spawn(self._finish(pod, phase))

    async def _finish(self, pod: ModelPod, phase: ModelPhase) -> None:
        await self.claims.release(pod.uid)
        self.cluster.over(pod, phase)

    async def _admit(self, pod: ModelPod) -> None:
        reusable: dict[str, tuple[str, ...]] = {}
        order = sorted(range(len(pod.asks)), key=lambda number: not pod.asks[number].ordinary)
        for number in order:
            ask = pod.asks[number]
            ids = await self.devices.allocated(pod, number, ask, reusable.get(ask.resource, ()))
            if ask.ordinary:
                reusable[ask.resource] = tuple(dict.fromkeys((*reusable.get(ask.resource, ()), *ids)))
            else:
                left = tuple(id_ for id_ in reusable.get(ask.resource, ()) if id_ not in ids)
                reusable[ask.resource] = left
        if self.refuse_admissions and pod.asks and not pod.admitted:
            self.refuse_admissions -= 1
            raise ServicerCallFailed("OutOfcpu", "the node has no CPU left")

    # Containers and claims

    async def _start(self, pod: ModelPod) -> None:
        if self.cluster.lags.starting:
            await asyncio.sleep(self.cluster.lags.starting)
            if not self._is_active(pod.uid) or pod.deleted:
                return
        pod.admitted = True
        pod.devices = self.devices.of_pod(pod)
        pod.alive = pod.alive or not pod.claims
        self._tick()
        wait = RETRY
        while not pod.alive and not pod.deleted:
            if await self.claims.prepare_all(pod):
                pod.alive = True
            else:
                await asyncio.sleep(wait)
                wait = min(2 * wait, SLOWEST)
        if pod.alive and pod.phase is ModelPhase.PENDING:
            pod.phase = ModelPhase.RUNNING
            if pod.uid in self.cluster.pods:
                self.cluster.changed(pod, False)
        self._tick()

    def _deleting(self, pod: ModelPod) -> None:
        self.spawn(self._terminate(pod))

    def _forced(self, pod: ModelPod) -> None:
        """Its object is gone; until that is heard of it may even be started."""
        self.late[pod.uid] = pod
        self._hears_at = max(self._hears_at, self.loop.time() + self.cluster.lags.forgetting) + 1e-6
        self.loop.call_at(self._hears_at, self._heard, pod)

    def _heard(self, pod: ModelPod) -> None:
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
        self.spawn(self._clean_up(uid))

    def end(self, pod: ModelPod) -> None:
        """The pod's containers have done what they were for."""
        if pod.alive and pod.ended is None and not pod.deleted:
            self._finish_soon(pod, ModelPhase.SUCCEEDED)

    async def _terminate(self, pod: ModelPod) -> None:
        if pod.alive:
            await asyncio.sleep(self.cluster.lags.grace)
        self._end_containers(pod)
        await self.claims.release(pod.uid)
        self.cluster.gone(pod)

    async def _clean_up(self, uid: str) -> None:
        await self.claims.release(uid)

    def _end_containers(self, pod: ModelPod) -> None:
        pod.alive = pod.admitted = False
        pod.devices = {}
        self._tick()
