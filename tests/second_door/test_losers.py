"""A claim that was allocated what a pod has: evicted by a taint, which ends with whichever of the two goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.claims.errors import Unavailable
from driver.claims.model import ClaimReference
from node.rules import Doors
from sandbox.apiserver.server import ApiServer
from tests.holders.making import TEAM, World
from tests.second_door.making import Both, ended_at, gpus
from tests.waiting import eventually

DEVICE = "gpu-0000"
EVICTS = [("ostler.dev/other-door", "NoExecute")]
WITHDRAWN = [("ostler.dev/other-door", "NoSchedule")]


def lose(both: Both, world: World) -> str:
    """A pod gets the device, and a claim is allocated it in the same moment; the claim's UID."""
    both.kubelet.pods[DEVICE] = "team/plugin"
    both.books.pods_changed()
    return world.claim("c", DEVICE, users=(world.pod("p", "c"),))


def plugin_pod_ends(both: Both) -> None:
    del both.kubelet.pods[DEVICE]
    both.books.pods_changed()


@pytest.mark.parametrize("ends", ["its pod", "its pod is over", "the other pod", "the claim"])
async def test_a_loser_is_evicted_for_as_long_as_both_are_there(
    short_dir: Path, server: ApiServer, world: World, ends: str
) -> None:
    both = Both(short_dir, server, gpus(2), Doors.BOTH)
    async with both.running():
        await ended_at(both, Doors.BOTH)
        lose(both, world)
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
        assert both.second.losers() == {DEVICE: (f"{TEAM}/c",)}
        assert len(both.events.of("ClaimLostDevice")) == 1
        if ends == "the other pod":
            plugin_pod_ends(both)
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
            plugin_pod_ends(both)
            await ended_at(both, Doors.BOTH)
        assert both.second.losers() == {}
    assert both.asked("list", "resourceclaims") == both.asked("watch", "resourceclaims") == 0


async def test_a_loser_is_found_again_by_the_next_process_and_so_is_its_end(
    short_dir: Path, server: ApiServer, world: World
) -> None:
    both = Both(short_dir, server, gpus(2), Doors.BOTH)
    async with both.running():
        await ended_at(both, Doors.BOTH)
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
    short_dir: Path, server: ApiServer, world: World
) -> None:
    both = Both(short_dir, server, gpus(2), Doors.PLUGIN)
    async with both.running():
        await ended_at(both, Doors.PLUGIN)
        lose(both, world)
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
        assert both.at_plugin() == {DEVICE, "gpu-0001"}
        world.remove("p")
        await ended_at(both, Doors.PLUGIN)


async def test_a_claim_that_is_being_released_evicts_nobody(short_dir: Path, server: ApiServer, world: World) -> None:
    both = Both(short_dir, server, gpus(2), Doors.BOTH)
    async with both.running():
        await ended_at(both, Doors.BOTH)
        uid = lose(both, world)
        claim = ClaimReference(TEAM, "c", uid)
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
        with pytest.raises(Unavailable, match="held through the plugin door by team/plugin"):
            await both.second._claims.prepare(claim)
        await both.second._claims.unprepare(claim)
        await eventually(lambda: both.effects(DEVICE) == WITHDRAWN)
        world.status("p", message="still there")
        world.pod("q")
        await eventually(lambda: len(both.second._holders._pods.pods) == 2)
        assert both.second.losers() == {}


async def test_who_only_looks_on_neither_loses_nor_is_in_the_way(
    short_dir: Path, server: ApiServer, world: World
) -> None:
    world.store.create(
        "namespaces", {"metadata": {"name": TEAM, "labels": {"resource.kubernetes.io/admin-access": "true"}}}
    )
    both = Both(short_dir, server, gpus(2), Doors.BOTH)
    async with both.running():
        await ended_at(both, Doors.BOTH)
        uid = world.claim("looks", DEVICE, users=(world.pod("p", "looks"),), adminAccess=True)
        await eventually(lambda: uid in both.books.ledger.owners)
        assert both.at_plugin() == {DEVICE, "gpu-0001"}
        assert len(await both.second._claims.prepare(ClaimReference(TEAM, "looks", uid))) == 1
        both.kubelet.pods[DEVICE] = "team/plugin"
        both.books.pods_changed()
        await eventually(lambda: both.effects(DEVICE) == WITHDRAWN)
        assert both.second.losers() == {}
        plugin_pod_ends(both)
        both.use(Doors.PLUGIN)
        await ended_at(both, Doors.PLUGIN)
