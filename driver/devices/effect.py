"""What a taint does to pods, in the API's words."""

from __future__ import annotations

from enum import StrEnum


class TaintEffect(StrEnum):
    """The effects that a sick device's taint may have."""

    NO_SCHEDULE = "NoSchedule"
    """No new claim gets the device; pods that have it run on."""
    NO_EXECUTE = "NoExecute"
    """Pods that have it are evicted as well."""
