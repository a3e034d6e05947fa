"""The agent connects to the container runtime when a rule moves interfaces, and says why it cannot move them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from driver.nri.status import NriState
from node.ledger.events import OfferChanged
from node.ledger.ledger import Ledger
from node.rules import Doors, Rule
from node.values import replace
from ostler.agent.edges import Edges
from ostler.agent.pod_interfaces import PodInterfaces
from ostler.config.settings import DraSettings, Settings
from ostler.metrics.dra import InterfaceMetrics
from sandbox.nri import NriRuntime
from tests.making.events import RecordedEvents, heard
from tests.making.moved_interfaces import InterfaceNode
from tests.waiting import eventually

MOVES = Rule("example.com/nic", door=Doors.DRA, moves_interface=True)
STAYS = replace(MOVES, moves_interface=False)


class _Place:
    """A runtime that can be started, and the part of the agent that connects to it."""

    def __init__(self, root: Path) -> None:
        self.runtime = NriRuntime(root / "nri.sock", request_timeout=120.0, registration_timeout=120.0)
        self.events = RecordedEvents()
        self.ledger = Ledger()
        self.changes = heard(self.ledger.bus, OfferChanged)
        self.root = root

    def part(self, patience: float = 60.0) -> PodInterfaces:
        settings = Settings(state_dir=self.root / "state", dra=DraSettings(nri_socket=self.root / "nri.sock"))
        return PodInterfaces(
            settings,
            Edges(),
            events=self.events,
            ledger=self.ledger,
            reporter=InterfaceNode(self.root / "node"),
            observer=InterfaceMetrics(),
            links=None,
            patience=patience,
        )


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[_Place]:
    made = _Place(tmp_path)
    yield made
    await made.runtime.stop()


async def test_nothing_connects_until_a_rule_moves_interfaces(place: _Place) -> None:
    await place.runtime.start()
    part = place.part()
    running = asyncio.create_task(part.run())
    part.use([STAYS])
    await asyncio.sleep(0)
    assert part.is_decided
    assert part.status() is None
    part.use([STAYS, MOVES])
    await eventually(lambda: place.runtime.plugins == ["10-ostler"])
    await eventually(lambda: part.unmovable == "")
    assert part.is_decided
    assert place.changes
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_without_a_runtime_nothing_is_movable_and_an_event_says_why(place: _Place) -> None:
    part = place.part()
    running = asyncio.create_task(part.run())
    part.use([MOVES])
    socket = place.root / "nri.sock"
    why = (
        f"{socket} does not exist: the container runtime does not run, or its NRI is switched off; 'ostler doctor' "
        "says how to switch NRI on"
    )
    await eventually(lambda: part.unmovable == why)
    assert not part.is_decided
    assert place.events.of("InterfacesUnmovable") == [
        f"NICs of resources with moveInterface are not offered to claims: {why}"
    ]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_runtime_that_restarts_withdraws_nothing_and_one_that_stays_away_does(place: _Place) -> None:
    await place.runtime.start()
    part = place.part(patience=0.05)
    running = asyncio.create_task(part.run())
    part.use([MOVES])
    await eventually(lambda: part.unmovable == "")
    await place.runtime.stop()
    assert part.unmovable == "", "it is waited for"
    await eventually(lambda: "switch NRI on" in part.unmovable)
    status = part.status()
    assert status is not None
    assert status.state is NriState.ABSENT
    await place.runtime.start()
    await eventually(lambda: part.unmovable == "")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_short_absence_is_no_reason(place: _Place) -> None:
    await place.runtime.start()
    part = place.part(patience=3600.0)
    running = asyncio.create_task(part.run())
    part.use([MOVES])
    await eventually(lambda: part.unmovable == "")
    await place.runtime.stop()

    def is_away() -> bool:
        status = part.status()
        return status is not None and status.state is NriState.ABSENT

    await eventually(is_away)
    assert part.unmovable == ""
    assert place.events.of("InterfacesUnmovable") == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
