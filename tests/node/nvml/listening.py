"""A source whose session somebody listens to: the inventory's part and the loop's, as the agent has them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from node.clocks import SystemClocks
from node.events import EventBus
from node.health.signal import Condition, HealthEvent, Look, Trouble
from node.inventory.devices import devices_of
from node.inventory.facts import NodeFacts
from node.inventory.identity import Identities
from node.inventory.model import Snapshot
from node.inventory.nvidia.nvml import NvmlSource
from node.inventory.nvidia.signals.source import NvmlSignals
from node.inventory.source import ScanWanted
from tests.making.events import heard
from tests.node.nvml.stub.injected import InjectedNvml
from tests.waiting import eventually

THREADS = ("nvml-events", "nvml-polls")


class Listening:
    """Use as a context manager; ``scan`` reads in the worker thread and shows the snapshot to the signals."""

    def __init__(self, hardware: InjectedNvml, proc: Path, interval: float = 60.0, pulse: float = 60.0) -> None:
        self.hardware = hardware
        self.source = NvmlSource(Path("/"), hardware.library, proc=proc)
        bus = EventBus()
        self.events = heard(bus, HealthEvent)
        self.looks = heard(bus, Look)
        self._scans_wanted = heard(bus, ScanWanted)
        self.signals = NvmlSignals(
            self.source.sessions,
            bus,
            clocks=SystemClocks(clock=lambda: 1000.0),
            interval=interval,
            pulse=pulse,
            wait=50,
            hung=0.3,
        )
        self._worker = ThreadPoolExecutor(1)
        self._running: asyncio.Task[None] | None = None
        self.facts = NodeFacts()

    async def __aenter__(self) -> Listening:
        self._running = asyncio.create_task(self.signals.run())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hardware.release()
        with suppress(Exception):
            await self.close()
        await self.stop()
        await eventually(lambda: not threads(), "the threads end")
        await self.close()
        self._worker.shutdown()

    async def stop(self) -> None:
        """End the signals' task."""
        assert self._running is not None
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running

    async def close(self) -> None:
        """Let go of the driver, as quiesce does."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self.source.close)

    async def scan(self, *, shown: bool = True) -> Snapshot:
        """Read everything, as a scan does."""
        self.facts = await asyncio.get_running_loop().run_in_executor(self._worker, self.source.read)
        snapshot = Snapshot(1, tuple(devices_of(self.facts, Identities())))
        if shown:
            self.signals.observe(snapshot)
        return snapshot

    async def opened(self) -> None:
        """Scan, and wait until everything is listened to and was looked at."""
        before = len(self.looks)
        await self.scan()
        await eventually(lambda: len(self.looks) > before, "the first look")
        await self.registered()

    async def registered(self, before: int = 0) -> None:
        """Wait until GPUs are registered for events, with so many registrations before."""
        await eventually(lambda: self.hardware.listeners > before, "an event set with GPUs")
        # The last of them is noted before the set is waited on; those who ask for less see it told.
        told = -1
        while told != self.hardware.listeners:
            told = self.hardware.listeners
            await asyncio.sleep(0.02)

    async def looked(self) -> Look:
        """The look after one that was asked for now."""
        before = len(self.looks)
        self.signals.look()
        await eventually(lambda: len(self.looks) > before, "a look")
        return self.looks[-1]

    async def finds(self, device: str, *kinds: Trouble) -> tuple[Condition, ...]:
        """Look until exactly these kinds of trouble are found at a device."""

        async def found() -> bool:
            # A look during which the device comes or goes may not have it.
            conditions = (await self.looked()).found.get(device)
            return conditions is not None and kinds_of(conditions) == kinds

        await eventually(found, f"{kinds} at {device}: {self.looks[-1:]}")
        return self.looks[-1].found[device]

    async def event(self, number: int = 1) -> HealthEvent:
        """The event of that number, from one on."""
        await eventually(lambda: len(self.events) >= number, f"{number} events, not {self.events}")
        return self.events[number - 1]

    @property
    def wakes(self) -> int:
        """How often a scan was wanted."""
        return len(self._scans_wanted)


def kinds_of(conditions: Iterable[Condition]) -> tuple[Trouble, ...]:
    """The kinds of trouble, in their order."""
    return tuple(condition.kind for condition in conditions)


def threads() -> list[str]:
    """Names of the threads that listen now."""
    return [thread.name for thread in threading.enumerate() if thread.name in THREADS]
