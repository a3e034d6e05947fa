"""A process that follows a node's pods and looks for claims, and says what that cost: memory, and time on the loop.

``python -m tests.driver.node_watch.follower URL COUNT`` ends when it knows COUNT pods.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from random import Random

from driver.claims.model import Unavailable
from driver.node_watch.node_claims import NodeClaims
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from node.clocks import SystemClocks
from node.events import EventBus
from tests.making.resource_api import client_of
from tests.making.watched_node import DRIVER, NODE
from tests.waiting import background


async def followed(url: str, count: int) -> dict[str, object]:
    api = AsyncResourceApi(lambda: ResourceApi(client_of(url, whole=60.0)))
    holders = NodeClaims(api, DRIVER, NODE, clocks=SystemClocks(random=Random(7).random), bus=EventBus())
    stall = 0.0
    uids = [f"uid-{number}" for number in range(count)]
    async with background(holders.run()):
        naming = asyncio.create_task(holders.claims_naming(["gpu-0"]))
        while not naming.done() or any(not holders.name_of(uid) for uid in (uids[0], uids[-1])):
            cpu, wall = time.thread_time(), time.monotonic()
            await asyncio.sleep(0.005)
            # Of the time that was too long, what this thread itself worked: others' load is not its fault.
            stall = max(stall, min(time.thread_time() - cpu, time.monotonic() - wall))
    names: list[str] = []
    try:
        names = [str(each.claim) for each in naming.result()]
    except Unavailable as error:
        names = [str(error)]
    api.close()
    # Not getrusage: that counts the process as well that this one was forked from.
    (most,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    known = sum(bool(holders.name_of(uid)) for uid in uids)
    return {"most_kib": int(most), "stall": stall, "known": known, "names": names}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(followed(sys.argv[1], int(sys.argv[2])))))
