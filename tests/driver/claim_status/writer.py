"""A claim's status writer that runs on an API server with one claim."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import cast

from driver.claims.claim_status import ClaimStatusWriter
from driver.devices.view import DoorView
from kube.bodies import JsonObject
from node.clocks import SystemClocks
from tests.making.claim_status import DRIVER, VIEW, Shown
from tests.making.events import RecordedEvents
from tests.waiting import background, eventually


class StatusServer:
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


class _Running:
    def __init__(self, api: StatusServer) -> None:
        self.api = api
        self.told = RecordedEvents()
        self.status = ClaimStatusWriter(
            DRIVER, api, events=self.told, clocks=SystemClocks(clock=lambda: 1_800_000_000.0, random=lambda: 0.5)
        )

    async def idle(self) -> None:
        await eventually(lambda: not self.status.pending, "idle")


@asynccontextmanager
async def running(api: StatusServer, view: DoorView | None = VIEW) -> AsyncIterator[_Running]:
    made = _Running(api)
    if view is not None:
        made.status.apply(view)
    async with background(made.status.run()):
        yield made
