"""The doors of a process and the ledger between them, from their first moment on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from driver.devices.view import DoorView
from driver.door.registration import RegistrationChanged
from node.events import EventBus
from node.inventory.identity import IdentityStore
from node.inventory.loop import Inventory
from node.inventory.model import Device
from node.ledger.events import OfferChanged
from node.ledger.holds import HeldError
from node.offer import OfferedDevice
from node.rules import Doors, Rule
from node.values import replace
from ostler.agent.both_doors import AgentServices, BothDoors, ReadinessChanged
from ostler.agent.edges import Edges
from ostler.agent.event_log import EventLog
from ostler.agent.health_watch import HealthWatch
from ostler.agent.loading import KubeletFirst
from ostler.config.settings import InventorySettings, KubeletSettings, Settings
from ostler.metrics.counters import AgentMetrics
from plugin.registration import RegistrationBegun
from tests.making.events import heard
from tests.making.offered_devices import gpu, mig, snapshot

GPU = "nvidia.com/gpu"
WHOLE, PART, OTHER = gpu(1), mig(1, 0), gpu(2)


async def _for_ever() -> None:
    await asyncio.Event().wait()


class Never(KubeletFirst):
    """Nothing more is loaded."""

    async def turn(self) -> None:
        await _for_ever()


@asynccontextmanager
async def serving(folder: Path, *devices: Device, bus: EventBus | None = None) -> AsyncIterator[BothDoors]:
    """Doors that show these devices to a kubelet that is not there yet, so that nobody needed the books so far."""
    settings = replace(
        Settings(),
        rules=(Rule(GPU, door=Doors.PLUGIN),),
        state_dir=folder / "state",
        kubelet=KubeletSettings(folder / "device-plugins", folder / "plugins_registry"),
        inventory=InventorySettings(recorded=folder),
    )
    edges, found = Edges(), snapshot(*devices)
    bus, events = bus or EventBus(), EventLog(edges)
    health = HealthWatch(settings, (), bus, edges, events)
    health.observe(found)
    around = AgentServices(
        events=events,
        metrics=AgentMetrics(edges),
        edges=edges,
        bus=bus,
        inventory=Inventory((), IdentityStore(None), bus, clocks=edges),
        health=health,
        first=Never(),
    )
    doors = BothDoors(settings, (), around)
    async with asyncio.TaskGroup() as group:
        doors.publisher.submit(found)
        ending = asyncio.create_task(doors.serve(group, relieves=False))
        await asyncio.wait_for(ending, 120)
        keeping = group.create_task(_for_ever())
        yield doors
        keeping.cancel()
        for task in tuple(group._tasks):
            task.cancel()


def offered(device: Device) -> list[OfferedDevice]:
    return [OfferedDevice(str(device.uuid), device, healthy=True)]


async def test_the_first_allocate_is_answered_by_books_that_know_what_overlaps(short_dir: Path) -> None:
    async with serving(short_dir, WHOLE, PART, OTHER) as doors:
        assert doors.holds_status() is None, "nobody had to know so far"
        with pytest.raises(HeldError, match="by a pod, possibly: the kubelet has not reported"):
            doors.take(GPU, offered(PART))
        doors.take(GPU, offered(OTHER))
        status = doors.holds_status()
        assert status is not None
        assert status.by_plugin == 0, "what is shown follows in a moment"
        assert [hold.device for hold in doors.holds_view()._books.ledger.all] == [OTHER.name]


async def test_an_allocate_waits_until_the_ledger_is_loaded_which_begins_with_the_registration(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, loaded = asyncio.Event(), asyncio.Event()
    names: list[str] = []

    async def held(*wanted: str) -> None:
        names.extend(wanted)
        begun.set()
        await loaded.wait()

    monkeypatch.setattr("ostler.agent.both_doors.load", held)
    async with serving(short_dir, WHOLE, OTHER) as doors:
        assert not names, "nothing is loaded before the kubelet is called"
        doors._plugin.bus.publish(RegistrationBegun(GPU))
        await asyncio.wait_for(begun.wait(), 60)
        assert "node.ledger.bookkeeping" in names
        doubt = doors.doubted(GPU, offered(OTHER))
        assert doubt is not None
        assert doors.holds_status() is None
        loaded.set()
        await asyncio.wait_for(doubt, 60)
        doors.take(GPU, offered(OTHER))
        assert [hold.device for hold in doors.holds_view()._books.ledger.all] == [OTHER.name]


async def test_a_door_that_was_announced_is_opened_also_where_the_last_claim_has_just_gone(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the agent would never be ready: nothing but a reload looks again whether that door is needed."""
    opened = asyncio.Event()
    left = short_dir / "state" / "claims" / "uid.json"

    class Door:
        def __init__(self, *_: object, **__: object) -> None:
            opened.set()

        async def run(self, _: object) -> None:
            """It has nothing to do."""

        def waiting_for(self) -> tuple[str, ...]:
            return ()

        def rules_of_plugin_door(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
            return rules

        def decide(self, *_: object) -> SimpleNamespace:
            """It offers nothing."""
            return SimpleNamespace(view=DoorView())

        def read_reservations(self, *, at_once: bool) -> None:
            """There are none."""

        def show(self, _: object) -> None:
            """Nothing is shown."""

        at_scheduler = contested = made = frozenset[str]()
        unmovable = ""

    async def meanwhile(*names: str) -> None:
        if "ostler.agent.dra_service" in names:
            left.unlink()

    monkeypatch.setattr("ostler.agent.dra_service.DraService", Door)
    monkeypatch.setattr("ostler.agent.both_doors.load", meanwhile)
    process = EventBus()
    told = heard(process, ReadinessChanged)
    async with serving(short_dir, WHOLE, bus=process) as doors:
        left.parent.mkdir(parents=True)
        left.write_text("{}")
        async with asyncio.TaskGroup() as group:
            await doors.keep(group)
            assert "the DRA door is being opened" not in doors.waiting_for()
            assert opened.is_set()
            bus = doors._opened_books().bus
            told.clear()
            bus.publish(RegistrationChanged())
            assert told, "readiness is looked at again"
            doors.publisher._wake()
            bus.publish(OfferChanged())
            assert doors.publisher._scheduled is not None, "both doors are shown anew"
            for task in tuple(group._tasks):
                task.cancel()
