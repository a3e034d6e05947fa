"""Pools of documents with what is left of them, in the form of a cluster's published pools."""

from __future__ import annotations

from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.documented import documented_pools
from scheduling.pools.published import DeviceUser, PooledState, ledger_of
from tests.making.pool_documents import claim, class_, device, pool

CARD = pool(
    "card",
    device("gpu", {"slice": 2}),
    device("half-0", {"slice": 1}),
    device("half-1", {"slice": 1}),
    resources=[("slice", 2)],
)
SHARED = pool("shared", device("big", {}, [("memory", "80Gi", "10Gi")]), device("idle"), node="node-0")
NETWORK = pool("network", device("remote"), node=None)


def allocated(name: str, pool_: str, device_: str, memory: str = "") -> DeviceClaim:
    amounts = [{"name": "memory", "allocation": memory}] if memory else []
    return claim({}, name=name, allocations=[{"devicePoolName": pool_, "deviceName": device_, "allocations": amounts}])


def test_pools_are_in_order_of_nodes_with_those_of_the_network_last() -> None:
    found = documented_pools([NETWORK, CARD, SHARED])
    assert [(each.name, each.node, each.nodes) for each in found] == [
        ("shared", "node-0", ("node-0",)),
        ("card", "node-1", ("node-1",)),
        ("network", None, ("node-0", "node-1")),
    ]


def test_partition_in_use_blocks_its_gpu() -> None:
    (card,) = documented_pools([CARD], [class_()], [allocated("a", "card", "half-0")])
    assert [(each.name, each.state, each.lacking) for each in card.devices] == [
        ("gpu", PooledState.BLOCKED, ("slice",)),
        ("half-0", PooledState.TAKEN, ()),
        ("half-1", PooledState.FREE, ()),
    ]
    assert [(str(each.capacity), str(each.left)) for each in card.resources] == [("2", "1")]
    assert card.devices[1].users == (DeviceUser("a"),)


def test_amounts_are_left_after_what_claims_draw_in_blocks() -> None:
    claims = [allocated("a", "shared", "big", "15Gi"), allocated("b", "shared", "big", "1Gi")]
    (shared,) = documented_pools([SHARED], [class_()], claims)
    big = shared.devices[0]
    assert (big.state, [user.claim for user in big.users]) == (PooledState.SHARED, ["a", "b"])
    assert [(each.name, str(each.left), str(each.capacity)) for each in big.amounts] == [("memory", "50Gi", "80Gi")]


def test_admin_access_is_listed_and_takes_nothing() -> None:
    watching = claim(
        {"deviceClass": "watch"}, name="w", allocations=[{"devicePoolName": "shared", "deviceName": "idle"}]
    )
    (shared,) = documented_pools([SHARED], [class_("watch", adminAccess=True)], [watching])
    idle = shared.devices[1]
    assert idle.state is PooledState.FREE
    assert idle.users == (DeviceUser("w", admin=True),)


def test_ledger_of_documented_pools_is_that_of_the_documents() -> None:
    claims = [allocated("a", "card", "half-0"), allocated("b", "shared", "big", "15Gi")]
    ledger = ledger_of(documented_pools([CARD, SHARED], [class_()], claims))
    used = {name for name, use in ledger.uses.items() if use.users}
    assert used == {("card", "half-0"), ("shared", "big")}
    assert [name for name, each in ledger.devices.items() if not ledger.fits_pool(each)] == [("card", "gpu")]
