"""Pods and their claims as the agent follows them: what is known, and what it costs the API server."""

from __future__ import annotations

import threading

import pytest

from driver.node_watch.node_claims import NodeClaims
from driver.node_watch.reservations import READS, reservation_of
from driver.resource_api.async_client import AsyncResourceApi
from kube.bodies import JsonObject
from kube.errors import NodeNotOurs
from node.inventory.model import Device, DeviceKind
from node.ledger.holds import Hold, HoldState
from node.rules import Door
from sandbox.apiserver.server import ApiServer
from tests.driver.node_watch.following import following
from tests.making.resource_api import async_api_of
from tests.making.watched_node import DRIVER, NODE, TEAM, WatchedWorld
from tests.waiting import eventually


def held(holders: NodeClaims) -> dict[str, str]:
    """Holders by device."""
    return {hold.device: hold.holder for hold in holds_of(holders)}


def holds_of(holders: NodeClaims) -> list[Hold]:
    return [hold for holds in holders.reservations().values() for hold in holds]


async def test_fifty_pods_cost_one_watch_with_their_list_and_fifty_reads_and_no_list_of_claims(
    world: WatchedWorld, api: AsyncResourceApi
) -> None:
    for n in range(50):
        uid = world.pod(f"p{n}", f"c{n}")
        world.claim(f"c{n}", f"gpu-{n}", users=(uid,))
    world.pod("elsewhere", "c0", node="node-2")
    async with following(api) as holders:
        await eventually(lambda: len(held(holders)) == 50)
        assert holders.unread == ()
        # Nothing is left to ask for: news of pods that change nothing here cost nothing.
        world.status("p0", phase="Running", podIP="10.0.0.1")
        world.pod("late", "late")
        world.claim("late", "gpu-99", users=("late",))
        await eventually(lambda: "gpu-99" in held(holders))
    assert world.asked("list", "pods") == 0
    assert world.asked("watch", "pods") == world.listed("pods") == 1
    assert [each.query["fieldSelector"] for each in world.server.requests.of(resource="pods")] == (
        [f"spec.nodeName={NODE}"]
    )
    assert world.asked("list", "resourceclaims") == world.asked("watch", "resourceclaims") == 0
    reads = [each.name for each in world.server.requests.of("get", "resourceclaims")]
    assert sorted(set(reads)) == sorted([*(f"c{n}" for n in range(50)), "late"])
    assert all(reads.count(f"c{n}") == 1 for n in range(50))


async def one_more_watch(server: ApiServer, *, expired: bool) -> None:
    def watches() -> int:
        return len(server.requests.answered("watch", "pods"))

    before = await eventually(watches)
    server.close_watches(expired=expired)
    await eventually(lambda: watches() > before)


async def test_claims_are_never_listed_or_watched_whatever_ends_watches_and_processes(
    server: ApiServer, world: WatchedWorld
) -> None:
    """Fifty pods, processes that begin anew, watches that end and are too old, a server that is away."""
    for n in range(50):
        world.claim(f"c{n}", f"gpu-{n}", users=(world.pod(f"p{n}", f"c{n}"),))
    for life in range(3):
        api = async_api_of(server)
        server.requests.clear()
        async with following(api) as holders:
            await eventually(lambda: len(held(holders)) == 50)
            for expired in (False, True):
                await one_more_watch(server, expired=expired)
            server.down()
            server.forget_history()
            await eventually(lambda: holders.problems)
            server.up()
            await eventually(lambda: not holders.problems)
            world.status(f"p{life}", phase="Succeeded")
            await eventually(lambda: len(held(holders)) == 49)
        api.close()
        assert world.listed("pods") <= 3, "at the start, after the 410, and after what was compacted"
        reads = [each.name for each in server.requests.of("get", "resourceclaims")]
        assert len(reads) == len(set(reads)) == 50, "pods that are as they were make no claim be read again"
        world.status(f"p{life}", phase="Running")
    assert world.asked("list", "resourceclaims") == world.asked("watch", "resourceclaims") == 0


async def test_a_reservation_says_who_has_what_and_how(world: WatchedWorld, api: AsyncResourceApi) -> None:
    pod = world.pod("p", "c")
    claim = world.claim("c", "mig-1", users=(pod,))
    async with following(api) as holders:
        holders.place([Device("mig-1", DeviceKind.MIG, "nvidia", parent="gpu-0")])
        await eventually(holders.reservations)
        expected = Hold(
            "mig-1",
            Door.DRA,
            f"{TEAM}/c",
            1000.0,
            owner=claim,
            within=("gpu-0",),
            state=HoldState.RESERVED,
            pods=(pod,),
        )
        assert holders.reservations() == {claim: (expected,)}


async def test_devices_of_other_drivers_and_pools_are_nobodys_here(world: WatchedWorld, api: AsyncResourceApi) -> None:
    world.claim("c", "gpu-0", users=(world.pod("p", "c"),), pool="node-2")
    async with following(api) as holders:
        await eventually(lambda: holders.synced and not holders.unread)
        assert holders.reservations() == {}


def test_a_claim_that_is_reserved_for_a_group_of_pods_may_be_used_by_pods_it_does_not_name() -> None:
    def claim(resource: str) -> JsonObject:
        user: JsonObject = {"resource": resource, "name": "u", "uid": "u"}
        return {"metadata": {"uid": "c"}, "status": {"allocation": {"devices": {}}, "reservedFor": [user]}}

    for resource, usable in (("podgroups", True), ("pods", False)):
        found = reservation_of(claim(resource), DRIVER, NODE)
        assert found is not None
        assert found.usable_by(frozenset({"pod"})) is usable


async def test_admin_access_is_told_as_such(world: WatchedWorld, api: AsyncResourceApi) -> None:
    world.admin_namespace()
    world.claim("c", users=())
    world.store.patch(
        "resourceclaims",
        "c",
        {
            "status": {
                "allocation": {
                    "devices": {
                        "results": [
                            {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "g", "adminAccess": True}
                        ]
                    }
                }
            }
        },
        namespace=TEAM,
        part="status",
    )
    world.pod("p", "c")
    async with following(api) as holders:
        await eventually(holders.reservations)
        assert [hold.admin for hold in holds_of(holders)] == [True]


async def test_claims_of_templates_and_of_extended_resources_are_found_in_the_pods_status(
    world: WatchedWorld, api: AsyncResourceApi
) -> None:
    template: JsonObject = {"name": "gpu", "resourceClaimTemplateName": "t"}
    world.made({"name": "p"}, {"nodeName": NODE, "resourceClaims": [template]})
    world.pod("q")
    world.claim("p-gpu-x7", "gpu-0", users=("p",))
    world.claim("q-extended-resources-x", "gpu-1", users=("q",))
    async with following(api) as holders:
        await eventually(lambda: holders.synced)
        assert holders.reservations() == {}
        world.status("p", resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "p-gpu-x7"}])
        world.status("q", extendedResourceClaimStatus={"resourceClaimName": "q-extended-resources-x"})
        await eventually(lambda: len(held(holders)) == 2)
        assert held(holders) == {"gpu-0": f"{TEAM}/p-gpu-x7", "gpu-1": f"{TEAM}/q-extended-resources-x"}


async def test_a_claim_that_is_allocated_later_is_read_again(world: WatchedWorld, api: AsyncResourceApi) -> None:
    uid = world.pod("p", "c")
    async with following(api) as holders:
        await eventually(lambda: world.asked("get", "resourceclaims") >= 2, "a claim that does not exist")
        world.claim("c")
        await eventually(lambda: holders.synced and not holders.unread)
        world.allocate("c", "gpu-0", users=("somebody-else",))
        await eventually(lambda: held(holders) == {"gpu-0": f"{TEAM}/c"})
        asked = world.asked("get", "resourceclaims")
        await eventually(lambda: world.asked("get", "resourceclaims") > asked + 1, "it is not this pod's yet")
        world.free("c")
        world.allocate("c", "gpu-1", users=(uid,))
        await eventually(lambda: held(holders) == {"gpu-1": f"{TEAM}/c"})


async def test_a_reservation_ends_with_the_last_pod_that_names_the_claim(
    world: WatchedWorld, api: AsyncResourceApi
) -> None:
    one, two = world.pod("one", "c"), world.pod("two", "c")
    world.claim("c", "gpu-0", users=(one, two))
    news: list[int] = []
    async with following(api, changed=lambda: news.append(1)) as holders:
        await eventually(holders.reservations)
        world.remove("one")
        await eventually(lambda: holders.gone(one))
        assert held(holders) == {"gpu-0": f"{TEAM}/c"}
        before = len(news)
        world.status("two", phase="Succeeded")
        await eventually(lambda: not holders.reservations())
        assert len(news) > before


async def test_a_claim_that_is_replaced_under_its_name_is_another(world: WatchedWorld, api: AsyncResourceApi) -> None:
    first = world.claim("c", "gpu-0", users=(world.pod("p", "c"),))
    async with following(api) as holders:
        await eventually(holders.reservations)
        world.remove("p")
        world.free("c")
        world.store.delete("resourceclaims", "c", namespace=TEAM)
        second = world.claim("c", "gpu-1", users=(world.pod("p", "c"),))
        await eventually(lambda: held(holders) == {"gpu-1": f"{TEAM}/c"})
        assert list(holders.reservations()) == [second] != [first]


async def test_a_claim_that_the_node_may_not_read_yet_is_asked_for_again(
    server: ApiServer, world: WatchedWorld, api: AsyncResourceApi
) -> None:
    message = "no relationship found between node 'node-1' and this object"
    server.faults.add("get", status=403, resource="resourceclaims", count=3, message=message)
    world.claim("c", "gpu-0", users=(world.pod("p", "c"),))
    problems: set[str] = set()
    async with following(api) as holders:

        def seen() -> bool:
            problems.update(each for each in holders.problems if "claim" in each)
            return bool(holders.reservations())

        await eventually(seen)
        assert holders.problems == ()
    assert world.asked("get", "resourceclaims") == 4
    assert all(each.startswith(f"claim {TEAM}/c cannot be read: GET ") for each in problems)
    assert any(message in each for each in problems)


async def test_claims_are_read_a_few_at_a_time(server: ApiServer, world: WatchedWorld, api: AsyncResourceApi) -> None:
    server.faults.add("get", "hang", resource="resourceclaims", count=-1)
    for n in range(20):
        world.claim(f"c{n}", f"gpu-{n}", users=(world.pod(f"p{n}", f"c{n}"),))
    async with following(api) as holders:
        await eventually(lambda: world.asked("get", "resourceclaims") == READS)
        await eventually(lambda: holders.synced and len(holders.unread) == 20)
        assert world.asked("get", "resourceclaims") == READS
        server.faults.clear()
        await eventually(lambda: len(held(holders)) == 20)


async def test_while_the_api_server_is_away_everything_known_stays(
    server: ApiServer, world: WatchedWorld, api: AsyncResourceApi
) -> None:
    uid = world.pod("p", "c")
    world.claim("c", "gpu-0", users=(uid,))
    world.pod("leaving", "c")
    async with following(api) as holders:
        await eventually(holders.reservations)
        server.down()
        world.remove("p")
        world.remove("leaving")
        server.forget_history()
        await eventually(lambda: holders.problems)
        assert not holders.gone(uid)
        assert held(holders) == {"gpu-0": f"{TEAM}/c"}
        server.up()
        await eventually(lambda: holders.gone(uid))
        await eventually(lambda: not holders.reservations())
        await eventually(lambda: holders.problems == ())


@pytest.mark.parametrize("expired", [False, True], ids=["ended", "too old"])
async def test_nothing_is_missed_when_a_watch_ends(
    server: ApiServer, world: WatchedWorld, api: AsyncResourceApi, expired: bool
) -> None:
    uid = world.pod("p")
    async with following(api) as holders:
        await eventually(lambda: holders.synced)
        server.close_watches(expired=expired)
        world.remove("p")
        server.forget_history()
        await eventually(lambda: holders.gone(uid))
        assert holders.name_of(uid) == f"{TEAM}/p"


async def test_another_machines_node_gives_no_pods(
    server: ApiServer, world: WatchedWorld, api: AsyncResourceApi
) -> None:
    world.store.create("nodes", {"metadata": {"name": NODE}})
    ours = threading.Event()

    def check(node: JsonObject) -> None:
        if not ours.is_set():
            raise NodeNotOurs(NODE, "machineID", "theirs", "ours", "/etc/machine-id")

    async with following(api, check=check) as holders:
        await eventually(lambda: any("is not this machine" in each for each in holders.problems))
        assert world.asked("list", "pods") == 0
        assert not holders.gone("6f1c2a9e-0000-4000-8000-000000000000")
        ours.set()
        await eventually(lambda: holders.synced)


async def test_everything_is_told_on_the_loop(world: WatchedWorld, api: AsyncResourceApi) -> None:
    threads: set[int] = set()
    async with following(api, changed=lambda: threads.add(threading.get_ident())) as holders:
        world.claim("c", "gpu-0", users=(world.pod("p", "c"),))
        await eventually(holders.reservations)
        world.remove("p")
        await eventually(lambda: not holders.reservations())
    assert threads == {threading.get_ident()}
