"""How the status of claims is written: what is tried again, what is given up, and how much at a time."""

from __future__ import annotations

import asyncio
import json

import pytest

from driver.claims import claim_status
from driver.claims.model import ClaimReference, Unavailable
from driver.resource_api.client import CLAIM_FIELDS
from kube.answers import ObjectReader, Request
from kube.bodies import JsonObject
from kube.errors import Forbidden, Invalid, NotFound, WriteConflict
from kube.json_stream import DEPTH
from node.events import EventType
from tests.driver.claim_status.writer import StatusServer, running
from tests.making.claim_status import ATTACHED, CLAIM, prepared, stored
from tests.waiting import eventually


async def test_a_newer_report_replaces_one_that_is_being_tried_again() -> None:
    api = StatusServer(stored())
    api.refusals = [Unavailable("down")]
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        await eventually(lambda: not api.refusals)
        run.status.attached(CLAIM, (ATTACHED,))
        await run.idle()
    assert api.devices()[0]["conditions"][1]["status"] == "True"


async def test_a_claim_that_is_gone_is_not_asked_about_again() -> None:
    api = StatusServer()
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(interface="eth2"),))
        await run.idle()
        run.status.attached(CLAIM, (ATTACHED,))
        await run.idle()
    assert api.reads == 1


async def test_what_is_there_already_is_not_written_again() -> None:
    api = StatusServer(stored())
    async with running(api) as run:
        for _ in range(3):
            run.status.prepared(CLAIM, (prepared(),))
            await run.idle()
    assert (api.reads, api.writes) == (3, 1)


async def test_a_conflict_begins_anew() -> None:
    api = StatusServer(stored())
    api.refusals = [
        WriteConflict("PUT", "/", 409, "Conflict", "changed"),
        WriteConflict("PUT", "/", 409, "Conflict", "changed"),
    ]
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await run.idle()
    assert (api.reads, api.writes) == (3, 1)


async def test_an_api_server_out_of_reach_is_asked_again() -> None:
    api = StatusServer(stored())
    api.refusals = [Unavailable("the API server cannot be reached")] * 5
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await eventually(lambda: api.writes)
        await run.idle()
        assert run.status.problem == ""
    assert run.told.events == []


async def test_a_claim_that_is_gone_or_another_is_left_alone() -> None:
    for api in (StatusServer(), StatusServer(stored(uid="uid-2"))):
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
    api = StatusServer(stored())
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
    api = StatusServer(stored())
    api.keeps = False
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await run.idle()
    assert api.writes == 1
    assert run.status.problem == (
        "the API server does not keep status.devices: its feature gate DRAResourceClaimDeviceStatus is off"
    )


async def test_a_release_ends_the_attempts() -> None:
    api = StatusServer(stored())
    api.refusals = [Unavailable("the API server cannot be reached")] * 1000
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await eventually(lambda: api.reads > 2)
        run.status.released(CLAIM)
        await run.idle()
    assert api.writes == 0


async def test_a_claim_that_goes_while_it_is_written_is_left_alone() -> None:
    api = StatusServer(stored())
    api.refusals = [NotFound("PUT", "/", 404, "NotFound", "gone")] * 3
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await run.idle()
    assert (api.reads, api.writes, len(api.refusals)) == (1, 0, 2)
    assert run.told.events == []


class SlowApi(StatusServer):
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


async def test_many_claims_are_written_a_few_at_a_time() -> None:
    api = StatusServer(stored())
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


@pytest.mark.parametrize("levels", [DEPTH - 12, DEPTH, 1500])
async def test_a_status_is_not_written_where_a_part_of_the_claim_was_too_deep_to_be_read(levels: int) -> None:
    """The write would replace another driver's data, and what was allocated, by what was left of it."""
    body = stored(status=[{"driver": "other.example.com", "pool": "p", "device": "d", "data": "@deep@"}])
    data = json.dumps(body).encode().replace(b'"@deep@"', b'{"a":' * levels + b"1" + b"}" * levels)
    reader = ObjectReader(Request("GET", "/", "", "", ""), CLAIM_FIELDS, 1 << 20, None)
    reader.feed(data)
    api = StatusServer(reader.result())
    async with running(api) as run:
        run.status.prepared(CLAIM, (prepared(),))
        await run.idle()
        deep = levels >= DEPTH
        assert api.writes == (0 if deep else 1)
        text = "claim default/net nests deeper than 63 levels, so its status is not written; shorten its parameters"
        assert run.status.problem == (text if deep else "")
