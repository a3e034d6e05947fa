"""What people may say of health and is refused."""

from __future__ import annotations


class HealthError(Exception):
    """A request about health cannot be met; the text says which and what to do."""


class DeviceUnknownError(HealthError):
    """No device has that name or UUID."""

    def __init__(self, device: str) -> None:
        super().__init__(f"there is no device {device!r} on this node; 'ostler devices' lists them")
        self.device = device


class BadWordError(HealthError):
    """What is said of a device cannot be meant."""


class NothingToClearError(HealthError):
    """There is nothing that a person could take back."""
