"""A process with live hardware on the machine that it sees: prints every Look at the health of its NICs.

Each line is JSON: ``{"source": ..., "found": {device: [kinds]}, "generation": ...}``, and ``{"listening": ...}`` once
events are listened to and there is a device. Given an address, it takes the PCI function there for a NIC.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from node.events import EventBus
from node.health.signal import Look
from node.inventory.identity import IdentityStore
from node.inventory.live.hardware import LiveHardware
from node.inventory.live.udev import EventState, Reach
from node.inventory.loop import Inventory, SnapshotPublished
from node.inventory.model import Device, DeviceKind, Snapshot
from node.inventory.sysfs.source import SysfsSource
from node.rules import Rule
from ostler.agent.edges import Edges

RULES = (Rule("example.com/nic", link_health=True),)


async def watch(address: str | None) -> None:
    bus = EventBus()
    identities = IdentityStore(Path(tempfile.mkdtemp()) / "ids.json")
    inventory = Inventory((SysfsSource(),), identities, bus, clocks=Edges())

    def looked(look: Look) -> None:
        found = {name: [each.kind for each in troubles] for name, troubles in look.found.items()}
        tell({"source": look.source, "found": found, "generation": inventory.snapshot.generation})

    bus.subscribe(Look, looked)
    live = LiveHardware(bus, reach=lambda: Reach(EventState.KERNEL))

    def published(published: SnapshotPublished) -> None:
        live.observe(published.snapshot, RULES)

    bus.subscribe(SnapshotPublished, published)
    if address is not None:
        device = Device("nic", DeviceKind.NIC, "some", pci_address=address)
        live.observe(Snapshot(1, (device,)), RULES)
    async with asyncio.TaskGroup() as group:
        if address is None:
            group.create_task(inventory.run())
            await inventory.first.wait()
        group.create_task(live.run())
        while live.state is EventState.POLLING or not live.swept:
            await asyncio.sleep(0.01)
        tell({"listening": live.state})


def tell(shown: dict[str, object]) -> None:
    print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    asyncio.run(watch(next(iter(sys.argv[1:]), None)))
