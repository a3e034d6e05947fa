"""A stream of uevents under the test's control, with a real descriptor that the loop can wait on."""

from __future__ import annotations

import os
from collections import deque

from node.inventory.live.udev import EventState, Uevent


class FakeStream:
    """``give`` queues events and errors to be raised; ``refuse`` maps sources to the error of opening them."""

    def __init__(self, refuse: dict[EventState, Exception] | None = None) -> None:
        self.refuse = refuse or {}
        self.opened: list[EventState] = []
        self.closed = False
        self._queue: deque[Uevent | Exception] = deque()
        self._read = self._write = -1

    def open(self, source: EventState) -> FakeStream:
        if source in self.refuse:
            raise self.refuse[source]
        self.opened.append(source)
        self.closed = False
        self._read, self._write = os.pipe()
        return self

    def give(self, *items: Uevent | Exception) -> None:
        self._queue.extend(items)
        os.write(self._write, b".")

    def fileno(self) -> int:
        return self._read

    def receive(self) -> Uevent | None:
        if not self._queue:
            os.read(self._read, 4096)
            return None
        item = self._queue.popleft()
        if isinstance(item, Exception):
            raise item
        return item

    def close(self) -> None:
        self.closed = True
        os.close(self._read)
        os.close(self._write)
