"""The extender while something around it fails: the API server, another replica, itself, and many clients at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ostler.extender.binding import Binder
from ostler.extender.pods import facts_of
from ostler.extender.published import PublishedDevices
from ostler.extender.states import PodBinding
from ostler.extender.wire import ExtenderError
from scheduling.cells.pod import ANNOTATION_BIND_INFO, ANNOTATION_ISOLATION, BindInfo
from tests.making.extender import Replica, RunningExtender, cells, extender
from tests.making.extender_cluster import ClusterApi, Object, node, pod
from tests.waiting import until


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    with ClusterApi([node("n0"), node("n1")]) as made:
        yield made


@pytest.fixture
def running(api: ClusterApi, tmp_path: Path) -> Iterator[RunningExtender]:
    with extender(tmp_path, api, cells(2)) as made:
        yield made


def test_while_the_api_server_is_away_answers_come_from_what_is_known(running: RunningExtender) -> None:
    running.place(pod("p"), "n0", "n1")
    waiting = pod("q")
    running.add(waiting)
    assert running.filter(waiting, "n0", "n1")["NodeNames"] == ["n1"]
    running.api.go_away(is_away=True)
    until(lambda: running.process.watch.problems, "it knows that it is out of date")
    assert running.filter(waiting, "n0", "n1")["NodeNames"] == ["n1"]
    said = running.bind(waiting, "n1")
    assert said.startswith("Code: 500, Message: hivedscheduler: Platform Error: [uid-q(default/q)]: bind: cannot bind")
    running.api.delete("Pod", "p", "default")
    running.api.go_away(is_away=False)
    until(lambda: running.groups().keys() == {"default/q"}, "what has changed meanwhile is known")
    assert running.bind(waiting, "n1") == ""
    assert running.place(pod("r"), "n0", "n1") == "n0"


def test_a_replica_that_is_killed_before_it_hears_of_its_binding_is_succeeded_without_loss(
    api: ClusterApi, tmp_path: Path
) -> None:
    with extender(tmp_path, api, cells(2)) as first:
        placed = pod("p")
        first.add(placed)
        assert first.filter(placed, "n0", "n1")["NodeNames"] == ["n0"]
        api.hold(is_holding=True)
        assert first.bind(placed, "n0") == ""
        # Whatever the first one knew besides is of no use to the second.
        with extender(tmp_path, api, cells(2)) as second:
            assert second.groups()["default/p"]["physicalPlacement"] == {"n0": list(range(8))}
            api.hold(is_holding=False)
            assert second.place(pod("q"), "n0", "n1") == "n1"


def test_a_placement_that_was_not_bound_is_made_again_by_the_next_replica(api: ClusterApi, tmp_path: Path) -> None:
    placed = pod("p")
    with extender(tmp_path, api, cells(2)) as first:
        first.add(placed)
        assert first.filter(placed, "n0", "n1")["NodeNames"] == ["n0"]
    with extender(tmp_path, api, cells(2)) as second:
        assert second.groups() == {}
        assert "the pod is Waiting and not placed on any node" in second.bind(placed, "n0")
        assert second.place(pod("q"), "n0", "n1") == "n0"
        assert second.filter(placed, "n0", "n1")["NodeNames"] == ["n1"]


def test_a_replica_that_lost_the_lease_after_its_placement_binds_nothing() -> None:
    class NoClient:
        def get(self, path: str, *, attempts: int | None = None) -> Any:
            raise AssertionError(path)

        def create(self, path: str, body: Any, *, attempts: int | None = None) -> Any:
            raise AssertionError(path)

    binder = Binder(NoClient(), PublishedDevices(), Replica(is_active=False))
    with pytest.raises(ExtenderError) as refused:
        binder.bind(PodBinding(facts_of(pod("p")), BindInfo("n0", (0,), "G-NODE", ()), 8))
    assert refused.value.code == 503
    assert str(refused.value) == "[uid-p(default/p)]: bind: this replica is not the active one any more"


def test_no_device_is_given_twice_in_a_storm_of_clients(running: RunningExtender) -> None:
    faults: list[BaseException] = []

    def schedule(client: int) -> None:
        """Create, place and bind pods; delete every other one of those that found a place."""
        try:
            for number in range(8):
                each = pod(f"p{client}-{number}", 1 + number % 4)
                running.add(each)
                answer = running.filter(each, "n0", "n1")
                assert answer["Error"] == "", answer
                for name in answer["NodeNames"] or ():
                    assert running.bind(each, name) == ""
                    if number % 2:
                        running.api.delete("Pod", each["metadata"]["name"], "default")
        except BaseException as error:  # noqa: BLE001 - shown by the test
            faults.append(error)

    clients = [threading.Thread(target=schedule, args=(number,)) for number in range(6)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert faults == []
    running.settle()
    bound = {each["metadata"]["name"]: each for each in running.api.all("Pod") if each["spec"].get("nodeName")}
    given = [device for each in bound.values() for device in _devices(each)]
    assert given
    assert len(given) == len(set(given))
    until(lambda: running.groups().keys() == {f"default/{name}" for name in bound}, "exactly the bound pods have cells")


def _devices(body: Object) -> list[tuple[str, int]]:
    annotations = body["metadata"]["annotations"]
    info = yaml.safe_load(annotations[ANNOTATION_BIND_INFO])
    assert info["node"] == body["spec"]["nodeName"]
    assert annotations[ANNOTATION_ISOLATION] == ",".join(map(str, info["leafCellIsolation"]))
    return [(info["node"], number) for number in info["leafCellIsolation"]]
