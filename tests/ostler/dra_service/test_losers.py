"""A claim that was allocated what a pod has: evicted by a taint, which ends with whichever of the two goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.claims.model import ClaimReference, Unavailable
from node.door_policy import Taints, TaintSupport
from node.ledger.offer_context import NOTHING_HELD
from node.rules import Doors
from node.values import replace
from sandbox.apiserver.server import ApiServer
from tests.making.both_doors import WITHDRAWN, Both, begun, ended_at, gpus
from tests.making.watched_node import TEAM, WatchedWorld
from tests.waiting import eventually

DEVICE = "gpu-0000"
EVICTS = [("ostler.dev/other-door", "NoExecute")]


def lose(both: Both, world: WatchedWorld) -> str:
    """A pod gets the device, and a claim is allocated it in the same moment; the claim's UID."""
    both.pod_gets(DEVICE)
    return world.claim("c", DEVICE, users=(world.pod("p", "c"),))


@pytest.mark.parametrize("ends", ["its pod", "its pod is over", "the other pod", "the claim"])
async def test_a_loser_is_evicted_for_as_long_as_both_are_there(
    short_dir: Path, server: ApiServer, world: WatchedWorld, ends: str
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        lose(both, world)
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
        assert both.second.losers() == {DEVICE: (f"{TEAM}/c",)}
        assert len(both.events.of("ClaimLostDevice")) == 1
        if ends == "the other pod":
            both.pod_ends(DEVICE)
            await eventually(lambda: both.books.ledger.by_device()[DEVICE].holder == f"{TEAM}/c")
            await eventually(lambda: both.effects(DEVICE) == [])
            await eventually(lambda: both.at_plugin() == {"gpu-0001"})
        else:
            if ends == "its pod is over":
                world.status("p", phase="Failed")
            else:
                world.remove("p")
            if ends == "the claim":
                world.free("c")
                world.store.delete("resourceclaims", "c", namespace=TEAM)
            await eventually(lambda: both.effects(DEVICE) == WITHDRAWN)
            both.pod_ends(DEVICE)
            await ended_at(both, Doors.BOTH)
        assert both.second.losers() == {}
    assert both.asked("list", "resourceclaims") == both.asked("watch", "resourceclaims") == 0


async def test_an_eviction_is_counted_once_and_none_where_taints_are_dropped(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        lose(both, world)
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
        assert both.metrics.evictions.counts == {(): 1}
        contested = replace(NOTHING_HELD, known=True, contested=frozenset({DEVICE}))
        both.second._count_evicted(replace(contested, known=False, contested=frozenset()))
        both.second._count_evicted(contested)
        assert both.metrics.evictions.counts == {(): 1}, "what is not known for a moment has not ended"
        both.second._parts.doors.features.support = TaintSupport(Taints.DROPPED)
        both.second._count_evicted(replace(contested, contested=frozenset({DEVICE, "gpu-0001"})))
        assert both.metrics.evictions.counts == {(): 1}


async def test_a_loser_is_found_again_by_the_next_process_and_so_is_its_end(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        lose(both, world)
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
    again = Both(short_dir, server, gpus(2), Doors.BOTH)
    again.kubelet.pods = both.kubelet.pods
    async with again.running():
        await eventually(lambda: again.second.losers() == {DEVICE: (f"{TEAM}/c",)})
        await eventually(lambda: again.effects(DEVICE) == EVICTS)
    world.remove("p")
    third = Both(short_dir, server, gpus(2), Doors.BOTH)
    third.kubelet.pods = both.kubelet.pods
    async with third.running():
        await eventually(lambda: third.effects(DEVICE) == WITHDRAWN)


async def test_a_loser_at_a_rule_that_is_no_more_for_claims_is_evicted_as_well(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 2, Doors.PLUGIN) as both:
        lose(both, world)
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
        assert both.at_plugin() == {DEVICE, "gpu-0001"}
        world.remove("p")
        await ended_at(both, Doors.PLUGIN)


async def test_a_claim_that_is_being_released_evicts_nobody(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        uid = lose(both, world)
        claim = ClaimReference(TEAM, "c", uid)
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
        with pytest.raises(Unavailable, match="held through the plugin door by team/plugin"):
            await both.second._parts.claims.prepare(claim)
        await both.second._parts.claims.unprepare(claim)
        await eventually(lambda: both.effects(DEVICE) == WITHDRAWN)
        world.status("p", message="still there")
        world.pod("q")
        await eventually(lambda: len(both.second._parts.node_claims._pods.pods) == 2)
        assert both.second.losers() == {}


async def test_who_only_looks_on_neither_loses_nor_is_in_the_way(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    world.admin_namespace()
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        uid = world.claim("looks", DEVICE, users=(world.pod("p", "looks"),), adminAccess=True)
        await eventually(lambda: uid in both.books.ledger.owners)
        assert both.at_plugin() == {DEVICE, "gpu-0001"}
        assert len(await both.second._parts.claims.prepare(ClaimReference(TEAM, "looks", uid))) == 1
        both.pod_gets(DEVICE)
        await eventually(lambda: both.effects(DEVICE) == WITHDRAWN)
        assert both.second.losers() == {}
        both.pod_ends(DEVICE)
        both.use(Doors.PLUGIN)
        await ended_at(both, Doors.PLUGIN)
