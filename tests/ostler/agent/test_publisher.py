"""What is shown follows what is held, and a burst of claims is not as many offers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from driver.devices.view import DoorView, DraDevice
from node.events import EventType
from node.inventory.model import Device, Host, Snapshot
from node.ledger.bookkeeping import Bookkeeping
from node.ledger.holds import Hold, plugin_owner
from node.ledger.offer_context import NOTHING_HELD, OfferContext, by_place
from node.offer import Offer, OfferedDevice, ResourceOffer
from node.rules import Door, Doors, Rule, Selector
from node.topology.model import Topology
from node.values import replace
from node.virtual_functions import VirtualFunctionRule
from ostler.agent.publisher import Publisher, asks_for_reservations, crosses
from ostler.config.settings import Settings
from plugin.door import PluginDoor
from tests.making.offered_devices import gpu, mig, snapshot
from tests.waiting import background, eventually


class Window(PluginDoor):
    """Counts what it is given to show."""

    def __init__(self) -> None:
        self.shown = 0

    def apply(self, offer: Offer, topology: Topology | None = None, *, forget_missing: bool = False) -> None:
        self.shown += 1


class Books(Bookkeeping):
    """Counts how often both doors were shown something; ``context_now`` is what their offers are decided by."""

    def __init__(self) -> None:
        self.shows = 0
        self.context_now = NOTHING_HELD

    def place(self, snapshot: Snapshot, rules: Iterable[Rule]) -> None:
        pass

    def context(self, at_scheduler: frozenset[str], contested: frozenset[str]) -> OfferContext:
        return self.context_now

    def shown(self, offer: Offer) -> None:
        self.shows += 1


class _NoEvents:
    def emit(self, kind: EventType, reason: str, message: str) -> None:
        raise AssertionError(message)


@contextlib.asynccontextmanager
async def publishing(door: Window, state: Path, books: Books) -> AsyncIterator[Publisher]:
    settings = replace(Settings(), state_dir=state, rules=(Rule("nvidia.com/gpu", door=Doors.BOTH),))
    publisher = Publisher(settings, door, _NoEvents())
    publisher.follow_ledger(books)
    async with background(publisher.run()):
        yield publisher


async def test_changes_of_what_is_held_are_shown_together(tmp_path: Path) -> None:
    door, books = Window(), Books()
    async with publishing(door, tmp_path, books) as publisher:
        publisher.submit(Snapshot(1))
        await eventually(lambda: books.shows == 1, "the snapshot is shown")
        for _ in range(200):
            publisher.on_holds_changed()
        await eventually(lambda: books.shows == 2, "what is held is shown")
        publisher.on_holds_changed()
        await eventually(lambda: books.shows == 3, "the next change is shown, too")


async def test_a_new_snapshot_does_not_wait_for_what_is_held(tmp_path: Path) -> None:
    door, books = Window(), Books()
    async with publishing(door, tmp_path, books) as publisher:
        publisher.on_holds_changed()
        publisher.submit(Snapshot(1))
        await eventually(lambda: publisher.shown[0].generation == 1, "the snapshot is shown")
        await eventually(lambda: books.shows == 2, "what is held is shown after it")


async def test_the_kubelet_s_list_is_made_anew_only_when_it_would_be_another(tmp_path: Path) -> None:
    door, books = Window(), Books()
    async with publishing(door, tmp_path, books) as publisher:
        publisher.submit(snapshot(gpu(1)))
        await eventually(lambda: door.shown == 1, "the snapshot is shown")
        # A pod has it: the plugin door shows the same.
        hold = Hold(gpu(1).name, Door.PLUGIN, "team/pod", 1.0, plugin_owner(gpu(1).name))
        books.context_now = OfferContext(by_place([hold]))
        publisher.on_holds_changed()
        await eventually(lambda: books.shows == 2, "the other door may have to know")
        assert publisher.context == books.context_now
        assert door.shown == 1
        books.context_now = OfferContext(by_place([replace(hold, door=Door.DRA, owner="uid")]))
        publisher.on_holds_changed()
        await eventually(lambda: door.shown == 2, "a claim has it: it is withdrawn from pods")
        publisher.use(replace(Settings(), state_dir=tmp_path))
        publisher.submit(snapshot(gpu(1)))
        await eventually(lambda: door.shown == 3, "no rule offers it any more")


PLUGIN, DRA, BOTH = (Rule("nvidia.com/gpu", door=door) for door in (Doors.PLUGIN, Doors.DRA, Doors.BOTH))


@pytest.mark.parametrize(
    ("at_plugin", "at_dra", "together"),
    [
        ([(gpu(0), PLUGIN)], [(gpu(1), DRA)], False),
        ([(gpu(0), BOTH)], [(gpu(0), BOTH)], True),
        ([], [(gpu(0), BOTH)], True),
        # A rule has moved the device, which a pod of the old door still has.
        ([(gpu(0), DRA)], [(gpu(1), DRA)], True),
        ([(gpu(0), PLUGIN)], [(gpu(1), PLUGIN)], True),
        # A whole at one door, its parts at the other.
        ([(gpu(0), PLUGIN)], [(mig(0, 0), DRA)], True),
        ([(gpu(1), PLUGIN)], [(mig(0, 0), DRA), (gpu(0), DRA)], False),
        ([], [], False),
    ],
)
def test_a_change_of_holds_waits_longer_where_no_door_gives_what_the_other_has(
    at_plugin: list[tuple[Device, Rule]], at_dra: list[tuple[Device, Rule]], together: bool
) -> None:
    resources = [ResourceOffer("r", rule, (OfferedDevice("id", device, healthy=True),)) for device, rule in at_plugin]
    view = DoorView(tuple(DraDevice(device, rule, healthy=True) for device, rule in at_dra), Host(), 1)
    assert crosses(Offer(tuple(resources)), view) is together


@pytest.mark.parametrize(
    ("functions", "crosses", "asks"),
    [((), False, False), ((), True, True), ((VirtualFunctionRule(Selector(), 4),), False, True)],
)
def test_the_plugin_door_and_divided_hardware_need_to_know_at_once_what_is_reserved(
    functions: tuple[VirtualFunctionRule, ...], crosses: bool, asks: bool
) -> None:
    assert asks_for_reservations(Settings(virtual_functions=functions), crosses=crosses) is asks
