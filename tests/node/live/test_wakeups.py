"""Hints become wake-ups: one per burst, never late."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from node.events import EventBus
from node.inventory.live.hardware import Wakeups
from node.inventory.source import ScanWanted
from tests.making.events import heard
from tests.node.live.virtual_time import run_in_virtual_time


def wakeups_for(gaps: list[float], quiet: float = 0.05, longest: float = 0.25) -> tuple[list[float], list[float]]:
    """When hints were given, with these pauses between them, and when they were followed by a wake-up."""
    hinted: list[float] = []
    woken: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        bus = EventBus()
        bus.subscribe(ScanWanted, lambda _: woken.append(loop.time()))
        wakeups = Wakeups(bus, quiet=quiet, longest=longest)
        for gap in gaps:
            await asyncio.sleep(gap)
            hinted.append(loop.time())
            wakeups.hint()
        await asyncio.sleep(10)
        assert wakeups.count.total == len(woken)

    run_in_virtual_time(main())
    return hinted, woken


def test_a_single_hint_wakes_within_a_tenth_of_a_second() -> None:
    hinted, woken = wakeups_for([1.0])
    assert len(woken) == 1
    assert 0.05 <= woken[0] - hinted[0] < 0.1


def test_a_burst_wakes_once_when_it_pauses() -> None:
    hinted, woken = wakeups_for([0.01] * 10)
    assert len(woken) == 1
    assert woken[0] >= hinted[-1]


def test_a_burst_without_end_wakes_four_times_a_second() -> None:
    _, woken = wakeups_for([0.01] * 200)
    assert 8 <= len(woken) <= 10


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_every_hint_is_followed_by_a_wake_up_in_time(gaps: list[float]) -> None:
    hinted, woken = wakeups_for(gaps)
    for hint in hinted:
        assert any(hint <= wake <= hint + 0.25 + 1e-6 for wake in woken), (hint, woken)
    assert len(woken) <= len(hinted)


async def test_nobody_is_woken_after_the_end() -> None:
    bus = EventBus()
    woken = heard(bus, ScanWanted)
    wakeups = Wakeups(bus, quiet=0.0)
    wakeups.hint()
    wakeups.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert woken == []
