"""The state of one evaluation, which the compiled closures pass on: units spent, device, loop variables.

Every closure has the form `run(frame) -> value` and charges for itself. Upstream counts after each step and stops as
soon as the limit is passed; steps of one unit are charged here several at a time, which gives the same sums: an
evaluation that passes the limit with such a sum has spent exactly one unit more than the limit.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduling.cel.device import CelDevice
from scheduling.cel.values import TooExpensive, Value

Run = Callable[["Frame"], Value]
"""A compiled node."""


class _Unset:
    """A value that has not been computed yet."""


UNSET = _Unset()


class Frame:
    """The state of one evaluation. `slots` holds the variables of comprehensions, by the number the planner gave."""

    __slots__ = ("cost", "device", "limit", "slots")

    def __init__(self, device: CelDevice, limit: int, slots: int) -> None:
        self.cost = 0
        self.limit = limit
        self.device = device
        self.slots: list[Value] = [UNSET] * slots


def charge(frame: Frame, units: int) -> None:
    """Spends units. Raises TooExpensive above the limit. The closures that run most often do this inline."""
    frame.cost += units
    if frame.cost > frame.limit:
        raise TooExpensive


def overdrawn(frame: Frame) -> TooExpensive:
    """The error for passing the limit within several units that are charged together."""
    frame.cost = frame.limit + 1
    return TooExpensive()
