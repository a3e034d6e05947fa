"""What stays, comes and goes of a pool of which one slice is refused, by the rules of the library or by the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from driver.resource_api.client import ResourceApi
from driver.slices.controller import Controller
from driver.slices.model import DriverResources, Pool, Slice, Stats
from driver.slices.options import Options
from driver.slices.queue import PoolQueue
from driver.slices.syncing import SOON, SPREAD
from kube.errors import TooManyRequests
from node.clocks import SystemClocks
from sandbox.apiserver.server import ApiServer
from tests.waiting import until

SLICES = "resourceslices"
DRIVER = "led.example.com"
Json = dict[str, Any]
Names = list[tuple[str, ...]]

BAD = Slice(({"name": "Bad"},))
"""Found here."""
REFUSED = Slice(({"name": "r", "attributes": {"l": {"strings": ["a"]}}},))
"""Refused by a server that has no lists as attributes, which only it knows."""
EITHER = pytest.mark.parametrize("bad", [BAD, REFUSED], ids=["found here", "refused by the server"])


def slice_of(*names: str) -> Slice:
    return Slice(tuple({"name": name} for name in names))


def pool(*slices: Slice) -> DriverResources:
    return DriverResources({"p": Pool(slices, all_nodes=True)})


class Impatient(PoolQueue):
    """Tries fifteen times at once, more than repairs are made at once, and then no more."""

    def __init__(self) -> None:
        super().__init__()
        self._tries = 0
        self.at_least: list[float] = []

    def add_failed(self, name: str, at_least: float = 0.0) -> float:
        self._tries += 1
        self.at_least.append(at_least)
        wait = 0.001 if self._tries < 15 else 1000.0
        self.add_after(name, wait)
        return wait


class _Rig:
    def __init__(self, server: ApiServer, api: ResourceApi) -> None:
        self.server = server
        self.errors: list[Exception] = []
        self.queue = Impatient()
        self.controller = Controller(
            Options(
                api,
                DRIVER,
                wait_for_update=True,
                sync_delay=0.02,
                queue=self.queue,
                error_handler=lambda error, _: self.errors.append(error),
                clocks=SystemClocks(random=lambda: 0.5),
            )
        ).start()

    def want(self, *slices: Slice) -> None:
        """Have them published, as far as that can be."""
        self.errors.clear()
        self.controller.update(pool(*slices))
        assert self.controller.wait_idle(120.0, ahead=0.1)

    def find(self, name: str, spec: Json) -> None:
        """Have it find this slice, which somebody has made before."""
        self.server.store.create(SLICES, {"metadata": {"name": name}, "spec": spec})
        until(lambda: name in self.controller.store.versions())

    @property
    def stored(self) -> Names:
        """Names of devices by index."""
        found = {each["metadata"]["name"]: each["spec"].get("devices", []) for each in self.server.store.list(SLICES)}
        return [tuple(device["name"] for device in found[name]) for name in sorted(found)]


@pytest.fixture
def rig(server: ApiServer, api: ResourceApi) -> Iterator[_Rig]:
    made = _Rig(server, api)
    yield made
    made.controller.stop()


@EITHER
def test_nothing_comes_behind_a_stored_slice_whose_content_is_refused(rig: _Rig, bad: Slice) -> None:
    rig.want(slice_of("a"))
    rig.want(bad, slice_of("b"))
    assert rig.stored == [("a",)]
    assert rig.controller.get_stats() == Stats(creates=1)


@EITHER
def test_a_refused_slice_goes_when_the_others_have_a_new_generation(rig: _Rig, bad: Slice) -> None:
    rig.want(slice_of("a"), slice_of("b"))
    rig.want(slice_of("c"), bad, slice_of("d"))
    assert rig.stored == [("c",)]


@EITHER
def test_what_a_refused_slice_held_stays_where_nothing_else_changes(rig: _Rig, bad: Slice) -> None:
    rig.want(slice_of("a"), slice_of("b"))
    rig.want(slice_of("a"), bad)
    assert rig.stored == [("a",), ("b",)]
    assert rig.controller.get_stats() == Stats(creates=2)


@EITHER
def test_the_only_slice_there_is_stays_though_its_content_is_refused(rig: _Rig, bad: Slice) -> None:
    rig.want(slice_of("a"), bad)
    rig.want(bad, slice_of("c"))
    assert rig.stored == [("a",)]
    assert rig.controller.get_stats() == Stats(creates=1)


@EITHER
def test_of_a_generation_that_never_was_complete_no_old_content_stays(rig: _Rig, bad: Slice) -> None:
    rig.want(slice_of("a"), slice_of("b"), bad)
    assert rig.stored == [("a",), ("b",)]
    rig.want(slice_of("b"), bad, slice_of("c"))
    assert rig.stored == [("b",)]


@EITHER
def test_what_is_older_goes_when_something_newer_is_stored_though_a_slice_is_refused(rig: _Rig, bad: Slice) -> None:
    spec: Json = {"driver": DRIVER, "pool": {"name": "p", "generation": 3, "resourceSliceCount": 1}, "allNodes": True}
    rig.find("old-layout", spec)
    rig.want(slice_of("a"), bad)
    assert rig.stored == [("a",)]


def test_what_stands_beside_what_should_be_there_goes_though_a_slice_is_refused(rig: _Rig) -> None:
    rig.want(slice_of("a"), BAD)
    spec: Json = {"driver": DRIVER, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2}, "allNodes": True}
    rig.server.store.create(SLICES, {"metadata": {"name": "stray"}, "spec": spec})
    until(lambda: rig.stored == [("a",)])


def test_what_is_there_stays_as_long_as_nothing_else_can_be_stored(rig: _Rig) -> None:
    spec: Json = {"driver": DRIVER, "pool": {"name": "p", "generation": 3, "resourceSliceCount": 1}, "allNodes": True}
    rig.find("old-layout", {**spec, "devices": [{"name": "a"}]})
    rig.want(BAD, slice_of("b"))
    assert rig.stored == [("a",)]


def test_all_is_well_once_the_content_is(rig: _Rig) -> None:
    rig.want(slice_of("a"), slice_of("b"), BAD)
    rig.want(slice_of("b"), BAD, slice_of("c"))
    rig.want(slice_of("b"), slice_of("c"), slice_of("d"))
    assert rig.stored == [("b",), ("c",), ("d",)]
    (status,) = rig.controller.status()
    assert status.in_order
    assert status.error == ""


def test_refusals_do_not_count_as_repairs_which_grow_slower(rig: _Rig) -> None:
    rig.want(slice_of("a"), REFUSED)
    assert len(rig.errors) == 15
    rig.server.store.delete(SLICES, rig.server.store.list(SLICES)[0]["metadata"]["name"])
    until(lambda: rig.stored == [("a",)])


def test_many_slices_are_deleted_side_by_side(rig: _Rig) -> None:
    rig.want(*[slice_of(f"d{number}") for number in range(20)])
    rig.server.faults.add("delete", "status", 500, skip=7, resource=SLICES)
    rig.want()
    assert rig.stored == []
    assert rig.controller.get_stats() == Stats(creates=20, deletes=20)
    assert [str(error).partition(": ")[2][:3] for error in rig.errors] == ["500"]


def test_the_server_says_how_long_to_wait(rig: _Rig) -> None:
    rig.server.faults.add("create", "status", 429, count=8, retry_after=7, resource=SLICES)
    rig.want(slice_of("a"))
    assert set(rig.queue.at_least) == {7.0}
    assert rig.stored == [("a",)]


def test_a_server_that_is_away_is_tried_soon_and_then_at_some_time_of_half_a_minute(rig: _Rig) -> None:
    rig.want(slice_of("a"))
    # The list before the next attempt; not by "*", because the watch may begin only now.
    rig.server.faults.add("update", "close", count=1, resource=SLICES)
    rig.server.faults.add("list", "close", count=2, resource=SLICES)
    rig.want(slice_of("b"))
    assert rig.stored == [("b",)]
    rig.server.faults.add("update", "close", count=1, resource=SLICES)
    rig.want(slice_of("c"))
    assert rig.queue.at_least == [SOON / 2, SPREAD / 2, SPREAD / 2, SOON / 2]
    assert rig.stored == [("c",)]


@pytest.mark.parametrize("retry_after", [7, None])
@pytest.mark.parametrize(
    ("verb", "wanted"),
    [
        ("create", (slice_of("a"), slice_of("b"))),
        ("update", (slice_of("b"),)),
        ("delete", ()),
    ],
)
def test_a_server_that_is_busy_is_told_to_the_error_handler_at_once(
    rig: _Rig, verb: str, wanted: tuple[Slice, ...], retry_after: int | None
) -> None:
    rig.want(slice_of("a"))
    rig.server.faults.add(verb, "status", 429, count=1, retry_after=retry_after, resource=SLICES)
    rig.want(*wanted)
    assert [type(error) for error in rig.errors] == [TooManyRequests]
    assert rig.queue.at_least == [retry_after or 0.0]
    assert rig.stored == [tuple(device["name"] for device in each.devices) for each in wanted]


def test_what_was_found_in_order_is_ours_and_changed_when_it_falls_behind(rig: _Rig) -> None:
    pool_of = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    for index, name in enumerate(("a", "b")):
        spec: Json = {"driver": DRIVER, "pool": pool_of, "allNodes": True, "devices": [{"name": name}]}
        rig.find(f"{index:05x}-before", spec)
    rig.want(slice_of("a"), slice_of("b"))
    rig.server.faults.add("update", "status", 500, skip=1, resource=SLICES)
    rig.want(slice_of("c"), slice_of("d"))
    assert rig.stored == [("c",), ("d",)]
    assert rig.controller.get_stats() == Stats(updates=2)
