"""When a kubelet deletes the ResourceSlices of its node: all at its start, a driver's when that has been away too long.

A timer keeps its due time until the driver is connected again. Attempts that fail are repeated a few times and then
given up silently, as in kubelets.
"""

from __future__ import annotations

import asyncio
import logging

from sandbox.kubelet.dra.settings import ApiFailed, DraManagerSettings

log = logging.getLogger("ostler.sandbox.kubelet")


class Wiping:
    """The timers, and the deletions under way; without an API server it does nothing."""

    def __init__(self, settings: DraManagerSettings) -> None:
        self._settings = settings
        self._tasks: dict[str | None, asyncio.Task[None]] = {}
        self.wiped: list[str | None] = []
        """Drivers whose slices were deleted since the start, in this order; None for all at the start."""

    def start(self) -> None:
        """Delete the slices of all drivers, since none is there yet."""
        self._schedule(None, 0.0)

    def absent(self, driver: str) -> None:
        """No instance of the driver is connected; a timer that runs goes on."""
        self._schedule(driver, self._settings.wiping_seconds)

    def present(self, driver: str) -> None:
        """An instance is connected: its timer ends."""
        task = self._tasks.pop(driver, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End everything."""
        tasks, self._tasks = tuple(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _schedule(self, driver: str | None, seconds: float) -> None:
        running = self._tasks.get(driver)
        if self._settings.api is None or (running is not None and not running.done()):
            return
        self._tasks[driver] = asyncio.create_task(self._wipe(driver, seconds), name=f"wipe {driver or 'all'}")

    async def _wipe(self, driver: str | None, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for pause in (*self._settings.wipe_retries, None):
            try:
                assert self._settings.api is not None
                await self._settings.api.delete_slices(driver)
            except ApiFailed as error:
                log.info("deleting ResourceSlices failed", extra={"driver": driver or "", "error": str(error)})
                if pause is None:
                    return
                await asyncio.sleep(pause)
            else:
                self.wiped.append(driver)
                return
