"""Controllers of slices on an API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from driver.resource_api.client import ResourceApi
from driver.slices.controller import Controller
from driver.slices.model import DriverResources
from driver.slices.options import Options
from sandbox.apiserver.server import ApiServer

SLICES = "resourceslices"
DRIVER = "led.example.com"
Json = dict[str, Any]


class SlicesRig:
    """Controllers that are stopped at the end, with what they told."""

    def __init__(self, server: ApiServer, api: ResourceApi) -> None:
        self.server = server
        self.api = api
        self.errors: list[Exception] = []
        self._running: list[Controller] = []

    def start(self, resources: DriverResources | None = None, **fields: Any) -> Controller:
        options = {
            "client": self.api,
            "driver_name": DRIVER,
            "resources": resources,
            "sync_delay": 0.05,
            "error_handler": lambda error, _: self.errors.append(error),
        }
        made = Controller(Options(**{**options, **fields})).start()
        self._running.append(made)
        assert made.wait_synced(10.0)
        return made

    def stop(self) -> None:
        for each in self._running:
            each.stop()

    def slices(self) -> list[Json]:
        return self.server.store.list(SLICES)

    def delete(self) -> None:
        for each in self.slices():
            self.server.store.delete(SLICES, each["metadata"]["name"])

    def verbs(self) -> list[str]:
        return [each.verb for each in self.server.requests.writes(SLICES)]


@pytest.fixture
def rig(server: ApiServer, api: ResourceApi) -> Iterator[SlicesRig]:
    made = SlicesRig(server, api)
    yield made
    made.stop()
