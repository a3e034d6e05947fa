"""The one decision about the version, among threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from driver.resource_api.lists import NEEDED, ServedVersion
from kube.bodies import JsonObject
from kube.errors import NotServed, Unreachable
from tests.waiting import until


class _Slow:
    """A client whose first answer waits until it is let go."""

    def __init__(self, *, fails: bool = False) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()
        self.version = "v1"
        self.fails = fails

    def get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        self.asked.append(path)
        assert self.go.wait(60)
        if self.fails:
            raise Unreachable("GET", path, "away", sent=False)
        if path.count("/") == 2:
            return {"versions": [{"version": self.version}]}
        return {"resources": [{"name": name} for name in NEEDED]}


def asked_by(threads: int, served: ServedVersion, client: _Slow) -> list[object]:
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(served.version())
        except Unreachable as error:
            answers.append(error.message)

    workers = [threading.Thread(target=ask) for _ in range(threads)]
    for worker in workers:
        worker.start()
    until(lambda: bool(client.asked))
    client.go.set()
    for worker in workers:
        worker.join(60)
    return answers


def test_many_threads_look_once() -> None:
    client = _Slow()
    assert asked_by(20, ServedVersion(client, "here"), client) == ["v1"] * 20
    assert len(client.asked) == 2


def test_those_who_wait_for_a_look_share_its_failure_and_the_next_one_looks_again() -> None:
    client = _Slow(fails=True)
    served = ServedVersion(client, "here")
    assert asked_by(20, served, client) == ["away"] * 20
    assert len(client.asked) <= 20
    client.fails = False
    assert served.version() == "v1"


def test_a_version_is_looked_for_again_only_by_the_first_who_misses_it() -> None:
    client = _Slow()
    client.go.set()
    served = ServedVersion(client, "here")
    assert served.version() == "v1"
    client.version = "v1beta2"
    assert served.instead_of("v1") == "v1beta2"
    before = len(client.asked)
    assert served.instead_of("v1") == "v1beta2"
    assert len(client.asked) == before


@pytest.mark.parametrize("versions", ["v2", "v1alpha3"])
def test_versions_that_are_not_known_are_not_spoken(versions: str) -> None:
    client = _Slow()
    client.go.set()
    client.version = versions
    with pytest.raises(NotServed):
        ServedVersion(client, "here").version()
