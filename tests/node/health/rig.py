"""A keeper with time in the test's hand, and devices to keep."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from node.events import EventBus
from node.files import JsonValue
from node.health.finding import Verdict
from node.health.keeper import HealthDataChanged, HealthKeeper
from node.health.memory import SavedHealth
from node.health.policy import Policy
from node.health.signal import Condition, HealthEvent, Look, Trouble
from node.health.state import Health, HealthState
from node.inventory.model import (
    Attribute,
    Device,
    DeviceKind,
    Snapshot,
    SnapshotJudged,
    SourceState,
    SourceStatus,
    sorted_attributes,
)
from node.values import replace
from tests.making.events import RecordedEvents

START = 1_700_000_000.0
WELL = Health(since=START)
HEALTHY, DEGRADED, UNHEALTHY, UNKNOWN = HealthState
GONE = Health(UNHEALTHY, "gone from the PCI bus; it was removed or does not answer", cause="lost")


@dataclass
class _Handle:
    """A call that is due, unless it is cancelled."""

    due: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Time:
    """A clock that stands still until it is told; ``later`` is called when so much time has passed.

    ``now`` is what the clock shows: to change it is to set the clock, while no time passes.
    """

    now: float = START
    passed: float = 0.0
    calls: list[_Handle] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def steady(self) -> float:
        return self.passed

    def later(self, delay: float, callback: Callable[[], None]) -> _Handle:
        handle = _Handle(self.passed + delay, callback)
        self.calls.append(handle)
        return handle

    def forward(self, seconds: float) -> None:
        """Let time pass, with everything that is due on the way."""
        end = self.passed + seconds
        while True:
            self.calls = [call for call in self.calls if not call.cancelled]
            due = min((call for call in self.calls if call.due <= end), key=lambda call: call.due, default=None)
            if due is None:
                break
            self.calls.remove(due)
            self._pass(max(0.0, due.due - self.passed))
            due.callback()
        self._pass(end - self.passed)

    def _pass(self, seconds: float) -> None:
        self.passed += seconds
        self.now += seconds


class HealthRig:
    """A keeper that has seen a first scan; ``shown`` are the snapshots that it published after that."""

    def __init__(
        self,
        devices: Iterable[Device],
        policy: Policy | None = None,
        *,
        boot: str = "boot-1",
        memory: SavedHealth | None = None,
    ) -> None:
        self.time = Time()
        self.told = RecordedEvents()
        self.saved: list[JsonValue] = []
        self.bus = EventBus(logging.getLogger("ostler.health"))
        self.bus.subscribe(HealthDataChanged, lambda changed: self.saved.append(changed.data))
        self.keeper = HealthKeeper(
            policy or Policy(),
            self.bus,
            clock=self.time.clock,
            later=self.time.later,
            steady=self.time.steady,
            events=self.told,
            boot=boot,
        )
        if memory is not None:
            self.keeper.recall(memory)
        self.devices = {device.name: device for device in devices}
        self.generation = 0
        self.sources: tuple[SourceStatus, ...] = ()
        self.shown: list[Snapshot] = []
        self.scan()
        self.bus.subscribe(SnapshotJudged, lambda judged: self.shown.append(judged.snapshot))

    def scan(self, *changed: Device, gone: Iterable[str] = ()) -> None:
        """A scan that finds these devices changed, if it finds anything new."""
        before = dict(self.devices)
        for device in changed:
            if device != self.devices.get(device.name):
                self.devices[device.name] = device
        for name in gone:
            del self.devices[name]
        if self.devices != before or not self.generation:
            self.publish()

    def publish(self) -> None:
        """What the inventory does when a scan found something new."""
        self.generation += 1
        devices = tuple(self.devices[name] for name in sorted(self.devices))
        self.keeper.observe(Snapshot(self.generation, devices, self.sources))

    def scan_health(self, name: str, health: Health) -> None:
        """A scan finds a device so."""
        self.scan(replace(self.devices[name], health=replace(health, since=self.time.now)))

    def driver(self, state: SourceState, detail: str = "") -> None:
        """NVML is there, or waited for."""
        self.sources = (SourceStatus("nvml", state, detail),)
        self.publish()

    def xid(self, name: str, code: int, instance: tuple[int, int] | None = None) -> None:
        self.keeper.event(HealthEvent(name, Trouble.XID, self.time.now, code=code, instance=instance))

    def look(self, name: str, *found: Condition, source: str = "kernel") -> None:
        self.keeper.looked(Look(source, self.time.now, {name: found}))

    def poll(self, name: str, *found: Condition, times: int = 1, source: str = "nvml") -> None:
        """Looks of a source that looks every ten seconds; time passes after each of them."""
        for _ in range(times):
            self.look(name, *found, source=source)
            self.time.forward(10.0)

    def health(self, name: str) -> Health:
        """What doors are shown of a device."""
        device = self.keeper.judged.device(name)
        assert device is not None
        return device.health

    def state(self, name: str) -> HealthState:
        return self.health(name).state

    @property
    def evicting(self) -> list[str]:
        """Devices that cost pods now."""
        return [device.name for device in self.keeper.judged.devices if device.health.evicts]

    @property
    def limited(self) -> dict[DeviceKind, tuple[str, ...]]:
        """Kinds that cost no pod until somebody says so, and the devices by which they came to that."""
        return {limit.kind: names for limit, names in self.keeper.eviction_limits}

    def entry(self, name: str) -> Verdict:
        return next(entry.verdict for entry in self.keeper.entries() if entry.device.name == name)

    def states(self) -> dict[str, HealthState]:
        return {device.name: device.health.state for device in self.keeper.judged.devices}


def lost(*devices: Device) -> tuple[Device, ...]:
    """The same devices, as a scan shows them that does not find them on their bus."""
    return tuple(replace(device, health=GONE) for device in devices)


def gpu(number: int, *, mig: bool = False, uuid: str | None = None, driver: str = "570.1.2") -> Device:
    return Device(
        f"gpu-0000-{number:02x}-00-0",
        DeviceKind.GPU,
        "nvidia",
        uuid=uuid or f"GPU-{number}",
        pci_address=f"0000:{number:02x}:00.0",
        health=WELL,
        attributes=sorted_attributes([("driverVersion", driver), ("migEnabled", mig)]),
    )


def mig(whole: Device, instance: tuple[int, int]) -> Device:
    name = f"mig-{whole.name.removeprefix('gpu-')}-{instance[0]}-{instance[1]}"
    attributes = (Attribute("computeInstanceID", instance[1]), Attribute("gpuInstanceID", instance[0]))
    return Device(
        name,
        DeviceKind.MIG,
        "nvidia",
        uuid=f"MIG-{name}",
        pci_address=whole.pci_address,
        parent=whole.name,
        health=WELL,
        attributes=attributes,
    )


def nic(number: int, *, up: bool | None = True, part_of: Device | None = None) -> Device:
    facts = [("linkUp", up), ("operState", "up" if up else "down"), ("linkSpeedMbps", 100_000 if up else None)]
    if part_of is not None:
        facts += [("sriovFunction", "vf"), ("pfPciAddress", part_of.pci_address)]
    return Device(
        f"nic-0000-{number:02x}-00-0",
        DeviceKind.NIC,
        "mellanox",
        pci_address=f"0000:{number:02x}:00.0",
        health=WELL,
        attributes=sorted_attributes(facts),
    )


A, B, C, D = (gpu(number) for number in (0x1A, 0x1B, 0x1C, 0x1D))
"""GPUs that have nothing to do with each other."""
