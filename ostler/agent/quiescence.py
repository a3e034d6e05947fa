"""Quiesces the driver while it is replaced, and resumes its use, in this process.

The command may reach another instance. The request is in a file (``node.quiesce``), which a standby checks until it is
the active instance.
"""

from __future__ import annotations

import asyncio

from node.events import EventRecorder, EventType
from node.inventory.loop import Inventory
from node.quiesce import Quiesce

CHECK = 1.0
"""Seconds between checks whether another instance got the command to quiesce."""
RELEASED_WITHIN = 45.0
"""Seconds within which the driver is released or reported as held; ``ostler quiesce`` waits a little longer."""


class ResumeFailed(Exception):
    """Quiesce could not be ended, because its file cannot be removed."""

    def __init__(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        super().__init__(f"{error.filename} cannot be removed ({reason}), the driver is left alone; remove it by hand")
        self.error = error


class DriverNotFree(Exception):
    """The driver is quiesced, but this process still has something of it open."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the driver is left alone from now on, but this agent has not released it: {reason}")
        self.reason = reason


class Quiescence:
    """Quiesces and resumes as ``quiesce`` says, by scans of ``inventory``."""

    def __init__(self, quiesce: Quiesce, inventory: Inventory, events: EventRecorder) -> None:
        self._quiesce = quiesce
        self._inventory = inventory
        self._events = events

    @property
    def begun(self) -> bool:
        """Whether the driver is quiesced."""
        return self._quiesce.reason is not None

    async def begin(self, reason: str) -> tuple[int, tuple[str, ...]]:
        """Release the driver, and return when nothing of it is open any more; returns the changes, as ``rescan`` does.

        Raises ``DriverNotFree`` if that fails; the driver is quiesced anyway.
        """
        unkept = self._quiesce.begin(reason)
        forgets = f"a restart would forget this: {unkept}" if unkept else ""
        self._events.emit(EventType.NORMAL, "Quiesced", f"ostler leaves the driver alone until it is resumed: {reason}")
        try:
            async with asyncio.timeout(RELEASED_WITHIN):
                found = await self.rescan()
        except TimeoutError as error:
            hangs = f"a scan has been in the driver for {RELEASED_WITHIN:g} s; ask again later, or end the agent"
            raise DriverNotFree("; ".join(filter(None, (hangs, forgets)))) from error
        if self._inventory.held:
            raise DriverNotFree("; ".join(filter(None, (self._inventory.held, forgets))))
        generation, lines = found
        return generation, (*lines, forgets) if forgets else lines

    async def end(self) -> tuple[int, tuple[str, ...]]:
        """Use the driver again; returns the changes of the first scan. Raises ``ResumeFailed``."""
        try:
            self._quiesce.end()
        except OSError as error:
            raise ResumeFailed(error) from error
        self._events.emit(EventType.NORMAL, "Resumed", "the driver is used again")
        return await self.rescan()

    async def rescan(self) -> tuple[int, tuple[str, ...]]:
        """Scan now; returns the generation afterwards and the changes."""
        found = await self._inventory.rescan()
        return self._inventory.snapshot.generation, tuple(found.lines())

    async def follow(self, active: asyncio.Event) -> None:
        """Scan when quiesce begins or ends, until this instance is ``active`` and gets the commands itself."""
        known = self._quiesce.reason
        while not active.is_set():
            await asyncio.sleep(CHECK)
            if self._quiesce.reason != known:
                known = self._quiesce.reason
                self._inventory.wake()
