"""A process in a network namespace of its own, with a NIC whose interface is ``v0``: prints every Look.

Each line is JSON, ``{"down": whether its link is down, "looks": ..., "messages": ..., "overflows": ...}``; the first
comes when it listens. ``--buffer N`` asks for a small receive buffer, ``--moved`` says that a pod was given the NIC.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from node.clocks import SYSTEM
from node.events import EventBus
from node.health.signal import Look
from node.inventory.live.kernel_health import KernelHealth
from node.inventory.live.links import LinkMonitor
from node.inventory.model import Device, DeviceKind, Snapshot, sorted_attributes
from node.inventory.source import HardwareHint
from node.rules import Rule

NAME = "nic-0000-84-00-0"


async def watch(buffer: int, moved: bool) -> None:
    told: dict[str, object] = {"ifName": "v0", "linkUp": True, "linkType": "ethernet", "inPod": moved or None}
    nic = Device(NAME, DeviceKind.NIC, "mellanox", attributes=sorted_attributes(told.items()))  # type: ignore[arg-type]
    down = False

    def show() -> None:
        counts = {"looks": health.looks, "messages": monitor.messages.total, "overflows": monitor.overflows.total}
        print(json.dumps({"down": down, **counts}), flush=True)

    def looked(look: Look) -> None:
        nonlocal down
        down = bool(look.found[NAME])
        show()

    bus = EventBus()
    bus.subscribe(Look, looked)
    bus.subscribe(HardwareHint, lambda _: show())
    health = KernelHealth(bus, SYSTEM)
    health.observe(Snapshot(1, (nic,)), (Rule("example.com/nic", link_health=True),))
    monitor = LinkMonitor(bus, listener=health, buffer=buffer)
    await monitor.run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--buffer", type=int, default=1 << 20)
    parser.add_argument("--moved", action="store_true")
    given = parser.parse_args()
    asyncio.run(watch(given.buffer, given.moved))


if __name__ == "__main__":
    main()
