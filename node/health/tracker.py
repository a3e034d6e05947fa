"""The newest snapshot with a verdict on every device: the pure core of the keeper, which adds time and subscribers.

Invariants: an unchanged verdict is the very same value, and so is a device, so that nothing is published without a
change; a device that never had a finding costs one look-up a scan; generations grow with every change, also between two
scans, and equal the scans' own while health adds nothing.

A device whose link or fabric flaps is described as without it until that is over: schedulers read the attributes of a
NIC's link (up, state, speed) and the clique of a GPU, and each turn would otherwise be written to the API server,
although its health stays the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from node.health.eviction_limits import EvictionLimit, EvictionLimits, Sick
from node.health.finding import Verdict, judged
from node.health.findings import SCAN, Findings
from node.health.policy import NARROW, Policy
from node.health.signal import HealthEvent, Look, Trouble
from node.health.state import Health, HealthState
from node.health.track import end_by_reset, mark_of, note_resets
from node.health.wording import HealthChange
from node.inventory.model import AttributeValue, Device, DeviceKind, Snapshot, is_gone, sorted_attributes
from node.ledger.holds import wholes_of
from node.values import Value, replace, value

_LINK_TROUBLES = frozenset({Trouble.CARRIER, Trouble.PORT})
_WELL = Verdict(Health())


_MOMENTARY = ("linkUp", "operState", "linkSpeedMbps", "rdmaPortState", "rdmaRateGbps")

LinkFacts = Mapping[str, AttributeValue | None]


def link_facts(device: Device) -> LinkFacts:
    """The link's attributes as a scan found them."""
    found = {each.name: each.value for each in device.attributes}
    return {name: found.get(name) for name in _MOMENTARY}


def with_link_down(device: Device, down: LinkFacts | None) -> Device:
    """The device with its link down: as a scan found it then, or, if none has yet (None), as one probably would."""
    facts = _guessed(device) if down is None else down
    if link_facts(device) == facts:
        return device
    kept = [(each.name, each.value) for each in device.attributes if each.name not in facts]
    return replace(device, attributes=sorted_attributes([*kept, *facts.items()]))


def without_clique(device: Device) -> Device:
    """The GPU without its clique."""
    if device.attribute("clique") is None:
        return device
    return replace(device, attributes=tuple(each for each in device.attributes if each.name != "clique"))


def _guessed(device: Device) -> LinkFacts:
    facts = link_facts(device)
    if facts["linkUp"] is not True:
        return facts
    state = None if facts["operState"] is None else "down"
    return {**facts, "linkUp": False, "operState": state, "linkSpeedMbps": None}


@value
class Judgement(Value):
    """The result of a step. ``changed``: ``judged`` is a new snapshot."""

    changed: bool = False
    changes: tuple[HealthChange, ...] = ()
    eviction_limits: tuple[EvictionLimit, ...] = ()


NOTHING: Final = Judgement()
"""Of a look that changes nothing, not even what time will change."""


class HealthTracker:
    """``scanned``: the last scan; ``judged``: the same with verdicts; ``now`` is in Unix seconds everywhere."""

    def __init__(self, policy: Policy) -> None:
        self.findings = Findings(policy)
        self.eviction_limits = EvictionLimits(policy)
        self.scanned = Snapshot()
        self.judged = Snapshot()
        self._devices: dict[str, Device] = {}
        self._shown: dict[str, Device] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._wholes: dict[str, tuple[str, ...]] = {}
        self._parts: dict[str, list[str]] = {}
        self._sick: dict[str, Sick] = {}
        self._may_evict: dict[str, float] = {}
        """Since when each device would evict by the policy."""
        self._counts: Counter[DeviceKind] = Counter()
        """Devices that are present."""
        self._down: dict[str, LinkFacts] = {}
        self._observed = False
        self._base: Snapshot | None = None
        """The scan from which ``judged`` was made."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.findings.policy

    def verdict(self, device: Device) -> Verdict:
        """The verdict on a device, enforced or not."""
        return self._verdicts.get(device.name) or replace(_WELL, health=device.health)

    def shown(self, device: Device) -> Device:
        """The device as the doors see it."""
        return self._shown.get(device.name, device)

    def may_evict(self, kind: DeviceKind) -> tuple[str, ...]:
        """Devices of a kind that would evict by the policy; safe from any thread."""
        devices, names = self._devices, tuple(self._may_evict)
        return tuple(sorted(name for name in names if name in devices and devices[name].kind is kind))

    def restrained(self, kind: DeviceKind) -> tuple[str, ...]:
        """Devices of a kind that an eviction limit keeps from evicting."""
        return self.may_evict(kind) if self.eviction_limits.holds(kind) else ()

    def foretell(self, name: str) -> tuple[HealthChange, ...]:
        """What would change if the current findings were applied to this device."""
        found = []
        for each in (name, *sorted(self._parts.get(name, ()))):
            device = self._devices.get(each)
            if device is not None:
                verdict = self._judged(device)
                old = self.verdict(device).health.state
                if verdict.health.state is not old:
                    found.append(HealthChange(each, device.kind.value, old, verdict))
        return tuple(found)

    def observe(self, snapshot: Snapshot, now: float) -> Judgement:
        """Take in a scan."""
        self._observed = True
        before, self._devices = self._devices, {device.name: device for device in snapshot.devices}
        new = {name for name, device in self._devices.items() if before.get(name) is not device}
        self.scanned = snapshot
        if new or len(before) != len(self._devices):
            self._arrange(new, before)
        for name in new:
            device = self._devices[name]
            former = before.get(name)
            if former is not None and None not in (former.uuid, device.uuid) and former.uuid != device.uuid:
                self.findings.replaced(name)
            self.findings.scanned(device, now)
        touched = new | self._resets(now)
        self.findings.tidy(self._devices, now)
        return self._settle(touched | self.advance(now), now)

    def event(self, event: HealthEvent, now: float) -> Judgement:
        """Take in an event."""
        device = self._devices.get(event.device)
        if self.findings.event(event, device, mark_of(device, self.scanned), now) is None:
            return Judgement()
        return self._settle({event.device} | self.advance(now), now)

    def looked(self, look: Look, now: float) -> Judgement:
        """Take in a source's look."""
        if self._is_calm and not any(look.found.values()):
            return NOTHING  # As nearly all looks in the life of an agent.
        return self._settle(self.findings.looked(look, self._devices, now) | self.advance(now), now)

    @property
    def _is_calm(self) -> bool:
        """Whether nothing is known against any device, so that neither time nor a look without findings matters."""
        return not (self._sick or self._may_evict) and self.findings.is_empty and self.eviction_limits.is_idle

    def passed(self, now: float) -> Judgement:
        """Time passed."""
        due = {name for name, since in self._may_evict.items() if since + self.policy.pace.evict_after <= now}
        return self._settle(self.advance(now) | due, now)

    def shift(self, seconds: float) -> None:
        """Move all times: the clock jumped by that many seconds. The times shown for states stay."""
        self.findings.shift(seconds)
        self.eviction_limits.shift(seconds)
        self._may_evict = {name: since + seconds for name, since in self._may_evict.items()}

    def touched(self, names: Iterable[str], now: float) -> Judgement:
        """Judge these devices again: a person has changed something about them."""
        return self._settle({*names}, now)

    def use(self, policy: Policy, now: float) -> Judgement:
        """Follow another policy; the former one has judged what happened before."""
        self.findings.use(policy)
        self.eviction_limits.use(policy)
        return self._settle({*self._devices}, now)

    def advance(self, now: float) -> set[str]:
        """Let time pass; returns the devices that have a trouble less."""
        over = self.findings.advance(now)
        for name, ended in over.items():
            if end_by_reset(self.findings.tracks(name), ended):
                self.findings.advance(now)
        return {*over}

    def next_due(self) -> float | None:
        """When time alone will next change something."""
        dues = [since + self.policy.pace.evict_after for name, since in self._may_evict.items() if self._waits(name)]
        ends = [end for end in (self.findings.next_end(), self.eviction_limits.next_due()) if end is not None]
        return min([*dues, *ends], default=None)

    def _waits(self, name: str) -> bool:
        verdict = self._verdicts.get(name)
        return verdict is not None and not verdict.health.evicts and not self._restrained(name)

    def _arrange(self, new: set[str], before: dict[str, Device]) -> None:
        """Note parts, wholes and numbers of devices, and forget devices that no scan has any more."""
        for name in new:
            self._wholes[name] = wholes_of(self._devices[name])
        for name in before.keys() - self._devices.keys():
            for known in (self._wholes, self._verdicts, self._shown, self._sick, self._may_evict, self._down):
                known.pop(name, None)
        self._parts = {}
        for name, wholes in self._wholes.items():
            for whole in wholes:
                self._parts.setdefault(whole, []).append(name)
        self._counts = Counter(device.kind for device in self.scanned.devices if not is_gone(device))

    def _resets(self, now: float) -> set[str]:
        """End troubles that wait for a reset or a person if another device is in the place; returns these devices."""
        waiting = {name for name, track in self.findings.all_tracks() if track.waits}
        for name in waiting & self._devices.keys():
            device = self._devices[name]
            if any(track.uuid and device.uuid and track.uuid != device.uuid for track in self.findings.tracks(name)):
                self.findings.replaced(name)
            else:
                note_resets(self.findings.tracks(name), device, self.scanned, now)
        return waiting & self._devices.keys()

    def _settle(self, touched: set[str], now: float) -> Judgement:
        """Judge these devices and their parts, then whether they may evict; make the snapshot if anything changed."""
        affected = {name for name in touched if name in self._devices}
        affected |= {part for name in touched for part in self._parts.get(name, ()) if part in self._devices}
        changes = [change for name in sorted(affected) if (change := self._judge(name, now)) is not None]
        put_on = self.eviction_limits.see(self._sick.values(), self._devices.keys(), self._counted(), now)
        affected |= {name for name in self._may_evict if self._evict(name, now)}
        dirty = False
        for name in affected:
            shown = self._show(self._devices[name])
            dirty = dirty or shown is not self._shown.get(name)
            self._shown[name] = shown
        return Judgement(self._snapshot(dirty=dirty), tuple(changes), put_on)

    def _counted(self) -> Counter[DeviceKind]:
        """Devices of each kind that are present or count as sick."""
        return self._counts + Counter(sick.kind for sick in self._sick.values() if is_gone(self._devices[sick.name]))

    def _judge(self, name: str, now: float) -> HealthChange | None:
        device, known = self._devices[name], self._verdicts.get(name)
        wholes = self._wholes[name]
        concerned = self.findings.concerns(name) or any(self.findings.concerns(whole) for whole in wholes)
        if not concerned and known is None and device.health.state is HealthState.HEALTHY:
            return None
        # A device that was never seen before has not changed.
        seen = name in self._shown
        verdict = self._judged(device)
        old = known.health if known is not None else (self._shown[name].health if seen else None)
        verdict = replace(verdict, health=_stamped(verdict, old, device.health, now))
        self._verdicts[name] = verdict
        self._note_sick(device, verdict, now)
        if old is None or not seen or not _is_news(old, verdict.health):
            return None
        by_hand = Trouble.PERSON in (old.cause, verdict.health.cause) and HealthState.UNKNOWN in (
            old.state,
            verdict.health.state,
        )
        return HealthChange(name, device.kind.value, old.state, verdict, by_hand)

    def _judged(self, device: Device) -> Verdict:
        findings = self.findings.of(
            device,
            [self._devices[whole] for whole in self._wholes[device.name] if whole in self._devices],
            [self._devices[part] for part in self._parts.get(device.name, ()) if part in self._devices],
        )
        return judged(findings, self.policy.evicting)

    def _note_sick(self, device: Device, verdict: Verdict, now: float) -> None:
        name = device.name
        # A gone device that evicts nobody was removed on purpose: it neither went bad nor is present.
        taken = is_gone(device) and not verdict.may_evict
        if verdict.health.state is HealthState.UNHEALTHY and not taken:
            self._sick[name] = Sick(name, device.kind, verdict.may_evict)
        else:
            self._sick.pop(name, None)
        # What is over already, and only held until it has been quiet, does not begin to evict; what evicts goes on, so
        # that a device that comes and goes is not a taint that does.
        if verdict.may_evict and (verdict.lasts or verdict.health.evicts):
            self._may_evict.setdefault(name, now)
        else:
            self._may_evict.pop(name, None)

    def _restrained(self, name: str) -> bool:
        return self.policy.dry_run or self.eviction_limits.holds(self._devices[name].kind)

    def _evict(self, name: str, now: float) -> bool:
        """Set whether the device evicts; returns whether that has changed."""
        verdict = self._verdicts[name]
        late = now - self._may_evict[name] >= self.policy.pace.evict_after
        # A device that evicts goes on; only an eviction limit or the end of its trouble stops it.
        evicts = (late or verdict.health.evicts) and not self._restrained(name)
        if evicts is verdict.health.evicts:
            return False
        self._verdicts[name] = replace(verdict, health=replace(verdict.health, evicts=evicts))
        return True

    def _show(self, device: Device) -> Device:
        """The device as the doors see it; the same object as before where nothing changed."""
        verdict = self._verdicts.get(device.name)
        shown = device
        if verdict is not None and not self.policy.dry_run:
            shown = self._with_clique(self._with_link(device))
            if verdict.health != shown.health:
                shown = replace(shown, health=verdict.health)
        known = self._shown.get(device.name)
        return known if known is not None and known == shown else shown

    def _with_link(self, device: Device) -> Device:
        name = device.name
        if device.attribute("linkUp") is False:
            self._down[name] = link_facts(device)
        if not any(track.active and track.kind in _LINK_TROUBLES for track in self.findings.tracks(name)):
            self._down.pop(name, None)
            return device
        return with_link_down(device, self._down.get(name))

    def _with_clique(self, device: Device) -> Device:
        apart = any(
            track.active and track.kind is Trouble.FABRIC and track.code != NARROW
            for track in self.findings.tracks(device.name)
        )
        return without_clique(device) if apart else device

    def _snapshot(self, *, dirty: bool) -> bool:
        """Make the judged snapshot, unless it would equal the current one; the first one is always made."""
        scanned, before = self.scanned, self.judged
        if not self._observed or (not dirty and scanned is self._base):
            return False
        first, self._base = self._base is None, scanned
        shown = self._shown
        devices = tuple([shown.get(device.name, device) for device in scanned.devices])
        if devices == scanned.devices and scanned.generation > before.generation:
            self.judged = scanned
            return True
        made = replace(scanned, devices=devices, generation=before.generation)
        if made == before and not first:
            return False
        self.judged = replace(made, generation=max(scanned.generation, before.generation + 1))
        return True


def _is_news(old: Health, new: Health) -> bool:
    """Whether an event is due: for another state, or another cause of the same state."""
    if old.state is not new.state:
        return True
    return new.state is not HealthState.HEALTHY and (old.cause, old.recovery) != (new.cause, new.recovery)


def _stamped(verdict: Verdict, old: Health | None, scanned: Health, now: float) -> Health:
    """The verdict's health with the time at which its state began.

    If only the scan has a finding, its own words stay; a device that was never seen before has the scan's time, too.
    """
    health = verdict.health
    if verdict.source == SCAN and not verdict.of and health.reason == scanned.reason:
        health = replace(health, cause=scanned.cause)
    if old is None:
        return scanned if replace(health, since=scanned.since) == scanned else replace(health, since=now)
    lasts = old.state is health.state
    stamped = replace(health, since=old.since if lasts else now, evicts=old.evicts and verdict.may_evict)
    return old if stamped == old else stamped
