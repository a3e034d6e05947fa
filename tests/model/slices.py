"""How what the DRA door shows gets to the API server: as ``driver.publishing.publisher`` does it, without threads and
HTTP.

What is about to be published is in the record before; it is known to be withdrawn once the write has been answered.
"""

from __future__ import annotations

import asyncio

from driver.devices.shares import consumable
from driver.devices.view import DoorView, DraDevice, taints
from driver.publishing.shown import ShownDevices
from kube.bodies import text_at
from node.rules import Door
from tests.making.virtual_time import VirtualLoop
from tests.model.cluster import ModelCluster, ModelSlice


class PublishedSlices:
    """Writes the newest view while ``run`` runs."""

    def __init__(self, loop: VirtualLoop, cluster: ModelCluster, record: ShownDevices) -> None:
        self._loop = loop
        self._cluster = cluster
        self._record = record
        self._view: DoorView | None = None
        self._written: ModelSlice | None = None
        self._woken = asyncio.Event()

    def apply(self, view: DoorView, *, keeps_taints: bool | None = None) -> None:
        self._record.expect([each.device.name for each in view.devices if each.rule.door.has(Door.DRA)])
        self._view = view
        self._woken.set()

    def free(self) -> frozenset[str] | None:
        """Names of devices that the API offers; None while a write may change that."""
        if self._view is None or self._written is None or _slice(self._view) != self._written:
            return None
        return frozenset(name for name, effects in self._written.devices if not effects)

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self._view is not None:
                await self._write(self._view)

    async def _write(self, view: DoorView) -> None:
        names = {each.device.name for each in view.devices if each.rule.door.has(Door.DRA)}
        await asyncio.to_thread(self._record.cover, names)
        wanted = _slice(view)
        if wanted == self._written:
            return
        await asyncio.sleep(self._cluster.lags.slices)
        while not self._cluster.up:
            await asyncio.sleep(1.0)
        self._cluster.published(wanted)
        # The answer takes a moment.
        await asyncio.sleep(0.01)
        self._written = wanted


def effects(each: DraDevice) -> tuple[str, ...]:
    """The effects of a device's taints."""
    return tuple(text_at(taint, "effect") for taint in taints(each) if isinstance(taint, dict))


def _slice(view: DoorView) -> ModelSlice:
    left = tuple(
        (each.device.name, consumable(each.device, each.rule.sharing, each.held)["compute"].left)
        for each in view.devices
        if each.rule.sharing is not None
    )
    return ModelSlice(tuple((each.device.name, effects(each)) for each in view.devices), left)
