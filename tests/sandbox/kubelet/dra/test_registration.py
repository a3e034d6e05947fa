"""Drivers come and go through the plugin watcher."""

from __future__ import annotations

import pytest

from sandbox.kubelet.events import RegistrationFailed
from sandbox.kubelet.generations import Generation
from tests.sandbox.kubelet.dra.conftest import DraKubeletNode, claim, pod
from tests.sandbox.kubelet.dra.driver import NAME, DriverScript, FakeDriver
from tests.waiting import eventually


async def registered(node: DraKubeletNode, driver: FakeDriver) -> None:
    await eventually(lambda: [each.plugin_registered for each in driver.notified] == [True], "registration")


@pytest.mark.parametrize(
    ("services", "called"),
    [
        (("v1.DRAPlugin", "v1beta1.DRAPlugin"), "v1"),
        (("v1beta1.DRAPlugin", "v1.DRAPlugin"), "v1beta1"),
        (("v7.DRAPlugin", "v1beta1.DRAPlugin"), "v1beta1"),
    ],
)
async def test_first_known_service_of_the_drivers_list_is_asked(
    node: DraKubeletNode, services: tuple[str, ...], called: str
) -> None:
    kubelet = await node.kubelet()
    driver = await node.driver(script=DriverScript(services, node.devices()))
    await registered(node, driver)
    node.api.add(claim("one"))
    running = pod("p", "one")
    assert (await kubelet.admit(running)).admitted
    await kubelet.prepare(running)
    assert kubelet.claim_devices(running, "c") == (f"{NAME}/fake=uid-one-dev-0",)
    await kubelet.end(running)
    assert driver.calls == [(called, "prepare", ("one",)), (called, "unprepare", ("one",))]
    assert kubelet.pods() == ()


@pytest.mark.parametrize(
    ("services", "reason"),
    [
        ((), "empty list of supported gRPC services (aka supported versions)"),
        (
            ("v7.DRAPlugin", "x"),
            (
                'none of services supported by the plugin (["v7.DRAPlugin" "x"]) are supported by the kubelet '
                '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])'
            ),
        ),
    ],
)
async def test_driver_without_a_known_service_is_refused_and_told(
    node: DraKubeletNode, services: tuple[str, ...], reason: str
) -> None:
    await node.kubelet()
    driver = await node.driver(script=DriverScript(services))
    await eventually(lambda: driver.notified, "the refusal")
    error = (
        "RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC versions of DRA driver "
        f"plugin {NAME} at endpoint {driver.endpoint}: {reason}"
    )
    assert (driver.notified[0].plugin_registered, driver.notified[0].error) == (False, error)
    await eventually(lambda: any(isinstance(event, RegistrationFailed) for event in node.events), "the event")


@pytest.mark.parametrize(("generation", "tries"), [("1.35", 1), ("1.36", 2)])
async def test_endpoint_of_another_instance_is_refused(
    node: DraKubeletNode, generation: Generation, tries: int
) -> None:
    """And tried again, but not by kubelets up to 1.35."""
    await node.kubelet(generation=generation)
    first = await node.driver()
    await registered(node, first)
    second = FakeDriver(node.root, "second")
    second.endpoint = first.endpoint
    await second.register()
    try:
        await eventually(lambda: len(second.notified) == tries, "the refusals")
    finally:
        await second.stop()
    assert second.notified[0].error == (
        f"RegisterPlugin error -- plugin registration failed with err: endpoint {first.endpoint} already registered "
        f"for DRA driver plugin {NAME}"
    )


async def test_newest_connected_instance_is_asked(node: DraKubeletNode) -> None:
    kubelet = await node.kubelet()
    node.api.add(claim("one"), claim("two"))
    first = await node.driver("a")
    await registered(node, first)
    second = await node.driver("b")
    await registered(node, second)
    drivers = kubelet.dra.drivers
    await eventually(lambda: all(each.connected for each in drivers.instances(NAME)), "both connections")
    await kubelet.prepare(pod("p", "one"))
    await second.stop()
    # Gone in one of two ways, whichever is seen first: no longer connected, or deregistered.
    await eventually(lambda: drivers.get(NAME).endpoint == str(first.endpoint), "the survivor")
    await kubelet.prepare(pod("p", "two"))
    assert [call[2] for call in first.calls] == [("two",)]
    assert [call[2] for call in second.calls] == [("one",)]


async def test_endpoint_where_nobody_listens_is_registered_and_fails_the_calls(node: DraKubeletNode) -> None:
    kubelet = await node.kubelet()
    driver = FakeDriver(node.root)
    driver.endpoint.parent.mkdir(parents=True)
    await driver.register()
    try:
        await registered(node, driver)
        assert [each.connected for each in kubelet.dra.drivers.instances(NAME)] == [False]
    finally:
        await driver.stop()


async def test_connection_that_was_lost_is_made_again(node: DraKubeletNode) -> None:
    kubelet = await node.kubelet()
    driver = FakeDriver(node.root)
    served = FakeDriver(node.root)
    await served.serve()
    await driver.register()
    try:
        drivers = kubelet.dra.drivers
        await eventually(lambda: [each.connected for each in drivers.instances(NAME)] == [True], "the connection")
        await served.stop()
        await eventually(lambda: [each.connected for each in drivers.instances(NAME)] == [False], "its loss")
        await served.serve()
        await eventually(lambda: [each.connected for each in drivers.instances(NAME)] == [True], "it again")
    finally:
        await driver.stop()
        await served.stop()


async def test_removed_registration_socket_deregisters_the_driver(node: DraKubeletNode) -> None:
    kubelet = await node.kubelet()
    driver = await node.driver()
    await registered(node, driver)
    driver.registration.unlink()
    await eventually(lambda: kubelet.dra.drivers.names() == (), "deregistration")
    with pytest.raises(Exception, match=f"DRA driver {NAME} is not registered"):
        kubelet.dra.drivers.get(NAME)
    # The server removes its socket's path at its end, which must not be another's by then.
    driver.registration.touch()
