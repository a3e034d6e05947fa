"""What a person sees of pools: kinds, cards with their partitions, and nodes that are alike."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.pools.documented import documented_pools
from scheduling.pools.overview import alike, cards_of, kinds_of, nodes_of
from scheduling.pools.published import DeviceUser
from tests.making.pool_documents import claim, class_, device, pool

CUT = pool(
    "cut",
    device("gpu", {"slice-0": 1, "slice-1": 1, "copy": 2}, type="gpu", model="A100"),
    device("all", {"slice-0": 1, "slice-1": 1, "copy": 1}, type="mig", profile="2g", model="A100"),
    device("left", {"slice-0": 1, "copy": 1}, type="mig", profile="1g", model="A100"),
    device("right", {"slice-1": 1, "copy": 1}, type="mig", profile="1g", model="A100"),
    device("nic", type="nic"),
    resources=[("slice-1", 1), ("slice-0", 1), ("copy", 2)],
)


def having(name: str, pool_: str, *devices: str, memory: str = "") -> Any:
    amounts = [{"name": "memory", "allocation": memory}] if memory else []
    taken = [{"devicePoolName": pool_, "deviceName": each, "allocations": amounts} for each in devices]
    return claim({}, name=name, allocations=taken)


def test_devices_of_one_type_profile_and_product_are_a_kind() -> None:
    (published,) = documented_pools([CUT], [class_()], [having("a", "cut", "left")])
    assert [(each.name, len(each.devices), each.free) for each in kinds_of(published)] == [
        ("gpu A100", 1, 0),
        ("mig 2g A100", 1, 0),
        ("mig 1g A100", 2, 1),
        ("nic", 1, 1),
    ]


def test_device_without_facts_is_a_device() -> None:
    (published,) = documented_pools([pool("plain", device("d0"), device("d1"))])
    assert [each.name for each in kinds_of(published)] == ["device"]


def test_amounts_are_summed_and_those_of_blocked_devices_are_not_left() -> None:
    shared = pool(
        "shared",
        device("a", {"power": 1}, [("memory", "80Gi"), ("lanes", 4)]),
        device("b", {"power": 2}, [("memory", "80Gi"), ("lanes", 4)]),
        resources=[("power", 2)],
    )
    (published,) = documented_pools([shared], [class_()], [having("x", "shared", "a", memory="30Gi")])
    (kind,) = kinds_of(published)
    assert [(each.name, str(each.left), str(each.capacity)) for each in kind.amounts] == [
        ("memory", "50Gi", "160Gi"),
        ("lanes", "4", "8"),
    ]
    assert kind.users == {DeviceUser("x"): 1}


def test_admin_access_is_not_counted_as_use() -> None:
    watching = claim({"deviceClass": "watch"}, name="w", allocations=[{"devicePoolName": "cut", "deviceName": "nic"}])
    (published,) = documented_pools([CUT], [class_("watch", adminAccess=True)], [watching])
    assert kinds_of(published)[-1].users == {}


def test_card_is_the_device_that_takes_everything_its_partitions_divide() -> None:
    (published,) = documented_pools([CUT])
    (card,) = cards_of(published)
    assert card.whole.name == "gpu"
    assert [each.name for each in card.parts] == ["all", "left", "right"]
    assert [each.name for each in card.cells] == ["slice-0", "slice-1"]
    assert card.cell_word == "slice"


@pytest.mark.parametrize(
    ("devices", "resources"),
    [
        ([device("a", {"power": 1}), device("b", {"power": 1})], [("power", 1)]),
        ([device("a", {"power": 2}), device("b", {"power": 1})], [("power", 3)]),
        ([device("a", {"power": 2})], [("power", 2)]),
        ([device("a"), device("b")], []),
    ],
    ids=["all take everything", "none takes everything", "nothing else", "nothing shared"],
)
def test_devices_that_only_share_a_resource_are_no_card(devices: Any, resources: Any) -> None:
    (published,) = documented_pools([pool("p", *devices, resources=resources)])
    assert cards_of(published) == ()


def test_each_card_of_a_pool_has_its_own_partitions() -> None:
    two = pool(
        "two",
        *(device(f"gpu-{n}", {f"gpu-{n}.slice": 2}) for n in range(2)),
        *(device(f"half-{n}-{half}", {f"gpu-{n}.slice": 1}) for half in range(2) for n in range(2)),
        resources=[(f"gpu-{n}.slice", 2) for n in range(2)],
    )
    (published,) = documented_pools([two])
    assert [[each.name for each in card.devices] for card in cards_of(published)] == [
        ["gpu-0", "half-0-0", "half-0-1"],
        ["gpu-1", "half-1-0", "half-1-1"],
    ]


def test_card_without_unit_resources_has_no_cells() -> None:
    memory = pool(
        "m", device("gpu", {"memory": "80Gi"}), device("half", {"memory": "40Gi"}), resources=[("memory", "80Gi")]
    )
    (card,) = cards_of(documented_pools([memory])[0])
    assert card.cells == ()
    assert [each.name for each in card.resources] == ["memory"]


def test_nodes_are_alike_by_their_kinds_whatever_is_in_use() -> None:
    pools = [
        *(pool(f"p{n}", device("g0", type="gpu"), device("g1", type="gpu"), node=f"node-{n}") for n in range(3)),
        pool("q", device("g0", type="gpu"), node="node-9"),
        pool("net", device("r", type="remote"), node=None),
    ]
    nodes = nodes_of(documented_pools(pools, [class_()], [having("a", "p1", "g0")]))
    assert [each.name for each in nodes] == ["node-0", "node-1", "node-2", "node-9", ""]
    assert [[each.name for each in group] for group in alike(nodes)] == [
        ["node-0", "node-1", "node-2"],
        ["node-9"],
        [""],
    ]
