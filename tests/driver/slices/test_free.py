"""Which devices slices offer to new claims, and when that may be relied on."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from driver.slices.model import Slice
from kube.bodies import JsonObject
from sandbox.apiserver.server import GATES_OFF, ApiServer
from tests.driver.slices.conftest import SLICES, SlicesRig
from tests.driver.slices.test_controller import device, one_pool
from tests.making.resource_api import api_of
from tests.waiting import until


def tainted(number: int, effect: str) -> JsonObject:
    return device(number, taints=[{"key": "example.com/moving", "effect": effect}])


@pytest.mark.parametrize(("effect", "offered"), [("NoSchedule", False), ("NoExecute", False), ("None", True)])
def test_a_device_is_free_unless_a_taint_keeps_new_claims_away(rig: SlicesRig, effect: str, offered: bool) -> None:
    controller = rig.start(one_pool([Slice((device(0), tainted(1, effect)))]))
    assert controller.wait_idle(120.0)
    free = {"led-00000", "led-00001"} if offered else {"led-00000"}
    assert controller.free("p") == frozenset(free)
    assert controller.free("other") == frozenset()


def test_a_server_that_drops_taints_leaves_its_devices_free() -> None:
    with ApiServer(gates=GATES_OFF) as server, closing(api_of(server)) as api:
        rig = SlicesRig(server, api)
        controller = rig.start(one_pool([Slice((device(0), tainted(1, "NoSchedule")))]))
        assert controller.wait_idle(120.0)
        assert controller.free("p") == frozenset({"led-00000", "led-00001"})
        rig.stop()


def test_nothing_is_known_while_a_write_is_under_way(rig: SlicesRig) -> None:
    controller = rig.start(one_pool([Slice((device(0), device(1)))]))
    assert controller.wait_idle(120.0)
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go_on.wait(10.0)

    rig.server.faults.add("update", "status", 500, resource=SLICES, then=hold)
    controller.update(one_pool([Slice((device(0), tainted(1, "NoSchedule")))]))
    assert reached.wait(10.0)
    controller.update(one_pool([Slice((device(0), tainted(1, "NoSchedule")))]))
    assert controller.free("p") is None
    go_on.set()
    until(lambda: controller.free("p") == frozenset({"led-00000"}))


def test_nothing_is_known_while_a_write_that_failed_may_have_been_carried_out(rig: SlicesRig) -> None:
    controller = rig.start(one_pool([Slice((device(0), device(1)))]))
    assert controller.wait_idle(120.0)
    rig.server.faults.add("*", "status", 503, resource=SLICES, count=-1)
    controller.update(one_pool([Slice((device(0), tainted(1, "NoSchedule")))]))
    until(lambda: rig.errors)
    for _ in range(100):
        assert controller.free("p") is None
    rig.server.faults.clear()
    until(lambda: controller.free("p") == frozenset({"led-00000"}))
