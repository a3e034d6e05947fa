from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any, cast

import pytest

from driver.claims import claim_status
from driver.claims.claim_status import ClaimStatusWriter, merged, nic_entries
from driver.claims.model import ClaimReference, PreparedDevice, Unavailable
from driver.devices.view import DoorView, DraDevice
from driver.resource_api.client import CLAIM_FIELDS
from kube.answers import ObjectReader, Request
from kube.bodies import JsonObject
from kube.errors import Forbidden, Invalid, NotFound, WriteConflict
from kube.json_stream import DEPTH
from node.clocks import SystemClocks
from node.events import EventType
from node.inventory.model import Device, DeviceKind, sorted_attributes
from node.rules import Rule
from scheduling.api.validation.objects import validate_claim_status
from tests.making.dra_door import offered
from tests.making.events import RecordedEvents
from tests.waiting import background, eventually

DRIVER = "ostler.dev"
Shown = dict[str, Any]
"""An object of the API that is looked into."""
CLAIM = ClaimReference("default", "net", "uid-1")
NIC = "nic-0000-86-00-0"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_status, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(claim_status, "LONGEST_DELAY", 0.02)


def nic(name: str = NIC, /, **attributes: str | int | bool) -> DraDevice:
    device = Device(
        name=name,
        kind=DeviceKind.NIC,
        vendor="mellanox",
        pci_address="0000:86:00.0",
        attributes=sorted_attributes(attributes.items()),
    )
    return DraDevice(device, Rule("example.com/nic"), True)


def view_of(**attributes: str | int | bool) -> DoorView:
    return DoorView((nic(**attributes),), generation=1)


VIEW = DoorView((offered("gpu-0"), nic(ifName="eth2", mac="b8:ce:f6:00:00:01", mtu=9000, linkUp=True)), generation=1)


def prepared(device: str = NIC, share: str | None = None, request: str = "nic") -> PreparedDevice:
    return PreparedDevice((request,), "node-a", device, (), share)


def stored(*devices: str, uid: str = "uid-1", status: list[JsonObject] | None = None) -> JsonObject:
    """The claim as the API server has it."""
    results = [{"driver": DRIVER, "pool": "node-a", "device": device, "request": "nic"} for device in devices or (NIC,)]
    results.append({"driver": "other.example.com", "pool": "p", "device": "d", "request": "other"})
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": "net", "uid": uid, "resourceVersion": "1"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, **({"devices": status} if status else {})},
    }
    return cast("JsonObject", json.loads(json.dumps(claim)))


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
    assert network["message"] == "ostler moves no network interface: eth2 stays in the node's network namespace"
    assert entry["data"] == {
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "NicStatus",
        "ifName": "eth2",
        "linkUp": True,
        "mtu": 9000,
        "pciAddress": "0000:86:00.0",
    }


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


def entries(*devices: PreparedDevice, view: DoorView = VIEW) -> tuple[Shown, ...]:
    return cast("tuple[Shown, ...]", nic_entries(DRIVER, devices, view))


def devices_of(claim: JsonObject | None) -> list[Shown]:
    assert claim is not None
    return cast("list[Shown]", cast("Shown", claim["status"])["devices"])


def test_the_api_server_takes_what_is_entered() -> None:
    before = stored()
    full = view_of(ifName="eth2", mac="b8:ce:f6:00:00:01", mtu=9000, rdmaDevice="mlx5_0", sriovFunction="vf", vfIndex=3)
    after = merged(before, DRIVER, entries(prepared(), view=full), 1_800_000_000.0)
    assert after is not None
    assert validate_claim_status(cast("Any", after), cast("Any", before)) == []


def test_entries_of_other_drivers_stay() -> None:
    other: JsonObject = {"driver": "other.example.com", "pool": "p", "device": "d", "data": {"mine": 1}}
    claim = stored(status=[other])
    assert devices_of(merged(claim, DRIVER, entries(prepared()), 0.0))[0] == other


def test_our_own_entries_of_devices_that_are_not_allocated_any_more_go() -> None:
    old: JsonObject = {"driver": DRIVER, "pool": "node-a", "device": "nic-gone"}
    found = devices_of(merged(stored(status=[old]), DRIVER, entries(prepared()), 0.0))
    assert [entry["device"] for entry in found] == [NIC]


def test_a_device_that_is_not_allocated_gets_no_entry() -> None:
    assert merged(stored("gpu-0"), DRIVER, entries(prepared()), 0.0) is None


def test_a_condition_that_has_not_changed_keeps_its_time() -> None:
    first = merged(stored(), DRIVER, entries(prepared()), 0.0)
    assert first is not None
    lower = DoorView((nic(ifName="eth2", mtu=1500),), generation=2)
    (entry,) = devices_of(merged(first, DRIVER, entries(prepared(), view=lower), 500.0))
    times = {condition["lastTransitionTime"] for condition in entry["conditions"]}
    assert times == {"1970-01-01T00:00:00Z"}


def test_a_condition_that_has_changed_has_a_new_time() -> None:
    first = merged(stored(), DRIVER, entries(prepared()), 0.0)
    assert first is not None
    for condition in devices_of(first)[0]["conditions"]:
        condition["status"] = "Unknown"
    (entry,) = devices_of(merged(first, DRIVER, entries(prepared()), 500.0))
    assert {condition["lastTransitionTime"] for condition in entry["conditions"]} == {"1970-01-01T00:08:20Z"}


def test_a_device_of_several_requests_has_one_entry_and_shares_have_their_own() -> None:
    found = entries(prepared(request="a"), prepared(request="b"), prepared(share="s1"), prepared(share="s2"))
    assert [entry.get("shareID") for entry in found] == [None, "s1", "s2"]


def test_a_function_that_a_user_space_driver_has_says_so() -> None:
    (entry,) = entries(prepared(), view=DoorView((nic(driver="vfio-pci"),)))
    _, network = entry["conditions"]
    assert network["reason"] == "NoInterface"
    assert network["message"] == "the device has no network interface that could be moved (driver vfio-pci)"
    assert "networkData" not in entry


def test_an_address_too_long_for_the_api_is_left_out() -> None:
    (entry,) = entries(prepared(), view=DoorView((nic(mac="x" * 129),)))
    assert "networkData" not in entry


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
