"""The action for every trouble, and how long things take: the configuration's section ``health`` as a value. Pure.

Under every policy a device becomes unhealthy at once; recovery takes the times of ``HealthPace``.
"""

from __future__ import annotations

from dataclasses import field

from node.health.signal import Trouble
from node.health.state import Action
from node.health.xids import XidTable
from node.values import Value, value

PENDING, FAILED = 0, 1
"""``Condition.code`` of ``Trouble.ROW_REMAP``: waits for a reset, or could not be done."""
UNREACHABLE, APART, NARROW = 0, 1, 2
"""``Condition.code`` of ``Trouble.FABRIC``: routes to other GPUs fail; it is no part of its clique at the moment, and
works alone; or it is one with less bandwidth."""
CORRECTED = 0
"""``Condition.code`` of ``Trouble.AER`` for errors that were corrected, but too many."""

DEFAULT_ACTIONS: dict[Trouble, Action] = {
    Trouble.ECC: Action.DRAIN,
    Trouble.ROW_REMAP: Action.WARN,
    Trouble.LOST: Action.DRAIN,
    Trouble.SRAM: Action.REPLACE,
    Trouble.FABRIC: Action.DRAIN,
    Trouble.NVLINK: Action.WARN,
    Trouble.THERMAL: Action.WARN,
    Trouble.POWER: Action.WARN,
    Trouble.CARRIER: Action.DRAIN,
    Trouble.PORT: Action.DRAIN,
    Trouble.UNBOUND: Action.DRAIN,
    Trouble.NODE: Action.DRAIN,
    Trouble.AER: Action.DRAIN,
    Trouble.PCIE_LINK: Action.WARN,
    Trouble.MPS: Action.WARN,
}
"""The actions of kinds that have one action; the other kinds have tables or name the action themselves."""
_OTHERS: dict[tuple[Trouble, int | None], Action] = {
    (Trouble.ROW_REMAP, FAILED): Action.REPLACE,
    (Trouble.AER, CORRECTED): Action.WARN,
    (Trouble.FABRIC, APART): Action.WARN,
    (Trouble.FABRIC, NARROW): Action.WARN,
}
"""Conditions that keep their own action, whatever is set for their kind, unless that is ignore."""
_RECOVERY_ACTIONS = {None: Action.DRAIN, 3: Action.DRAIN, 5: Action.DRAIN}
"""By NVML's field 230: 3 ends peer-to-peer traffic, 5 recovers the IMEX domain, every other code is some kind of reset.

None is the event that the GPU is unavailable; the next look says more.
"""
RECOVERY_WORDS = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "an end of peer-to-peer traffic",
    4: "an end of peer-to-peer traffic and a reset of the GPU",
    5: "a recovery of the IMEX domain",
    6: "a reset of its PCIe bus",
    7: "a reboot of the system",
}
LEVELS = frozenset(
    {Trouble.LOST, Trouble.UNBOUND, Trouble.NODE, Trouble.CARRIER, Trouble.PORT, Trouble.SILENT, Trouble.RECOVERY}
)
"""Lasting troubles: an event of such a kind only precedes the look that sees it."""
MOMENTARY = frozenset({Trouble.ECC, Trouble.NVLINK, Trouble.AER})
"""Troubles that a growing counter shows: a condition in one look, which says as much as an event."""
BACK = frozenset({Trouble.LOST, Trouble.UNBOUND, Trouble.NODE})
"""Troubles that are over when the device is back: sources see that soon, and again every few seconds."""
ENDED_BY_RESETS = frozenset({Trouble.LOST, Trouble.UNBOUND, Trouble.RECOVERY, Trouble.ROW_REMAP})
"""Conditions that end only with a reset or another device."""


@value
class HealthPace(Value):
    """How long things take, in seconds; ``looks`` and ``flaps`` are numbers.

    A condition is over once so many ``looks`` in a row, ``apart`` from each other, have found it gone; an event that
    asks for ``warn`` or ``drain`` is over that long after the last one. A trouble that came ``flaps`` times within the
    ``window`` is flapping: each further time doubles its quiet time, up to ``longest``. A device evicts after
    ``evict_after``. ``together``: devices that go bad within it go bad at once.
    """

    looks: int = 3
    apart: float = 10.0
    warn: float = 600.0
    drain: float = 300.0
    flaps: int = 3
    window: float = 600.0
    longest: float = 600.0
    evict_after: float = 10.0
    together: float = 60.0

    @property
    def settle(self) -> float:
        """How long a condition must be gone: the time between the first and the last of the looks."""
        return (self.looks - 1) * self.apart

    @property
    def back(self) -> float:
        """How long a device that was missing or reset must be back."""
        return self.settle / 2

    def between(self, kind: Trouble) -> float:
        """The least time between two looks that both count."""
        return self.apart / 2 if kind in BACK else self.apart

    def event_quiet(self, kind: Trouble, action: Action) -> float:
        """How long after an event the trouble is over."""
        if kind in BACK or kind is Trouble.RECOVERY:
            return self.back
        if kind in LEVELS:
            return self.settle
        return self.warn if action is Action.WARN else self.drain

    def condition_quiet(self, kind: Trouble, action: Action) -> float:
        """How long a condition must be gone until it is over."""
        if kind is Trouble.SILENT:
            return 0.0
        if kind in BACK:
            return self.back
        return max(self.settle, self.event_quiet(kind, action)) if kind in MOMENTARY else self.settle


@value
class Policy(Value):
    """``actions``: over the defaults. ``evicting``: kinds of trouble that may cost pods that have the device.

    ``limits_evictions``: whether many devices that go bad at once keep each other from evicting. ``dry_run``: states
    are computed, reported and counted, but the doors do not show them. ``polled``: sources whose silence says nothing,
    so that their conditions end only after that many looks; the last report of other sources holds until the next one.
    """

    xids: XidTable = field(default_factory=XidTable)
    actions: tuple[tuple[Trouble, Action], ...] = ()
    evicting: frozenset[Trouble] = frozenset({Trouble.LOST})
    limits_evictions: bool = True
    dry_run: bool = False
    pace: HealthPace = field(default_factory=HealthPace)
    polled: frozenset[str] = frozenset({"nvml", "sysfs"})

    def action(self, kind: Trouble, code: int | None = None) -> Action:
        """The action for a trouble."""
        if kind is Trouble.XID and code is not None:
            return self.xids.action(code)
        given = dict(self.actions).get(kind)
        other = _OTHERS.get((kind, code))
        if other is not None and given is not Action.IGNORE:
            return other
        if given is not None:
            return given
        if kind is Trouble.RECOVERY:
            return _RECOVERY_ACTIONS.get(code, Action.RESET)
        return DEFAULT_ACTIONS.get(kind, Action.DRAIN)
