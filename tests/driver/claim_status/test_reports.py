"""What status.devices says of a NIC, from reports of its claim to the write."""

from __future__ import annotations

import asyncio

import pytest

from driver.claims import claim_status
from node.values import replace
from tests.driver.claim_status.writer import StatusServer, running
from tests.making.claim_status import ATTACHED, CLAIM, DRIVER, NIC, VIEW, prepared, stored
from tests.waiting import eventually


async def test_a_nic_gets_an_entry_that_says_what_is_and_what_is_not() -> None:
    api = StatusServer(stored())
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(), prepared("gpu-0")))
        await run.idle()
    (entry,) = api.devices()
    assert (entry["driver"], entry["pool"], entry["device"]) == (DRIVER, "node-a", NIC)
    assert entry["networkData"] == {"hardwareAddress": "b8:ce:f6:00:00:01"}
    ready, network = entry["conditions"]
    assert ready == {
        "type": "Ready",
        "status": "True",
        "reason": "DevicePrepared",
        "message": "the device's nodes and variables are in the container",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }
    assert (network["type"], network["status"], network["reason"]) == ("NetworkReady", "False", "InterfaceNotMoved")
    assert network["message"] == (
        "eth2 stays in the node's network namespace: the device's rule does not say moveInterface"
    )
    assert entry["data"] == {
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "NicStatus",
        "ifName": "eth2",
        "linkUp": True,
        "mtu": 9000,
        "pciAddress": "0000:86:00.0",
    }


@pytest.mark.parametrize("first", ["attached", "prepared"])
async def test_an_interface_that_is_moved_is_ready_once_it_is_in_the_pod(first: str) -> None:
    api = StatusServer(stored())
    async with running(api) as run:
        if first == "attached":
            run.status.attached(CLAIM, (ATTACHED,))
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        if first == "prepared":
            await run.idle()
            run.status.attached(CLAIM, (ATTACHED,))
        await run.idle()
        assert api.devices()[0]["networkData"]["interfaceName"] == "net1"
        assert api.devices()[0]["conditions"][1]["reason"] == "NetworkDeviceReady"
        run.status.detached(CLAIM, "claim default/net: eth2 has no route")
        await run.idle()
    assert "interfaceName" not in api.devices()[0]["networkData"]
    network = api.devices()[0]["conditions"][1]
    assert (network["status"], network["reason"]) == ("False", "InterfaceMoveFailed")
    assert network["message"] == "claim default/net: eth2 has no route"


async def test_a_claim_whose_interface_moves_is_written_when_its_pod_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_status, "SETTLING", 3600.0)
    api = StatusServer(stored())
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        run.status.prepared(replace(CLAIM, name="other", uid="other"), (prepared(),))
        await eventually(lambda: run.status.pending == 1)
        assert (api.reads, api.writes) == (1, 0)


async def test_reports_of_a_pods_start_are_one_write() -> None:
    api = StatusServer(stored())
    async with running(api, None) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        run.status.attached(CLAIM, (ATTACHED,))
        run.status.apply(VIEW)
        await run.idle()
    assert (api.reads, api.writes) == (1, 1)
    assert api.devices()[0]["conditions"][1]["reason"] == "NetworkDeviceReady"


async def test_what_was_known_of_interfaces_goes_with_the_claim() -> None:
    api = StatusServer(stored())
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        run.status.attached(CLAIM, (ATTACHED,))
        run.status.released(CLAIM)
        run.status.detached(CLAIM, "eth2 is in no namespace")
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        await run.idle()
    assert api.devices()[0]["conditions"][1]["reason"] == "InterfaceOnNode"


async def test_a_claim_without_nics_is_not_even_read() -> None:
    api = StatusServer(stored("gpu-0"))
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared("gpu-0"),))
        await eventually(lambda: not run.status.pending)
    assert api.reads == 0


async def test_nothing_is_said_before_the_devices_are_known() -> None:
    api = StatusServer(stored())
    async with running(api, view=None) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await asyncio.sleep(0.02)
        assert api.reads == 0
        run.status.apply(VIEW)
        await run.idle()
    assert api.writes == 1


async def test_refused_parameters_are_a_condition_of_each_device_until_the_claim_is_prepared() -> None:
    api = StatusServer(stored(NIC, "gpu-0"))
    async with running(api) as run:
        run.status.refused(CLAIM, "parameters.sharing.strategy: not served")
        await run.idle()
        found = [(each["device"], *each["conditions"]) for each in api.devices()]
        assert [device for device, _ in found] == [NIC, "gpu-0"]
        assert {(one["type"], one["status"], one["reason"], one["message"]) for _, one in found} == {
            ("Ready", "False", "ParametersRefused", "parameters.sharing.strategy: not served")
        }
        run.status.refused(CLAIM, "parameters.sharing.strategy: not served")
        await run.idle()
        assert api.writes == 1, "what is there is not written again"
        run.status.prepared(CLAIM, (prepared(), prepared("gpu-0", request="gpu")))
        await run.idle()
    assert {each["device"]: each["conditions"][0]["status"] for each in api.devices()} == {NIC: "True", "gpu-0": "True"}
