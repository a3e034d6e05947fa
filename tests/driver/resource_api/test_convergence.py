"""Whatever happens to server and connection: what the reflector's handler knows becomes what the server has."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random

import pytest

from driver.resource_api.client import ResourceApi
from kube.backoff import BackoffPolicy
from kube.bodies import JsonObject, text_at
from kube.errors import KubeError
from kube.reflector import HandlerFailed, Reflector, ReflectorLimits
from sandbox.apiserver.server import ApiServer
from tests.making.resource_api import client_of, slice_named
from tests.waiting import until

QUICK = BackoffPolicy(first=0.005, most=0.02, longest=0.02)
SLICES = "resourceslices"


class Known:
    """A handler that keeps objects by name, and checks that it is told in order."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.at = 0
        self._count = 0
        self._calls = threading.Lock()

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        self._told(resource_version)
        self.versions = {
            text_at(one, "metadata", "name"): text_at(one, "metadata", "resourceVersion") for one in objects
        }

    def applied(self, body: JsonObject) -> None:
        version = text_at(body, "metadata", "resourceVersion")
        self._told(version)
        self.versions[text_at(body, "metadata", "name")] = version

    def deleted(self, body: JsonObject) -> None:
        self._told(text_at(body, "metadata", "resourceVersion"))
        self.versions.pop(text_at(body, "metadata", "name"), None)

    def bookmark(self, resource_version: str) -> None:
        self._told(resource_version)

    def _told(self, version: str) -> None:
        assert self._calls.acquire(blocking=False), "two calls at once"
        try:
            assert int(version) >= self.at, "told of something older"
            self.at = int(version)
            self._count += 1
            if self._count % 17 == 0:
                raise ValueError("now and then")
        finally:
            self._calls.release()


def disturb(server: ApiServer, random: Random) -> None:
    chance = random.random()
    if chance < 0.1:
        server.close_watches()
    elif chance < 0.2:
        server.close_watches(expired=True)
    elif chance < 0.3:
        server.forget_history()
    elif chance < 0.35:
        server.down()
        server.up()
    elif chance < 0.45:
        server.faults.add(random.choice(("watch", "list")), status=random.choice((410, 429, 500, 503)))


def act(server: ApiServer, random: Random) -> None:
    name = f"s{random.randrange(8)}"
    there = {text_at(one, "metadata", "name") for one in server.store.list(SLICES)}
    if name not in there:
        server.store.create(SLICES, slice_named(name, f"gpu-{random.randrange(99)}"))
    elif random.random() < 0.4:
        server.store.delete(SLICES, name)
    else:
        server.store.patch(SLICES, name, {"metadata": {"labels": {"changed": str(random.random())}}})


@pytest.mark.parametrize("seed", range(4))
def test_after_any_disturbance_the_handler_knows_what_the_server_has(seed: int) -> None:
    random = Random(seed)
    with ApiServer(bookmarks=0.05) as server:
        api = ResourceApi(client_of(server.url, attempts=1))
        known = Known()
        told: list[Exception] = []
        reflector = Reflector(
            api.slices(),
            known,
            random=lambda: 0.5,
            policy=QUICK,
            limits=ReflectorLimits(settled=0.05, page_size=3),
            on_failure=told.append,
        )

        def same() -> bool:
            return known.versions == {
                text_at(one, "metadata", "name"): text_at(one, "metadata", "resourceVersion")
                for one in server.store.list(SLICES)
            }

        reflector.start()
        for _ in range(150):
            act(server, random)
            if random.random() < 0.3:
                until(same)
            disturb(server, random)
        until(same)
        assert reflector.stop(10)
        assert reflector.status().lists > 5
        assert [error.__cause__ for error in told if isinstance(error.__cause__, AssertionError)] == []
        assert any(isinstance(error.__cause__, ValueError) for error in told)
        assert all(isinstance(error, (HandlerFailed, KubeError)) for error in told)
        api.close()
