"""The record in the state folder of what the health of devices must keep across a restart.

Only the serving instance writes it, off the loop; the newest state counts, and a state that is replaced before its turn
is never written. A damaged file is set aside and its content lost: sources report most of it again. A disk that cannot
be written to is reported once and tried again; meanwhile devices are judged from memory.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from node.events import EventRecorder, EventType
from node.files import FileError, JsonValue, RecordSchemaUnknown, read_record, write_record
from node.health.memory import SCHEMA, SavedHealth, from_data

log = logging.getLogger("ostler.health")

RETRY = 30.0
LATEST = 5.0
"""The longest that a caller waits for the disk, in seconds."""


class HealthRecord:
    """The record at ``path``; ``boot`` is the kernel's id of this boot. For the loop's thread only.

    ``retry``: seconds until a failed write is tried again. ``problem``: why the present state is not on disk, empty if
    it is.
    """

    def __init__(self, path: Path, boot: str, events: EventRecorder, retry: float = RETRY) -> None:
        self._path = path
        self._boot = boot
        self._events = events
        self._retry = retry
        self._wanted: JsonValue = None
        self._waiting = asyncio.Event()
        self._tried = asyncio.Event()
        self._tried.set()
        self._foreign = False
        self.problem = ""

    def load(self) -> SavedHealth | None:
        """The saved state, None if it cannot be read. Call it when this instance is the one that serves."""
        try:
            return from_data(read_record(self._path, SCHEMA), self._boot)
        except RecordSchemaUnknown as error:
            self._foreign = True  # A newer agent's file must survive a downgrade.
            self.problem = str(error)
            self._report(error)
        except FileError as error:
            self._report(error)
        return None

    def save(self, data: JsonValue) -> None:
        """Have this written; does not block."""
        self._wanted = data
        self._waiting.set()
        if not self.problem:
            self._tried.clear()

    async def kept(self) -> str:
        """Wait until the state that must be saved now is on disk; returns the reason if it is not, else empty."""
        try:
            async with asyncio.timeout(LATEST):
                await self._tried.wait()
        except TimeoutError:
            return f"{self._path} is not written yet"
        return self.problem

    async def run(self) -> None:
        """Write what must be saved until cancelled, and then what is left."""
        try:
            while True:
                await self._waiting.wait()
                if not await self._write():
                    # Started at once, so that what is left is tried once more if this ends meanwhile.
                    self._waiting.set()
                    await asyncio.sleep(self._retry)
        finally:
            if self._waiting.is_set() and not self._foreign:
                self._try(self._wanted)

    async def _write(self) -> bool:
        """Write the newest state; returns whether nothing is left to do."""
        self._waiting.clear()
        if self._foreign:
            return True
        known, self.problem = self.problem, await asyncio.to_thread(self._try, self._wanted)
        if self.problem and not known:
            log.warning("cannot save the health state, it is kept in memory", extra={"error": self.problem})
        if self.problem or not self._waiting.is_set():
            self._tried.set()
        else:
            self._tried.clear()
        return not self.problem

    def _try(self, data: JsonValue) -> str:
        """Write; returns the fault. In a thread."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_record(self._path, SCHEMA, data)
        except (FileError, OSError) as error:
            return str(error)
        return ""

    def _report(self, error: FileError) -> None:
        self._events.emit(
            EventType.WARNING, "HealthForgotten", f"the saved health state is unusable and was discarded: {error}"
        )
