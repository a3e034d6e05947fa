from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from ostler.agent.loop_monitor import LONG, LoopMonitor
from tests.waiting import background, eventually

MESSAGE = "the event loop was held up"


def _hold_up(seconds: float) -> None:
    """What a step must not do."""
    time.sleep(seconds)


async def test_a_step_that_holds_up_the_loop_is_logged_with_its_place_and_duration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "ostler.agent")
    monitor = LoopMonitor()

    async def held_up() -> list[logging.LogRecord]:
        # Again if the monitor's thread has not been there from the beginning.
        _hold_up(0.5)
        await asyncio.sleep(0.05)
        return [each for each in caplog.records if "_hold_up" in each.__dict__.get("by", "")]

    async with background(monitor.run()):
        await asyncio.sleep(0.05)
        record, *others = await eventually(held_up)
    assert others == [], "once"
    assert record.getMessage() == MESSAGE
    assert "test_loop_monitor.py" in record.__dict__["by"]
    assert record.__dict__["seconds"] > LONG
    assert monitor.longest >= record.__dict__["seconds"] - 0.001


async def test_a_loop_that_waits_for_events_is_not_held_up_by_anybody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ostler.agent")
    async with background(LoopMonitor().run()):
        await asyncio.sleep(0.3)
    assert not [each for each in caplog.records if " select" in each.__dict__.get("by", "")]


async def test_the_monitor_ends_with_its_part() -> None:
    monitor = LoopMonitor()
    async with background(monitor.run()):
        await asyncio.sleep(0)
    assert not [thread for thread in threading.enumerate() if thread.name == "loop monitor"]
