"""Who has what, kept true: when the kubelet is read, and when the doors are shown anew."""

from __future__ import annotations

import asyncio

import pytest

from node.inventory.model import Device
from node.ledger.bookkeeping import ALONE, KNOWN_WITHIN
from node.ledger.events import HoldsChanged
from node.ledger.holds import HeldError
from node.ledger.processes import Process
from node.ledger.reader import Holding
from ostler.agent.handover import LINGER
from tests.making.grants import GrantedPods
from tests.making.virtual_time import START, beside, now
from tests.ostler.agent.books import GPU, LATER, PLUGIN, Desk, gpu, offered, part, play, shown


def test_where_there_is_one_door_the_kubelet_is_read_seldom_and_what_it_says_stays_known() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(1)
        for _ in range(200):
            assert desk.books.unknown_because() == ""
            await asyncio.sleep(1)

    desk = play(story, gpu(0), rule=PLUGIN)
    assert desk.kubelet.asked == [LATER, 0.5, *(0.5 + ALONE.every * number for number in range(1, 4))]


def test_when_another_door_opens_the_kubelet_is_read_at_once_and_more_often_from_then_on() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(30)
        desk.books.read_often()
        await asyncio.sleep(25)

    assert play(story, gpu(0)).kubelet.asked == [LATER, 0.5, 30.0, 40.0, 50.0]


def test_what_the_kubelet_counts_as_healthy_is_told_with_every_reading_that_says_it() -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.allocatable = frozenset({(GPU, "GPU-0")})
        await asyncio.sleep(ALONE.every)
        desk.kubelet.faults = ("the kubelet is silent",)
        await asyncio.sleep(ALONE.every)

    desk = play(story, gpu(0), rule=PLUGIN)
    times = [began for began, said in desk.heard if said is not None]
    assert len(desk.kubelet.asked) > len(times) == 2
    assert [round(began - START, 3) for began in times] == desk.kubelet.asked[:2]
    assert {said for _, said in desk.heard} == {frozenset({(GPU, "GPU-0")}), None}


def test_a_grant_is_looked_for_in_a_moment_and_a_pod_that_is_gone() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(5)
        desk.books.allocate(GPU, offered(gpu(0)))
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "main", pod="team/pod"),)
        await asyncio.sleep(5)
        desk.books.pods_changed()
        await asyncio.sleep(1)
        desk.books.kubelet_changed()
        await asyncio.sleep(1)

    assert play(story, gpu(0)).kubelet.asked == [LATER, 0.5, 5.3, 10.1, 11.3]


def test_while_nobody_reads_nothing_is_said_to_be_unknown_and_nothing_is_woken() -> None:
    async def story(desk: Desk) -> None:
        desk.books.kubelet_changed()
        desk.books.pods_changed()
        desk.books.changed_over()
        desk.books.allocate(GPU, offered(gpu(0)))
        assert desk.books.unknown_because() == ""
        assert not desk.books.keeper.known

    beside(lambda: Desk(gpu(0)), Desk.rest, story)


@pytest.mark.parametrize(("relieves", "until"), [(False, 0.5), (True, 0.5 + LINGER)])
def test_what_an_instance_before_may_have_answered_is_read_as_soon_as_it_cannot_any_more(
    relieves: bool, until: float
) -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(until - 0.01)
        assert desk.books.keeper.context().known
        assert not desk.context().settled
        await asyncio.sleep(0.02)
        assert desk.context().settled

    assert play(story, gpu(0), relieves=relieves).kubelet.asked == [LATER, until]


def test_a_kubelet_that_has_changed_over_is_read_half_a_second_later_and_once() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(1)
        desk.books.changed_over()
        for _ in range(10):
            await asyncio.sleep(0.1)
            desk.books.changed_over()
        assert desk.context().settled
        await asyncio.sleep(5)

    assert play(story, gpu(0), relieves=True).kubelet.asked == [LATER, 1.5]


def test_a_kubelet_that_cannot_be_read_is_not_asked_more_often_because_another_instance_was_there() -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.faults = ("no socket is there",)
        for _ in range(100):
            desk.books.changed_over()
            await asyncio.sleep(0.1)
        assert not desk.context().settled
        assert desk.books.unknown_because().endswith("no socket is there")

    assert len(play(story, gpu(0), relieves=True).kubelet.asked) <= 6


def test_the_doors_are_shown_anew_when_a_reading_says_something_else_and_not_otherwise() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(5)
        desk.changes.clear()
        desk.context()
        await asyncio.sleep(60)
        assert desk.changes == []
        # What the kubelet counts is no hold, and the doors wait for it all the same.
        desk.kubelet.allocatable = frozenset({(GPU, "GPU-0")})
        desk.books.kubelet_changed()
        await asyncio.sleep(1)
        assert len(desk.changes) == 1
        desk.context()
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "main", pod="team/pod"),)
        desk.books.kubelet_changed()
        await asyncio.sleep(1)
        assert len(desk.changes) > 1

    play(story, gpu(0))


def test_the_doors_are_told_when_what_is_known_is_too_old_to_be_believed() -> None:
    async def story(desk: Desk) -> None:
        desk.books.read_often()
        await asyncio.sleep(5)
        desk.kubelet.faults = ("gone",)
        desk.changes.clear()
        known = [desk.context("gpu-0")]
        while asyncio.get_running_loop().time() < START + 100:
            await asyncio.sleep(5)
            if desk.changes:
                known.append(desk.context("gpu-0"))
                desk.changes.clear()
        assert [state.known for state in known] == [True, False]
        # A live pod is proved only as long as the kubelet is read.
        assert [bool(state.contested) for state in known] == [True, False]

    play(story, gpu(0))


def test_a_device_that_is_withdrawn_is_counted_by_the_kubelet_until_it_was_read_after_that() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(5)
        desk.books.shown(shown(gpu(0)))
        await asyncio.sleep(1)
        asked = len(desk.kubelet.asked)
        desk.books.shown(shown(gpu(0), healthy=False))
        assert desk.context().at_kubelet == {"gpu-0"}
        assert desk.context().offered == frozenset()
        await asyncio.sleep(1)
        assert len(desk.kubelet.asked) == asked + 1
        assert desk.context().at_kubelet == frozenset()
        assert desk.context().listed == {"gpu-0"}

    play(story, gpu(0))


def test_what_is_shown_healthy_goes_on_to_be_counted_however_often_the_kubelet_is_read() -> None:
    async def story(desk: Desk) -> None:
        desk.books.shown(shown(gpu(0)))
        for _ in range(5):
            await asyncio.sleep(50)
            assert desk.context().at_kubelet == {"gpu-0"}

    play(story, gpu(0))


def test_a_draining_device_is_released_by_a_person() -> None:
    async def story(desk: Desk) -> None:
        desk.processes.left = (Process(41, "python3"),)
        desk.books.pending_release.update([gpu(0)], [], 0.0, 0.0)
        await asyncio.sleep(15)
        assert desk.books.pending_release.left("gpu-0") == (Process(41, "python3"),)
        assert not desk.books.keeper.release("gpu-1")
        desk.changes.clear()
        assert desk.books.keeper.release("gpu-0")
        assert desk.changes
        assert desk.books.ledger.all == ()

    assert play(story, gpu(0)).events.reasons == ["DeviceDraining"]


def test_it_is_told_when_everything_is_known() -> None:
    async def story(desk: Desk) -> None:
        told: list[float] = []
        desk.context()
        desk.books.bus.subscribe(HoldsChanged, lambda _: told.append(round(now(), 3)))
        while not desk.books.keeper.known:
            await asyncio.sleep(0.1)
        assert told[-1] == 0.5 + LINGER

    play(story, gpu(0), relieves=True)


@pytest.mark.parametrize("part", ["reader", "driver"])
def test_a_part_that_fails_ends_the_books_with_its_reason(part: str) -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.broken = part == "reader"
        desk.processes.broken = part == "driver"
        with pytest.raises(ExceptionGroup) as failed:
            await desk.books.run()
        (fault,) = failed.value.exceptions
        assert "is at fault" in str(fault)
        assert desk.books.unknown_because() == ""

    beside(lambda: Desk(gpu(0)), Desk.rest, story)


async def allocate(desk: Desk, *devices: Device) -> float:
    """Seconds after which the plugin door has allocated the devices."""
    began, doubt = now(), desk.books.doubted(GPU, offered(*devices))
    if doubt is not None:
        await doubt
    desk.books.allocate(GPU, offered(*devices))
    return now() - began


def test_a_part_is_allocated_before_the_first_reading_when_the_checkpoint_does_not_name_the_whole() -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.written = (Holding(GPU, "GPU-1", "main", uid="uid-other"),)
        assert await allocate(desk, part(0)) < 0.01
        assert desk.kubelet.asked == []
        with pytest.raises(HeldError, match="whose part mig-0 is held through the plugin door by a pod that asked"):
            await allocate(desk, gpu(0))

    play(story, gpu(0), part(0), gpu(1))


@pytest.mark.parametrize(("has", "wants"), [(gpu(0), part(0)), (part(0), gpu(0))])
def test_what_overlaps_a_device_on_record_is_refused_before_the_first_reading(has: Device, wants: Device) -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.faults = ("the socket does not exist",)
        desk.kubelet.written = (Holding(GPU, has.uuid or "", "main", uid="uid-1"),)
        with pytest.raises(HeldError, match=f"{has.name},? is held through the plugin door by pod with UID uid-1$"):
            await allocate(desk, wants)

    play(story, gpu(0), part(0))


def test_a_pod_on_record_that_turns_out_to_be_gone_is_waited_for() -> None:
    async def story(desk: Desk) -> None:
        pods = GrantedPods()
        desk.books.keeper.know(pods)
        desk.kubelet.faults = ("the socket does not exist",)
        desk.kubelet.written = (Holding(GPU, "GPU-0", "main", uid="uid-1"),)
        asyncio.get_running_loop().call_later(1.0, pods.dead.add, "uid-1")
        assert 1.0 < await allocate(desk, part(0)) < 1.1

    play(story, gpu(0), part(0))


def test_a_reading_that_comes_in_time_is_waited_for() -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.written = None

        def readable() -> None:
            desk.kubelet.written = ()

        asyncio.get_running_loop().call_later(1.5, readable)
        assert 1.5 < await allocate(desk, part(0)) < KNOWN_WITHIN

    play(story, gpu(0), part(0))


def test_a_part_is_refused_when_nothing_says_in_time_what_pods_have() -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.written = None
        began = now()
        with pytest.raises(HeldError) as caught:
            await allocate(desk, part(0))
        assert str(caught.value) == (
            "device mig-0, which is part of gpu-0, is held through the plugin door by a pod, possibly: the kubelet has "
            "not reported its allocations yet"
        )
        assert KNOWN_WITHIN <= now() - began < KNOWN_WITHIN + 0.2
        assert await allocate(desk, gpu(1)) < 0.01, "nothing overlaps it"

    play(story, gpu(0), part(0), gpu(1))


def test_nothing_waits_for_a_reading_once_the_books_are_closed() -> None:
    async def story(desk: Desk) -> None:
        desk.kubelet.written = None
        running = asyncio.create_task(desk.books.run())
        await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.wait([running])
        began = now()
        with pytest.raises(HeldError, match="a pod, possibly"):
            await allocate(desk, part(0))
        assert now() - began < 0.1

    beside(lambda: Desk(gpu(0), part(0)), Desk.rest, story)


async def chosen(desk: Desk) -> float:
    """When shares are chosen that were asked for now."""
    unlisted = desk.books.unlisted()
    if unlisted is not None:
        await unlisted
    return now()


def list_all(desk: Desk) -> None:
    """The plugin door lists what it offers by what is known now."""
    desk.context()
    desk.books.shown(shown(gpu(0)))


def test_shares_are_chosen_from_the_first_list_by_what_the_kubelet_says() -> None:
    async def story(desk: Desk) -> None:
        list_all(desk)
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "main", pod="team/pod"),)

        def list_later(_: HoldsChanged) -> None:
            asyncio.get_running_loop().call_later(0.2, list_all, desk)

        desk.books.bus.subscribe(HoldsChanged, list_later)
        assert await chosen(desk) == pytest.approx(LATER + 0.2, abs=0.01)
        assert desk.books.unlisted() is None

    play(story, gpu(0))


def test_shares_are_chosen_at_once_when_the_kubelet_does_not_answer_or_nobody_asks_it_in_time() -> None:
    async def silent(desk: Desk) -> None:
        desk.kubelet.faults = ("the socket does not exist",)
        desk.context()
        await asyncio.sleep(LATER / 2)
        desk.context()
        assert await chosen(desk) == pytest.approx(LATER, abs=0.01)

    async def unread(desk: Desk) -> None:
        assert await chosen(desk) == pytest.approx(KNOWN_WITHIN, abs=0.01)

    async def closed(desk: Desk) -> None:
        desk.kubelet.faults = ("the socket does not exist",)
        running = asyncio.create_task(desk.books.run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert desk.books.unlisted() is None

    play(silent, gpu(0))
    for story in (unread, closed):
        beside(lambda: Desk(gpu(0)), Desk.rest, story)


def test_what_the_instance_before_allocated_after_the_first_reading_is_found_in_the_checkpoint() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(1.0)
        assert desk.books.unknown_because() == ""
        desk.kubelet.written = (Holding(GPU, "GPU-0", "main", uid="uid-1"),)
        with pytest.raises(HeldError, match="part of gpu-0, is held through the plugin door by pod with UID uid-1"):
            await allocate(desk, part(0))
        assert desk.kubelet.asked == [LATER], "no list of what pods have was asked for within Allocate"

    play(story, gpu(0), part(0), relieves=True)
