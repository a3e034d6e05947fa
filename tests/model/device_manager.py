"""The kubelet's device manager: lists of devices, what pods have, the checkpoint, and the answers to whoever reads.

Its memory goes with a restart; the checkpoint stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from node.ledger.reader import Holding, Reading
from protos.deviceplugin.v1beta1 import api_pb2
from tests.making.servicer_calls import CallContext, ServicerCallFailed, answered
from tests.making.virtual_time import VirtualLoop
from tests.model.claim_manager import ModelPlugin
from tests.model.cluster import ModelCluster
from tests.model.objects import NAMESPACE, ModelAsk, ModelPod

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


class PodWorker(Protocol):
    """The kubelet, as far as the device manager needs it."""

    def find(self, uid: str) -> ModelPod | None:
        """The pod that the kubelet knows by this UID."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run this until it ends, or the kubelet does."""


class ModelDeviceManager:
    """A ``KubeletSource`` for our agent, and what admission asks for devices."""

    def __init__(self, loop: VirtualLoop, cluster: ModelCluster, kubelet: PodWorker) -> None:
        self.loop = loop
        self.cluster = cluster
        self.faults = Faults()
        self.written: dict[Key, tuple[str, ...]] = {}
        """The checkpoint, which outlives a restart."""
        self.told: dict[str, float] = {}
        """When each id was last listed, or recorded for a pod that there is."""
        self._kubelet = kubelet
        self._identified: set[str] = set()
        """UIDs of pods that a process of ours has read from the checkpoint; ``_hidden``: that it could not read."""
        self._hidden: set[str] = set()
        self._plugin: ModelPlugin | None = None
        self._file_changed: Callable[[], None] = lambda: None
        self.forget()

    def forget(self) -> None:
        """A new process begins, which knows the checkpoint alone."""
        self.records: dict[Key, tuple[str, ...]] = dict(self.written)
        self._count_taken()
        self.lists: dict[str, dict[str, bool]] = {}
        self._streams: dict[str, asyncio.Task[Any]] = {}

    @property
    def streamed(self) -> list[str]:
        """The resources that our process serves."""
        return list(self._streams)

    def plugin(self) -> ModelPlugin | None:
        """Our process, while there is one."""
        return self._plugin

    def of_pod(self, pod: ModelPod) -> dict[tuple[str, str], bool]:
        """What is recorded for the pod, by resource and id; False for what only its init containers have."""
        return {
            (key[2], id_): not pod.asks[key[1]].ordinary
            for key, ids in sorted(self.records.items(), key=lambda item: item[0], reverse=True)
            if key[0] == pod.uid
            for id_ in ids
        }

    # Our agent

    def connect(self, plugin: ModelPlugin, file_changed: Callable[[], None]) -> None:
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
            self._streams[resource] = self._kubelet.spawn(
                self._follow(resource, self._plugin.plugin_servicer(resource))
            )

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

    # Lists

    async def _follow(self, resource: str, servicer: Any) -> None:
        stream = servicer.ListAndWatch(api_pb2.Empty(), CallContext())
        try:
            async for message in stream:
                await asyncio.sleep(self.cluster.lags.listing)
                self.lists[resource] = {device.ID: device.health == "Healthy" for device in message.devices}
                self._checkpoint()
        finally:
            await stream.aclose()

    async def report(self) -> None:
        while True:
            await asyncio.sleep(0.5 if not self.cluster.allocatable else self.cluster.lags.status)
            self.cluster.reported({name: sum(devices.values()) for name, devices in self.lists.items()})

    def _checkpoint(self) -> None:
        self.written = dict(self.records)
        self._file_changed()

    def _active(self, uid: str) -> bool:
        pod = self._kubelet.find(uid)
        return pod is not None and pod.ended is None

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
            pod = self._kubelet.find(uid)
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

    async def allocated(self, pod: ModelPod, number: int, ask: ModelAsk, reusable: tuple[str, ...]) -> tuple[str, ...]:
        key: Key = (pod.uid, number, ask.resource)
        self._collect()
        before = self.records.get(key, ())
        if before and pod.alive and not ask.ordinary:
            return before  # Its container runs: nothing is asked of a restarted kubelet.
        devices = self.lists.get(ask.resource)
        if devices is None and not any(each[2] == ask.resource for each in self.records):
            raise ServicerCallFailed("UnexpectedAdmissionError", f"{ask.resource} is not known here")
        healthy = {id_ for id_, well in (devices or {}).items() if well}
        if not healthy:
            raise ServicerCallFailed("UnexpectedAdmissionError", "no healthy devices present")
        if not healthy.issuperset(before):
            raise ServicerCallFailed("UnexpectedAdmissionError", "previously allocated devices are no longer healthy")
        if before:
            return before
        chosen = await self._chosen(ask, healthy, reusable)
        self.taken.setdefault(ask.resource, set()).update(chosen)
        try:
            await self._allocate(ask.resource, chosen)
        except ServicerCallFailed:
            self._count_taken()
            raise
        await asyncio.sleep(self.cluster.lags.answering)
        if self.faults.asked and not self.faults.any:
            self._collect()
        self.records[key] = chosen
        self._checkpoint()
        return chosen

    async def _chosen(self, ask: ModelAsk, healthy: set[str], reusable: tuple[str, ...]) -> tuple[str, ...]:
        kept = tuple(id_ for id_ in reusable if id_ in healthy)[: ask.count]
        if len(kept) == ask.count:
            return kept
        available = sorted(healthy - self.taken.get(ask.resource, set()))
        needed = ask.count - len(kept)
        if len(available) < needed:
            raise ServicerCallFailed("UnexpectedAdmissionError", "requested number of devices unavailable")
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
            raise ServicerCallFailed("UNAVAILABLE", "nobody serves it")
        servicer = self._plugin.plugin_servicer(resource)
        return await answered(getattr(servicer, method)(request, CallContext()))
