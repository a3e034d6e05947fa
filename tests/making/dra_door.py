"""Doors, claims and views for tests, made by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from driver.claims.model import ClaimReference, PreparedDevice
from driver.devices.partitions import partitioned
from driver.devices.view import DoorView, DraDevice, door_offer, view_of
from driver.door.door import DraDoor
from driver.door.registration import DoorOptions, DraDoorObserver, RegistrationChanged
from node.clocks import SystemClocks
from node.events import EventBus
from node.health.state import Health
from node.inventory.model import Device, DeviceKind, Snapshot
from node.ledger.offer_context import NOTHING_HELD, OfferContext
from node.offer import Cause
from node.rules import Rule
from node.values import replace
from tests.making.events import RecordedEvents
from tests.waiting import eventually

DRIVER = "gpu.example.com"


class _Counted(DraDoorObserver):
    """An observer that keeps what it is told, as lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def called(self, method: str, version: str, code: str, seconds: float) -> None:
        self.lines.append(f"called {method} {version} {code}")

    def answered(self, method: str, claims: int, failed: int) -> None:
        self.lines.append(f"answered {method} {claims} {failed}")

    def asked(self) -> None:
        self.lines.append("asked")

    def registered(self) -> None:
        self.lines.append("registered")

    def failed(self) -> None:
        self.lines.append("failed")

    def watched(self, streams: int) -> None:
        self.lines.append(f"watched {streams}")


class FakeClaims:
    """Gives every claim one device named after ``name``; ``errors`` by UID, ``gates`` to wait at by UID."""

    def __init__(self, name: str = "one") -> None:
        self.name = name
        self.errors: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.prepared: list[str] = []
        self.unprepared: list[str] = []
        self.share_id: str | None = None

    async def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        self.prepared.append(claim.uid)
        if claim.uid in self.gates:
            await self.gates[claim.uid].wait()
        if claim.uid in self.errors:
            raise self.errors[claim.uid]
        name = f"{DRIVER}/claim={claim.uid}-{self.name}"
        return (PreparedDevice(("gpu",), "node-a", self.name, (name,), self.share_id),)

    async def unprepare(self, claim: ClaimReference) -> None:
        self.unprepared.append(claim.uid)
        if claim.uid in self.gates:
            await self.gates[claim.uid].wait()
        if claim.uid in self.errors:
            raise self.errors[claim.uid]


class Reported:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.prepared_claims: list[tuple[ClaimReference, tuple[PreparedDevice, ...]]] = []
        self.released_claims: list[ClaimReference] = []
        self.refused_claims: list[tuple[ClaimReference, str]] = []

    def refused(self, claim: ClaimReference, problem: str, reason: str) -> None:
        self.refused_claims.append((claim, problem))

    def prepared(self, claim: ClaimReference, devices: tuple[PreparedDevice, ...]) -> None:
        self.prepared_claims.append((claim, devices))

    def released(self, claim: ClaimReference) -> None:
        self.released_claims.append(claim)


def options(root: Path, **changes: object) -> DoorOptions:
    """Options with the kubelet's folders below ``root``, the registry made."""
    registry = root / "plugins_registry"
    registry.mkdir(mode=0o750, exist_ok=True)
    return DoorOptions(DRIVER, "node-a", root / "plugins", registry, **changes)  # type: ignore[arg-type]


class DoorSide:
    """One instance of the driver: its ``door`` and everything that the door talks to."""

    def __init__(self, door_options: DoorOptions, name: str = "one", alive: Callable[[], bool] = lambda: True) -> None:
        self.claims = FakeClaims(name)
        self.told = RecordedEvents()
        self.counted = _Counted()
        self.reported = Reported()
        self.changes = 0
        self.bus = EventBus()
        self.bus.subscribe(RegistrationChanged, self._changed)
        self.door = DraDoor(
            door_options,
            self.claims,
            events=self.told,
            observer=self.counted,
            clocks=SystemClocks(clock=lambda: 1_000_000.0, random=random.random),
            bus=self.bus,
            is_alive=alive,
            reporter=self.reported,
        )
        self.task: asyncio.Task[None] | None = None

    def _changed(self, _: RegistrationChanged) -> None:
        self.changes += 1

    def wait_for_kubelet(self, seconds: float) -> None:
        """Give the kubelet so long from now on to ask, and to give its verdict."""
        self.door._options = replace(self.door._options, patience=seconds)
        self.door._woken.set()

    async def end(self) -> None:
        """Cancel ``run`` and wait for its end."""
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @asynccontextmanager
    async def running(self) -> AsyncIterator[DoorSide]:
        """Run the door; what is left of it is gone afterwards."""
        self.task = asyncio.create_task(self.door.run())
        try:
            yield self
        finally:
            await self.end()
            await self.door.leave(0.0)

    async def serving(self) -> Path:
        """Wait until its sockets are there; the one for claims."""
        await eventually(lambda: self.door.status().registration_socket, "serving")
        socket = self.door.status().socket
        assert socket is not None
        return socket

    async def registered(self) -> None:
        """Wait until the kubelet has taken it."""
        await eventually(lambda: not self.door.waiting_for(), f"registered: {self.door.waiting_for()}")


def view(*devices: DraDevice) -> DoorView:
    """What the door shows."""
    return DoorView(devices, generation=1)


def offered(
    name: str,
    health: Health | None = None,
    *,
    healthy: bool = True,
    reason: str = "",
    cause: Cause | None = None,
) -> DraDevice:
    """A GPU as it is offered."""
    device = Device(name=name, kind=DeviceKind.GPU, vendor="nvidia", uuid=name, health=health or Health())
    return DraDevice(device, Rule("nvidia.com/gpu"), healthy, reason, cause)


def door_view(snapshot: Snapshot, rules: Iterable[Rule], context: OfferContext = NOTHING_HELD) -> DoorView:
    """What the DRA door shows of the snapshot."""
    rules = tuple(rules)
    parts = partitioned(snapshot, rules)
    return view_of(parts, door_offer(parts, rules, context), context, rules)
