"""A kubelet deletes the slices of drivers that are not there."""

from __future__ import annotations

from tests.sandbox.kubelet.dra.conftest import DraKubeletNode
from tests.sandbox.kubelet.dra.driver import NAME, FakeDriver
from tests.waiting import eventually


async def test_all_slices_go_at_the_start_and_are_tried_again(node: DraKubeletNode) -> None:
    node.api.failures = 2
    await node.kubelet({"wipe_retries": (0.01, 0.01)})
    await eventually(lambda: node.api.wipes == [None], "the wipe")


async def test_wipe_is_given_up_after_its_retries(node: DraKubeletNode) -> None:
    node.api.failures = 3
    kubelet = await node.kubelet({"wipe_retries": (0.01, 0.01)})
    await eventually(lambda: node.api.failures == 0, "all attempts")
    assert (node.api.wipes, kubelet.dra.drivers.wiping.wiped) == ([], [])


async def test_driver_that_stays_away_loses_its_slices(node: DraKubeletNode) -> None:
    await node.kubelet({"wiping_seconds": 0.2})
    driver = await node.driver()
    await eventually(lambda: driver.notified, "registration")
    await driver.stop()
    await eventually(lambda: node.api.wipes == [None, NAME], "the wipe")


async def test_driver_that_never_connects_loses_its_slices(node: DraKubeletNode) -> None:
    await node.kubelet({"wiping_seconds": 0.1})
    driver = FakeDriver(node.root)
    await driver.register()
    try:
        await eventually(lambda: node.api.wipes == [None, NAME], "the wipe")
    finally:
        await driver.stop()


async def test_other_instance_keeps_the_slices(node: DraKubeletNode) -> None:
    kubelet = await node.kubelet({"wiping_seconds": 0.3})
    first, second = await node.driver("a"), await node.driver("b")
    drivers = kubelet.dra.drivers
    await eventually(lambda: len([each for each in drivers.instances(NAME) if each.connected]) == 2, "both")
    await first.stop()
    await eventually(lambda: len(drivers.instances(NAME)) == 1, "its end")
    third = await node.driver("c")
    await second.stop()
    await eventually(lambda: [each.endpoint for each in drivers.instances(NAME)] == [str(third.endpoint)], "the last")
    await third.stop()
    await eventually(lambda: node.api.wipes == [None, NAME], "the wipe after the last")
