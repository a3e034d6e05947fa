"""When a pod goes, what parameters mean, and which names are made up."""

from __future__ import annotations

from collections.abc import Sequence
from http.client import HTTPException
from random import Random
from typing import Any

import pytest

from sandbox.apiserver.kinds import Catalogue
from sandbox.apiserver.routes import route
from sandbox.apiserver.server import ApiServer
from tests.sandbox.apiserver.web import PODS, ask, claim_of


def pod_on_a_node(server: ApiServer) -> None:
    server.store.create("pods", {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}})


def test_time_of_a_pod_that_ends_is_shortened_and_never_lengthened(server: ApiServer) -> None:
    pod_on_a_node(server)
    left = []
    for seconds in (30, 60, 5, 20):
        reply = ask(server, "DELETE", f"{PODS}/p", {"gracePeriodSeconds": seconds})
        left.append(reply.body["metadata"]["deletionGracePeriodSeconds"])
    assert left == [30, 30, 5, 5]


@pytest.mark.parametrize(("phase", "stays"), [("Running", True), ("Succeeded", False), ("Failed", False)])
def test_pod_that_has_ended_goes_at_once(server: ApiServer, phase: str, stays: bool) -> None:
    pod_on_a_node(server)
    server.store.patch("pods", "p", {"status": {"phase": phase}}, part="status")
    assert ask(server, "DELETE", f"{PODS}/p").code == 200
    assert bool(server.store.list("pods")) is stays


@pytest.mark.parametrize(("text", "on"), [("", True), ("1", True), ("maybe", True), ("0", False), ("FALSE", False)])
def test_parameter_is_on_unless_it_says_that_it_is_off(text: str, on: bool) -> None:
    query = {"allowWatchBookmarks": text, "watch": text}
    found = route(Catalogue(), "GET", ("api", "v1", "nodes"), query)
    assert found is not None
    assert found.flag("allowWatchBookmarks") is on
    assert found.verb == ("watch" if on else "list")


class Repeating(Random):
    """Makes each name twice."""

    def __init__(self) -> None:
        super().__init__(1)
        self._made = 0

    def choices(self, population: Sequence[Any], *_: object, k: int = 1) -> list[Any]:  # type: ignore[override]
        self._made += 1
        return [population[self._made // 2]] * k


def test_generated_name_that_is_taken_is_made_anew() -> None:
    with ApiServer(random=Repeating()) as server:
        made = {"metadata": {"generateName": "c-"}, "spec": claim_of()["spec"]}
        names = {server.store.create("resourceclaims", made)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3


def test_new_pod_is_pending_whatever_it_says(server: ApiServer) -> None:
    ask(server, "POST", PODS, {"metadata": {"name": "p"}, "status": {"phase": "Running"}})
    assert server.store.get("pods", "p")["status"] == {"phase": "Pending"}


def test_fault_may_take_the_server_down(server: ApiServer) -> None:
    server.faults.add("list", "race", then=server.down)
    with pytest.raises((OSError, HTTPException)):
        ask(server, "GET", PODS)
    server.up()
    assert ask(server, "GET", PODS).code == 200
