"""Reports the devices' health to the kubelet: what, and when.

A stream opens with the complete list, gets a new one at every change, and repeats it well before the kubelet considers
it stale. Invariants:

- A report is repeated only while the inventory scans the devices. While the inventory hangs nothing is repeated, so its
  devices decay to unknown, and a new stream reports them as unknown.
- Soon after a stream opens, and after a predecessor has gone, the report is repeated, at growing intervals: kubelets up
  to 1.36 forget a driver's whole health when any stream of it ends, even if another one continues.

Health is not the offer: a device that is withheld because the node or the other door uses it, because it is pending
release or moves, or because its holder is unknown, is not ill, and its pod must not look as if it were.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from driver.devices.view import DoorView, DraDevice
from driver.door.registration import DraDoorObserver
from node.clocks import Clocks
from node.health.state import HealthState
from node.offer import Cause
from protos.drahealth.v1.api_pb2 import DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesResponse

TIMEOUT = 30
"""Seconds after which a report is stale; sent with every device, because the kubelet's default may change."""
EVERY = 10.0
"""Seconds between reports; two may be lost."""
FIRST_REPEAT = 0.5
"""Seconds after which the first report of a stream is repeated; doubled from then on, up to ``EVERY``."""
LONGEST = 1000
"""Bytes of a message; the kubelet cuts at 1024."""
_ILL = frozenset({Cause.HEALTH, Cause.GONE, Cause.LINK_DOWN, Cause.UNFIT})
SILENT = "ostler has not checked its devices for too long"


def device_report(pool: str, offered: DraDevice) -> DeviceHealth:
    """The report on one device, except its time."""
    if offered.device.health.state is HealthState.UNKNOWN:
        health = HealthStatus.UNKNOWN
    elif not offered.healthy and offered.cause in _ILL:
        health = HealthStatus.UNHEALTHY
    else:
        health = HealthStatus.HEALTHY
    # Why a device is withheld does not concern the pod that has it; that it is degraded does.
    concerns_pod = health != HealthStatus.HEALTHY or offered.healthy
    return _device_health(
        pool, offered.device.name, health, _cut(offered.reason if concerns_pod else offered.device.health.reason)
    )


def _device_health(pool: str, device: str, health: HealthStatus, message: str) -> DeviceHealth:
    return DeviceHealth(
        device=DeviceIdentifier(pool_name=pool, device_name=device),
        health=health,
        health_check_timeout_seconds=TIMEOUT,
        message=message,
    )


class HealthReports:
    """The devices' health and its streams. ``is_alive``: whether the inventory still scans the devices."""

    def __init__(
        self,
        pool: str,
        *,
        clocks: Clocks,
        is_alive: Callable[[], bool],
        observer: DraDoorObserver,
    ) -> None:
        self.streams = 0
        self._pool = pool
        self._clock = clocks.clock
        self._is_alive = is_alive
        self._observer = observer
        self._devices: list[DeviceHealth] | None = None
        self._version = 0
        self._repeats = 0
        self._ended = False
        self._changed = asyncio.Event()

    def apply(self, view: DoorView) -> None:
        """Report these devices from now on."""
        devices = [device_report(self._pool, offered) for offered in view.devices]
        if devices != self._devices:
            self._devices = devices
            self._version += 1
            self._notify()

    def repeat(self) -> None:
        """Report again, and once more soon: the kubelet may have forgotten the reported health."""
        self._repeats += 1
        self._notify()

    def end(self) -> None:
        """End every stream, including later ones."""
        self._ended = True
        self._notify()

    async def follow(self) -> AsyncGenerator[NodeWatchResourcesResponse, None]:
        """A report now, after every change and before it becomes stale, until the consumer stops.

        There is nothing to report before ``apply``.
        """
        sent, pause, repeats = 0, FIRST_REPEAT, self._repeats
        self.streams += 1
        self._observer.watched(self.streams)
        try:
            while not self._ended:
                changed = self._changed
                alive = self._is_alive()
                if self._devices is not None and (alive or sent != self._version):
                    sent = self._version
                    yield self._report(self._devices, alive=alive)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await changed.wait()
                pause = min(2 * pause, EVERY)
                if repeats != self._repeats:
                    repeats, pause = self._repeats, FIRST_REPEAT
        finally:
            self.streams -= 1
            self._observer.watched(self.streams)

    def _report(self, devices: list[DeviceHealth], *, alive: bool) -> NodeWatchResourcesResponse:
        if not alive:
            devices = [
                _device_health(self._pool, each.device.device_name, HealthStatus.UNKNOWN, SILENT) for each in devices
            ]
        report = NodeWatchResourcesResponse(devices=devices)
        now = int(self._clock())
        for each in report.devices:
            each.last_updated_time = now
        return report

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _cut(message: str) -> str:
    raw = message.encode()
    return message if len(raw) <= LONGEST else f"{raw[: LONGEST - 3].decode(errors='ignore')}..."
