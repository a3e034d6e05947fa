"""Tasks whose callers went away: they end, and what goes wrong in them is logged unless it was expected.

An alarm ends a wait at its time or when it is set, whichever comes first.
"""

from __future__ import annotations

import asyncio

import pytest

from node.tasks import Alarm, LastingTasks, report_fault
from tests.making.faults import reported


async def fail(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


async def test_a_fault_of_a_task_whose_caller_went_away_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = LastingTasks(OSError)
    caller = asyncio.ensure_future(asyncio.shield(tasks.begin(fail(ValueError("no such thing")), "claim a")))
    await asyncio.sleep(0)
    caller.cancel()
    await tasks.wait()
    assert reported(caplog) == [("claim a", "ValueError: no such thing")]
    assert caplog.messages == ["a background task failed unexpectedly"]


async def test_an_expected_error_is_left_to_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    tasks = LastingTasks(OSError)
    with pytest.raises(FileNotFoundError):
        await tasks.begin(fail(FileNotFoundError()), "claim a")
    await tasks.wait()
    assert not caplog.records


async def test_a_cancelled_task_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    tasks = LastingTasks()
    waiting = tasks.begin(asyncio.Event().wait(), "claim a")
    await tasks.cancel()
    assert waiting.cancelled()
    assert not caplog.records


async def test_a_fault_in_a_thread_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> None:
        raise KeyError("x")

    call = asyncio.get_running_loop().run_in_executor(None, work)
    report_fault(call, "a question")
    await asyncio.wait((call,))
    await asyncio.sleep(0)
    assert reported(caplog) == [("a question", "KeyError: 'x'")]


async def test_an_alarm_ends_a_wait_at_its_time_and_at_once_when_it_is_set() -> None:
    loop, alarm = asyncio.get_running_loop(), Alarm()
    when = loop.time() + 0.02
    await alarm.wait_until(when)
    assert loop.time() >= when - 0.001
    assert not alarm.is_set()
    waiting = asyncio.ensure_future(alarm.wait_until(loop.time() + 1000))
    await asyncio.sleep(0)
    assert not waiting.done()
    alarm.set()
    await waiting
    await alarm.wait_until(loop.time() + 1000)
    alarm.clear()
    assert await asyncio.wait((asyncio.ensure_future(alarm.wait_until(loop.time() + 0.02)),))


async def test_a_wait_for_an_alarm_that_is_cancelled_leaves_nothing_behind() -> None:
    loop, alarm = asyncio.get_running_loop(), Alarm()
    waiting = asyncio.ensure_future(alarm.wait_until(loop.time() + 1000))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    alarm.set()
    await alarm.wait_until(loop.time() + 1000)


async def test_an_alarm_ends_other_waits_as_an_event_does() -> None:
    loop, alarm = asyncio.get_running_loop(), Alarm()
    waiting = asyncio.ensure_future(alarm.wait()), asyncio.ensure_future(alarm.wait_until(loop.time() + 1000))
    await asyncio.sleep(0)
    alarm.set()
    await asyncio.gather(*waiting)
