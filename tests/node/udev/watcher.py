"""A process with live hardware and an inventory over sysfs: prints what is there whenever a scan found it changed.

Each line is JSON: ``{"facts": ..., "scans": ..., "counts": ...}`` for each scan, and ``{"listening": ...}`` once events
are listened to and the scan is over that follows. ``--lo`` counts events of the loopback interface, ``--buffer N``
makes the receive buffer of the uevents' socket that small.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import socket
import tempfile
import threading
from pathlib import Path

from node.events import EventBus
from node.inventory.facts import NodeFacts
from node.inventory.identity import IdentityStore
from node.inventory.live.hardware import LiveHardware
from node.inventory.live.udev import EventState, Reach, UdevStream, Uevent
from node.inventory.loop import Inventory
from node.inventory.sysfs.source import SysfsSource
from node.metrics import Counter
from ostler.agent.edges import Edges

_TELLING = threading.Lock()


class PrintingSource:
    """The sysfs source, telling what it reads."""

    name = "sysfs"

    def __init__(self, hardware: LiveHardware | None = None) -> None:
        self._source = SysfsSource()
        self._last: NodeFacts | None = None
        self.reads = 0
        self.hardware = hardware

    def read(self) -> NodeFacts:
        facts = self._source.read()
        self.reads += 1
        self._last = facts
        assert facts.sysfs is not None
        tell({"facts": dataclasses.asdict(facts.sysfs), **self.told()})
        return facts

    def told(self) -> dict[str, object]:
        counts = (
            {each.name: each.total for each in self.hardware.metrics if isinstance(each, Counter)}
            if self.hardware is not None
            else {}
        )
        return {"scans": self.reads, "counts": counts}

    def close(self) -> None:
        self._source.close()


class LoopbackStream(UdevStream):
    """A stream of the loopback interface's events alone, shown as those of a real one; it may lose some.

    Others make interfaces in this network namespace meanwhile: tests beside this one, and whatever else runs here.
    """

    buffer = 0

    def __init__(self, source: EventState) -> None:
        super().__init__(source)
        if self.buffer:
            view = socket.socket(fileno=self.fileno())
            view.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
            view.detach()

    def receive(self) -> Uevent | None:
        while (event := super().receive()) is not None:
            if event.path.endswith("/net/lo"):
                return Uevent(event.action, event.subsystem, event.path.replace("/virtual/", "/real/"))
        return None


def tell(shown: dict[str, object]) -> None:
    line = json.dumps(shown)
    # The scan's thread and the loop's both tell.
    with _TELLING:
        print(line, flush=True)


async def watch(stream: type[UdevStream]) -> None:
    source = PrintingSource()
    identities = IdentityStore(Path(tempfile.mkdtemp()) / "identities.json")
    bus = EventBus()
    # What an event should lead to is not to come by itself.
    inventory = Inventory((source,), identities, bus, clocks=Edges(), max_interval=3600.0)
    hardware = source.hardware = LiveHardware(
        bus, sweeps=False, reach=lambda: Reach(EventState.KERNEL), open_stream=stream
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(inventory.run())
        await inventory.first.wait()
        group.create_task(hardware.run())
        while hardware.state is EventState.POLLING or hardware._wakeups._timer is not None:
            await asyncio.sleep(0.01)
        # What beginning to listen asked for is done with this.
        await inventory.rescan()
        tell({"listening": hardware.state, **source.told()})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lo", action="store_true")
    parser.add_argument("--buffer", type=int, default=0)
    given = parser.parse_args()
    LoopbackStream.buffer = given.buffer
    asyncio.run(watch(LoopbackStream if given.lo else UdevStream))


if __name__ == "__main__":
    main()
