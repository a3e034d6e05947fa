from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import cast

import pytest

from driver.claims import claim_status
from driver.claims.claim_status import ClaimStatusWriter
from driver.claims.model import ClaimReference, Unavailable
from driver.devices.view import DoorView
from driver.resource_api.client import CLAIM_FIELDS
from kube.answers import ObjectReader, Request
from kube.bodies import JsonObject
from kube.errors import Forbidden, Invalid, NotFound, WriteConflict
from kube.json_stream import DEPTH
from node.clocks import SystemClocks
from node.events import EventType
from node.values import replace
from tests.making.claim_status import ATTACHED, CLAIM, DRIVER, NIC, VIEW, Shown, prepared, stored
from tests.making.events import RecordedEvents
from tests.waiting import background, eventually


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_status, "SETTLING", 0.01)
    monkeypatch.setattr(claim_status, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(claim_status, "LONGEST_DELAY", 0.02)


class Api:
    """The API server with one claim or none; ``refusals`` are raised one after the other by writes."""

    def __init__(self, claim: JsonObject | None = None) -> None:
        self.claims = {} if claim is None else {"net": claim}
        self.refusals: list[Exception] = []
        self.reads = 0
        self.writes = 0
        self.keeps = True

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        self.reads += 1
        return deepcopy(self.claims.get(name))

    async def replace_claim_status(self, claim: JsonObject) -> JsonObject:
        if self.refusals:
            raise self.refusals.pop(0)
        self.writes += 1
        kept = deepcopy(claim)
        if not self.keeps:
            del cast("Shown", kept["status"])["devices"]
        self.claims["net"] = kept
        return kept

    def devices(self) -> list[Shown]:
        return cast("list[Shown]", cast("Shown", self.claims["net"]["status"]).get("devices", []))


class Running:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.told = RecordedEvents()
        self.status = ClaimStatusWriter(
            DRIVER, api, events=self.told, clocks=SystemClocks(clock=lambda: 1_800_000_000.0, random=lambda: 0.5)
        )

    async def idle(self) -> None:
        await eventually(lambda: not self.status.pending, "idle")


@asynccontextmanager
async def running(api: Api, view: DoorView | None = VIEW) -> AsyncIterator[Running]:
    made = Running(api)
    if view is not None:
        made.status.apply(view)
    async with background(made.status.run()):
        yield made


async def test_a_nic_gets_an_entry_that_says_what_is_and_what_is_not() -> None:
    api = Api(stored())
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
    api = Api(stored())
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
    api = Api(stored())
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        run.status.prepared(replace(CLAIM, name="other", uid="other"), (prepared(),))
        await eventually(lambda: run.status.pending == 1)
        assert (api.reads, api.writes) == (1, 0)


async def test_reports_of_a_pods_start_are_one_write() -> None:
    api = Api(stored())
    async with running(api, None) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        run.status.attached(CLAIM, (ATTACHED,))
        run.status.apply(VIEW)
        await run.idle()
    assert (api.reads, api.writes) == (1, 1)
    assert api.devices()[0]["conditions"][1]["reason"] == "NetworkDeviceReady"


async def test_a_newer_report_replaces_one_that_is_being_tried_again() -> None:
    api = Api(stored())
    api.refusals = [Unavailable("down")]
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        await eventually(lambda: not api.refusals)
        run.status.attached(CLAIM, (ATTACHED,))
        await run.idle()
    assert api.devices()[0]["conditions"][1]["status"] == "True"


async def test_what_was_known_of_interfaces_goes_with_the_claim() -> None:
    api = Api(stored())
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        run.status.attached(CLAIM, (ATTACHED,))
        run.status.released(CLAIM)
        run.status.detached(CLAIM, "eth2 is in no namespace")
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        await run.idle()
    assert api.devices()[0]["conditions"][1]["reason"] == "InterfaceOnNode"


async def test_a_claim_that_is_gone_is_not_asked_about_again() -> None:
    api = Api()
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        await run.idle()
        run.status.attached(CLAIM, (ATTACHED,))
        await run.idle()
    assert api.reads == 1


async def test_a_claim_without_nics_is_not_even_read() -> None:
    api = Api(stored("gpu-0"))
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared("gpu-0"),))
        await eventually(lambda: not run.status.pending)
    assert api.reads == 0


async def test_what_is_there_already_is_not_written_again() -> None:
    api = Api(stored())
    async with running(api) as run:
        for _ in range(3):
            run.status.prepared(CLAIM, (prepared(),))
            await run.idle()
    assert (api.reads, api.writes) == (3, 1)


async def test_a_conflict_begins_anew() -> None:
    api = Api(stored())
    api.refusals = [
        WriteConflict("PUT", "/", 409, "Conflict", "changed"),
        WriteConflict("PUT", "/", 409, "Conflict", "changed"),
    ]
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await run.idle()
    assert (api.reads, api.writes) == (3, 1)


async def test_an_api_server_out_of_reach_is_asked_again() -> None:
    api = Api(stored())
    api.refusals = [Unavailable("the API server cannot be reached")] * 5
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await eventually(lambda: api.writes)
        await run.idle()
        assert run.status.problem == ""
    assert run.told.events == []


async def test_a_claim_that_is_gone_or_another_is_left_alone() -> None:
    for api in (Api(), Api(stored(uid="uid-2"))):
        async with running(api) as run:
            run.status.prepared(CLAIM, (prepared(),))
            await run.idle()
        assert (api.reads, api.writes) == (1, 0)


RIGHTS = (
    "give the agent's account the verbs update and patch on resourceclaims/status, and associated-node:update and "
    "associated-node:patch on resourceclaims/driver (resourceNames: [ostler.dev]) of resource.k8s.io; claims work "
    "without it"
)


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden("PUT", "/", 403, "Forbidden", "cannot update resource"),
        Invalid("PUT", "/", 422, "Invalid", "changing status.devices requires resource=resourceclaims/driver verb=[x]"),
    ],
)
async def test_a_missing_right_is_named_once_and_not_fought(refusal: Forbidden | Invalid) -> None:
    api = Api(stored())
    api.refusals = [refusal] * 2
    async with running(api) as run:
        for _ in range(2):
            run.status.prepared(CLAIM, (prepared(),))
            await run.idle()
    begin = "the API server does not let the agent write status.devices of NICs' claims"
    assert run.told.events == [
        (EventType.WARNING, "ClaimStatusRefused", f"{begin} ({refusal.message}); {RIGHTS}"),
    ]
    assert api.reads == 2


async def test_a_server_that_drops_the_field_is_said_and_not_fought() -> None:
    api = Api(stored())
    api.keeps = False
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await run.idle()
    assert api.writes == 1
    assert run.status.problem == (
        "the API server does not keep status.devices: its feature gate DRAResourceClaimDeviceStatus is off"
    )


async def test_a_release_ends_the_attempts() -> None:
    api = Api(stored())
    api.refusals = [Unavailable("the API server cannot be reached")] * 1000
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await eventually(lambda: api.reads > 2)
        run.status.released(CLAIM)
        await run.idle()
    assert api.writes == 0


async def test_a_claim_that_goes_while_it_is_written_is_left_alone() -> None:
    api = Api(stored())
    api.refusals = [NotFound("PUT", "/", 404, "NotFound", "gone")] * 3
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await run.idle()
    assert (api.reads, api.writes, len(api.refusals)) == (1, 0, 2)
    assert run.told.events == []


class SlowApi(Api):
    """Its reads wait for ``gate``; ``most`` is how many waited at a time."""

    def __init__(self, claim: JsonObject | None = None) -> None:
        super().__init__(claim)
        self.gate = asyncio.Event()
        self.now = self.most = 0

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.gate.wait()
        finally:
            self.now -= 1
        return await super().claim(namespace, name)


async def test_a_release_ends_what_is_under_way() -> None:
    api = SlowApi(stored())
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await eventually(lambda: api.now)
        run.status.released(CLAIM)
        await eventually(lambda: not api.now, "the question is given up")
        api.gate.set()
        await run.idle()
    assert (api.reads, api.writes) == (0, 0)


async def test_a_claim_that_is_prepared_again_meanwhile_is_written_by_one_at_a_time() -> None:
    api = SlowApi(stored())
    async with running(api) as run:
        for _ in range(3):
            run.status.prepared(CLAIM, (prepared(),))
            await eventually(lambda: api.now)
        assert api.most == 1
        api.gate.set()
        await run.idle()
    assert api.writes == 1, "the second attempt finds it written"


async def test_nothing_is_said_before_the_devices_are_known() -> None:
    api = Api(stored())
    async with running(api, view=None) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await asyncio.sleep(0.02)
        assert api.reads == 0
        run.status.apply(VIEW)
        await run.idle()
    assert api.writes == 1


async def test_many_claims_are_written_a_few_at_a_time() -> None:
    api = Api(stored())
    now = most = 0
    plain = api.claim

    async def counted(namespace: str, name: str) -> JsonObject | None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return await plain(namespace, name)

    api.claim = counted  # type: ignore[method-assign]
    async with running(api) as run:
        for number in range(50):
            run.status.prepared(ClaimReference("default", "net", f"uid-{number}"), (prepared(),))
        await run.idle()
    assert most <= claim_status.AT_ONCE


async def test_refused_parameters_are_a_condition_of_each_device_until_the_claim_is_prepared() -> None:
    api = Api(stored(NIC, "gpu-0"))
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


@pytest.mark.parametrize("levels", [DEPTH - 12, DEPTH, 1500])
async def test_a_status_is_not_written_where_a_part_of_the_claim_was_too_deep_to_be_read(levels: int) -> None:
    """The write would replace another driver's data, and what was allocated, by what was left of it."""
    body = stored(status=[{"driver": "other.example.com", "pool": "p", "device": "d", "data": "@deep@"}])
    data = json.dumps(body).encode().replace(b'"@deep@"', b'{"a":' * levels + b"1" + b"}" * levels)
    reader = ObjectReader(Request("GET", "/", "", "", ""), CLAIM_FIELDS, 1 << 20, None)
    reader.feed(data)
    api = Api(reader.result())
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await run.idle()
        deep = levels >= DEPTH
        assert api.writes == (0 if deep else 1)
        text = "claim default/net nests deeper than 63 levels, so its status is not written; shorten its parameters"
        assert run.status.problem == (text if deep else "")
