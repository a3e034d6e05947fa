from __future__ import annotations

from typing import Any

import pytest

from driver.slices.content import kept, rounded, served

Json = dict[str, Any]


def taint(key: str, time: str | None = None, **fields: str) -> Json:
    return {"key": key, "effect": "NoSchedule", **fields, **({"timeAdded": time} if time else {})}


def device(*taints: Json, name: str = "d") -> Json:
    return {"name": name, "taints": list(taints)}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2026-01-02T03:04:05.499Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.500Z", "2026-01-02T03:04:06Z"),
        ("2026-01-02T03:04:59.700+02:00", "2026-01-02T01:05:00Z"),
        ("soon", "soon"),
        ("0001-01-01T00:00:00+05:00", "0001-01-01T00:00:00+05:00"),
    ],
)
def test_times_are_rounded_to_seconds(given: str, stored: str) -> None:
    assert rounded([device(taint("k", given))]) == (device(taint("k", stored)),)


def test_a_taint_keeps_its_time_while_nothing_of_it_changes() -> None:
    old = [device(taint("a", "2020-01-01T00:00:00Z"), taint("b", "2021-01-01T00:00:00Z"))]
    assert kept(old, [device(taint("a"), taint("b"))]) == tuple(old)
    assert kept(old, [device(taint("a", value="x"), taint("b"))]) == (
        device(taint("a", value="x"), taint("b", "2021-01-01T00:00:00Z")),
    )
    assert kept(old, [device(taint("a", "2022-01-01T00:00:00Z"))]) == (device(taint("a", "2022-01-01T00:00:00Z")),)
    assert kept(old, [device(taint("a"), name="other")]) == (device(taint("a"), name="other"),)


def test_what_the_server_added_is_taken_over() -> None:
    sent, stored = [device(taint("a"))], [device(taint("a", "2020-01-01T00:00:00Z"))]
    assert served(sent, stored) == tuple(stored)
    assert served(sent, [{"name": "d"}]) == tuple(sent)
