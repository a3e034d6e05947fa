"""What a trouble asks for, from nothing to another device: the one scale of the tables and of the configuration."""

from __future__ import annotations

from enum import StrEnum

from node.health.state import HealthState, Recovery


class Action(StrEnum):
    """What is done about a trouble, and what ends it."""

    IGNORE = "ignore"
    """Counted, and nothing else."""
    WARN = "warn"
    """Degraded, still given out; ends by itself after a quiet time."""
    DRAIN = "drain"
    """Unhealthy; ends by itself after a quiet time."""
    RESET = "reset"
    """Unhealthy until the device was reset or its driver loaded anew."""
    REPLACE = "replace"
    """Unhealthy until a person says otherwise."""

    @property
    def state(self) -> HealthState:
        """How a device is that has such a trouble."""
        return _STATES[self]

    @property
    def recovery(self) -> Recovery:
        """What ends it."""
        return _RECOVERIES[self]


_STATES = {
    Action.IGNORE: HealthState.HEALTHY,
    Action.WARN: HealthState.DEGRADED,
    Action.DRAIN: HealthState.UNHEALTHY,
    Action.RESET: HealthState.UNHEALTHY,
    Action.REPLACE: HealthState.UNHEALTHY,
}
_RECOVERIES = {
    Action.IGNORE: Recovery.NONE,
    Action.WARN: Recovery.AUTOMATIC,
    Action.DRAIN: Recovery.AUTOMATIC,
    Action.RESET: Recovery.RESET,
    Action.REPLACE: Recovery.REPLACE,
}
