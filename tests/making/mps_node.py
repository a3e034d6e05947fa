"""A node on which a supervisor runs the stand-in's MPS daemons for resources, one agent after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from node.clocks import SystemClocks
from node.events import EventBus, EventType
from node.health.signal import HealthEvent
from node.inventory.nvidia.compute_modes import DEFAULT
from node.mps.daemon import MpsDaemon, MpsDevice, MpsError, MpsResource
from node.mps.modes import ExclusiveModes, MpsRecord
from node.mps.reports import MpsMetrics
from node.mps.service import MpsHolders, MpsPace
from node.mps.supervisor import MpsSupervisor
from tests.making.mps import GpuModes, MpsStandIn

NAME, OTHER = "nvidia.com/gpu.shared", "nvidia.com/gpu.small"
GIB = 2**30
GPUS = (MpsDevice("gpu-0", "GPU-0", 20 * GIB), MpsDevice("gpu-1", "GPU-1", 20 * GIB))
RESOURCE = MpsResource(NAME, GPUS, 25)
PACE = MpsPace(look=0.1, linger=0.2, first_pause=0.05, longest_pause=0.2)
HELD = MpsHolders({NAME: ("team/a", "team/b")}, known=True)
NOBODY = MpsHolders({}, known=True)


class MpsNode:
    """A node with the stand-in; ``supervisor`` is of the agent that runs."""

    def __init__(self, folder: Path) -> None:
        self.driver = MpsStandIn(folder)
        self.modes = GpuModes("GPU-0", "GPU-1", "GPU-2")
        self.path = folder / "mps.json"
        self.events: list[tuple[str, str]] = []
        self.changes = 0
        self.now: float | None = None
        """Monotonic seconds of a test that stops the time."""
        self.bus = EventBus()
        self.lost: list[HealthEvent] = []
        self.bus.subscribe(HealthEvent, self.lost.append)
        self.mounts = self.driver.mounts
        self.metrics = MpsMetrics()
        self.supervisor = self._made()

    def _made(self) -> MpsSupervisor:
        return MpsSupervisor(
            self.driver.home,
            ExclusiveModes(self.modes),
            MpsRecord(self.path),
            clocks=SystemClocks(monotonic=self._monotonic),
            events=self,
            bus=self.bus,
            metrics=self.metrics,
            on_changed=self._changed,
            pace=PACE,
        )

    def _monotonic(self) -> float:
        return time.monotonic() if self.now is None else self.now

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        assert kind is EventType.WARNING
        self.events.append((reason, message))

    def _changed(self) -> None:
        self.changes += 1

    @asynccontextmanager
    async def agent(self, *resources: MpsResource) -> AsyncIterator[MpsSupervisor]:
        """An agent that serves these resources until it ends."""
        self.supervisor = self._made()
        self.supervisor.use(resources)
        running = asyncio.create_task(self.supervisor.run())
        try:
            yield self.supervisor
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def pids(self) -> dict[str, int]:
        """Of the daemons on record, by their resource."""
        record = MpsRecord(self.path)
        record.read()
        return {name: daemon.pid for name, daemon in record.daemons.items()}

    @property
    def pid(self) -> int | None:
        """Of the resource's daemon on record."""
        return self.pids.get(NAME)

    async def tell(self, command: str) -> None:
        daemon = MpsDaemon(RESOURCE, self.driver.home)
        try:
            await daemon.ask(command)
        except MpsError:
            assert command == "crash"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


def is_clean(node: MpsNode) -> bool:
    """Whether nothing of MPS is left on the node."""
    return (
        set(node.modes.modes.values()) == {DEFAULT}
        and not node.path.exists()
        and not (node.driver.home.root / NAME).exists()
    )
