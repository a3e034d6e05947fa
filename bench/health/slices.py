"""Slices at the API server's stand-in, in this process: when a taint is there, and how often slices were written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.health.agents import NODE
from bench.kubelet import WITHIN, NothingCame
from sandbox.apiserver.server import ApiServer


class Slices:
    """What somebody sees who watches the server; use it with ``with``. Times are ``time.perf_counter``."""

    def __init__(self, kubeconfig: Path) -> None:
        self._server = ApiServer()
        self.kubeconfig = kubeconfig

    def __enter__(self) -> Slices:
        self._server.start()
        self._server.kubeconfig(self.kubeconfig)
        self._server.store.create("nodes", {"metadata": {"name": NODE}})
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    async def published(self, count: int) -> None:
        """Wait until so many devices are shown without a taint; raises ``NothingCame``."""
        await self._until(f"{count} devices without taint", lambda: self._bare() >= count)

    async def tainted(self, count: int) -> float:
        """When so many devices had a taint; raises ``NothingCame``."""
        return await self._until(f"{count} tainted devices", lambda: self._tainted() >= count)

    @property
    def writes(self) -> int:
        """How many writes of slices were asked for."""
        return len(self._server.requests.writes("resourceslices"))

    def _bare(self) -> int:
        return sum(1 for device in self._devices() if not device.get("taints"))

    def _tainted(self) -> int:
        return sum(1 for device in self._devices() if device.get("taints"))

    def _devices(self) -> list[dict[str, Any]]:
        found = self._server.store.list("resourceslices")
        return [device for each in found for device in each["spec"].get("devices", ())]

    async def _until(self, what: str, condition: Callable[[], bool]) -> float:
        return await asyncio.to_thread(self._wait, what, condition)

    def _wait(self, what: str, condition: Callable[[], bool]) -> float:
        deadline = time.monotonic() + WITHIN
        version = self._server.store.version
        while True:
            at = time.perf_counter()
            if condition():
                return at
            left = deadline - time.monotonic()
            if left <= 0:
                raise NothingCame(f"not within {WITHIN:g} s: {what}")
            version = self._server.store.wait(version, left)
