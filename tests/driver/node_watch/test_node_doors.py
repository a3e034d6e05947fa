"""The node's doors as an agent knows them: followed, remembered, told where they are wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from driver.node_watch.node_doors import HELD_BACK, INVALID, NOT_KEPT, NodeDoorsKeeper
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from kube.bodies import JsonObject
from kube.errors import NodeNotOurs
from node.clocks import SystemClocks
from node.door_policy import ANNOTATION, LABEL, NAME, KnownDoors, NodeDoors, NodeWords, Taints, TaintSupport, load, save
from node.events import EventBus, EventType
from node.ledger.events import OfferChanged
from node.rules import Doors, Rule
from sandbox.apiserver.server import GATES_OFF, ApiServer
from tests.making.resource_api import async_api_of, client_of
from tests.making.watched_node import DRIVER, NODE, SOON
from tests.waiting import background, eventually

RULES = (Rule("nvidia.com/gpu", door=Doors.BOTH),)


class _Told:
    """Events that were emitted, each with the thread it came from."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.threads: set[int] = set()

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        assert kind is EventType.WARNING
        self.threads.add(threading.get_ident())
        self.events.append((reason, message))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.store.create("nodes", {"metadata": {"name": NODE}})
        running.store.create("nodes", {"metadata": {"name": "node-2", "labels": {LABEL: "dra"}}})
        yield running


def write(server: ApiServer, label: str | None = None, annotation: str | None = None) -> None:
    metadata: JsonObject = {"labels": {LABEL: label}, "annotations": {ANNOTATION: annotation}}
    server.store.patch("nodes", NODE, {"metadata": metadata})


def relisted(server: ApiServer) -> bool:
    """Whether a list was needed once more; watches are ended until one of them was there to be ended."""
    server.close_watches(expired=True)
    return sum("sendInitialEvents" in each.query for each in server.requests.of("watch", "nodes")) > 1


@asynccontextmanager
async def keeping(
    api: AsyncResourceApi,
    state: Path,
    told: _Told,
    *,
    changed: Callable[[], None] = lambda: None,
    check: Callable[[JsonObject], None] | None = None,
    look_every: float = 3600.0,
    by_node: bool = True,
) -> AsyncIterator[NodeDoorsKeeper]:
    bus = EventBus()
    bus.subscribe(OfferChanged, lambda _: changed())
    keeper = NodeDoorsKeeper(
        api,
        DRIVER,
        NODE,
        state,
        events=told,
        clocks=SystemClocks(random=lambda: 0.5),
        check=check,
        bus=bus,
        policy=SOON,
        look_every=look_every,
        by_node=by_node,
    )
    async with background(keeper.run()):
        yield keeper


async def test_the_label_and_the_annotation_of_the_own_node_are_followed(
    server: ApiServer, api: AsyncResourceApi, tmp_path: Path
) -> None:
    news: list[int] = []
    told = _Told()
    async with keeping(api, tmp_path, told, changed=lambda: news.append(threading.get_ident())) as keeper:
        await eventually(lambda: keeper.features.support.kept)
        write(server, "dra")
        await eventually(lambda: keeper.doors == NodeDoors(Doors.DRA))
        write(server, "dra", "nvidia.com/gpu=plugin")
        await eventually(lambda: keeper.acting(RULES).rules[0].door is Doors.PLUGIN)
        count = len(news)
        server.store.patch("nodes", NODE, {"status": {"conditions": [{"type": "Ready"}]}}, part="status")
        write(server)
        await eventually(lambda: keeper.doors == NodeDoors())
        assert len(news) == count + 1
        assert keeper.failing == ()
    assert set(news) == {threading.get_ident()}
    assert told.events == []
    queries = [each.query["fieldSelector"] for each in server.requests.of(resource="nodes")]
    assert queries == [f"metadata.name={NODE}"]
    assert len(server.requests.of("create")) == 1


async def test_what_was_known_is_known_after_a_restart_without_the_api_server(
    server: ApiServer, api: AsyncResourceApi, tmp_path: Path
) -> None:
    write(server, "both", "a.b/c=dra")
    async with keeping(api, tmp_path, _Told()) as keeper:
        await eventually(lambda: keeper.features.support.kept and keeper.doors.every)
        await eventually(lambda: keeper.features.look.at)
        known = KnownDoors(NodeWords("both", "a.b/c=dra"), keeper.features.support, look=keeper.features.look)
        await eventually(lambda: load(tmp_path) == (known, ""))
    server.down()
    async with keeping(api, tmp_path, _Told(), look_every=0.01) as keeper:
        assert keeper.acting(RULES).rules[0].door is Doors.BOTH
        await eventually(lambda: len(keeper.failing) == 2)
        assert keeper.acting(RULES).rules[0].door is Doors.BOTH
        assert keeper.doors == NodeDoors(Doors.BOTH, (("a.b/c", Doors.DRA),))
        server.up()
        await eventually(lambda: keeper.failing == ())


async def test_a_node_that_is_made_anew_counts_from_then_on(
    server: ApiServer, api: AsyncResourceApi, tmp_path: Path
) -> None:
    write(server, "dra")
    async with keeping(api, tmp_path, _Told()) as keeper:
        await eventually(lambda: keeper.doors.every)
        server.store.delete("nodes", NODE)
        await eventually(lambda: relisted(server))
        assert keeper.doors == NodeDoors(Doors.DRA)
        server.store.create("nodes", {"metadata": {"name": NODE, "labels": {LABEL: "plugin"}}})
        await eventually(lambda: keeper.doors.every is Doors.PLUGIN)


async def test_what_means_nothing_is_told_once(server: ApiServer, api: AsyncResourceApi, tmp_path: Path) -> None:
    write(server, "DRA", "a.b/c=dra")
    told = _Told()
    async with keeping(api, tmp_path, told) as keeper:
        await eventually(lambda: told.events)
        write(server, "DRA", "a.b/c=plugin")
        await eventually(lambda: keeper.doors == NodeDoors(None, (("a.b/c", Doors.PLUGIN),)))
        (only,) = told.events
        assert only == (INVALID, keeper.problems[0])
        write(server)
        await eventually(lambda: keeper.problems == ())
        write(server, "DRA")
        await eventually(lambda: len(told.events) == 2)
    assert told.threads == {threading.get_ident()}


async def test_an_entry_that_fits_no_rule_is_told_once_and_again_when_it_comes_back(
    server: ApiServer, api: AsyncResourceApi, tmp_path: Path
) -> None:
    write(server, None, "a.b/c=dra")
    told = _Told()
    async with keeping(api, tmp_path, told) as keeper:
        await eventually(lambda: keeper.doors.named)
        for rules in (RULES, RULES, (Rule("a.b/c"),), RULES):
            keeper.announce(keeper.acting(rules))
    text = keeper.acting(RULES).problems[0]
    assert told.events == [(INVALID, text)] * 2


async def test_another_machines_node_says_nothing(server: ApiServer, api: AsyncResourceApi, tmp_path: Path) -> None:
    def check(_: JsonObject) -> None:
        raise NodeNotOurs(NODE, "machineID", "theirs", "ours", "/etc/machine-id")

    write(server, "dra")
    async with keeping(api, tmp_path, _Told(), check=check) as keeper:
        await eventually(lambda: any("is not this machine" in each for each in keeper.failing))
        assert keeper.doors == NodeDoors()


async def test_a_server_that_drops_taints_keeps_both_from_acting(tmp_path: Path) -> None:
    told = _Told()
    with ApiServer(gates=GATES_OFF) as server:
        api = async_api_of(server)
        async with keeping(api, tmp_path, told) as keeper:
            assert keeper.acting(RULES).rules[0].door is Doors.PLUGIN
            keeper.announce(keeper.acting(RULES))
            assert told.events == [], "nobody is bothered before the server was asked"
            await eventually(lambda: keeper.features.support.taints is Taints.DROPPED)
            assert keeper.acting(RULES).rules[0].door is Doors.PLUGIN
            assert "drops device taints" in keeper.acting(RULES).reasons[0]
            for _ in range(2):
                keeper.announce(keeper.acting(RULES))
            assert told.events == [(HELD_BACK, keeper.acting(RULES).reasons[0])]
        api.close()


async def test_the_server_is_asked_until_it_answers_and_then_no_more(
    server: ApiServer, api: AsyncResourceApi, tmp_path: Path
) -> None:
    server.faults.add("create", status=500, count=3)
    async with keeping(api, tmp_path, _Told(), look_every=0.01) as keeper:
        await eventually(lambda: "500" in keeper.features.support.text)
        await eventually(lambda: keeper.features.support.kept)
        await eventually(lambda: relisted(server))
        await asyncio.gather(*(api.call(lambda api: api.release()) for _ in range(20)))
        assert len(server.requests.of("create")) == 4


async def test_a_server_of_another_release_is_asked_anew(tmp_path: Path) -> None:
    with ApiServer(minor=36) as older, ApiServer(GATES_OFF, minor=35) as newer:
        urls = [older.url]
        api = AsyncResourceApi(lambda: made(urls[0]))
        async with keeping(api, tmp_path, _Told()) as keeper:
            await eventually(lambda: keeper.features.support.kept)
            assert keeper.features.support.server == "v1.36.0+sandbox, resource.k8s.io/v1"
            await eventually(lambda: load(tmp_path)[0].support.kept)
        api.close()
        urls[0] = newer.url
        api = AsyncResourceApi(lambda: made(urls[0]))
        async with keeping(api, tmp_path, _Told()) as keeper:
            assert keeper.features.support.kept
            await eventually(lambda: keeper.features.support.taints is Taints.DROPPED)
            assert keeper.features.support.server == "v1.35.0+sandbox, resource.k8s.io/v1"
        api.close()


def made(url: str) -> ResourceApi:
    return ResourceApi(client_of(url, connections=10, attempts=1))


async def test_who_doubts_has_the_server_asked_again(server: ApiServer, api: AsyncResourceApi, tmp_path: Path) -> None:
    async with keeping(api, tmp_path, _Told(), by_node=False) as keeper:
        await eventually(lambda: keeper.features.support.kept)
        assert len(server.requests.of("create")) == 1
        keeper.features.doubt()
        await eventually(lambda: len(server.requests.of("create")) == 2)
        assert keeper.features.support.kept


async def test_a_doubt_that_comes_while_the_server_is_asked_has_it_asked_again(
    server: ApiServer, api: AsyncResourceApi, tmp_path: Path
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def hold_back() -> None:
        asked.set()
        assert answers.wait(30)

    server.faults.add("create", "race", then=hold_back)
    async with keeping(api, tmp_path, _Told(), by_node=False) as keeper:
        await eventually(asked.is_set)
        keeper.features.doubt()
        answers.set()
        await eventually(lambda: len(server.requests.of("create")) == 2)
        await eventually(lambda: keeper.features.support.kept)


async def test_a_refusal_does_not_undo_what_is_known(server: ApiServer, api: AsyncResourceApi, tmp_path: Path) -> None:
    save(tmp_path, KnownDoors(NodeWords(), TaintSupport(Taints.KEPT, "kept", "v1")))
    server.faults.add("create", status=403, count=-1, message="no")
    async with keeping(api, tmp_path, _Told()) as keeper:
        await eventually(lambda: any("refuses the dry run" in each for each in keeper.failing))
        assert keeper.features.support.kept


async def test_a_record_that_cannot_be_read_or_written_is_told(
    server: ApiServer, api: AsyncResourceApi, tmp_path: Path
) -> None:
    (tmp_path / NAME).write_text("{}")
    told = _Told()
    async with keeping(api, tmp_path, told):
        reason, text = told.events[0]
        assert reason == NOT_KEPT
        assert text.startswith(
            f"the agent reads the doors of this node from the API server again: {tmp_path / NAME} is damaged"
        )
    told = _Told()
    async with keeping(api, tmp_path / "none", told) as keeper:
        await eventually(lambda: keeper.features.support.kept)
        await eventually(lambda: told.events)
        assert told.events[0] == (
            NOT_KEPT,
            (
                "a restart without the API server would not know the doors of this node: "
                f"{tmp_path / 'none' / NAME} cannot be written: No such file or directory"
            ),
        )


async def test_a_record_that_could_not_be_written_is_once_it_can_be_without_news(
    server: ApiServer, api: AsyncResourceApi, tmp_path: Path
) -> None:
    told, state = _Told(), tmp_path / "state"
    async with keeping(api, state, told) as keeper:
        await eventually(lambda: keeper.features.support.kept)
        await eventually(lambda: told.events)
        state.mkdir()
        await eventually(lambda: load(state)[0].support.kept, "written")
    assert [reason for reason, _ in told.events] == [NOT_KEPT]


async def test_a_node_whose_words_do_not_count_is_not_asked_for(
    server: ApiServer, api: AsyncResourceApi, tmp_path: Path
) -> None:
    save(tmp_path, KnownDoors(NodeWords("dra"), TaintSupport()))
    keeper = NodeDoorsKeeper(
        api,
        DRIVER,
        NODE,
        tmp_path,
        events=_Told(),
        clocks=SystemClocks(random=lambda: 0.5),
        by_node=False,
        bus=EventBus(),
    )
    async with background(keeper.run()):
        await eventually(lambda: keeper.features.support.kept)
        assert (keeper.doors, keeper.failing) == (NodeDoors(), ())
        await eventually(lambda: keeper.features.look.at)
        known = KnownDoors(NodeWords(), keeper.features.support, look=keeper.features.look)
        await eventually(lambda: load(tmp_path)[0] == known)
    assert server.requests.of(resource="nodes") == []
