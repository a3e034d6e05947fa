"""What an agent that restarts still knows of the API server: it asks nothing until it has a reason to."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from driver.node_watch.node_doors import NOT_KEPT, NodeDoorsKeeper
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from node.clocks import SystemClocks
from node.door_policy import NAME, LastLook, Taints, load
from node.events import EventBus, EventType
from node.ledger.events import OfferChanged
from node.rules import Rule
from sandbox.apiserver.server import GATES_OFF, ApiServer
from tests.making.resource_api import client_of
from tests.making.watched_node import DRIVER, NODE, SOON
from tests.waiting import background, eventually

LOOK_EVERY = 3600.0
DIVIDED = (Rule("nvidia.com/gpu", partitions=True),)


class CountingApi(ResourceApi):
    """Counts how often it was asked for the server's release."""

    releases = 0

    def release(self) -> str:
        self.releases += 1
        return super().release()


class _Process:
    """An agent's process with a client of its own; ``ahead``: seconds that its clock is ahead."""

    def __init__(self, server: ApiServer, state: Path, ahead: float = 0.0) -> None:
        self.blocking = CountingApi(client_of(server.url, connections=10, attempts=1))
        self.api = AsyncResourceApi(lambda: self.blocking)
        self.told: list[str] = []
        self.news = 0
        self.state = state
        self._server = server
        bus = EventBus()
        bus.subscribe(OfferChanged, self._changed)
        self.keeper = NodeDoorsKeeper(
            self.api,
            DRIVER,
            NODE,
            state,
            events=self,
            clocks=SystemClocks(clock=lambda: time.time() + ahead, random=lambda: 0.5),
            bus=bus,
            policy=SOON,
            look_every=LOOK_EVERY,
        )

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        assert kind is EventType.WARNING
        self.told.append(f"{reason}: {message}")

    def _changed(self, _: OfferChanged) -> None:
        self.news += 1

    @property
    def questions(self) -> tuple[int, int]:
        """How often the server was asked for its release by this process, and by a dry run by all of them."""
        return self.blocking.releases, len(self._server.requests.of("create"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[NodeDoorsKeeper]:
        async with background(self.keeper.run()):
            # It has its Node: whatever it asks when it starts, it has begun with.
            await eventually(lambda: len(self._server.requests.of("watch", "nodes")) > 0)
            yield self.keeper
        self.api.close()


async def settled(process: _Process) -> None:
    """Wait until everything that a start asks for is answered and on disk."""
    features = process.keeper.features
    await eventually(lambda: features.look.at)
    await eventually(lambda: load(process.state)[0].look == features.look)


async def first_process(server: ApiServer, state: Path) -> None:
    server.store.create("nodes", {"metadata": {"name": NODE}})
    process = _Process(server, state)
    async with process.running():
        await settled(process)
        assert process.questions == (1, 1)
    server.requests.clear()


async def looked(process: _Process) -> None:
    """Wait until the process knows whether it has to ask; later questions have a reason of their own."""
    await eventually(lambda: process.keeper.failing == ())
    await process.api.call(lambda api: api.node(NODE))


async def test_a_restart_asks_neither_question(server: ApiServer, tmp_path: Path) -> None:
    await first_process(server, tmp_path)
    process = _Process(server, tmp_path)
    async with process.running() as keeper:
        await looked(process)
        assert keeper.features.support.kept
        assert process.questions == (0, 0)
        assert process.news == 0


async def test_the_next_check_comes_when_it_would_have_come_without_the_restart(
    server: ApiServer, tmp_path: Path
) -> None:
    await first_process(server, tmp_path)
    process = _Process(server, tmp_path, ahead=LOOK_EVERY - 5)
    async with process.running() as keeper:
        await eventually(lambda: keeper.features.look.at > time.time() + LOOK_EVERY / 2)
        assert process.questions == (1, 0), "the release is the same, so the answer is"
        assert process.news == 0
        await settled(process)


@pytest.mark.parametrize("ahead", [LOOK_EVERY + 60, -60])
async def test_an_answer_that_is_old_or_of_the_future_is_asked_for_again(
    server: ApiServer, tmp_path: Path, ahead: float
) -> None:
    await first_process(server, tmp_path)
    process = _Process(server, tmp_path, ahead)
    async with process.running():
        await eventually(lambda: process.questions == (1, 1))


async def test_another_server_is_asked_at_once(server: ApiServer, tmp_path: Path) -> None:
    await first_process(server, tmp_path)
    with ApiServer(GATES_OFF, minor=35) as other:
        other.store.create("nodes", {"metadata": {"name": NODE}})
        process = _Process(other, tmp_path)
        async with process.running() as keeper:
            await eventually(lambda: keeper.features.support.taints is Taints.DROPPED)
            await eventually(lambda: load(tmp_path)[0].look == LastLook(), "there is nothing to trust")


async def test_a_server_that_drops_taints_is_asked_at_every_start(tmp_path: Path) -> None:
    with ApiServer(GATES_OFF) as server:
        server.store.create("nodes", {"metadata": {"name": NODE}})
        for count in (1, 2):
            process = _Process(server, tmp_path)
            async with process.running() as keeper:
                await eventually(lambda: len(server.requests.of("create")) == count)  # noqa: B023 - waited for
                await eventually(lambda: keeper.features.support.taints is Taints.DROPPED)
                await eventually(lambda: load(tmp_path)[0].support.taints is Taints.DROPPED)


async def test_a_doubt_undoes_what_was_remembered_also_for_the_next_process(server: ApiServer, tmp_path: Path) -> None:
    await first_process(server, tmp_path)
    server.faults.add("create", status=500, count=-1)
    process = _Process(server, tmp_path)
    async with process.running() as keeper:
        await looked(process)
        keeper.features.doubt()
        await eventually(lambda: "500" in keeper.features.unanswered)
        await eventually(lambda: load(tmp_path)[0].look == LastLook())
        assert keeper.features.support.kept, "the last answer counts meanwhile"
    server.faults.clear()
    server.gates(GATES_OFF)
    process = _Process(server, tmp_path)
    async with process.running() as keeper:
        await eventually(lambda: keeper.features.support.taints is Taints.DROPPED)


async def test_rules_with_partitions_ask_about_counters_once(server: ApiServer, tmp_path: Path) -> None:
    await first_process(server, tmp_path)
    for asked in ((1, 1), (0, 0)):
        process = _Process(server, tmp_path)
        process.keeper.acting(DIVIDED)
        async with process.running() as keeper:
            await eventually(lambda: keeper.features.counts)
            await looked(process)
            await settled(process)
            assert process.questions[0] == asked[0]
            assert bool(process.questions[1]) == bool(asked[1])
        server.requests.clear()


async def test_a_damaged_record_is_told_and_the_server_is_asked(server: ApiServer, tmp_path: Path) -> None:
    await first_process(server, tmp_path)
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes()[:-9])
    process = _Process(server, tmp_path)
    async with process.running():
        await settled(process)
        assert process.questions == (1, 1)
    (told,) = process.told
    assert told.startswith(f"{NOT_KEPT}: the agent reads the doors of this node from the API server again: {tmp_path}")


async def test_a_look_that_cannot_be_written_is_no_news(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    await first_process(server, state)
    process = _Process(server, state, ahead=LOOK_EVERY - 0.5)
    (state / NAME).unlink()
    state.rmdir()
    with caplog.at_level(logging.INFO, "ostler.doors"):
        async with process.running():
            await eventually(lambda: "the look at the API server is not remembered" in caplog.messages)
    assert process.told == []


async def test_a_look_that_is_withdrawn_is_written_until_it_is_on_the_disk(server: ApiServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    await first_process(server, state)
    process = _Process(server, state)
    async with process.running() as keeper:
        await looked(process)
        server.faults.add("create", status=500, count=-1)
        away = state.rename(tmp_path / "away")
        keeper.features.doubt()
        await eventually(lambda: any(NOT_KEPT in each for each in process.told))
        away.rename(state)
        await eventually(lambda: load(state)[0].look == LastLook())
