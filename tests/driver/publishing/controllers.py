"""A controller that publishes nowhere and remembers what it was given."""

from __future__ import annotations

import threading

from driver.slices.model import DriverResources, PoolStatus, Stats, layout


class RecordingController:
    """A controller: ``given`` is every update's layout of the pool."""

    def __init__(self, stored: tuple[tuple[str, ...], ...] = ()) -> None:
        self.given: list[tuple[tuple[str, ...], ...]] = []
        self.afresh: list[bool] = []
        self.synced = threading.Event()
        self.synced.set()
        self.events: list[str] = []
        self.error = ""
        self.watching_fault = ""
        self.dropped: tuple[str, ...] = ()
        self.offered: frozenset[str] | None = None
        self._stored = stored

    def start(self) -> object:
        self.events.append("start")
        return self

    def wait_synced(self, timeout: float) -> bool:
        return self.synced.wait(min(timeout, 0.01))

    def update(self, resources: DriverResources | None, *, afresh: bool = False) -> None:
        assert resources is not None
        self.afresh.append(afresh)
        (pool,) = resources.pools.values()
        self._stored = layout(pool.slices)
        self.given.append(self._stored)

    def stored(self, pool: str) -> tuple[tuple[str, ...], ...]:
        return self._stored

    def free(self, pool: str) -> frozenset[str] | None:
        return self.offered

    def status(self) -> tuple[PoolStatus, ...]:
        stored = self._stored
        return (
            PoolStatus("node-1", 1, stored, stored, in_order=not self.error, error=self.error, dropped=self.dropped),
        )

    def fault(self, pool: str) -> str:
        return self.error

    def watch_fault(self) -> str:
        return self.watching_fault

    def get_stats(self) -> Stats:
        return Stats(creates=len(self.given))

    def stop(self) -> None:
        self.events.append("stop")
