"""Where what must outlive a restart of the health of devices is kept: a record in the state folder.

Written off the loop and only by the instance that serves; the newest state counts, and what is replaced before its
turn is never written. A damaged file is set aside, and what it said is lost: sources tell most of it again. A disk that
cannot be written is told once and tried again; devices are judged from memory meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from node.events import EventSink, EventType
from node.files import FileError, JsonValue, RecordSchemaUnknown, read_record, write_record
from node.health.memory import SCHEMA, Memory, from_data

log = logging.getLogger("ostler.health")

FILE = "health.json"
RETRY = 30.0


class HealthRecord:
    """The record at ``path``; ``boot`` is the kernel's id of this boot. Methods belong to the thread of the loop.

    ``retry``: seconds until a write that failed is tried again.
    """

    def __init__(self, path: Path, boot: str, events: EventSink, retry: float = RETRY) -> None:
        self._path = path
        self._boot = boot
        self._events = events
        self._retry = retry
        self._wanted: JsonValue = None
        self._waiting = asyncio.Event()
        self._foreign = False
        self._complained = False

    def load(self) -> Memory | None:
        """What was remembered, None where it cannot be read. Call it when this instance is the one that serves."""
        try:
            return from_data(read_record(self._path, SCHEMA), self._boot)
        except RecordSchemaUnknown as error:
            self._foreign = True  # A newer agent's file must survive a downgrade.
            self._tell(error)
        except FileError as error:
            self._tell(error)
        return None

    def save(self, data: JsonValue) -> None:
        """Have this written; does not block."""
        self._wanted = data
        self._waiting.set()

    async def run(self) -> None:
        """Write what is to be saved until cancelled, and what is left then."""
        try:
            while True:
                await self._waiting.wait()
                if not await self._write():
                    # At once, so that what is left is tried once more when this ends meanwhile.
                    self._waiting.set()
                    await asyncio.sleep(self._retry)
        finally:
            if self._waiting.is_set():
                self._try(self._wanted)

    async def _write(self) -> bool:
        self._waiting.clear()
        return await asyncio.to_thread(self._try, self._wanted)

    def _try(self, data: JsonValue) -> bool:
        """Write; whether there is nothing left to do. In a thread."""
        if self._foreign:
            return True
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_record(self._path, SCHEMA, data)
        except (FileError, OSError) as error:
            if not self._complained:
                log.warning("health cannot be remembered on disk, it is kept in memory", extra={"error": str(error)})
            self._complained = True
            return False
        self._complained = False
        return True

    def _tell(self, error: FileError) -> None:
        self._events.emit(EventType.WARNING, "HealthForgotten", f"what was remembered of devices' health: {error}")
