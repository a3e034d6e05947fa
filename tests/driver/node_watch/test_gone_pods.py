"""Pods that are gone: what proves that one is, and what it costs the API server."""

from __future__ import annotations

from driver.node_watch.node_claims import NodeClaims
from driver.resource_api.async_client import AsyncResourceApi
from sandbox.apiserver.server import ApiServer
from tests.driver.node_watch.following import following
from tests.making.watched_node import TEAM, WatchedWorld
from tests.waiting import eventually


async def test_before_the_first_list_nobody_is_gone(
    server: ApiServer, world: WatchedWorld, api: AsyncResourceApi
) -> None:
    server.faults.add("watch", status=503, resource="pods", count=-1)
    async with following(api) as holders:
        await eventually(lambda: world.listed("pods") > 2)
        assert not holders.synced
        assert not holders.gone("6f1c2a9e-0000-4000-8000-000000000000")
        assert "503" in holders.problems[0]
        server.faults.clear()
        await eventually(lambda: holders.gone("6f1c2a9e-0000-4000-8000-000000000000"))


async def test_pods_never_seen_are_looked_for_by_one_list_for_all_and_not_more_often_than_allowed(
    world: WatchedWorld, api: AsyncResourceApi
) -> None:
    async with following(api, list_every=3600.0) as holders:
        await eventually(lambda: holders.synced)
        assert world.listed("pods") == 1
        unknown = [f"6f1c2a9e-0000-4000-8000-{n:012}" for n in range(100)]
        assert not any(holders.gone(uid) for uid in unknown)
        await eventually(lambda: all(holders.gone(uid) for uid in unknown))
        assert (world.asked("list", "pods"), world.listed("pods")) == (1, 2)
        # The next one has to wait, however many ask.
        assert not any(holders.gone(uid.replace("6f", "7a")) for uid in unknown)
        world.pod("news")
        await eventually(lambda: any(pod == f"{TEAM}/news" for pod in names(holders, world)))
        assert (world.asked("list", "pods"), world.listed("pods")) == (1, 2)


def names(holders: NodeClaims, world: WatchedWorld) -> list[str]:
    return [holders.name_of(str(each["metadata"]["uid"])) for each in world.store.list("pods")]


async def test_a_pod_of_the_same_name_is_another_pod(world: WatchedWorld, api: AsyncResourceApi) -> None:
    first = world.pod("p")
    async with following(api) as holders:
        await eventually(lambda: holders.name_of(first))
        world.remove("p")
        second = world.pod("p")
        await eventually(lambda: holders.gone(first))
        await eventually(lambda: holders.name_of(second))
        assert not holders.gone(second)


async def test_a_pod_that_is_over_is_gone_once_no_container_of_it_runs(
    world: WatchedWorld, api: AsyncResourceApi
) -> None:
    uid = world.pod("p", "c")
    world.claim("c", "gpu-0", users=(uid,))
    async with following(api) as holders:
        await eventually(holders.reservations)
        # As an evicted pod looks for a moment, or one that a controller gave up.
        world.status("p", phase="Failed", containerStatuses=[{"name": "c", "state": {"running": {}}}])
        world.pod("after")
        await eventually(lambda: f"{TEAM}/after" in names(holders, world))
        assert not holders.gone(uid)
        world.status("p", containerStatuses=[{"name": "c", "state": {"terminated": {"exitCode": 1}}}])
        await eventually(lambda: holders.gone(uid))
