"""Which devices any claim of the cluster names: one list, of all namespaces, for the end of a handover."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from driver.claims.model import ClaimReference, Unavailable
from driver.node_watch.node_claims import ClaimNames, NamedDevice
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from kube.bodies import JsonObject
from sandbox.apiserver.server import ApiServer
from tests.making.resource_api import async_api_of, client_of
from tests.making.watched_node import DRIVER, NODE, TEAM, WatchedWorld
from tests.waiting import eventually


@pytest.fixture
def names(api: AsyncResourceApi) -> ClaimNames:
    return ClaimNames(api, DRIVER, NODE)


async def test_one_list_says_which_claims_name_the_devices(world: WatchedWorld, names: ClaimNames) -> None:
    one = world.claim("one", "gpu-0", "gpu-1", users=("a",))
    world.claim("free")
    world.claim("elsewhere", "gpu-0", users=("b",), pool="node-2")
    found = await names.claims_naming({"gpu-0", "gpu-2"})
    assert found == (NamedDevice("gpu-0", ClaimReference(TEAM, "one", one)),)
    assert await names.claims_naming(["gpu-2"]) == ()
    assert world.asked("list", "resourceclaims") == 2
    assert all(each.namespace == "" for each in world.server.requests.of("list"))


async def test_a_claim_that_only_looks_on_is_told_as_such(world: WatchedWorld, names: ClaimNames) -> None:
    world.admin_namespace()
    world.claim("watcher", "gpu-0", users=("a",), adminAccess=True)
    assert [each.admin for each in await names.claims_naming(["gpu-0"])] == [True]


async def test_many_claims_come_in_pages_and_other_drivers_claims_do_not_matter(
    world: WatchedWorld, names: ClaimNames
) -> None:
    for n in range(1100):
        world.claim(f"c{n}")
    for n in (3, 700, 1099):
        world.allocate(f"c{n}", f"gpu-{n}", users=("a",))
    results: list[JsonObject] = [{"request": "gpu", "driver": "other.example", "pool": NODE, "device": "gpu-3"}]
    status: JsonObject = {"allocation": {"devices": {"results": list(results)}}}
    world.store.patch("resourceclaims", "c4", {"status": status}, namespace=TEAM, part="status")
    found = await names.claims_naming([f"gpu-{n}" for n in range(1100)])
    assert sorted(each.claim.name for each in found) == ["c1099", "c3", "c700"]
    assert world.asked("list", "resourceclaims") == 3


async def test_an_older_api_has_the_same_names() -> None:
    with ApiServer(versions=("v1beta1",)) as server:
        world, api = WatchedWorld(server), async_api_of(server)
        world.claim("one", "gpu-0", users=("a",))
        assert [each.claim.name for each in await ClaimNames(api, DRIVER, NODE).claims_naming(["gpu-0"])] == ["one"]
        api.close()


async def test_no_list_is_begun_while_one_that_nobody_waits_for_is_under_way(
    world: WatchedWorld, api: AsyncResourceApi
) -> None:
    names = ClaimNames(api, DRIVER, NODE, patience=0.05)
    # Not in these 50 ms: on a busy machine the client library takes longer to load.
    await api.call(lambda ready: ready.version())
    world.server.faults.add("list", "hang", resource="resourceclaims")
    with pytest.raises(Unavailable, match=r"the API server has not answered within 0\.05 s"):
        await names.claims_naming(["gpu-0"])
    await eventually(names._under_way.locked, "the list is under way, which this machine may begin late")
    names._patience = 120.0
    with pytest.raises(Unavailable, match="an earlier list of claims has not ended yet"):
        await names.claims_naming(["gpu-0"])
    assert world.asked("list", "resourceclaims") == 1


async def test_each_question_has_a_list_that_is_begun_after_it(world: WatchedWorld, names: ClaimNames) -> None:
    world.claim("one", "gpu-0", users=("a",))
    found = await asyncio.gather(*(names.claims_naming(["gpu-0"]) for _ in range(3)))
    assert all(one == other for one, other in pairwise(found))
    assert world.asked("list", "resourceclaims") == 3


async def test_without_the_right_to_list_claims_the_error_says_how_to_give_it(
    server: ApiServer, names: ClaimNames
) -> None:
    message = 'User "system:node:node-1" cannot list resource "resourceclaims"'
    server.faults.add("list", status=403, resource="resourceclaims", message=message)
    with pytest.raises(Unavailable) as caught:
        await names.claims_naming(["gpu-0"])
    assert str(caught.value) == (
        f"the API server does not let the agent list claims ({message}); give the agent's account, or with a node's "
        "identity the group system:nodes, the verb list on resourceclaims of the API group resource.k8s.io by a "
        "ClusterRole"
    )


async def test_without_an_answer_nobody_knows(server: ApiServer, names: ClaimNames) -> None:
    server.faults.add("list", status=500, resource="resourceclaims", message="etcd")
    with pytest.raises(Unavailable, match=r"cannot list the claims of the cluster: GET .*: 500 .*: etcd"):
        await names.claims_naming(["gpu-0"])


async def test_an_allocation_that_cannot_be_read_is_no_proof() -> None:
    class Odd(ResourceApi):
        def claims(self, read, fields=None):  # type: ignore[no-untyped-def]
            class Source:
                path = "/claims"

                def read_whole(self):  # type: ignore[no-untyped-def]
                    from kube.collection import Listing

                    results = [{"driver": DRIVER, "pool": 7}]
                    body = {
                        "metadata": {"name": "c", "namespace": "n"},
                        "status": {"allocation": {"devices": {"results": results}}},
                    }
                    return Listing((read(body),), "1")

            return Source()

    api = AsyncResourceApi(lambda: Odd(client_of("http://127.0.0.1:1")))
    with pytest.raises(Unavailable, match=r"cannot read an allocation: claim n/c: .*results\[0\].request"):
        await ClaimNames(api, DRIVER, NODE).claims_naming(["gpu-0"])
    api.close()
