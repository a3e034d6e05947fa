"""Troubles and changes of health in sentences for people: one event per cause, whatever the number of devices. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from node.events import EventType
from node.health.finding import Verdict
from node.health.policy import RECOVERY_WORDS
from node.health.signal import Condition, HealthEvent, Trouble
from node.health.state import HealthState, Recovery
from node.health.xids import meaning
from node.values import Value, value

_SHOWN = 3
"""Most devices that a message names; it counts the others."""
_ENDS = {
    Recovery.NONE: "",
    Recovery.AUTOMATIC: "; recovers by itself after a quiet time",
    Recovery.RESET: "; recovers after a reset of the device",
    Recovery.REPLACE: "; recovers when a person clears it ('ostler health clear')",
    Recovery.PERSON: "; ends when the override is cleared ('ostler health clear') or expires",
}
_SENTENCES = {
    Trouble.ECC: "uncorrectable memory errors",
    Trouble.ROW_REMAP: "a memory row waits to be remapped at the next reset",
    Trouble.LOST: "it left the bus or does not answer its driver",
    Trouble.SRAM: "its SRAM has more uncorrectable errors than NVIDIA allows",
    Trouble.FABRIC: "the NVLink fabric does not serve it as it should",
    Trouble.NVLINK: "errors on its NVLinks",
    Trouble.THERMAL: "it is slowed down because of its temperature",
    Trouble.POWER: "it is slowed down because of its power",
    Trouble.CARRIER: "its link is down",
    Trouble.PORT: "its RDMA port is not active",
    Trouble.UNBOUND: "no driver is bound to it",
    Trouble.NODE: "its device node does not exist",
    Trouble.AER: "PCIe errors that were not correctable",
    Trouble.PCIE_LINK: "its PCIe link is narrower or slower than it should be",
    Trouble.MPS: "its MPS server ended",
    Trouble.SILENT: "its state is unknown: its driver does not answer",
}
REASONS = {
    HealthState.HEALTHY: (EventType.NORMAL, "DeviceHealthy"),
    HealthState.DEGRADED: (EventType.WARNING, "DeviceDegraded"),
    HealthState.UNHEALTHY: (EventType.WARNING, "DeviceUnhealthy"),
    HealthState.UNKNOWN: (EventType.WARNING, "DeviceUnknown"),
}
LIMIT_ON, LIMIT_RELEASED = "HealthBrakeOn", "HealthBrakeReleased"


def condition_reason(condition: Condition) -> str:
    """The condition in one sentence."""
    if condition.kind is Trouble.RECOVERY and not condition.detail:
        wanted = RECOVERY_WORDS.get(condition.code or 0, f"recovery action {condition.code}")
        return f"the driver asks for {wanted}"
    return condition.detail or _SENTENCES.get(condition.kind, condition.kind.value)


def event_reason(event: HealthEvent) -> str:
    """The event in one sentence."""
    if event.kind is not Trouble.XID or event.code is None:
        return condition_reason(Condition(event.kind, event.detail, event.code))
    words = meaning(event.code)
    return f"the driver reported XID {event.code}{f' ({words})' if words else ''}"


@value
class HealthChange(Value):
    """A device whose state, or the cause of its state, has changed.

    ``by_hand``: because somebody quiesced the driver or released it, which is an event of its own.
    """

    name: str
    kind: str
    old: HealthState
    new: Verdict
    by_hand: bool = False

    @property
    def is_of_state(self) -> bool:
        """Whether its state has changed, and not only the cause."""
        return self.old is not self.new.health.state

    @property
    def line(self) -> str:
        """The change in one line, for the person who has just made it."""
        reason = f" ({self.new.health.reason})" if self.new.health.reason else ""
        return f"{self.name} {self.old} -> {self.new.health.state}{reason}"


def stories(changes: Iterable[HealthChange], *, dry_run: bool) -> list[tuple[EventType, str, str]]:
    """The events for these changes: type, reason and message."""
    changes = tuple(changes)
    moved = {(change.name, change.new.health.state) for change in changes}
    roots: dict[_Story, list[str]] = {}
    parts: dict[tuple[str, HealthState], int] = {}
    for change in changes:
        health = change.new.health
        if change.new.of and (change.new.of, health.state) in moved:
            parts[change.new.of, health.state] = parts.get((change.new.of, health.state), 0) + 1
        else:
            story = _Story(health.state, health.reason, health.recovery, change.new.also, not change.is_of_state)
            roots.setdefault(story, []).append(change.name)
    found = []
    for story, names in roots.items():
        number = sum(parts.get((name, story.state), 0) for name in names)
        kind, word = REASONS[story.state]
        found.append((kind, word, f"{_sentence(story, names, number)}{_DRY if dry_run else ''}"))
    return found


_DRY = " (dry run: no pod is affected)"


@value
class _Story(Value):
    """What an event says about devices; ``still``: their state is unchanged, but has another cause."""

    state: HealthState
    reason: str
    recovery: Recovery
    also: tuple[str, ...]
    still: bool


def _sentence(story: _Story, names: list[str], parts: int) -> str:
    verb = "are" if len(names) > 1 or parts else "is"
    who = named(names)
    if parts:
        who = f"{who} and {parts} part{'s' if parts > 1 else ''} of {'them' if len(names) > 1 else 'it'}"
    if story.state is HealthState.HEALTHY:
        return f"{who} {verb} healthy again"
    still = "still " if story.still else ""
    also = f" (also: {'; '.join(story.also)})" if story.also else ""
    return f"{who} {verb} {still}{story.state}: {story.reason}{also}{_ENDS[story.recovery]}"


def named(names: Iterable[str]) -> str:
    """A few names, and how many more there are; empty for none."""
    names = tuple(names)
    more = len(names) - _SHOWN
    if more > 1:
        return f"{', '.join(names[:_SHOWN])} and {more} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
