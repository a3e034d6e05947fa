"""Nothing is published on a Node that has not proved to be this machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from driver.publishing.publisher import SlicePublisher, controller_maker
from kube.bodies import JsonObject
from kube.node_identity import Machine, check_node
from node.clocks import SystemClocks
from sandbox.apiserver.server import ApiServer
from tests.driver.devices.recorded import view
from tests.making.events import RecordedEvents
from tests.making.resource_api import api_of
from tests.waiting import until

OURS = Machine(machine_id="0123", system_uuid="ours")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.store.create("nodes", {"metadata": {"name": "node-1"}})
        yield running


def machine(server: ApiServer, uuid: str) -> None:
    server.store.patch("nodes", "node-1", {"status": {"nodeInfo": {"systemUUID": uuid}}}, part="status")


def others_slice(server: ApiServer) -> dict[str, Any]:
    spec = {
        "driver": "ostler.dev",
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-of-the-other"}],
    }
    return server.store.create("resourceslices", {"metadata": {"generateName": "others-"}, "spec": spec})


@pytest.fixture
def told() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def publisher(server: ApiServer, told: RecordedEvents) -> Iterator[SlicePublisher]:
    def check(node: JsonObject) -> None:
        check_node(node, "node-1", OURS)

    maker = controller_maker(
        lambda: api_of(server), "ostler.dev", "node-1", SystemClocks(random=lambda: 0.5), check=check
    )
    made = SlicePublisher("node-1", maker, events=told, interval=0.0, clocks=SystemClocks(random=lambda: 0.0))
    made.apply(view("l4-2"))
    yield made
    made.stop()


def test_slices_of_another_machine_s_node_are_left_alone_and_people_are_told_once(
    server: ApiServer, told: RecordedEvents, publisher: SlicePublisher
) -> None:
    machine(server, "theirs")
    other = others_slice(server)
    publisher.start()
    until(lambda: len(server.requests.of("get", "nodes")) >= 3, "it asks again and again")
    assert server.requests.of("list", "resourceslices") == server.requests.of("watch", "resourceslices") == []
    assert server.requests.writes() == []
    assert publisher.publication().error.startswith(
        "getting ready to publish: Node node-1 is not this machine: its status.nodeInfo.systemUUID is theirs, "
        "/sys/class/dmi/id/product_uuid here says ours; give this node's own name as nodeName"
    )
    assert [event[1] for event in told.events] == ["SlicesNotPublished"]
    assert server.store.get("resourceslices", other["metadata"]["name"]) == other


def test_node_that_is_corrected_is_believed(server: ApiServer, told: RecordedEvents, publisher: SlicePublisher) -> None:
    machine(server, "theirs")
    publisher.start()
    until(lambda: bool(told.events))
    machine(server, "ours")
    until(partial(_in_order, publisher))
    assert len(server.store.list("resourceslices")) == 1


def test_node_is_read_once_for_proof_and_owner(server: ApiServer, publisher: SlicePublisher) -> None:
    machine(server, "OURS")
    publisher.start()
    until(partial(_in_order, publisher))
    assert len(server.requests.of("get", "nodes")) == 1


def test_node_that_is_another_machine_s_when_it_is_made_anew_gets_nothing(
    server: ApiServer, publisher: SlicePublisher
) -> None:
    machine(server, "ours")
    publisher.start()
    until(partial(_in_order, publisher))
    server.store.delete("nodes", "node-1")
    server.store.create("nodes", {"metadata": {"name": "node-1"}})
    machine(server, "theirs")
    (ours,) = server.store.list("resourceslices")
    server.store.delete("resourceslices", ours["metadata"]["name"])
    until(lambda: "is not this machine" in publisher.publication().error)
    assert server.store.list("resourceslices") == []


def _in_order(publisher: SlicePublisher) -> bool:
    return publisher.publication().in_order
