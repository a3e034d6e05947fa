"""Keeps the health of this node's devices: takes in what sources report, and publishes the devices' health.

Only this part knows time and subscribers; pure values below it decide. It never waits and never writes: it gets a way
to be called later (the loop's ``call_later``), and publishes what must be written. Everything here belongs to the
thread of the event loop, but for ``entries``, ``eviction_limits`` and ``policy``, which metrics read in their own
thread. A call returns once subscribers have the changes. The bus should log what a subscriber raises, so that the
others still get the event.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Protocol

from node.events import EventBus, EventRecorder, EventType
from node.files import JsonValue
from node.health.eviction_limits import EvictionLimit
from node.health.finding import Verdict
from node.health.findings import Override
from node.health.memory import SavedHealth, to_data
from node.health.policy import Policy
from node.health.signal import HealthEvent, Look, Trouble
from node.health.state import Action, HealthState
from node.health.tracker import NOTHING, HealthTracker, Judgement
from node.health.wording import LIMIT_ON, LIMIT_RELEASED, HealthChange, named, stories
from node.health.xids import is_known
from node.inventory.model import Device, DeviceKind, Snapshot, SnapshotJudged
from node.metrics import Counter
from node.values import Value, value

log = logging.getLogger("ostler.health")

LONGEST_OVERRIDE = 366 * 24 * 3600.0
"""Most seconds for which an override may hold; without a limit it holds until it is cleared."""
_LONGEST_REASON = 200
_WRITTEN_WITHIN = 60.0
"""Seconds within which another instance has written what it saw, however slow its disk."""
_JUMP = 2.0
"""Seconds between the clock and the time that passed above which the clock counts as set; less is slewing."""
_SOONEST = 0.01
"""Seconds: what is due within them is done in the next turn of the loop, whatever the clocks' resolution is."""


@value
class HealthDataChanged(Value):
    """The data that must survive a restart has changed."""

    data: JsonValue


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not make the call."""


class Later(Protocol):
    """The loop's ``call_later``."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Call ``callback`` in that many seconds."""


class InvalidRequest(Exception):
    """A request of a person is invalid; the text names the field, its value and the fix."""


class NothingToClear(Exception):
    """The device has neither an override nor a trouble that waits for a person, or no eviction limit holds."""


@value
class DeviceEntry(Value):
    """A device with its verdict, and the state that the doors show (a different one in a dry run)."""

    device: Device
    verdict: Verdict
    shown: HealthState


class HealthMetrics:
    """The keeper's metrics."""

    def __init__(self) -> None:
        self.verdicts = Counter(
            "ostler_health_verdicts",
            "Changes of a device's state, by the trouble that caused them; no trouble for a recovery.",
            ("kind", "trouble", "health"),
        )
        self.events = Counter(
            "ostler_health_events",
            "Events that reported a trouble, such as XIDs.",
            ("trouble",),
            [(Trouble.XID.value,), (Trouble.ECC.value,)],
        )
        self.xids = Counter(
            "ostler_xids",
            "XIDs that NVIDIA's driver reported, by the action taken; other for numbers that its catalog lacks.",
            ("xid", "action"),
            [("other", Action.WARN.value)],
        )
        self.looks = Counter(
            "ostler_health_looks", "Looks at the health of devices, by the source of signals.", ("source",)
        )


class HealthKeeper:
    """See the module. Hears ``HealthEvent`` and ``Look`` on ``bus``; publishes ``SnapshotJudged``.

    ``clock`` gives Unix seconds, ``steady`` seconds that only grow: a clock that is set neither ends a quiet time nor
    prolongs it. ``boot`` identifies the boot (empty: unknown). Data that must survive a restart is published as
    ``HealthDataChanged``; ``recall`` restores it.
    """

    def __init__(
        self,
        policy: Policy,
        bus: EventBus,
        *,
        clock: Callable[[], float],
        later: Later,
        steady: Callable[[], float],
        events: EventRecorder,
        boot: str = "",
    ) -> None:
        self._tracker = HealthTracker(policy)
        self._bus = bus
        self._clock = clock
        self._steady = steady
        self._ahead = clock() - steady()
        self._later = later
        self._events = events
        self._boot = boot
        self._timer: Timer | None = None
        self._due = math.inf
        self._closed = False
        self.metrics = HealthMetrics()
        self._saved = self._data()
        bus.subscribe(HealthEvent, self.event)
        bus.subscribe(Look, self.looked)

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._tracker.policy

    @property
    def judged(self) -> Snapshot:
        """The newest snapshot with the verdicts in its devices' health; the very same value until something changes."""
        return self._tracker.judged

    @property
    def eviction_limits(self) -> tuple[tuple[EvictionLimit, tuple[str, ...]], ...]:
        """The eviction limits that hold, each with the devices that it keeps from evicting."""
        return tuple((limit, self._tracker.restrained(limit.kind)) for limit in self._tracker.eviction_limits.on)

    def recall(self, memory: SavedHealth | None) -> None:
        """Restore what the instance that served before has left; None if that is unknown.

        Call it when this instance begins to serve. If a standby has seen a trouble itself a while ago and the memory
        lacks it, somebody has cleared it meanwhile.
        """
        if memory is None:
            return
        findings, now = self._tracker.findings, self._now()
        names = findings.forget_waiting(now - _WRITTEN_WITHIN)
        for name, track in memory.tracks:
            findings.restore(name, track, now)
        # It was given later than now: the clock was set back since, which must not make an override last longer.
        findings.restore_overrides({name: each.shifted(min(0.0, now - each.at)) for name, each in memory.overrides})
        self._tracker.eviction_limits.restore(memory.eviction_limits, memory.excused, memory.ailing, now)
        names |= {name for name, _ in (*memory.tracks, *memory.overrides)} | self._tracker.advance(now)
        self._done(self._tracker.touched(names, now))

    def observe(self, snapshot: Snapshot) -> None:
        """Take in a scan, which is one more source for each device."""
        self._done(self._tracker.observe(snapshot, self._now()))

    def event(self, event: HealthEvent) -> None:
        """Take in an event of a device."""
        self.metrics.events.add(event.kind.value)
        if event.kind is Trouble.XID and event.code is not None:
            xid = str(event.code) if is_known(event.code) else "other"
            self.metrics.xids.add(xid, self.policy.action(event.kind, event.code).value)
            log.warning("XID", extra={"device": event.device, "xid": event.code, "instance": event.instance})
        self._done(self._tracker.event(event, self._now()))

    def looked(self, look: Look) -> None:
        """Take in a source's look at devices."""
        self.metrics.looks.add(look.source)
        outcome = self._tracker.looked(look, self._now())
        if outcome is not NOTHING:
            self._done(outcome)

    def use(self, policy: Policy) -> None:
        """Follow another policy from now on."""
        if policy != self.policy:
            self._done(self._tracker.use(policy, self._now()))

    def entries(self) -> tuple[DeviceEntry, ...]:
        """Every device with its health, in the snapshot's order."""
        return tuple(self._entry(device) for device in self._tracker.scanned.devices)

    def set(
        self, device: str, state: HealthState, reason: str, seconds: float | None = None, *, dry_run: bool = False
    ) -> tuple[str, ...]:
        """Override the health of a device (name or UUID); returns the changes, one line per device.

        ``seconds``: how long the override holds, None until it is cleared. ``dry_run``: only say what would change.
        Raises UnknownDevice and InvalidRequest.
        """
        name = self._tracker.scanned.find(device).name
        now = self._now()
        override = _override(state, reason, seconds, now)
        overrides = self._tracker.findings.overrides
        before = overrides.get(name)
        overrides[name] = override
        if dry_run:
            try:
                return self._lines(name, self._tracker.foretell(name))
            finally:
                _put_back(overrides, name, before)
        return self._concluded(name, self._tracker.touched((name,), now))

    def clear(self, device: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the override, and forget what only a person or a reset could end; returns the changes, one line per
        device.

        A condition that is still there stays. Raises UnknownDevice and NothingToClear.
        """
        name = self._tracker.scanned.find(device).name
        findings = self._tracker.findings
        if not findings.clearable(name):
            raise NothingToClear(self._why_not_cleared(name))
        if dry_run:
            return (f"{name}: {', '.join(findings.clearable(name))} would be cleared",)
        findings.clear(name)
        return self._concluded(name, self._tracker.touched((name,), self._now()))

    def release_eviction_limit(self, kind: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """Release a kind's limit: its sick devices may evict again. Raises InvalidRequest and NothingToClear."""
        if kind not in set(DeviceKind):
            raise InvalidRequest(f"kind: {kind!r} is not a kind of device; must be one of {', '.join(DeviceKind)}")
        eviction_limits, held = self._tracker.eviction_limits, DeviceKind(kind)
        if held not in {limit.kind for limit in eviction_limits.on}:
            raise NothingToClear(f"no eviction limit holds for kind {kind}; 'ostler health' shows those that do")
        restrained = self._tracker.may_evict(held)
        changes = (
            f"devices of kind {kind} may evict",
            *(f"{name}: evicts the pods that have it" for name in restrained),
        )
        if not dry_run:
            eviction_limits.release(held)
            self._done(self._tracker.touched(restrained, self._now()))
            text = f"{changes[0]} again: a person released the eviction limit"
            self._events.emit(EventType.NORMAL, LIMIT_RELEASED, text)
        return changes

    def close(self) -> None:
        """Stop: do nothing more when time passes."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _why_not_cleared(self, name: str) -> str:
        verdict = self._tracker.verdict(self._tracker.scanned.find(name))
        health = verdict.health
        if health.state is HealthState.HEALTHY:
            return f"{name} has no override and is healthy, so there is nothing to clear"
        if verdict.of and self._tracker.findings.clearable(verdict.of):
            return f"{name} has the trouble of {verdict.of}; clear it there: ostler health clear {verdict.of}"
        fix = f"to override it: ostler health set {name} healthy --reason ..."
        return f"{name} has no override, and its trouble is still there: {health.reason}; {fix}"

    def _entry(self, device: Device) -> DeviceEntry:
        return DeviceEntry(device, self._tracker.verdict(device), self._tracker.shown(device).health.state)

    def _concluded(self, name: str, outcome: Judgement) -> tuple[str, ...]:
        self._done(outcome)
        return self._lines(name, outcome.changes)

    def _lines(self, name: str, changes: Iterable[HealthChange]) -> tuple[str, ...]:
        lines = tuple(change.line for change in changes if change.is_of_state)
        return lines or (f"{name} stays {self._tracker.verdict(self._tracker.scanned.find(name)).health.state}",)

    def _done(self, outcome: Judgement) -> None:
        """Do what follows a step: save, notify subscribers, plan the next step; events for people come last."""
        data = self._data()
        if data != self._saved:
            self._saved = data
            self._bus.publish(HealthDataChanged(data))
        if outcome.changed:
            self._bus.publish(SnapshotJudged(self.judged))
        self._arm()
        # What cannot be said keeps nobody from the verdict.
        self._announce(outcome.changes, outcome.eviction_limits)

    def _announce(self, changes: Iterable[HealthChange], eviction_limits: Iterable[EvictionLimit]) -> None:
        changes = tuple(changes)
        for change in changes:
            if not change.is_of_state:
                continue
            health = change.new.health
            cause = "" if health.state is HealthState.HEALTHY else health.cause or Trouble.SCAN.value
            self.metrics.verdicts.add(change.kind, cause, health.state.value)
        announced = [change for change in changes if not change.by_hand]
        for kind, reason, message in stories(announced, dry_run=self.policy.dry_run):
            self._events.emit(kind, reason, message)
        for limit in eviction_limits:
            # None if all of them are over already and only wait for the end of the quiet time.
            who = named(self._tracker.may_evict(limit.kind))
            text = f"{limit.reason}: none of them costs a pod until 'ostler health release-eviction-limit {limit.kind}'"
            self._events.emit(EventType.WARNING, LIMIT_ON, f"{text}; {who}" if who else text)

    def _arm(self) -> None:
        now, due = self._now(), self._tracker.next_due()
        if self._closed or due == self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, math.inf
        if due is not None:
            self._due = due
            self._timer = self._later(max(_SOONEST, due - now), self._tick)

    def _tick(self) -> None:
        self._timer, self._due = None, math.inf
        if not self._closed:
            self._done(self._tracker.passed(self._now()))

    def _now(self) -> float:
        """Unix seconds; if the clock was set meanwhile, all times move with it."""
        now = self._clock()
        ahead = now - self._steady()
        jump, self._ahead = ahead - self._ahead, ahead
        if abs(jump) > _JUMP:
            log.info("the clock was set", extra={"seconds": round(jump)})
            self._tracker.shift(jump)
            if self._due is not math.inf:
                self._due += jump
        return now

    def _data(self) -> JsonValue:
        findings = self._tracker.findings
        return to_data(
            findings.all_tracks(), findings.overrides, self._tracker.eviction_limits, self._boot, self.policy.pace
        )


def _override(state: HealthState, reason: str, seconds: float | None, now: float) -> Override:
    """Raises InvalidRequest."""
    if state is HealthState.UNKNOWN:
        raise InvalidRequest("state: must be healthy, degraded or unhealthy, not unknown")
    text = " ".join(reason.split())
    if not text:
        raise InvalidRequest("reason: is empty; say why, for those who look at the device later")
    if len(text) > _LONGEST_REASON or not text.isprintable():
        raise InvalidRequest(f"reason: must have at most {_LONGEST_REASON} characters, all printable")
    if seconds is not None and not 0 < seconds <= LONGEST_OVERRIDE:
        raise InvalidRequest(
            f"duration: is {seconds:g} s; must be above 0 and at most 366 days; "
            "omit it to keep the override until it is cleared"
        )
    return Override(state, text, now, None if seconds is None else now + seconds)


def _put_back(overrides: dict[str, Override], name: str, before: Override | None) -> None:
    if before is None:
        del overrides[name]
    else:
        overrides[name] = before
