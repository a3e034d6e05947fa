"""Views published through the real controller and client, on the API server's stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from driver.devices.view import DoorView, DraDevice
from driver.names import Peer
from driver.publishing.publisher import SlicePublisher, controller_maker
from node.inventory.model import DeviceKind
from node.offer import Cause
from node.rules import Doors, Rule
from node.values import replace
from sandbox.apiserver.server import GATES_OFF, ApiServer
from scheduling.api.validation.shapes import Gates
from tests.driver.devices.recorded import NODES, view
from tests.making.devices import mig
from tests.making.events import RecordedEvents
from tests.making.resource_api import api_of
from tests.waiting import until

Json = dict[str, Any]
NODE: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
RULE = Rule("nvidia.com/mig", door=Doors.DRA)


@cache
def migs(count: int) -> DoorView:
    """So many healthy MIG devices of one GPU, more than any slice holds."""
    devices = (replace(mig(0), name=f"mig-{number:04}", uuid=f"MIG-{number}", nodes=()) for number in range(count))
    assert mig(0).kind is DeviceKind.MIG
    return DoorView(tuple(DraDevice(device, RULE, healthy=True) for device in devices), generation=1)


def tainted(view: DoorView, number: int) -> DoorView:
    """The same, with one device that may not be allocated."""
    ill = replace(view.devices[number], healthy=False, reason="Xid 79", cause=Cause.HEALTH)
    return replace(view, devices=(*view.devices[:number], ill, *view.devices[number + 1 :]))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.store.create("nodes", NODE)
        yield running


Publishing = Callable[..., SlicePublisher]


@pytest.fixture
def publish(server: ApiServer) -> Iterator[Publishing]:
    made: list[SlicePublisher] = []

    def make(shown: DoorView, *, told: RecordedEvents | None = None, **fields: Any) -> SlicePublisher:
        maker = controller_maker(lambda: api_of(server), "ostler.dev", "node-1")
        publisher = SlicePublisher("node-1", maker, events=told or RecordedEvents(), interval=0.0, **fields)
        made.append(publisher)
        publisher.apply(shown)
        publisher.start()
        until(lambda: publisher.publication().in_order)
        return publisher

    yield make
    for publisher in made:
        publisher.stop()


def stored(server: ApiServer) -> list[Json]:
    return sorted(server.store.list("resourceslices"), key=lambda each: str(each["metadata"]["name"]))


def sizes(server: ApiServer) -> list[int]:
    return [len(each["spec"].get("devices", [])) for each in stored(server)]


@pytest.mark.parametrize("name", NODES)
def test_what_the_server_stores_of_a_recorded_node_is_what_was_sent(
    name: str, server: ApiServer, publish: Publishing
) -> None:
    publisher = publish(view(name), peers=tuple(Peer))
    (slice_,) = stored(server)
    assert slice_["spec"]["nodeName"] == slice_["spec"]["pool"]["name"] == "node-1"
    assert slice_["metadata"]["ownerReferences"][0]["kind"] == "Node"
    for device in slice_["spec"]["devices"]:
        for taint in device.get("taints", ()):
            assert taint.pop("timeAdded")
    assert slice_["spec"]["devices"] == list(publisher.publication().desired[0])
    until(lambda: publisher.publication().creates == 1)


def test_a_restart_writes_nothing(server: ApiServer, publish: Publishing) -> None:
    publish(migs(200)).stop()
    server.requests.clear()
    publish(migs(200)).stop()
    assert server.requests.writes() == []


def test_a_node_without_devices_has_one_empty_slice(server: ApiServer, publish: Publishing) -> None:
    publish(DoorView())
    assert sizes(server) == [0]


def test_a_device_of_a_full_slice_is_tainted_by_one_write_and_healed_by_one(
    server: ApiServer, publish: Publishing
) -> None:
    publisher = publish(migs(128))
    assert sizes(server) == [64, 64]
    server.requests.clear()
    publisher.apply(tainted(migs(128), 7))
    until(lambda: _has_taint(server))
    publisher.apply(migs(128))
    until(lambda: not _has_taint(server))
    assert len(server.requests.writes()) == 2
    assert sizes(server) == [64, 64]


def _has_taint(server: ApiServer) -> bool:
    return any("taints" in device for each in stored(server) for device in each["spec"]["devices"])


def test_a_device_that_goes_and_one_that_comes_take_one_write_each(server: ApiServer, publish: Publishing) -> None:
    publisher = publish(migs(150))
    server.requests.clear()
    without = replace(migs(150), devices=migs(150).devices[:10] + migs(150).devices[11:])
    publisher.apply(without)
    until(lambda: sizes(server) == [63, 64, 22])
    publisher.apply(migs(150))
    until(lambda: sizes(server) == [64, 64, 22])
    assert len(server.requests.writes()) == 2
    names = [device["name"] for device in stored(server)[0]["spec"]["devices"]]
    assert names == [item.device.name for item in migs(150).devices[:64]]


def test_slices_that_others_delete_come_back(server: ApiServer, publish: Publishing) -> None:
    publish(view("l4-2"))
    (before,) = stored(server)
    server.store.delete("resourceslices", before["metadata"]["name"])
    gone = before["metadata"]["uid"]
    until(lambda: [each for each in stored(server) if each["metadata"]["uid"] != gone])


def test_stopping_leaves_what_is_published(server: ApiServer, publish: Publishing) -> None:
    publish(view("l4-2")).stop()
    assert sizes(server) == [3]


def test_features_that_the_server_lacks_are_told_by_name(publish: Publishing) -> None:
    with ApiServer(GATES_OFF) as lesser:
        lesser.store.create("nodes", NODE)
        told = RecordedEvents()
        maker = controller_maker(lambda: api_of(lesser), "ostler.dev", "node-1")
        publisher = SlicePublisher("node-1", maker, events=told, interval=0.0)
        publisher.apply(tainted(migs(3), 1))
        publisher.start()
        until(lambda: told.events)
        assert "DRADeviceTaints" in told.events[0][2]
        assert until(lambda: publisher.publication().dropped) == ("DRADeviceTaints",)
        publisher.stop()


def test_a_taint_that_was_dropped_is_sent_again_when_the_server_keeps_them(
    server: ApiServer, publish: Publishing
) -> None:
    server.gates(GATES_OFF)
    doubts: list[bool] = []
    publisher = publish(tainted(migs(3), 1), on_dropped=lambda: doubts.append(True))
    # What is heard of the server before we have seen that for ourselves is tried less soon.
    until(lambda: doubts)
    assert not _has_taint(server)
    server.gates(Gates())
    server.requests.clear()
    publisher.apply(tainted(migs(3), 1), keeps_taints=True)
    until(lambda: _has_taint(server))
    assert len(server.requests.writes()) == 1
    until(lambda: publisher.publication().dropped == ())


def test_an_api_server_that_is_away_and_comes_back_costs_no_event_and_no_second_write(
    server: ApiServer, publish: Publishing
) -> None:
    told = RecordedEvents()
    publisher = publish(view("l4-2"), told=told)
    server.requests.clear()
    server.down()
    shown = view("l4-2")
    publisher.apply(tainted(shown, 0))
    until(lambda: publisher.publication().error)
    server.up()
    until(lambda: publisher.publication().in_order and not publisher.publication().error)
    assert len(server.requests.writes()) == 1
    assert told.events == []


def test_an_account_without_the_right_is_seen_in_the_publication(server: ApiServer) -> None:
    # With these rights a server lets nobody begin a watch, with or without the list.
    for verb in ("list", "watch"):
        server.faults.add(verb, status=403, count=-1, message="the account may not list resourceslices")
    publisher = SlicePublisher(
        "node-1", controller_maker(lambda: api_of(server), "ostler.dev", "node-1"), events=RecordedEvents()
    )
    publisher.apply(view("l4-2"))
    publisher.start()
    until(lambda: "may not list resourceslices" in publisher.publication().error)
    server.faults.clear()
    until(lambda: publisher.publication().in_order, within=120)
    publisher.stop()
