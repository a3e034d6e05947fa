"""The health that drivers report of their devices, and how long a kubelet believes it.

A report counts from its receipt, whatever time it names, for the device's own timeout or 30 s. A device that is
missing from reports turns Unknown only after its timeout; the end of a stream forgets everything of the driver. The
state file is written when something changed; a failure to write it has no consequence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node.kubelet import dra_state
from node.kubelet.dra_state import HEALTH_FILE_NAME
from node.kubelet.gojson import KubeletStateError
from node.opening import KUBELET_STATE, read_regular
from sandbox.kubelet.dra.instance import HealthReport
from sandbox.kubelet.state_files import write_state

log = logging.getLogger("ostler.sandbox.kubelet")

SECOND: Final = 10**9
DEFAULT_TIMEOUT: Final = 30 * SECOND
"""Nanoseconds, as in the state file."""
MESSAGE_BYTES: Final = 1024
HEALTHS: Final[Mapping[int, str]] = {1: "Healthy", 2: "Unhealthy"}
UNKNOWN: Final = "Unknown"

DeviceKey = tuple[str, str]
"""Pool and device."""


@dataclass(frozen=True, slots=True)
class ReportedHealth:
    """The health of a device as a pod's status shows it: Healthy, Unhealthy or Unknown, and the driver's words."""

    health: str = UNKNOWN
    message: str = ""


class HealthCache:
    """Devices by driver; ``now`` counts seconds since the epoch."""

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self._path = folder / HEALTH_FILE_NAME
        self._now = now
        self._drivers: dict[str, dict[DeviceKey, dra_state.DeviceHealth]] = {}
        try:
            state = dra_state.decode_health(read_regular(self._path, KUBELET_STATE))
        except FileNotFoundError:
            return
        except (KubeletStateError, OSError) as error:
            log.warning("the health state is not usable, starting without", extra={"error": str(error)})
            return
        for driver, devices in state.items():
            self._drivers[driver] = {(device.pool, device.device): device for device in devices}

    def of(self, driver: str, pool: str, device: str) -> ReportedHealth:
        """The health of a device now."""
        entry = self._drivers.get(driver, {}).get((pool, device))
        if entry is None or self._stale(entry):
            return ReportedHealth()
        return ReportedHealth(entry.health, entry.message)

    def report(self, driver: str, report: HealthReport) -> frozenset[DeviceKey]:
        """Take over a report; the devices whose health, message or timeout changed, and those that turned stale."""
        known = self._drivers.setdefault(driver, {})
        reported = {(entry.pool, entry.device): entry for entry in self._entries(report)}
        changed = {key for key, entry in reported.items() if key not in known or _differ(known[key], entry)}
        known.update(reported)
        for key in known.keys() - reported.keys():
            if known[key].health != UNKNOWN and self._stale(known[key]):
                timeout = known[key].timeout
                known[key] = dra_state.DeviceHealth(*key, UNKNOWN, self._nanoseconds(), timeout)
                changed.add(key)
        if changed:
            self._write()
        return frozenset(changed)

    def forget(self, driver: str) -> None:
        """The driver's stream ended."""
        self._drivers.pop(driver, None)
        self._write()

    def _entries(self, report: HealthReport) -> list[dra_state.DeviceHealth]:
        now = self._nanoseconds()
        return [
            dra_state.DeviceHealth(
                pool=each.device.pool_name,
                device=each.device.device_name,
                health=HEALTHS.get(each.health, UNKNOWN),
                updated=now,
                timeout=max(0, each.health_check_timeout_seconds) * SECOND or DEFAULT_TIMEOUT,
                message=_cut(each.message),
            )
            for each in report.devices
        ]

    def _nanoseconds(self) -> int:
        return int(self._now() * SECOND)

    def _stale(self, entry: dra_state.DeviceHealth) -> bool:
        return self._nanoseconds() - entry.updated > (entry.timeout or DEFAULT_TIMEOUT)

    def _write(self) -> None:
        try:
            state = {driver: tuple(devices.values()) for driver, devices in self._drivers.items()}
            write_state(self._path, dra_state.encode_health(state), durable=False)
        except OSError as error:
            log.warning("the health state is not written", extra={"path": str(self._path), "error": str(error)})


def _differ(one: dra_state.DeviceHealth, other: dra_state.DeviceHealth) -> bool:
    return (one.health, one.message, one.timeout) != (other.health, other.message, other.timeout)


def _cut(message: str) -> str:
    data = message.encode()
    if len(data) <= MESSAGE_BYTES:
        return message
    return data[: MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
