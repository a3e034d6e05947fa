"""Allocate for a device whose last pod may still have containers: what it waits for, how long, and what it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from node.ledger.holds import HeldError, Hold, HoldState
from node.ledger.reader import Holding
from node.ledger.releases import SLOW, STEP
from node.ledger.tenants import WAIT
from node.offer import OfferedDevice
from node.rules import Door, Rule
from node.sharing import Sharing
from node.values import replace
from tests.making.virtual_time import beside
from tests.ostler.agent.books import (
    BOTH,
    GPU,
    PLUGIN,
    BooksPods,
    Desk,
    allocate,
    deleted_by_force,
    gpu,
    had,
    offered,
    play,
)


def test_an_allocate_for_a_device_that_nobody_had_waits_for_nothing_and_reads_nothing() -> None:
    async def story(desk: Desk) -> None:
        await deleted_by_force(desk, number=0)
        before = desk.kubelet.read_checkpoint, len(desk.kubelet.looked_up), desk.containers.looks
        assert desk.books.doubted(GPU, offered(gpu(1))) is None
        assert (desk.kubelet.read_checkpoint, len(desk.kubelet.looked_up), desk.containers.looks) == before

    play(story, gpu(0), gpu(1))


@pytest.mark.parametrize("rule", [BOTH, PLUGIN])
def test_allocate_waits_until_the_containers_have_ended(rule: Rule) -> None:
    async def story(desk: Desk) -> None:
        await deleted_by_force(desk)
        waiting = asyncio.create_task(allocate(desk, 0))
        await asyncio.sleep(3)
        assert not waiting.done()
        await allocate(desk, 1)
        desk.containers.running.clear()
        await asyncio.wait_for(waiting, 0.2)
        assert desk.metrics.waits.counts == {("given",): 1, ("refused",): 0}

    play(story, gpu(0), gpu(1), rule=rule)


HALVES = replace(PLUGIN, sharing=Sharing(replicas=2))


async def share_while_pods_of_an_earlier_rule_end(desk: Desk) -> asyncio.Task[None]:
    """An Allocate for a share of a GPU of which ended pods have two others, which is all that there is."""
    await asyncio.sleep(1)
    ids = {"a": "GPU-0::2", "b": "GPU-0::3"}
    desk.kubelet.written = tuple(Holding(GPU, id_, "main", uid=uid) for uid, id_ in ids.items())
    desk.kubelet.listed = tuple(Holding(GPU, id_, "main", pod=f"team/{uid}") for uid, id_ in ids.items())
    desk.containers.running |= {"a", "b"}
    desk.books.kubelet_changed()
    await asyncio.sleep(2)
    desk.kubelet.written = desk.kubelet.listed = ()
    desk.books.keeper.know(BooksPods("a", "b"))
    desk.books.pods_changed()
    await asyncio.sleep(0.5)
    shared = HALVES.shared(gpu(0))
    assert shared is not None
    share = OfferedDevice("GPU-0::0", gpu(0), True, share="0", amounts=shared.amounts, whole=shared.whole)

    async def called() -> None:
        doubt = desk.books.doubted(GPU, [share])
        assert doubt is not None
        await doubt
        desk.books.allocate(GPU, [share])

    return asyncio.create_task(called())


def test_a_share_waits_for_the_ended_pods_whose_other_shares_leave_too_little() -> None:
    async def story(desk: Desk) -> None:
        waiting = await share_while_pods_of_an_earlier_rule_end(desk)
        await asyncio.sleep(3)
        assert not waiting.done()
        desk.containers.running.remove("b")
        await asyncio.wait_for(waiting, 0.2)

    play(story, gpu(0), rule=HALVES)


def test_a_share_that_waits_in_vain_for_other_shares_is_refused_and_says_whose_they_are() -> None:
    async def story(desk: Desk) -> None:
        began = asyncio.get_running_loop().time()
        waiting = await share_while_pods_of_an_earlier_rule_end(desk)
        with pytest.raises(
            HeldError, match=r"has too little left for share 0.*containers of pod team/a \(UID a\) still"
        ):
            await waiting
        assert asyncio.get_running_loop().time() - began < 3.5 + WAIT + 0.2

    play(story, gpu(0), rule=HALVES)


def test_an_allocate_that_waits_in_vain_is_refused_and_says_for_whom_and_what_to_do() -> None:
    async def story(desk: Desk) -> None:
        await deleted_by_force(desk)
        began = asyncio.get_running_loop().time()
        with pytest.raises(HeldError) as refused:
            await allocate(desk, 0)
        assert str(refused.value) == (
            "device gpu-0 is pending release: "
            "containers of pod team/a (UID a) still run, though their pod was deleted; "
            "it is allocated again when they have ended; if they do not end, end them on the node, or run "
            "'ostler holds release gpu-0' if you know that it is free"
        )
        assert asyncio.get_running_loop().time() - began == pytest.approx(WAIT, abs=0.2)
        began = asyncio.get_running_loop().time()
        with pytest.raises(HeldError):
            await allocate(desk, 0)
        assert asyncio.get_running_loop().time() - began < 0.2, "nobody waits a second time"
        assert desk.books.pending() == {"containers": 1, "processes": 0, "looking": 0}
        (hold,) = desk.books.ledger.all
        assert (hold.door, hold.state) == (None, HoldState.PENDING_RELEASE)

    play(story, gpu(0))


def test_the_wait_ends_in_time_where_the_books_are_late_and_settled_again_and_again() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(2)
        await allocate(desk, 0)
        desk.kubelet.written = (had(0, "a"),)
        desk.containers.running.add("a")
        await asyncio.sleep(20)
        waiting = asyncio.create_task(allocate(desk, 0))
        for _ in range(60):
            await asyncio.sleep(0.1)
            desk.books.keeper.settle()
        assert isinstance(waiting.exception(), HeldError)

    play(story, gpu(0))


def test_a_device_that_a_claim_has_is_refused_at_once_with_the_claim_named() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(2)
        desk.containers.running.add("a")
        desk.books.ledger.take("claim", [Hold("gpu-0", Door.DRA, "team/c", 0.0, owner="claim", pods=("a",))])
        desk.books.keeper.settle()
        assert desk.books.doubted(GPU, offered(gpu(0))) is None
        with pytest.raises(HeldError, match="held through the dra door by team/c"):
            await allocate(desk, 0)

    play(story, gpu(0))


def test_a_device_is_given_at_once_where_only_the_books_are_late_with_the_end_of_its_pod() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(2)
        await allocate(desk, 0)
        desk.kubelet.written = (had(0, "a"),)
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "main", pod="team/a"),)
        await asyncio.sleep(20)
        desk.kubelet.listed = ()
        began = asyncio.get_running_loop().time()
        await allocate(desk, 0)
        assert asyncio.get_running_loop().time() - began < 0.1

    play(story, gpu(0), rule=PLUGIN)


def test_many_that_wait_for_one_pod_all_end_in_time() -> None:
    async def story(desk: Desk) -> None:
        await deleted_by_force(desk)
        looks = desk.containers.looks
        waiting = [asyncio.create_task(allocate(desk, 0)) for _ in range(50)]
        done, late = await asyncio.wait(waiting, timeout=WAIT + 1)
        assert not late
        assert all(isinstance(each.exception(), HeldError) for each in done)
        assert desk.containers.looks - looks < 4 * WAIT / STEP

    play(story, gpu(0))


def test_a_device_allocated_a_moment_ago_is_attributed_before_the_next_allocate_is_answered() -> None:
    """The kubelet's file names its pod until then."""

    async def story(desk: Desk) -> None:
        await asyncio.sleep(2)
        await allocate(desk, 0)
        desk.kubelet.written = (had(0, "a"),)
        desk.containers.running.add("a")
        await allocate(desk, 1)
        desk.kubelet.written = (had(1, "b"),)
        assert desk.books.tenants.suspects("gpu-0", ()) == {"a"}
        waiting = asyncio.create_task(allocate(desk, 0))
        await asyncio.sleep(1)
        assert not waiting.done()
        desk.containers.running.clear()
        await asyncio.wait_for(waiting, 0.2)

    play(story, gpu(0), gpu(1))


def test_a_change_of_the_kubelets_file_attributes_what_was_allocated_so_that_nobody_waits_for_that() -> None:
    async def story(desk: Desk) -> None:
        await asyncio.sleep(2)
        await allocate(desk, 0)
        desk.kubelet.written = (had(0, "a"),)
        desk.books.kubelet_changed()
        await asyncio.sleep(0.05)
        assert desk.books.doubted(GPU, offered(gpu(1))) is None

    play(story, gpu(0), gpu(1))


def test_a_pod_that_the_kubelet_has_not_forgotten_is_not_proved_to_be_gone_by_having_no_containers_yet() -> None:
    """It was deleted by force before they began, and the kubelet hears of that later than the agent does."""

    async def story(desk: Desk) -> None:
        await asyncio.sleep(2)
        await allocate(desk, 0)
        desk.kubelet.written = (had(0, "a"),)
        desk.kubelet.listed = (Holding(GPU, "GPU-0", "main", pod="team/a"),)
        desk.books.keeper.know(BooksPods("a"))
        desk.books.kubelet_changed()
        desk.books.pods_changed()
        await asyncio.sleep(3)
        desk.containers.running.add("a")
        desk.kubelet.listed = ()
        waiting = asyncio.create_task(allocate(desk, 0))
        await asyncio.sleep(3)
        assert not waiting.done()
        desk.containers.running.clear()
        await asyncio.wait_for(waiting, 0.2)

    play(story, gpu(0))


def test_a_claim_that_is_released_keeps_its_device_until_its_pods_have_ended_those_that_came_later_too() -> None:
    def claimed(state: HoldState, *pods: str) -> Hold:
        return Hold("gpu-0", Door.DRA, "team/c", 0.0, owner="claim", state=state, pods=pods)

    async def story(desk: Desk) -> None:
        await asyncio.sleep(2)
        desk.containers.running |= {"a", "b"}
        desk.books.ledger.take("claim", [claimed(HoldState.PREPARED, "a")])
        desk.books.keeper.reserve({"claim": (claimed(HoldState.RESERVED, "a", "b"),)})
        desk.books.keeper.reserve({})
        desk.books.ledger.release("claim")
        await asyncio.sleep(0.2)
        (hold,) = desk.books.ledger.all
        assert hold.words.startswith(
            "pending release: containers of a pod of claim team/c (UID a), a pod of claim team/c (UID b)"
        )
        desk.containers.running.discard("a")
        await asyncio.sleep(2)
        assert len(desk.books.ledger.all) == 1
        desk.containers.running.clear()
        await asyncio.sleep(2)
        assert not desk.books.ledger.all

    play(story, gpu(0))


def test_while_the_kernel_gives_no_answer_the_device_stays_pending() -> None:
    async def story(desk: Desk) -> None:
        await deleted_by_force(desk)
        desk.containers.fault = "the disk is on fire"
        desk.containers.running.clear()
        await asyncio.sleep(3)
        assert len(desk.books.ledger.all) == 1
        desk.containers.fault = ""
        await asyncio.sleep(2)
        assert not desk.books.ledger.all

    play(story, gpu(0))


def test_where_nobody_can_see_containers_nobody_waits() -> None:
    async def story(desk: Desk) -> None:
        desk.containers.off = "nothing is mounted"
        await deleted_by_force(desk)
        began = asyncio.get_running_loop().time()
        await allocate(desk, 0)
        assert asyncio.get_running_loop().time() - began < 0.2

    play(story, gpu(0))


def test_an_allocate_whose_device_a_person_releases_during_the_last_look_is_answered() -> None:
    async def story(desk: Desk) -> None:
        await deleted_by_force(desk)
        loop = asyncio.get_running_loop()
        began, look = loop.time(), desk.containers.left

        def released_meanwhile(uids: Collection[str]) -> frozenset[str]:
            if loop.time() - began > WAIT + 0.01:
                desk.books.keeper.release("gpu-0")
            return look(uids)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(desk.containers, "left", released_meanwhile)
            patch.setattr("node.ledger.releases.STEP", 0.07)
            await allocate(desk, 0)
        assert loop.time() - began > WAIT + 0.01
        assert desk.containers.running == {"a"}

    play(story, gpu(0))


def test_an_agent_that_ends_lets_no_allocate_wait_any_more() -> None:
    """Its successor decides from then on, and counts on it that nothing is allocated later."""

    async def story(desk: Desk) -> None:
        keeping = asyncio.create_task(desk.books.run())
        await deleted_by_force(desk)
        waiting = asyncio.create_task(allocate(desk, 0))
        await asyncio.sleep(1)
        keeping.cancel()
        await asyncio.sleep(0.2)
        with pytest.raises(HeldError):
            await asyncio.wait_for(waiting, 0)
        with pytest.raises(HeldError):
            await asyncio.wait_for(allocate(desk, 0), 0.01)
        desk.containers.running.clear()
        await allocate(desk, 0)

    beside(lambda: Desk(gpu(0)), Desk.rest, story)


def test_a_device_that_stays_pending_leaves_the_list_in_time_though_nobody_asks_for_it() -> None:
    """Else the next pod would be sent to it, and refused at once."""

    async def story(desk: Desk) -> None:
        await deleted_by_force(desk)
        assert [hold.door for hold in desk.books.ledger.all] == [Door.PLUGIN]
        await asyncio.sleep(WAIT + SLOW)
        assert [hold.door for hold in desk.books.ledger.all] == [None]

    play(story, gpu(0))
