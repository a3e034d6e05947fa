"""The status of NICs' claims through the real client, on a stand-in that judges as the API server does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from driver.claims.claim_status import ClaimStatusWriter
from driver.claims.model import ClaimReference, PreparedDevice
from driver.devices.view import DoorView, DraDevice
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from node.clocks import SystemClocks
from node.inventory.model import Device, DeviceKind, sorted_attributes
from node.rules import Rule
from sandbox.apiserver.server import ApiServer
from tests.making.events import RecordedEvents
from tests.making.resource_api import client_of
from tests.waiting import background, eventually

NIC = "nic-0000-86-00-0"
FACTS = sorted_attributes([("ifName", "eth2"), ("mac", "b8:ce:f6:00:00:01"), ("mtu", 9000)])
VIEW = DoorView((DraDevice(Device(NIC, DeviceKind.NIC, "mellanox", attributes=FACTS), Rule("e.com/nic"), True),))
PREPARED = (PreparedDevice(("nic",), "node-a", NIC, ()),)


def allocated(server: ApiServer, name: str) -> ClaimReference:
    """A claim with one NIC of ours and one device of somebody else's."""
    request = {
        "name": "nic",
        "exactly": {"deviceClassName": "nic.ostler.dev", "count": 2, "allocationMode": "ExactCount"},
    }
    spec = {"devices": {"requests": [request]}}
    claim = server.store.create("resourceclaims", {"metadata": {"name": name, "namespace": "team"}, "spec": spec})
    results = [
        {"request": "nic", "driver": "ostler.dev", "pool": "node-a", "device": NIC},
        {"request": "nic", "driver": "other.example.com", "pool": "p", "device": "d"},
    ]
    claim["status"] = {"allocation": {"devices": {"results": results}}}
    server.store.replace("resourceclaims", claim, part="status")
    return ClaimReference("team", name, claim["metadata"]["uid"])


def devices(server: ApiServer, name: str) -> dict[str, Any]:
    """The entries of a claim's status by driver."""
    claim = server.store.get("resourceclaims", name, namespace="team")
    return {entry["driver"]: entry for entry in claim["status"].get("devices", [])}


@asynccontextmanager
async def writing(server: ApiServer) -> AsyncIterator[ClaimStatusWriter]:
    api = AsyncResourceApi(lambda: ResourceApi(client_of(server.url, connections=8)), threads=8)
    status = ClaimStatusWriter(
        "ostler.dev",
        api,
        events=RecordedEvents(),
        clocks=SystemClocks(clock=lambda: 1_800_000_000.0, random=lambda: 0.5),
    )
    status.apply(VIEW)
    try:
        async with background(status.run()):
            yield status
    finally:
        api.close()


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_the_entry_arrives_whatever_version_is_served(version: str) -> None:
    with ApiServer(versions=[version]) as server:
        claim = allocated(server, "net")
        async with writing(server) as status:
            status.prepared(claim, PREPARED)
            await eventually(lambda: not status.pending)
        entry = devices(server, "net")["ostler.dev"]
        assert entry["networkData"] == {"hardwareAddress": "b8:ce:f6:00:00:01"}
        assert [condition["type"] for condition in entry["conditions"]] == ["Ready", "NetworkReady"]
        assert entry["data"]["ifName"] == "eth2"


async def test_another_driver_that_writes_in_between_loses_nothing() -> None:
    with ApiServer() as server:
        claim = allocated(server, "net")

        def other() -> None:
            stored = server.store.get("resourceclaims", "net", namespace="team")
            entry = {"driver": "other.example.com", "pool": "p", "device": "d", "data": {"mine": True}}
            stored["status"]["devices"] = [*stored["status"].get("devices", []), entry]
            server.store.replace("resourceclaims", stored, part="status")

        server.faults.add("update", "race", then=other)
        async with writing(server) as status:
            status.prepared(claim, PREPARED)
            await eventually(lambda: not status.pending)
        found = devices(server, "net")
        assert set(found) == {"ostler.dev", "other.example.com"}
        assert found["other.example.com"]["data"] == {"mine": True}


async def test_twenty_claims_at_once_all_get_their_entries_through_faults() -> None:
    with ApiServer() as server:
        claims = [allocated(server, f"net-{number}") for number in range(20)]
        server.faults.add("update", "status", 500, count=5)
        server.faults.add("update", "lost-response", count=3)
        server.faults.add("get", "status", 429, count=3, retry_after=0)
        async with writing(server) as status:
            for claim in claims:
                status.prepared(claim, PREPARED)
            await eventually(lambda: not status.pending, within=120)
        assert all("ostler.dev" in devices(server, claim.name) for claim in claims)
