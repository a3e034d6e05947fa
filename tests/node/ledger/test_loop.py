"""When the kubelet is looked at: soon, not too often, less often when it fails, and never not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from node.events import EventBus, EventType
from node.ledger.allocations import KubeletAllocations
from node.ledger.events import HoldsObserver, ReadingOutcome
from node.ledger.holds import Hold
from node.ledger.loop import HoldsLoop, ReadingFaults, ReadingPace
from node.ledger.reader import KubeletReader, Reading
from node.rules import Door
from ostler.agent.edges import Edges
from tests.making.events import RecordedEvents
from tests.making.grants import reading
from tests.making.virtual_time import beside, now

FAULT = "/k/pod-resources/kubelet.sock: UNAVAILABLE: the socket does not exist"


class _Node:
    """A kubelet and whoever takes its readings; ``began``: when it was looked at, in seconds of the story."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.taken: list[Reading] = []
        self.outcomes: list[ReadingOutcome] = []
        self.unseen = 0
        self.held: dict[str, Hold] = {}
        self.faults: tuple[str, ...] = ()
        self.seconds = 0.0
        self.events = RecordedEvents()

    async def read(self) -> Reading:
        self.began.append(round(now(), 3))
        if self.seconds:
            await asyncio.sleep(self.seconds)
        listed = None if self.faults else ()
        return reading(now(), listed, faults=self.faults)


class _Figures(HoldsObserver):
    def __init__(self, node: _Node) -> None:
        self._node = node

    def read(self, outcome: ReadingOutcome, seconds: float) -> None:
        assert seconds == pytest.approx(self._node.seconds)
        self._node.outcomes.append(outcome)


class Grants(KubeletAllocations):
    """What pods have, and grants that no reading has shown: as many as the story says."""

    def __init__(self, node: _Node) -> None:
        super().__init__()
        self._node = node

    @property
    def unseen(self) -> int:
        return self._node.unseen

    def wanted(self) -> dict[str, Hold]:
        return self._node.held


Story = Callable[[_Node, HoldsLoop], Awaitable[None]]


def play(story: Story, reader: KubeletReader | None = None) -> _Node:
    node = _Node()

    def made() -> HoldsLoop:
        bus = EventBus()
        bus.subscribe(Reading, node.taken.append)
        return HoldsLoop(
            reader or node,
            Grants(node),
            bus,
            clocks=Edges(monotonic=asyncio.get_running_loop().time, random=lambda: 0.0),
            events=node.events,
            observer=_Figures(node),
        )

    beside(made, HoldsLoop.run, lambda loop: story(node, loop))
    return node


def test_it_is_looked_at_once_at_the_start_and_then_every_ten_seconds() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        await asyncio.sleep(35)

    node = play(story)
    assert node.began == [0.0, 10.0, 20.0, 30.0]
    assert len(node.taken) == 4
    assert node.outcomes == [ReadingOutcome.WHOLE] * 4


def test_a_wake_is_answered_when_the_kubelet_has_begun_what_it_was_for_and_many_of_them_together() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        await asyncio.sleep(5)
        for _ in range(100):
            loop.wake()
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)

    assert play(story).began == [0.0, 5.1, 5.3, 5.5, 5.7, 5.9, 6.1]


def test_no_reading_begins_while_the_kubelet_is_given_a_device() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        await asyncio.sleep(9.98)
        loop.allocating()
        await asyncio.sleep(1)

    assert play(story).began == [0.0, 10.03]


def test_a_kubelet_that_is_given_devices_all_the_time_is_read_all_the_same() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        await asyncio.sleep(9.5)
        for _ in range(200):
            loop.allocating()
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    assert play(story).began == [0.0, 11.0]


def test_a_grant_is_looked_for_within_a_second() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        await asyncio.sleep(5)
        loop.soon()
        await asyncio.sleep(1)
        loop.soon()
        await asyncio.sleep(2)

    assert play(story).began == [0.0, 5.3, 6.3]


def test_a_burst_of_a_hundred_pods_costs_a_reading_a_second() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        await asyncio.sleep(5)
        for _ in range(100):
            # Allocate, and the kubelet's file.
            loop.soon()
            await asyncio.sleep(0.02)
            loop.soon()
            await asyncio.sleep(0.05)
        await asyncio.sleep(3)

    assert len(play(story).began) == 1 + 8


def test_a_grant_that_is_not_shown_is_looked_for_less_and_less_often() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        node.unseen = 1
        loop.soon()
        await asyncio.sleep(40)
        node.unseen = 0
        await asyncio.sleep(20)

    assert play(story).began == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 26.0, 36.0, 46.0, 56.0]


def test_a_wake_during_a_reading_is_not_lost() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        node.seconds = 0.5
        await asyncio.sleep(10.1)
        loop.wake()
        await asyncio.sleep(1)

    assert play(story).began == [0.0, 10.0, 10.5]


def test_failures_are_tried_again_later_each_time_whatever_wakes() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        node.faults = (FAULT,)
        await asyncio.sleep(10.5)
        for _ in range(300):
            loop.wake()
            loop.soon()
            await asyncio.sleep(0.1)
        node.faults = ()
        await asyncio.sleep(10)
        loop.wake()
        await asyncio.sleep(0.5)

    node = play(story)
    assert node.began == [0.0, 10.0, 11.0, 13.0, 17.0, 25.0, 35.0, 45.0, 50.6]
    assert set(node.outcomes) == {ReadingOutcome.WHOLE, ReadingOutcome.PARTIAL}


def test_a_kubelet_that_is_back_is_read_within_ten_seconds_also_where_it_is_read_seldom() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        loop.follow(ReadingPace(every=52.0))
        node.faults = (FAULT,)
        await asyncio.sleep(150)
        node.faults = ()
        await asyncio.sleep(60)

    began = play(story).began
    first = next(when for when in began if when >= 150)
    assert first <= 160
    assert [when for when in began if when > first] == [first + 52.0]


def test_while_no_pod_has_a_device_and_nothing_happens_it_is_read_less_often() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        await asyncio.sleep(125)
        loop.wake()
        await asyncio.sleep(70)

    began = play(story).began
    assert began == [
        *(10.0 * number for number in range(7)),
        90.0,
        120.0,
        *(125.1 + 10.0 * number for number in range(7)),
    ]


def test_while_a_pod_has_a_device_it_is_read_every_ten_seconds() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        node.held = {"gpu-0": Hold("gpu-0", Door.PLUGIN, "team/pod", 0.0)}
        await asyncio.sleep(125)

    assert play(story).began == [10.0 * number for number in range(13)]


def test_a_kubelet_that_cannot_be_read_is_tried_often_also_while_no_pod_has_a_device() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        await asyncio.sleep(95)
        node.faults = (FAULT,)
        await asyncio.sleep(60)

    began = play(story).began
    assert began == [*(10.0 * number for number in range(7)), 90.0, 120.0, 121.0, 123.0, 127.0, 135.0, 145.0]


def test_a_fault_is_told_once_however_often_it_is_met() -> None:
    async def story(node: _Node, loop: HoldsLoop) -> None:
        node.faults = (FAULT,)
        await asyncio.sleep(120)
        node.faults = ()
        await asyncio.sleep(20)

    node = play(story)
    assert len(node.taken) > 10
    message = f"cannot read the kubelet's device allocations: {FAULT}"
    assert node.events.events == [(EventType.WARNING, "KubeletUnreadable", message)]


def test_an_old_fault_is_told_again_and_many_texts_do_not_fill_the_memory() -> None:
    events = RecordedEvents()
    faults = ReadingFaults(events, 600.0)
    for second in range(599):
        faults.report(("busy",) if second % 2 else (), float(second))
    assert len(events.events) == 1
    faults.report(("busy",), 700.0)
    assert len(events.events) == 2
    for number in range(1000):
        faults.report((f"text {number}",), 701.0)
    assert len(events.events) < 50


def test_a_reading_of_nothing_is_a_failed_one() -> None:
    class Absent:
        async def read(self) -> Reading:
            return Reading(now(), faults=(FAULT,))

    async def story(node: _Node, loop: HoldsLoop) -> None:
        await asyncio.sleep(1.5)

    assert play(story, Absent()).outcomes == [ReadingOutcome.FAILED, ReadingOutcome.FAILED]
