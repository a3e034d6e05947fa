"""A pod that asks for what somebody has is refused, after a look where that may be over, and people are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from node.events import EventType
from node.ledger.bookkeeping import MOST_EVENTS, QUIET
from node.ledger.holds import HeldError
from node.ledger.reader import Holding
from node.offer import OfferedDevice
from tests.ostler.agent.books import GPU, Desk, claimed, gpu, offered, play


async def wait_for(doubted: Awaitable[None] | None) -> None:
    assert doubted is not None
    await doubted


def test_a_pod_that_lost_is_counted_each_time_and_told_of_once_a_minute() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(20)
        desk.books.ledger.take("uid-claim", [claimed(gpu(0))])
        for _ in range(100):
            with pytest.raises(HeldError, match="device gpu-0 is held through the dra door by team/claim"):
                desk.books.allocate(GPU, offered(gpu(0)))
            await asyncio.sleep(QUIET / 50)

    desk = play(story, gpu(0))
    assert desk.metrics.conflicts.counts == {("plugin",): 100, ("dra",): 0}
    text = (
        "a pod that asked for nvidia.com/gpu was refused: device gpu-0 is held through the dra door by team/claim "
        "(uid-claim); its controller creates a new one"
    )
    assert desk.events.events == [(EventType.WARNING, "PodLostDevice", text)] * 2


def test_a_device_that_a_pod_has_by_all_that_is_known_is_looked_up_before_it_is_given_again() -> None:
    one, other = offered(gpu(0)), offered(gpu(1))

    async def story(desk: Desk) -> None:
        # What came before this process is not known yet.
        await wait_for(desk.books.doubted(GPU, one))
        await asyncio.sleep(20)
        assert desk.books.doubted(GPU, [*one, *other]) is None
        desk.books.allocate(GPU, one)
        # Its pod may have ended, or it is the same pod's init container.
        await wait_for(desk.books.doubted(GPU, [*one, *other]))
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "c", pod="team/first"),)
        with pytest.raises(HeldError, match="gpu-0 is held through the plugin door by team/first, for which"):
            await wait_for(desk.books.doubted(GPU, [*one, *other]))

    desk = play(story, gpu(0), gpu(1))
    assert desk.kubelet.looked_up == [[(GPU, "GPU-0")]] * 3
    assert desk.metrics.conflicts.counts == {("plugin",): 1, ("dra",): 0}
    text = (
        "a pod that asked for nvidia.com/gpu was refused: device gpu-0 is held through the plugin door by team/first, "
        "for which the kubelet has it on record; its controller creates a new one"
    )
    assert desk.events.events == [(EventType.WARNING, "PodLostDevice", text)]


def test_a_device_that_a_pod_has_under_another_id_or_resource_is_looked_up_by_that() -> None:
    renamed = [OfferedDevice("gpu-0", gpu(0), healthy=True)]

    async def story(desk: Desk) -> None:
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "c", pod="team/first"),)
        await asyncio.sleep(20)
        for resource, words in (
            (GPU, "team/first, for which"),
            ("corp/gpu", "team/first as nvidia.com/gpu, for which"),
        ):
            with pytest.raises(HeldError, match=words):
                await wait_for(desk.books.doubted(resource, renamed))

    assert play(story, gpu(0)).kubelet.looked_up == [[(GPU, "GPU-0")]] * 2


def test_a_storm_of_pods_that_lost_does_not_push_everything_else_out_of_sight() -> None:
    devices = [gpu(number) for number in range(100)]

    async def story(desk: Desk) -> None:
        await asyncio.sleep(20)
        desk.books.ledger.take("uid-claim", [claimed(device) for device in devices])
        for device in devices:
            with pytest.raises(HeldError):
                desk.books.allocate(GPU, offered(device))

    assert len(play(story, *devices).events.events) == MOST_EVENTS
