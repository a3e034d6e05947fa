"""The kubelet's DRA manager: claims are prepared before a pod's containers begin and released when they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from node.kubelet.dra_state import FILE_NAME, ClaimInfo, DeviceState, DraState, encode
from protos.dra.v1 import api_pb2 as dra_pb2
from tests.making.servicer_calls import CallContext, ServicerCallFailed, answered
from tests.model.cluster import ModelCluster
from tests.model.objects import DRIVER, NAMESPACE, ModelClaim, ModelPod

RETRY, SLOWEST = 2.0, 20.0
"""Seconds between a pod's syncs; less than the real ones, so that runs are short."""


class ModelPlugin(Protocol):
    """Our side of the kubelet's sockets, as long as the process lives."""

    def plugin_servicer(self, resource: str) -> Any: ...

    @property
    def dra_servicer(self) -> Any: ...


class ClaimManager:
    """``given``: by UID the name, devices with share ids, and whether for looking only, of what containers may have.

    ``disk``: what outlives a restart: by UID the claim, the pods that use it, and what was prepared of it. ``plugin``:
    our process, while there is one. ``tick``: called after every change of what containers have.
    """

    def __init__(
        self, cluster: ModelCluster, root: Path, plugin: Callable[[], ModelPlugin | None], tick: Callable[[], None]
    ) -> None:
        self.given: dict[str, tuple[str, tuple[tuple[str, str], ...], bool]] = {}
        self.disk: dict[str, tuple[ModelClaim, set[str], tuple[DeviceState, ...]]] = {}
        self._cluster = cluster
        self._root = root
        self._plugin = plugin
        self._tick = tick
        self.forget()
        self.write()

    def forget(self) -> None:
        """A new process begins, which does not know what is prepared; containers run on."""
        self._prepared: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}

    @property
    def users(self) -> set[str]:
        """UIDs of the pods that have claims."""
        return {uid for _, pods, _ in self.disk.values() for uid in pods}

    async def prepare_all(self, pod: ModelPod) -> bool:
        for name in pod.claims:
            claim = self._cluster.claims.get(name)
            if claim is None or pod.uid not in claim.reserved or not claim.allocation:
                return False
            async with self._locks.setdefault(claim.uid, asyncio.Lock()):
                if pod.deleted:
                    return False
                _, pods, devices = self.disk.setdefault(claim.uid, (claim, set(), ()))
                if pod.uid not in pods:
                    pods.add(pod.uid)
                    self.write()
                if claim.uid in self._prepared:
                    continue
                try:
                    devices = await self._prepare(claim)
                except ServicerCallFailed:
                    return False
                self.disk[claim.uid] = claim, pods, devices
                self._prepared.add(claim.uid)
                shares = tuple((each.device, each.share_id or "") for each in devices)
                self.given[claim.uid] = claim.name, shares, claim.admin
                self.write()
                self._tick()
        return True

    async def _prepare(self, claim: ModelClaim) -> tuple[DeviceState, ...]:
        request = dra_pb2.NodePrepareResourcesRequest()
        request.claims.add(namespace=NAMESPACE, name=claim.name, uid=claim.uid)
        response = await self._call_driver("NodePrepareResources", request)
        entry = response.claims[claim.uid]
        if entry.error:
            raise ServicerCallFailed("FailedPrepareDynamicResources", entry.error)
        return tuple(
            DeviceState(
                each.pool_name,
                each.device_name,
                each.share_id if each.HasField("share_id") and each.share_id else None,
                tuple(each.request_names),
                tuple(each.cdi_device_ids),
            )
            for each in entry.devices
        )

    async def _call_driver(self, method: str, request: Any) -> Any:
        await asyncio.sleep(self._cluster.lags.answering)
        plugin = self._plugin()
        if plugin is None:
            raise ServicerCallFailed("DRA", f"driver {DRIVER} is not registered")
        answer = await answered(getattr(plugin.dra_servicer, method)(request, CallContext(45.0)))
        await asyncio.sleep(self._cluster.lags.answering)
        return answer

    async def release(self, uid: str) -> None:
        for claim, pods, _ in list(self.disk.values()):
            if uid not in pods:
                continue
            async with self._locks.setdefault(claim.uid, asyncio.Lock()):
                while claim.uid in self.disk and pods == {uid}:
                    # Nothing of the claim runs any more.
                    self.given.pop(claim.uid, None)
                    self._prepared.discard(claim.uid)
                    self._tick()
                    if await self._unprepared(claim):
                        del self.disk[claim.uid]
                    else:
                        await asyncio.sleep(RETRY)
                pods.discard(uid)
                self.write()

    async def _unprepared(self, claim: ModelClaim) -> bool:
        request = dra_pb2.NodeUnprepareResourcesRequest()
        request.claims.add(namespace=NAMESPACE, name=claim.name, uid=claim.uid)
        try:
            response = await self._call_driver("NodeUnprepareResources", request)
        except ServicerCallFailed:
            return False
        return claim.uid in response.claims and not response.claims[claim.uid].error

    def write(self) -> None:
        infos = tuple(
            ClaimInfo(uid, claim.name, NAMESPACE, tuple(sorted(pods)), {DRIVER: devices or None})
            for uid, (claim, pods, devices) in sorted(self.disk.items())
        )
        self._root.mkdir(parents=True, exist_ok=True)
        (self._root / FILE_NAME).write_bytes(encode(DraState(infos)))
