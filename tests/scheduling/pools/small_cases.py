"""Small cases of pools, claims and use, made at random: small enough that every way can be tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.documented import documented_pools
from scheduling.pools.documents import DevicePool, PoolDeviceClass
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.questions import PoolJudge
from tests.making.pool_documents import claim, class_, device, pool

COLORS = st.sampled_from(["red", "blue"])
DEVICES = st.fixed_dictionaries(
    {
        "color": COLORS,
        "numa": st.one_of(st.none(), st.integers(0, 1)),
        "memory": st.integers(0, 4),
        "takes": st.integers(0, 2),
    }
)
POOLS = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.lists(DEVICES, max_size=3)), min_size=1, max_size=2)
DETAILS = st.fixed_dictionaries(
    {"by": st.sampled_from(["gpu", "nic", "watch", "type"]), "count": st.integers(1, 2), "more": st.integers(0, 2)},
    optional={"memory": st.integers(0, 6), "red": st.just(value=True), "match": st.just("numa")},
)
INSTANCES = st.lists(DETAILS, min_size=1, max_size=2)
CLAIMS = st.lists(st.tuples(st.lists(INSTANCES, min_size=1, max_size=2), st.booleans()), min_size=1, max_size=2)
BUSY = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 3)), max_size=2)

CLASSES = [
    class_("gpu"),
    class_("nic", "nic.example.com", deviceType="nic"),
    class_("watch", adminAccess=True),
]


def small_pools(given: list[Any], block: int) -> list[DevicePool]:
    found = []
    for number, (network, capacity, devices) in enumerate(given):
        made = [
            device(
                f"d{each}",
                {"slots": one["takes"]} if one["takes"] else {},
                [("memory", one["memory"], *([block] if block else []))] if one["memory"] else [],
                color=one["color"],
                **({} if one["numa"] is None else {"numa": one["numa"]}),
            )
            for each, one in enumerate(devices)
        ]
        driver = "nic.example.com" if network else "gpu.example.com"
        found.append(pool(f"p{number}", *made, driver=driver, resources=[("slots", capacity)]))
    return found


def small_need(given: dict[str, Any]) -> dict[str, Any]:
    need: dict[str, Any] = {"requests": {"count": given["count"]}, "limits": {"count": given["count"] + given["more"]}}
    need |= {"deviceType": "gpu"} if given["by"] == "type" else {"deviceClass": given["by"]}
    if "memory" in given:
        need["requests"]["memory"] = given["memory"]
    if "red" in given:
        need["constraints"] = "device.color == 'red'"
    if "match" in given:
        need["matchAttributes"] = ["numa"]
    return need


def small_claims(given: list[Any]) -> list[DeviceClaim]:
    return [
        claim(
            *(
                small_need(details[0]) if len(details) == 1 else {"oneOf": [small_need(each) for each in details]}
                for details in instances
            ),
            name=f"c{number}",
            **({"matchAttributes": ["color"]} if matched else {}),
        )
        for number, (instances, matched) in enumerate(given)
    ]


def in_use(given: list[Any]) -> list[DeviceClaim]:
    return [
        claim(
            {"deviceClass": "gpu"},
            name=f"busy{number}",
            allocations=[
                {
                    "devicePoolName": f"p{where}",
                    "deviceName": f"d{which}",
                    "allocations": [{"name": "memory", "allocation": amount}] if amount else [],
                }
            ],
        )
        for number, (where, which, amount) in enumerate(given)
    ]


def judge_of(
    pools: Sequence[DevicePool], others: Sequence[DeviceClaim] = (), classes: Sequence[PoolDeviceClass] = CLASSES
) -> PoolJudge:
    published = documented_pools(pools, classes, others)
    return PoolJudge(published, ClusterClasses((), published, written=classes))
