from __future__ import annotations

from typing import Any

import pytest

from driver.slices.content import counters_equal, devices_deep_equal, devices_equal, selectors_equal

Json = dict[str, Any]


def device(**fields: Any) -> list[Json]:
    return [{"name": "d", **fields}]


def taint(time: str | None = None, **fields: Any) -> list[Json]:
    return device(taints=[{"key": "k", "effect": "NoSchedule", **({"timeAdded": time} if time else {}), **fields}])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (device(), device(attributes={}, taints=[], capacity=None)),
        (device(capacity={"m": {"value": "1Gi"}}), device(capacity={"m": {"value": "1024Mi"}})),
        (device(capacity={"m": {"value": 2}}), device(capacity={"m": {"value": "2000m"}})),
        (taint(value=""), taint()),
        (taint(), taint("2026-01-02T03:04:05Z")),
        (taint("2026-01-02T03:04:05Z"), taint("2026-01-02T03:04:06Z")),
        (taint("2026-01-02T03:04:05Z"), taint("2026-01-02T04:04:05+01:00")),
        (device(later=None), device()),
    ],
)
def test_these_devices_are_the_same(left: list[Json], right: list[Json]) -> None:
    assert devices_deep_equal(left, right)
    assert devices_deep_equal(right, left)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (device(), [{"name": "e"}]),
        (device(), []),
        ([{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}]),
        (device(attributes={"a": {"int": 0}}), device(attributes={"a": {"bool": False}})),
        (device(attributes={"a": {"string": ""}}), device(attributes={"a": {}})),
        (device(attributes={"a": {"int": 1}}), device(attributes={"x/a": {"int": 1}})),
        (device(capacity={"m": {"value": "1Gi"}}), device(capacity={"m": {"value": "1G"}})),
        (device(capacity={"m": {"value": "no"}}), device(capacity={"m": {"value": "1"}})),
        (device(allowMultipleAllocations=False), device()),
        (taint("2026-01-02T03:04:05Z"), taint("2026-01-02T03:04:07Z")),
        (taint(), taint(effect="NoExecute")),
        (device(later=1), device()),
        (device(attributes=[]), device(attributes={"a": {"int": 1}})),
    ],
)
def test_these_devices_differ(left: list[Json], right: list[Json]) -> None:
    assert not devices_deep_equal(left, right)
    assert not devices_deep_equal(right, left)


def test_times_count_where_the_servers_answer_is_looked_at() -> None:
    assert not devices_equal(taint(), taint("2026-01-02T03:04:05Z"))
    assert devices_equal(taint("2026-01-02T03:04:05Z"), taint("2026-01-02T03:04:05+00:00"))


def test_a_node_selector_is_there_or_not() -> None:
    term = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    assert selectors_equal(None, None)
    assert not selectors_equal(None, {"nodeSelectorTerms": []})
    assert selectors_equal({"nodeSelectorTerms": [term]}, {"nodeSelectorTerms": [{**term, "matchFields": []}]})


def test_counters_count_by_value() -> None:
    def sets(amount: str) -> list[Json]:
        return [{"name": "s", "counters": {"m": {"value": amount}}}]

    assert counters_equal(sets("1k"), sets("1000"))
    assert not counters_equal(sets("1k"), sets("1001"))
