"""An inventory loop over sources that a test scripts."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from node.events import EventBus
from node.inventory.facts import NodeFacts
from node.inventory.identity import IdentityStore
from node.inventory.loop import Inventory
from node.quiesce import Quiesce
from ostler.agent.edges import Edges
from tests.making.clock import ManualClock
from tests.waiting import background


class Scripted:
    """A source that shows ``facts``, counts its reads, and can raise or hang."""

    def __init__(self, facts: NodeFacts, name: str = "scripted") -> None:
        self.facts = facts
        self.name = name
        self.starts: list[float] = []
        self.threads: set[int] = set()
        self.fault: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.closed = 0

    def read(self) -> NodeFacts:
        self.starts.append(time.monotonic())
        self.threads.add(threading.get_ident())
        self.gate.wait(60)
        if self.fault is not None:
            raise self.fault
        return self.facts

    def close(self) -> None:
        self.closed += 1
        if self.fault is not None:
            raise self.fault


@asynccontextmanager
async def running(
    *sources: Scripted,
    clock: Callable[[], float] | None = None,
    max_interval: float = 60.0,
    min_interval: float = 0.0,
    store: IdentityStore | None = None,
    jitter: Callable[[], float] = lambda: 1.0,
    quiesce: Quiesce | None = None,
    bus: EventBus | None = None,
) -> AsyncIterator[Inventory]:
    inventory = Inventory(
        sources,
        store or IdentityStore(None),
        bus or EventBus(),
        clocks=Edges(clock or ManualClock(1000.0), random=jitter),
        max_interval=max_interval,
        min_interval=min_interval,
        quiesce=quiesce,
    )
    try:
        async with background(inventory.run()):
            yield inventory
    finally:
        await inventory.close()
