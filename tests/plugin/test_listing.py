"""ListAndWatch: the complete list, once per change, and never too large."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from node.events import EventBus
from plugin.listing import LIMIT, DeviceListing, ListTooLarge, StreamsChanged, encode
from protos.deviceplugin.v1beta1 import api_pb2
from tests.making.plugin_door import offered


def listing() -> DeviceListing:
    return DeviceListing("nvidia.com/gpu", EventBus())


async def following(stream: AsyncIterator[api_pb2.ListAndWatchResponse]) -> list[str]:
    return [device.ID + device.health[0] for device in (await asyncio.wait_for(anext(stream), 120)).devices]


def test_numa_node_zero_is_present_and_no_numa_node_is_absent() -> None:
    message = encode([offered("a", 0), offered("b"), offered("c", 1)])
    assert [device.HasField("topology") for device in message.devices] == [True, False, True]
    assert [node.ID for node in message.devices[0].topology.nodes] == [0]
    assert [node.ID for node in message.devices[2].topology.nodes] == [1]


def test_a_resource_without_hints_tells_no_numa_node() -> None:
    assert not any(device.HasField("topology") for device in encode([offered("a", 0)], hints=False).devices)
    shown = listing()
    assert shown.update((offered("a", 0),))
    assert shown.update((offered("a", 0),), hints=False), "the kubelet has to hear of it"
    assert not shown.update((offered("a", 1),), hints=False)


def test_devices_that_may_not_be_given_are_shown_unhealthy() -> None:
    message = encode([offered("a"), offered("b", healthy=False)])
    assert [device.health for device in message.devices] == ["Healthy", "Unhealthy"]


async def test_a_new_stream_gets_the_list_at_once_and_then_every_change_once() -> None:
    shown = listing()
    assert shown.update((offered("a"),))
    stream = shown.follow()
    assert await following(stream) == ["aH"]
    waiting = asyncio.ensure_future(anext(stream))
    assert not shown.update((offered("a"),))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert shown.update((offered("a", healthy=False),))
    assert [device.health for device in (await waiting).devices] == ["Unhealthy"]
    await stream.aclose()  # type: ignore[attr-defined]


async def test_an_empty_list_is_a_list() -> None:
    shown = listing()
    states = [shown.shown]
    assert shown.update(())
    assert [*states, shown.shown] == [False, True]
    assert await following(shown.follow()) == []


async def test_changes_between_two_sends_are_one_message_with_the_newest_state() -> None:
    shown = listing()
    shown.update((offered("a"),))
    stream = shown.follow()
    await following(stream)
    for number in range(100):
        shown.update(tuple(offered(f"d{index}") for index in range(number)))
    shown.update((offered("last"),))
    assert await following(stream) == ["lastH"]
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_every_stream_sees_every_final_state() -> None:
    shown = listing()
    shown.update((offered("a"),))
    streams = [shown.follow() for _ in range(5)]
    for stream in streams:
        assert await following(stream) == ["aH"]
    open_streams = [shown.streams]
    shown.update((offered("b"),))
    for stream in streams:
        assert await following(stream) == ["bH"]
        await stream.aclose()  # type: ignore[attr-defined]
    assert [*open_streams, shown.streams] == [5, 0]


async def test_opening_and_ending_a_stream_is_told() -> None:
    told: list[str] = []
    bus = EventBus()
    bus.subscribe(StreamsChanged, lambda changed: told.append(changed.resource))
    shown = DeviceListing("nvidia.com/gpu", bus)
    shown.update(())
    stream = shown.follow()
    await following(stream)
    assert told == ["nvidia.com/gpu"]
    await stream.aclose()  # type: ignore[attr-defined]
    assert told == ["nvidia.com/gpu"] * 2


def test_a_list_past_the_kubelets_limit_is_refused_with_its_size_and_the_old_one_stays() -> None:
    shown = listing()
    shown.update((offered("a"),))
    with pytest.raises(ListTooLarge) as refused:
        shown.update(tuple(offered("x" * 60 + str(index)) for index in range(60_000)))
    assert "a list of 60000 devices has" in str(refused.value)
    assert f"and the kubelet takes {LIMIT}; the list shown before stays; split the resource" in str(refused.value)
    assert list(shown.devices) == ["a"]


def test_a_thousand_devices_are_a_small_list() -> None:
    shown = listing()
    shown.update(tuple(offered(f"GPU-{index:036d}", index % 2) for index in range(1000)))
    assert shown.healthy == 1000


async def test_a_stream_is_told_nothing_while_changes_are_held_and_the_newest_afterwards() -> None:
    shown = listing()
    shown.update((offered("a"),))
    stream = shown.follow()
    assert await following(stream) == ["aH"]
    shown.hold()
    shown.update((offered("b"),))
    shown.update((offered("c"),))
    waiting = asyncio.ensure_future(anext(stream))
    late = shown.follow()
    # A stream that opens now needs a list; what the kubelet makes of it is its own choice.
    assert await following(late) == ["cH"]
    assert not waiting.done()
    shown.release()
    assert [device.ID for device in (await asyncio.wait_for(waiting, 120)).devices] == ["c"]
