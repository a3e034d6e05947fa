"""A new agent reads what claims have before any pod is given a device."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from uuid import UUID

from tests.agent.claimed_node import GPU, PLUGIN, ClaimedNode
from tests.waiting import eventually

BOTH = {**PLUGIN, "door": "both"}
MOMENT = 1.0
"""Seconds in which an agent that waits for nothing has met the kubelet."""


def is_read(path: Path) -> int | None:
    """A descriptor for writing to a pipe as soon as somebody reads it: who does waits until it is closed."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


async def test_no_pod_gets_the_device_of_a_claim_while_the_records_are_still_being_read() -> None:
    async with ClaimedNode(resources=[BOTH]) as box:
        await box.running("p")
        assert (await box.give(GPU, 7)).admission.admitted
        await box.agent.stop(signal.SIGKILL)
        before = len(box.said())
        slow = box.root / "state" / "claims" / f"{UUID(int=0)}.json"
        os.mkfifo(slow)
        await box.agent.spawn()
        writer = await eventually(lambda: is_read(slow), "records are read")
        assert writer is not None
        met = asyncio.create_task(eventually(lambda: "resource=nvidia.com/gpu" in box.said()[before:], "never"))
        await asyncio.wait({met}, timeout=MOMENT)
        assert not met.done(), "the kubelet was met while a claim's device was not known to be held"
        met.cancel()
        os.close(writer)
        await box.agent.answered()
        await box.registered()
        given = await box.give(GPU, 1)
        assert not given.admission.admitted
        assert "a device has two holders" not in box.said()
        (claim,) = (await box.claims()).values()
        assert claim["state"] == "prepared"
