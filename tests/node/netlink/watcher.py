"""A process in a network namespace of its own: prints what the node's network looks like whenever it was woken.

Each line is JSON, ``{"links": {...}, "addresses": [...], "routes": [...], ...}``; the first is that of the wake-up at
the start. ``--pods`` counts pods' links too, ``--buffer N`` asks for a small receive buffer.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from node.events import EventBus
from node.inventory.live.hardware import Wakeups
from node.inventory.live.links import LinkMonitor
from node.inventory.network.host import HostNetwork, is_host_link
from node.inventory.network.rtnetlink import Link
from node.inventory.source import HardwareHint, ScanWanted


def _all_but_loopback(link: Link) -> bool:
    return not link.loopback


async def watch(counts: bool, buffer: int) -> None:
    relevant = _all_but_loopback if counts else is_host_link
    source = HostNetwork(counts=relevant)
    woken = asyncio.Event()
    bus = EventBus()
    wakeups = Wakeups(bus)
    bus.subscribe(HardwareHint, lambda _: wakeups.hint())
    bus.subscribe(ScanWanted, lambda _: woken.set())
    monitor = LinkMonitor(bus, counts=relevant, buffer=buffer)
    running = asyncio.create_task(monitor.run())
    while not running.done():
        await woken.wait()
        woken.clear()
        facts = source.read().network
        assert facts is not None
        shown = {
            "links": {link.name: ("up " if link.up else "down ") + (link.master or "") for link in facts.links},
            "addresses": [f"{each.interface} {each.address}" for each in facts.addresses],
            "routes": [f"{each.interface} {each.family} {each.metric}" for each in facts.default_routes],
            "wakeups": wakeups.count.total,
            "messages": monitor.messages.total,
            "overflows": monitor.overflows.total,
        }
        print(json.dumps(shown), flush=True)
    await running


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", action="store_true")
    parser.add_argument("--buffer", type=int, default=1 << 20)
    given = parser.parse_args()
    asyncio.run(watch(given.pods, given.buffer))


if __name__ == "__main__":
    main()
