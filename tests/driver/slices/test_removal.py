"""Deletions: what the store knows after each answer, and what is not sent any more."""

from __future__ import annotations

import pytest

from driver.resource_api.client import ResourceApi
from driver.slices.model import Stats
from driver.slices.planning import ByIndex, removal
from driver.slices.store import SliceStore
from driver.slices.writing import SliceWriter
from kube.bodies import JsonObject
from kube.errors import Forbidden, Unreachable
from node.clocks import SystemClocks
from sandbox.apiserver.server import ApiServer

SLICES = "resourceslices"
DRIVER = "led.example.com"


def writer(api: ResourceApi, store: SliceStore) -> SliceWriter:
    return SliceWriter(
        api,
        store,
        driver=DRIVER,
        owner=None,
        node="",
        nodes=api,
        matching=ByIndex(),
        error_handler=lambda error, work: pytest.fail(f"{work}: {error}"),
    )


def known(server: ApiServer, count: int) -> SliceStore:
    """A store that knows of so many slices of the server, and is told nothing of them any more."""
    pool: JsonObject = {"name": "p", "generation": 1, "resourceSliceCount": count}
    spec: JsonObject = {"driver": DRIVER, "pool": pool, "allNodes": True}
    for index in range(count):
        server.store.create(SLICES, {"metadata": {"name": f"{index:05x}-a"}, "spec": spec})
    store = SliceStore(60.0, SystemClocks(monotonic=lambda: 0.0))
    store.replaced(server.store.list(SLICES), "100")
    return store


def test_a_slice_that_somebody_else_deleted_is_forgotten_without_the_watch(server: ApiServer, api: ResourceApi) -> None:
    store = known(server, 2)
    server.store.delete(SLICES, "00000-a")
    made = writer(api, store)
    assert made.remove(removal(store.in_pool("p"))).wrote
    assert store.in_pool("p") == ()
    assert made.stats == Stats(deletes=1)


def test_nothing_was_written_where_all_were_gone(server: ApiServer, api: ResourceApi) -> None:
    store = known(server, 1)
    server.store.delete(SLICES, "00000-a")
    assert not writer(api, store).remove(removal(store.in_pool("p"))).wrote


@pytest.mark.parametrize("count", [3, 30])
def test_after_a_fault_hardly_anything_more_is_deleted(server: ApiServer, api: ResourceApi, count: int) -> None:
    store = known(server, count)
    server.faults.add("delete", "status", 403, skip=1, count=-1, resource=SLICES)
    made = writer(api, store)
    with pytest.raises(Forbidden):
        made.remove(removal(store.in_pool("p")))
    assert made.stats == Stats(deletes=1)
    assert len(store.in_pool("p")) == len(server.store.list(SLICES)) == count - 1
    assert len(server.requests.writes(SLICES)) <= min(count, 8)


def test_a_deletion_whose_answer_is_lost_is_not_believed(server: ApiServer, api: ResourceApi) -> None:
    store = known(server, 1)
    server.faults.add("delete", "lost-response", resource=SLICES)
    with pytest.raises(Unreachable):
        writer(api, store).remove(removal(store.in_pool("p")))
    assert len(store.in_pool("p")) == 1
