"""What is shown follows what is held, and a burst of claims is not as many offers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from node.events import EventType
from node.inventory.model import Snapshot
from node.offer import Offer
from node.topology.model import Topology
from node.values import replace
from ostler.config.settings import Settings
from ostler.publisher import Publisher
from plugin.door import PluginDoor
from tests.waiting import eventually


class Door(PluginDoor):
    """Counts what it is given to show."""

    def __init__(self) -> None:
        self.shown = 0

    def apply(self, offer: Offer, topology: Topology | None = None, *, forget_missing: bool = False) -> None:
        self.shown += 1


class NoEvents:
    def emit(self, kind: EventType, reason: str, message: str) -> None:
        raise AssertionError(message)


@contextlib.asynccontextmanager
async def publishing(door: Door, state: Path) -> AsyncIterator[Publisher]:
    publisher = Publisher(replace(Settings(), state_dir=state), door, NoEvents(), lambda: None)
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_changes_of_what_is_held_are_shown_together(tmp_path: Path) -> None:
    door = Door()
    async with publishing(door, tmp_path) as publisher:
        publisher.submit(Snapshot(1))
        await eventually(lambda: door.shown == 1, "the snapshot is shown")
        for _ in range(200):
            publisher.held()
        await eventually(lambda: door.shown == 2, "what is held is shown")
        publisher.held()
        await eventually(lambda: door.shown == 3, "the next change is shown, too")


async def test_a_new_snapshot_does_not_wait_for_what_is_held(tmp_path: Path) -> None:
    door = Door()
    async with publishing(door, tmp_path) as publisher:
        publisher.held()
        publisher.submit(Snapshot(1))
        await eventually(lambda: publisher.shown[0].generation == 1, "the snapshot is shown")
        await eventually(lambda: door.shown == 2, "what is held is shown after it")
