from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from driver.resource_api.client import ResourceApi
from driver.slices.controller import Controller
from driver.slices.errors import InvalidPool, InvalidSlice
from driver.slices.model import DriverResources, Owner, Pool, Slice, Stats, node_owner, pack
from driver.slices.options import Options
from driver.slices.planning import ByDeviceNames
from kube.bodies import JsonObject
from kube.errors import NotFound, RequestError
from sandbox.apiserver.server import ApiServer
from tests.driver.slices.conftest import DRIVER, SLICES, Json, SlicesRig
from tests.making.resource_api import api_of
from tests.waiting import until


def device(number: int, **fields: Any) -> Json:
    return {"name": f"led-{number:05}", "attributes": {"number": {"int": number}}, **fields}


def one_pool(slices: Sequence[Slice], name: str = "p") -> DriverResources:
    return DriverResources({name: Pool(tuple(slices), all_nodes=True)})


def board(count: int, limit: int = 2) -> DriverResources:
    return one_pool(pack([device(number) for number in range(count)], limit=limit))


def test_a_deleted_slice_is_back_long_before_everything_is_compared_again(rig: SlicesRig) -> None:
    controller = rig.start(board(2), sync_delay=Options(rig.api, DRIVER).sync_delay)
    assert controller.wait_idle(120.0)
    before = {each["metadata"]["uid"] for each in rig.slices()}
    began = time.monotonic()
    rig.delete()
    until(lambda: {each["metadata"]["uid"] for each in rig.slices()} - before)
    assert time.monotonic() - began < 15  # Go's library waits 30 s.


def test_what_a_kubelet_wiped_comes_back_once(rig: SlicesRig) -> None:
    controller = rig.start(board(6))
    assert controller.wait_idle(120.0)
    rig.delete()
    until(lambda: len(rig.slices()) == 3)
    assert controller.wait_idle(120.0)
    assert controller.get_stats() == Stats(creates=6)
    assert {each["spec"]["pool"]["generation"] for each in rig.slices()} == {1}


def test_a_restart_writes_nothing_and_a_stop_deletes_nothing(rig: SlicesRig) -> None:
    first = rig.start(board(6))
    assert first.wait_idle(120.0)
    first.stop()
    assert len(rig.slices()) == 3
    second = rig.start(board(6))
    assert second.wait_idle(120.0)
    assert second.get_stats() == Stats()


def test_ten_thousand_devices_are_79_writes_and_one_change_is_one(rig: SlicesRig) -> None:
    devices = [device(number) for number in range(10_000)]
    controller = rig.start(one_pool(pack(devices, limit=128)))
    assert controller.wait_idle(120.0)
    assert controller.get_stats() == Stats(creates=79)
    devices[5000] = device(5000, attributes={"number": {"int": -1}})
    controller.update(one_pool(pack(devices, controller.stored("p"), limit=128)))
    assert controller.wait_idle(120.0)
    assert controller.get_stats() == Stats(creates=79, updates=1)
    assert [status.in_order for status in controller.status()] == [True]
    assert {each["spec"]["pool"]["generation"] for each in rig.slices()} == {1}


def test_a_taint_on_a_device_of_a_full_slice_is_one_write(rig: SlicesRig) -> None:
    devices = [device(number) for number in range(130)]
    controller = rig.start(one_pool(pack(devices)))
    assert controller.wait_idle(120.0)
    devices[70] = device(70, taints=[{"key": "example.com/broken", "effect": "NoSchedule"}])
    controller.update(one_pool(pack(devices, controller.stored("p"))))
    assert controller.wait_idle(120.0)
    assert controller.get_stats() == Stats(creates=3, updates=1)
    assert not rig.errors


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_every_version_of_the_api_will_do(version: str) -> None:
    with ApiServer(versions=(version,)) as server:
        rig = SlicesRig(server, api_of(server))
        controller = rig.start(board(3))
        assert controller.wait_idle(120.0)
        controller.update(board(4))
        assert controller.wait_idle(120.0)
        assert {each.version for each in server.requests.writes(SLICES)} == {version}
        assert controller.get_stats() == Stats(creates=2, updates=1)
        assert not rig.errors
        rig.delete()
        until(lambda: len(rig.slices()) == 2)
        rig.stop()
        # One after the other is deleted; on a slow machine the repair of the first meets the deletion of the second.
        assert all(isinstance(error, NotFound) for error in rig.errors)


def test_the_old_layout_is_replaced_before_it_goes(rig: SlicesRig) -> None:
    old = rig.start(board(4), matching=ByDeviceNames())
    assert old.wait_idle(120.0)
    old.stop()
    rig.server.requests.clear()
    new = rig.start(board(4))
    assert new.wait_idle(120.0)
    assert rig.verbs() == ["create", "create", "delete", "delete"]
    assert {each["metadata"]["name"][:6] for each in rig.slices()} == {"00000-", "00001-"}
    assert {each["spec"]["pool"]["generation"] for each in rig.slices()} == {2}
    new.stop()
    again = rig.start(board(4))
    assert again.wait_idle(120.0)
    assert again.get_stats() == Stats()


def test_nothing_is_written_before_the_first_update_where_that_is_waited_for(rig: SlicesRig) -> None:
    rig.start(board(4)).wait_idle(120.0)
    rig.stop()
    controller = rig.start(wait_for_update=True)
    assert controller.wait_idle(120.0)
    assert controller.stored("p") == (("led-00000", "led-00001"), ("led-00002", "led-00003"))
    assert controller.get_stats() == Stats()
    controller.update(None)
    assert controller.wait_idle(120.0)
    assert not rig.slices()


def test_changes_while_the_server_was_away_are_put_right(rig: SlicesRig) -> None:
    controller = rig.start(board(4))
    assert controller.wait_idle(120.0)
    rig.server.down()
    rig.delete()
    rig.server.forget_history()
    rig.server.up()
    until(lambda: len(rig.slices()) == 2, within=120)


def test_a_creation_that_the_watch_never_tells_of_is_looked_for_after_a_while(rig: SlicesRig) -> None:
    class Deaf:
        """A watch that hangs after the first list."""

        def __init__(self, handler: Any) -> None:
            self.synced = threading.Event()
            self._handler = handler

        def start(self) -> None:
            self._handler.replaced([], "1")
            self.synced.set()

        def stop(self) -> None:
            pass

    controller = rig.start(board(2), mutation_cache_ttl=0.5, watch=lambda *made: Deaf(made[-1]))
    assert controller.wait_idle(120.0, ahead=0.1)
    rig.delete()
    until(lambda: controller.get_stats() == Stats(creates=2))
    assert len(rig.slices()) == 1


def test_a_node_that_was_made_anew_is_the_owner_of_what_comes_after(rig: SlicesRig) -> None:
    rig.server.store.create("nodes", {"metadata": {"name": "n"}})
    resources = DriverResources({"n": Pool((Slice((device(0),)),))})
    controller = rig.start(resources, owner=node_owner("n"))
    assert controller.wait_idle(120.0)
    rig.server.store.delete("nodes", "n")
    uid = rig.server.store.create("nodes", {"metadata": {"name": "n"}})["metadata"]["uid"]
    rig.delete()
    until(rig.slices)
    (made,) = rig.slices()
    reference = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": True}
    assert made["metadata"]["ownerReferences"] == [reference]
    assert made["spec"]["nodeName"] == "n"


def test_slices_are_listed_by_node_as_a_nodes_identity_must(rig: SlicesRig) -> None:
    rig.server.store.create("nodes", {"metadata": {"name": "n"}})
    rig.server.faults.add("create", "status", 500, resource=SLICES)
    controller = rig.start(DriverResources({"n": Pool((Slice((device(0),)),))}), owner=node_owner("n"))
    assert controller.wait_idle(120.0)
    asked = rig.server.requests.of("list", SLICES) + rig.server.requests.of("watch", SLICES)
    assert len(rig.server.requests.of("list", SLICES)) >= 2
    assert {each.query["fieldSelector"] for each in asked} == {f"spec.driver={DRIVER},spec.nodeName=n"}


def test_an_owner_of_another_kind_ties_slices_to_no_node(rig: SlicesRig) -> None:
    owner = Owner("example.com/v1", "Fleet", "f", "1-2-3")
    assert rig.start(board(1), owner=owner).wait_idle(120.0)
    (made,) = rig.slices()
    assert made["metadata"]["ownerReferences"][0]["uid"] == "1-2-3"
    assert "nodeName" not in made["spec"]


def test_a_bad_pool_and_a_bad_slice_hold_up_no_other(rig: SlicesRig) -> None:
    bad = Pool((Slice((device(1), device(1))),), all_nodes=True)
    partly = Pool((Slice((device(1),)), Slice(({"name": "Bad"},))), all_nodes=True)
    good = board(1).pools["p"]
    controller = rig.start(DriverResources({"bad": bad, "partly": partly, "good": good}))
    assert controller.wait_idle(120.0)
    assert controller.get_stats() == Stats(creates=2)
    assert {type(error) for error in rig.errors} == {InvalidPool, InvalidSlice}
    statuses = {each.name: each for each in controller.status()}
    assert not statuses["bad"].in_order
    assert statuses["bad"].error.startswith("pool bad: slices[0].devices[1].name: 'led-00001' names a second device")
    assert statuses["partly"].error.startswith("pool partly, slice 1: spec.devices[0].name: 'Bad'")
    assert statuses["partly"].stored == (("led-00001",),)
    assert statuses["good"].in_order
    assert statuses["good"].error == ""


def test_a_pool_that_the_server_fails_is_tried_again_beside_the_others(rig: SlicesRig) -> None:
    assert rig.start(board(1)).wait_idle(120.0)
    rig.stop()
    rig.server.faults.add("update", "status", 503, count=-1, resource=SLICES)
    pools = {"p": Pool((Slice((device(7),)),), all_nodes=True), "q": board(1).pools["p"]}
    controller = rig.start(DriverResources(pools))
    until(lambda: len(rig.slices()) == 2 and len(rig.errors) > 2)
    assert all(isinstance(error, RequestError) and error.status == 503 for error in rig.errors)
    rig.server.faults.clear()
    assert controller.wait_idle(120.0)
    assert controller.get_stats() == Stats(creates=1, updates=1)


def test_a_server_that_refuses_one_slice_for_ever_is_not_written_to_for_ever(rig: SlicesRig) -> None:
    rig.server.faults.add("create", "status", 422, skip=1, count=-1, resource=SLICES)
    controller = rig.start(board(4))
    until(lambda: len(rig.errors) > 3)
    assert controller.get_stats() == Stats(creates=1)
    assert {each["spec"]["pool"]["generation"] for each in rig.slices()} == {1}


def test_the_caller_may_go_on_with_its_own(rig: SlicesRig) -> None:
    mine = device(0)
    controller = rig.start(wait_for_update=True)
    controller.update(one_pool([Slice((mine,))]))
    mine["attributes"]["number"]["int"] = 9
    assert controller.wait_idle(120.0)
    assert rig.slices()[0]["spec"]["devices"] == [device(0)]


def test_an_error_handler_that_fails_ends_nothing(rig: SlicesRig, caplog: pytest.LogCaptureFixture) -> None:
    def failing(error: Exception, work: str) -> None:
        raise RuntimeError("no ink")

    rig.server.faults.add("create", "status", 500, resource=SLICES)
    controller = rig.start(board(1), error_handler=failing)
    assert controller.wait_idle(120.0)
    assert len(rig.slices()) == 1
    assert "the error handler failed at: POST" in caplog.text


def test_faults_are_logged_unless_somebody_else_hears_of_them(rig: SlicesRig, caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller(Options(rig.api, DRIVER, resources=one_pool([Slice(({"name": "Bad"},))]))).start()
    assert controller.wait_idle(120.0)
    controller.stop()
    assert "checking a pool: pool p, slice 0: spec.devices[0].name: 'Bad'" in caplog.text


def test_a_driver_without_a_name_is_refused(api: ResourceApi) -> None:
    with pytest.raises(
        ValueError, match="driver_name must not be empty; give the name of the DRA driver, a DNS subdomain"
    ):
        Controller(Options(api, ""))


def test_the_queue_and_the_clock_are_the_callers_to_give(rig: SlicesRig) -> None:
    added: list[JsonObject | str] = []

    class Counting:
        """Everything at once, and never twice."""

        def __init__(self) -> None:
            self._names: list[str] = []
            self._changed = threading.Condition()
            self._ended = False

        def add(self, name: str) -> None:
            with self._changed:
                added.append(name)
                self._names.append(name)
                self._changed.notify_all()

        def add_after(self, name: str, seconds: float) -> None:
            pass

        def add_failed(self, name: str, at_least: float = 0.0) -> float:
            return 0.0

        def forget(self, name: str) -> None:
            pass

        def get(self) -> str | None:
            with self._changed:
                self._changed.wait_for(lambda: self._names or self._ended)
                return self._names.pop() if self._names and not self._ended else None

        def done(self, name: str) -> None:
            pass

        def idle(self, within: float, timeout: float) -> bool:
            return not self._names

        def shut_down(self) -> None:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    rig.start(board(1), queue=Counting())
    until(rig.slices)
    assert added == ["p"]
