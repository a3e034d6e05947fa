"""Health as a value, and the actions that lead to a state: one scale for the tables and the configuration.

A flag would lose what people on call need (why, since when, what to do) and what the doors need: a degraded device is
still allocated, an unknown one is not, and neither is a reason to evict. The value is pure; the code that sets it
stamps the time with ``carried``, so that a lasting state keeps its beginning.
"""

from __future__ import annotations

from enum import StrEnum

from node.values import Value, quick, replace, value


class HealthState(StrEnum):
    """How a device is, from best to worst known."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """Works, with a fault worth a look: the doors still allocate it."""
    UNHEALTHY = "unhealthy"
    """Does not work: the doors do not allocate it."""
    UNKNOWN = "unknown"
    """Unknown, because the driver does not answer: the doors do not allocate it, and it is no reason to evict."""


class Recovery(StrEnum):
    """How a state that is not healthy ends."""

    NONE = "none"
    """Nothing to recover from."""
    AUTOMATIC = "automatic"
    """By itself, once the cause has been gone for a quiet time."""
    RESET = "reset"
    """A reset of the device or a reload of its driver."""
    REPLACE = "replace"
    """Work on the hardware."""
    PERSON = "person"
    """A person who says so (``ostler health clear``), or the time that the person gave."""


@quick
@value
class Health(Value):
    """State, reason (one sentence, empty when healthy), since (Unix seconds) and recovery.

    ``cause``: the kind of trouble in one word (``xid``, ``lost``), empty when healthy or unknown. ``evicts``: the
    policy lets this state cost pods that have the device (a taint NoExecute).
    """

    state: HealthState = HealthState.HEALTHY
    reason: str = ""
    since: float = 0.0
    recovery: Recovery = Recovery.NONE
    cause: str = ""
    evicts: bool = False

    @property
    def usable(self) -> bool:
        """Whether the doors may allocate a device in this state."""
        return self.state in (HealthState.HEALTHY, HealthState.DEGRADED)

    def carried(self, previous: Health | None, now: float) -> Health:
        """This value with the time at which it began: that of ``previous`` if nothing changed, else ``now``."""
        if previous is not None and replace(self, since=previous.since) == previous:
            return previous
        return replace(self, since=now)


class Action(StrEnum):
    """The action for a trouble, and what ends it."""

    IGNORE = "ignore"
    """Counted, and nothing else."""
    WARN = "warn"
    """Degraded and still allocated; ends by itself after a quiet time."""
    DRAIN = "drain"
    """Unhealthy; ends by itself after a quiet time."""
    RESET = "reset"
    """Unhealthy until the device is reset or its driver reloaded."""
    REPLACE = "replace"
    """Unhealthy until a person says otherwise."""

    @property
    def state(self) -> HealthState:
        """The state of a device that has such a trouble."""
        return _STATES[self]

    @property
    def recovery(self) -> Recovery:
        """How it ends."""
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
