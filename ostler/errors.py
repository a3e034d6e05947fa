"""Faults of the process itself."""

from __future__ import annotations


class ReloadFailed(Exception):
    """The configuration could not be read again; the text names every problem."""


class ResumeFailed(Exception):
    """Quiesce could not be ended: the file that holds it stays."""

    def __init__(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        super().__init__(f"{error.filename} cannot be removed ({reason}), the driver is left alone; remove it by hand")
        self.error = error


class DriverNotFree(Exception):
    """Quiesce is in force, and yet something of the driver is open in this process."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the driver is left alone from now on, but it is not free of this agent: {reason}")
        self.reason = reason
