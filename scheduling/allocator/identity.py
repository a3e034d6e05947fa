"""The names of pools and devices in a cluster."""

from __future__ import annotations

from typing import NamedTuple


class PoolID(NamedTuple):
    """A pool: its name is unique only together with its driver's."""

    driver: str
    pool: str

    def __str__(self) -> str:
        """`driver/pool`."""
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    """A device: its name is unique in its pool."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        """`driver/pool/device`."""
        return f"{self.driver}/{self.pool}/{self.device}"


class SharedDeviceID(NamedTuple):
    """One share of a device that allows several allocations."""

    device: DeviceID
    share: str

    def __str__(self) -> str:
        """`driver/pool/device/share`."""
        return f"{self.device}/{self.share}"
