"""What a withdrawal stands on: slices, claims of this node, a list of all claims, and a disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from driver.claims.model import ClaimReference, Unavailable
from driver.devices.view import DoorView, DraDevice
from driver.node_watch.node_claims import NamedDevice
from driver.publishing import withdrawal
from driver.publishing.shown import ShownDevices
from driver.publishing.withdrawal import Withdrawal
from kube.backoff import BackoffPolicy
from node.clocks import SystemClocks
from node.events import EventBus
from node.ledger.events import OfferChanged
from node.offer import Cause
from node.rules import Doors, Rule, Selector
from tests.making.devices import gpu
from tests.making.events import RecordedEvents
from tests.waiting import background, eventually

A, B = gpu(0).name, gpu(1).name
CLAIM = ClaimReference("team", "one", "uid-1")


class WithdrawalRig:
    """A node with two GPUs that claims were shown; ``doors``: those of the rules of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.doors = {A: Doors.DRA, B: Doors.DRA}
        self.withheld: set[str] = set()
        """What the view leaves out, whatever its rule; ``gone`` is not on the node, either."""
        self.gone: set[str] = set()
        self.free: frozenset[str] | None = frozenset({A, B})
        self.taken: dict[str, str] = {}
        self.named: list[NamedDevice] = []
        self.fault = ""
        self.asked: list[frozenset[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.events = RecordedEvents()
        self.changes = 0
        self.looks = 0
        self.shown = self.restarted()
        self.shown.cover([A, B])
        self.made = self.withdrawal()

    def restarted(self) -> ShownDevices:
        shown = ShownDevices(self.folder)
        assert shown.load() == ""
        return shown

    def withdrawal(self, quiet: float = 0.0, again: float = 0.02) -> Withdrawal:
        bus = EventBus()
        bus.subscribe(OfferChanged, self._changed)
        self.made = Withdrawal(
            self.shown,
            self._claims_naming,
            free=self._free,
            taken=lambda: self.taken,
            events=self.events,
            bus=bus,
            quiet=quiet,
            policy=BackoffPolicy(first=again, most=again),
            clocks=SystemClocks(random=lambda: 0.0),
        )
        return self.made

    def apply(self, **doors: Doors) -> None:
        """Other rules, and the view that they make."""
        self.doors |= {{"a": A, "b": B}[name]: door for name, door in doors.items()}
        shown = self.shown.among([A, B])
        rules = [Rule("nvidia.com/gpu", Selector(names=(name,)), door=door) for name, door in self.doors.items()]
        devices = []
        for number, (name, rule) in enumerate(zip((A, B), rules, strict=True)):
            if name in self.withheld:
                continue
            if rule.door is not Doors.PLUGIN:
                devices.append(DraDevice(gpu(number), rule, True))
            elif name in shown:
                devices.append(DraDevice(gpu(number), rule, False, "moving", Cause.MOVING))
        self.made.apply([gpu(n) for n in range(2) if gpu(n).name not in self.gone], rules, DoorView(tuple(devices)))

    async def looked(self) -> None:
        """Hand the view in once more, and return when that was looked at."""
        looks = self.looks
        self.apply()
        await eventually(lambda: self.looks > looks)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with background(self.made.run()):
            yield

    @asynccontextmanager
    async def leaving(self) -> AsyncIterator[None]:
        """Run while A leaves, which no slice offers any more."""
        self.free = frozenset()
        self.apply(a=Doors.PLUGIN)
        async with self.running():
            yield

    @asynccontextmanager
    async def listing(self) -> AsyncIterator[None]:
        """Run while A leaves, from when claims are being listed for it; they are listed when ``gate`` is set."""
        self.gate.clear()
        async with self.leaving():
            await eventually(lambda: self.asked)
            yield

    @asynccontextmanager
    async def asked_in_vain(self) -> AsyncIterator[None]:
        """Run while A leaves, from when claims were listed for it and one of them named it."""
        self.named = [NamedDevice(A, CLAIM)]
        async with self.leaving():
            await eventually(lambda: self.made.waiting_for()[A] == "claim team/one names it")
            yield

    @property
    def left(self) -> frozenset[str]:
        """What the next process would know."""
        return self.restarted().among([])

    def _free(self) -> frozenset[str] | None:
        self.looks += 1
        return self.free

    async def _claims_naming(self, devices: Collection[str]) -> list[NamedDevice]:
        self.asked.append(frozenset(devices))
        await self.gate.wait()
        if self.fault:
            raise Unavailable(self.fault)
        return [each for each in self.named if each.device in devices]

    def _changed(self, _: OfferChanged) -> None:
        self.changes += 1
        self.apply()


class OtherDevices:
    """Devices whose every change has slices written for a while."""

    def __init__(self, rig: WithdrawalRig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.seconds = 0.0
        monkeypatch.setattr(withdrawal, "LOOK", 0.001)
        rig.made._monotonic = lambda: self.seconds

    async def change(self, times: int) -> None:
        """One after the other changes, half a second after the last one did, and is written."""
        for _ in range(times):
            self.seconds += 0.5
            for free in (None, self.rig.free):
                self.rig.free = free
                await self.rig.looked()
