"""A new agent reads what claims have before any pod is given a device."""

from __future__ import annotations

import asyncio
import signal
from uuid import UUID

from tests.ostler.agent.claimed_node import GPU, PLUGIN, ClaimedNode
from tests.ostler.agent.held_file import HeldFile, needs_fanotify
from tests.waiting import eventually

BOTH = {**PLUGIN, "door": "both"}
MOMENT = 1.0
"""Seconds in which an agent that waits for nothing has met the kubelet."""


@needs_fanotify
async def test_no_pod_gets_the_device_of_a_claim_while_the_records_are_still_being_read() -> None:
    async with ClaimedNode(resources=[BOTH]) as box:
        await box.running("p")
        assert (await box.give(GPU, 7)).admission.admitted
        await box.agent.stop(signal.SIGKILL)
        before = len(box.said())
        slow = box.root / "state" / "claims" / f"{UUID(int=0)}.json"
        slow.write_text("no record")
        held = HeldFile(slow)
        await box.agent.spawn()
        await eventually(held.is_waited_for, "records are read")
        met = asyncio.create_task(eventually(lambda: "resource=nvidia.com/gpu" in box.said()[before:], "never"))
        await asyncio.wait({met}, timeout=MOMENT)
        assert not met.done(), "the kubelet was met while a claim's device was not known to be held"
        met.cancel()
        held.let_go()
        await box.agent.answered()
        await box.registered()
        given = await box.give(GPU, 1)
        assert not given.admission.admitted
        assert "a device has two holders" not in box.said()
        (claim,) = (await box.claims()).values()
        assert claim["state"] == "prepared"
