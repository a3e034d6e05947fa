"""What is done about which trouble, and how long things take: the configuration's section ``health`` as a value. Pure.

Going bad is immediate whatever the policy; getting well takes the times of ``HealthPace``.
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
"""For kinds of trouble whose action is one word; those that are not here have tables or say it themselves."""
_OTHERS: dict[tuple[Trouble, int | None], Action] = {
    (Trouble.ROW_REMAP, FAILED): Action.REPLACE,
    (Trouble.AER, CORRECTED): Action.WARN,
    (Trouble.FABRIC, APART): Action.WARN,
    (Trouble.FABRIC, NARROW): Action.WARN,
}
"""What the one word for its kind does not mean, whoever says it, unless it is ignore."""
_RECOVERY_ACTIONS = {None: Action.DRAIN, 3: Action.DRAIN, 5: Action.DRAIN}
"""NVML field 230: let peers go (drain P2P), recover the IMEX domain; every other one is some kind of reset.

None is the event that the GPU is unavailable, of which the look that follows says more."""
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
"""What lasts: an event of such a kind only comes before the look that sees it."""
MOMENTARY = frozenset({Trouble.ECC, Trouble.NVLINK, Trouble.AER})
"""What counters tell by growing: a condition of one look, which says as much as an event."""
BACK = frozenset({Trouble.LOST, Trouble.UNBOUND, Trouble.NODE})
"""What is over when the device is back: whatever sees that sees it soon, and again every few seconds."""
ENDED_BY_RESETS = frozenset({Trouble.LOST, Trouble.UNBOUND, Trouble.RECOVERY, Trouble.ROW_REMAP})
"""Conditions that do not end before the device was reset, or is another one."""


@value
class HealthPace(Value):
    """How long things take, in seconds; ``looks`` and ``flaps`` are numbers.

    A condition is over once so many ``looks`` in a row, ``apart`` from each other, found it gone; an event that asks
    for ``warn`` or ``drain`` once so long after the last one. What came ``flaps`` times within the ``window`` is
    flapping: each further time doubles its quiet time, up to ``longest``. A device evicts after ``evict_after``.
    ``together``: devices that go bad within it go bad at once.
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
        """How long a device that was away or reset must be back."""
        return self.settle / 2

    def between(self, kind: Trouble) -> float:
        """The least time between two looks that both count."""
        return self.apart / 2 if kind in BACK else self.apart

    def event_quiet(self, kind: Trouble, action: Action) -> float:
        """How long after an event it is over."""
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
    are made, told and counted, and nobody is shown them. ``polled``: sources whose silence says nothing, so that a
    condition of theirs is over only after that many looks; what others told last holds until they tell something else.
    """

    xids: XidTable = field(default_factory=XidTable)
    actions: tuple[tuple[Trouble, Action], ...] = ()
    evicting: frozenset[Trouble] = frozenset({Trouble.LOST})
    limits_evictions: bool = True
    dry_run: bool = False
    pace: HealthPace = field(default_factory=HealthPace)
    polled: frozenset[str] = frozenset({"nvml", "sysfs"})

    def action(self, kind: Trouble, code: int | None = None) -> Action:
        """What is done about a trouble."""
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
