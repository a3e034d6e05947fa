from __future__ import annotations

import threading

from driver.slices.queue import PoolQueue
from kube.backoff import BackoffPolicy
from node.clocks import SystemClocks
from tests.making.clock import ManualClock


def queue(clock: ManualClock | None = None) -> PoolQueue:
    clocks = SystemClocks(monotonic=clock or ManualClock(100.0), random=lambda: 1.0)
    return PoolQueue(clocks, BackoffPolicy(first=0.1, most=1.0))


def test_a_name_is_in_the_queue_once() -> None:
    made = queue()
    made.add("p")
    made.add("p")
    assert made.get() == "p"
    made.done("p")
    assert made.idle(1000.0, 0.0)


def test_the_earlier_time_counts() -> None:
    clock = ManualClock(100.0)
    made = queue(clock)
    made.add_after("p", 10.0)
    made.add_after("p", 20.0)
    assert made.idle(9.0, 0.0)
    assert not made.idle(10.0, 0.0)
    made.add("p")
    assert made.get() == "p"
    made.done("p")
    assert made.idle(1000.0, 0.0)


def test_a_name_that_is_worked_on_comes_again_afterwards() -> None:
    made = queue()
    made.add("p")
    assert made.get() == "p"
    made.add("p")
    made.add("q")
    assert made.get() == "q"
    made.done("p")
    assert made.get() == "p"


def test_each_name_waits_for_its_own_failures() -> None:
    made = queue()
    waits = [made.add_failed("p") for _ in range(6)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert made.add_failed("q") == 0.1
    assert made.add_failed("q", at_least=7.0) == 7.2
    assert made.add_failed("q", at_least=86400.0) == 120.4
    made.forget("p")
    assert made.add_failed("p") == 0.1


def test_the_end_wakes_who_waits() -> None:
    made = queue()
    found: list[str | None] = []
    waiting = threading.Thread(target=lambda: found.append(made.get()))
    waiting.start()
    made.shut_down()
    waiting.join(5.0)
    assert found == [None]
