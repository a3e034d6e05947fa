"""Tasks whose callers went away: they end, and what goes wrong in them is logged unless it was expected."""

from __future__ import annotations

import asyncio

import pytest

from node.tasks import LastingTasks, report_fault
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
