"""Health as a value: a state with its reason, since when, and what makes it better.

A flag would lose what people on call need (why, since when, what to do) and what the doors need (a degraded device is
still given out, an unknown one is not, and neither is a reason to evict). The value is pure; who sets it stamps the
time by ``carried``, so that a state that lasts keeps its beginning.
"""

from __future__ import annotations

from enum import StrEnum

from node.values import Value, replace, value


class HealthState(StrEnum):
    """How a device is, from best to worst known."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """Works, with a fault worth a look: still given out."""
    UNHEALTHY = "unhealthy"
    """Does not work: not given out."""
    UNKNOWN = "unknown"
    """Nothing can be said, because the driver is silent: not given out, and no reason to evict."""


class Recovery(StrEnum):
    """What ends a state that is not healthy."""

    NONE = "none"
    """There is nothing to recover from."""
    AUTOMATIC = "automatic"
    """By itself, once the cause has been gone for a quiet time."""
    RESET = "reset"
    """A reset of the device or a reload of its driver."""
    REPLACE = "replace"
    """Work on the hardware."""
    PERSON = "person"
    """A person who says so (``ostler health clear``), or the time that the person gave."""


@value
class Health(Value):
    """State, reason (one sentence, empty when healthy), since (Unix seconds) and recovery.

    ``cause``: the kind of trouble in one word (``xid``, ``lost``), empty when healthy or not told.
    ``evicts``: the policy lets this state cost pods that have the device (a taint NoExecute).
    """

    state: HealthState = HealthState.HEALTHY
    reason: str = ""
    since: float = 0.0
    recovery: Recovery = Recovery.NONE
    cause: str = ""
    evicts: bool = False

    @property
    def usable(self) -> bool:
        """Whether a device in this state may be given out."""
        return self.state in (HealthState.HEALTHY, HealthState.DEGRADED)

    def carried(self, previous: Health | None, now: float) -> Health:
        """This value with the time at which it began: that of ``previous`` if nothing changed, else ``now``."""
        if previous is not None and replace(previous, since=0.0) == replace(self, since=0.0):
            return previous
        return replace(self, since=now)
